"""A worker process that compiles kernels into the cache on disk for another process."""

from __future__ import annotations

from engine.backends.cpu.codegen.kernel_cache import keep
from engine.platform.worker_pool import serve


def main() -> None:
    """Compile the kernels that are asked for until the standard input ends."""
    serve(lambda job: keep(*job))
