"""StreamThread: runs plain Python generators, one at a time, on one thread of its own.

The thread rules of the program:

1. The GUI thread owns every QObject, item model and the database connection.
2. One StreamThread is the engine's: the model, its cache and its threads are touched only there, loading and unloading
   included. Downloads and folder scans have an instance of their own, so that a slow server never blocks the model.
3. A StreamThread is made, and its signals are connected, on the GUI thread, to `@Slot` methods of QObjects.
4. What crosses is frozen data of str, int, float and tuple: no tensor, no live exception.
5. Every event crosses at once as one queued signal; text is gathered on the GUI side before an item model changes.
6. CPU kernels release the GIL, or the window would freeze.
7. No `exec()` in coroutines; tokens never travel by asyncio.

Order of signals for each job: any number of `yielded`, then exactly one of `finished` and `failed`.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import QObject, Signal

from engine.errors import EngineError

__all__ = ["Job", "MakeGenerator", "StreamThread", "is_no_memory"]

log = logging.getLogger(__name__)

MakeGenerator = Callable[[threading.Event], Generator[Any, None, Any]]
"""Called on the worker's thread with the job's stop event; returns the generator to run there."""

UNEXPECTED = "Something went wrong inside Inglenook: {kind}. Your conversations are safe; please report the details."
NO_MEMORY = (
    "There was not enough memory to go on. Your chats and settings are as they were: end other programs, or choose a shorter context or a "
    "smaller model, and load the model again."
)
CLOSE_TIMEOUT_S = 20.0


def is_no_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the computer or on a GPU; PyTorch says so with a RuntimeError for some of its allocators."""
    words = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and (type(error).__name__ == "OutOfMemoryError" or "not enough memory" in words or "out of memory" in words)
    )


@dataclass(frozen=True, eq=False)
class Job:
    """The handle of one started generator. `stop` asks it to end soon; it still ends with `finished` or `failed`."""

    id: int
    make_generator: MakeGenerator
    stop_event: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Set the job's stop event; a job that has not begun yet never begins, and finishes with None."""
        self.stop_event.set()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self.stop_event.is_set()


class StreamThread(QObject):
    """Runs jobs in the order they were started.

    Signals (emitted on the worker's thread, so delivered queued):
        yielded(int job, object event): one event of the generator.
        finished(int job, object result): the generator returned.
        failed(int job, str sentence, str details): it raised; `details` is the traceback of a bug, else empty.
    """

    yielded = Signal(int, object)
    finished = Signal(int, object)
    failed = Signal(int, str, str)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._numbers = itertools.count(1)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._open: dict[int, Job] = {}
        self._closed = False
        # A daemon, so that a job that hangs in foreign code cannot keep the process alive after close() gave up on it.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def start(self, make_generator: MakeGenerator) -> Job:
        """Queue a generator. Raises RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("This StreamThread is closed; make a new one.")
        job = Job(next(self._numbers), make_generator)
        self._open[job.id] = job
        self._jobs.put(job)
        return job

    def close(self, last: MakeGenerator | None = None, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Stop all jobs, run `last` (to release things where they live), and wait for the thread to end.

        Returns False when a job did not end in time. Can be called again.
        """
        if not self._closed:
            self._closed = True
            for job in tuple(self._open.values()):
                job.stop()
            if last is not None:
                self._jobs.put(Job(next(self._numbers), last))
            self._jobs.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.error("thread %s did not end within %.0f s", self._thread.name, timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._run(job)
            self._open.pop(job.id, None)
            del job  # its generator may hold a model

    def _run(self, job: Job) -> None:
        if job.stopping:
            self.finished.emit(job.id, None)
            return
        # The one broad except of the program: whatever escapes here is a bug that would end the thread silently and leave
        # the window waiting for ever; so it is logged and told instead. The exception itself does not cross (rule 4).
        try:
            result = self._drive(job)
        except EngineError as error:
            log.warning("job %d: %s", job.id, error)
            self.failed.emit(job.id, str(error), "")
        except Exception as error:  # noqa: BLE001
            details = traceback.format_exc()
            log.error("job %d failed\n%s", job.id, details)
            self.failed.emit(job.id, NO_MEMORY if is_no_memory(error) else UNEXPECTED.format(kind=type(error).__name__), details)
        else:
            self.finished.emit(job.id, result)

    def _drive(self, job: Job) -> object:
        generator = job.make_generator(job.stop_event)
        try:
            while True:
                self.yielded.emit(job.id, next(generator))
        except StopIteration as end:
            return end.value
        finally:
            generator.close()
