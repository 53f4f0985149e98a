"""Compiles many kernels in worker processes, since each takes about a second with Python's lock held.

A worker is a fresh interpreter that reads pickled kernels from its standard input and writes the outcomes to
its standard output. Unlike `multiprocessing`, it does not run the program's main module again, so scripts
need no `__main__` guard.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.targets import BuildError, Built
from engine.platform.python_process import NO_WINDOW, python_command

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
    pool = _Pool(sent, max(1, min(count, len(sent)))) if sent else None
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


class _Pool:
    """Worker processes, each served by a thread. The kernel of a worker that failed comes back with None."""

    def __init__(self, jobs: Sequence[tuple[Kernel, bytes]], count: int) -> None:
        self.outcomes: queue.SimpleQueue[tuple[Kernel, Outcome | None]] = queue.SimpleQueue()
        self._jobs: queue.SimpleQueue[tuple[Kernel, bytes]] = queue.SimpleQueue()
        for job in jobs:
            self._jobs.put(job)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._closed, self._working = False, count
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve_one, name=f"compile-{i}", daemon=True) for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _serve_one(self) -> None:
        process = self._started()
        while not self._closed:
            try:
                kernel, job = self._jobs.get_nowait()
            except queue.Empty:
                break
            outcome = _asked(process, job) if process is not None else None
            self.outcomes.put((kernel, outcome))
            if outcome is None:
                process = None
                with self._lock:
                    self._working -= 1
                    others = self._working > 0
                if others:
                    return  # the others take the remaining jobs; the last worker returns them to the caller
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _started(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._closed:
                return None
            try:
                process = subprocess.Popen(
                    python_command(__name__),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    creationflags=NO_WINDOW,
                )
            except OSError:
                return None
            self._processes.append(process)
            return process

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.kill()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:  # flushing data for a worker that has ended
                        continue


def _asked(process: subprocess.Popen[bytes], job: bytes) -> Outcome | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(len(job).to_bytes(8, "little") + job)
        process.stdin.flush()
        outcome: Outcome = pickle.load(process.stdout)
    except (OSError, EOFError, pickle.UnpicklingError, ValueError):
        return None
    return outcome


def main() -> None:
    """Run a worker until its standard input ends."""
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the compiler must not mix with the answers
    while size := source.read(8):
        kernel, capabilities = pickle.loads(source.read(int.from_bytes(size, "little")))
        pickle.dump(outcome_of(kernel, capabilities), target, pickle.HIGHEST_PROTOCOL)
        target.flush()
