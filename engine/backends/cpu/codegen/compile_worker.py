"""A worker process that compiles functions into the caches on disk for another process."""

from __future__ import annotations

from engine.platform.worker_pool import serve


def main() -> None:
    """Call the functions that are sent until the standard input ends; answers True for each."""
    serve(lambda job: (job(), True)[1])
