"""Worker processes that do jobs one after another, for work that holds Python's lock, as compiling does.

A worker is a fresh interpreter that reads pickled jobs from its standard input and writes their outcomes to
its standard output. Unlike `multiprocessing`, it does not run the program's main module again, so scripts
need no `__main__` guard.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from engine.platform.python_process import NO_WINDOW, python_command

Key = TypeVar("Key")


class WorkerPool(Generic[Key]):
    """Workers that run `module`, whose `main` calls `serve`, each served by a thread.

    `jobs` are pairs of a key and a pickled job. A job that was not taken back by `take` comes to `outcomes`
    with its key: what `serve` answered, or None if its worker failed or none could be started.
    """

    def __init__(self, module: str, jobs: Sequence[tuple[Key, bytes]], count: int) -> None:
        self.outcomes: queue.SimpleQueue[tuple[Key, Any]] = queue.SimpleQueue()
        self._module = module
        self._jobs: queue.SimpleQueue[tuple[Key, bytes]] = queue.SimpleQueue()
        for job in jobs:
            self._jobs.put(job)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._closed, self._working = False, count
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve_one, name=f"worker-{i}", daemon=True) for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def take(self) -> Key | None:
        """Take back a job that no worker has begun, to do it here; None if there is none."""
        try:
            return self._jobs.get_nowait()[0]
        except queue.Empty:
            return None

    def close(self) -> None:
        """Kill the workers and wait for them."""
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

    def _serve_one(self) -> None:
        process = self._started()
        while not self._closed:
            try:
                key, job = self._jobs.get_nowait()
            except queue.Empty:
                break
            outcome = _asked(process, job) if process is not None else None
            self.outcomes.put((key, outcome))
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
                    python_command(self._module),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    creationflags=NO_WINDOW,
                )
            except OSError:
                return None
            self._processes.append(process)
            return process


def _asked(process: subprocess.Popen[bytes], job: bytes) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(len(job).to_bytes(8, "little") + job)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (OSError, EOFError, pickle.UnpicklingError, ValueError):
        return None


def serve(do: Callable[[Any], Any]) -> None:
    """In a worker: answer each job with do(job) until the standard input ends.

    Garbage is searched for between two jobs: within one, Python would search through all that a compiler
    holds again and again, a seventh of the time.
    """
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a compiler must not mix with the answers
    gc.disable()
    while size := source.read(8):
        job = pickle.loads(source.read(int.from_bytes(size, "little")))
        pickle.dump(do(job), target, pickle.HIGHEST_PROTOCOL)
        target.flush()
        gc.collect()
        gc.freeze()  # what is left, as modules, is not looked through again
