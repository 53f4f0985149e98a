"""Compiles many kernels in worker processes, since each takes about a second with Python's lock held."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.targets import BuildError, Built
from engine.platform.worker_pool import WorkerPool, serve

Outcome = dict[int, Built] | BuildError
MOST_WORKERS = 8


def compiled(
    kernels: Sequence[Kernel], capabilities: Sequence[int], processes: int | None = None
) -> Iterator[tuple[Kernel, Outcome]]:
    """Yield each kernel with its machine code for the capabilities it supports, or the error, in any order.

    Runs `processes` workers; the default is one for each processor, at most `MOST_WORKERS`, and at most one
    for every four kernels. If no worker can be started, or a kernel cannot be sent to one, it is compiled in
    this process. Workers end when the iterator is closed.
    """
    sent, here = [], []
    for kernel in kernels:
        job = _job(kernel, capabilities)
        if job is None:
            here.append(kernel)
        else:
            sent.append((kernel, job))
    count = processes or min(os.cpu_count() or 1, MOST_WORKERS, -(-len(sent) // 4))
    pool = WorkerPool(__name__, sent, max(1, min(count, len(sent)))) if sent else None
    try:
        for _ in sent:
            assert pool is not None
            kernel, outcome = pool.outcomes.get()
            if outcome is None:
                here.append(kernel)
            else:
                yield kernel, outcome
    finally:
        if pool is not None:
            pool.close()
    for kernel in here:
        yield kernel, outcome_of(kernel, capabilities)


def outcome_of(kernel: Kernel, capabilities: Sequence[int]) -> Outcome:
    """Compile one kernel in this process; errors are returned, not raised."""
    try:
        from engine.backends.cuda.codegen.build import build
    except ImportError as error:
        return BuildError(
            f'The parts that compile GPU kernels are not installed ({error}): pip install "inglenook[gpu]".'
        )
    from numba.core.errors import NumbaError

    try:
        return build(kernel, capabilities)
    except BuildError as error:
        return error
    # raised by the front end, by NVVM or the linker, or for a kernel's constants
    except (NumbaError, RuntimeError, ValueError) as error:
        return BuildError(f"The kernel {kernel.name} cannot be compiled: {str(error).strip()[:2000]}")


def _job(kernel: Kernel, capabilities: Sequence[int]) -> bytes | None:
    job = replace(kernel, constants=dict(kernel.constants)), tuple(capabilities)
    try:
        return pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def main() -> None:
    """Run a worker until its standard input ends."""
    serve(lambda job: outcome_of(*job))
