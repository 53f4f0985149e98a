"""StreamThread: runs plain Python generators, one at a time, on one thread of its own.

The thread rules of the program:

1. The GUI thread owns every QObject, item model and the database connection.
2. One StreamThread is the engine's: the model, its cache and its threads are touched only there, loading and
   unloading included. Downloads and folder scans have an instance of their own, so that a slow server never
   blocks the model.
3. A StreamThread is made, and its signals are connected, on the GUI thread, to `@Slot` methods of QObjects.
4. What crosses is frozen data of str, int, float and tuple: no tensor, no live exception.
5. Every event crosses as one queued signal, but for the many small ones of a reply (`gathered`): the first of
   them wakes the GUI thread, and those that come soon after cross together, one wake for each frame. How soon
   depends on what showing them costs, because a CPU engine uses every core: what the GUI thread takes is
   taken from it.
6. CPU kernels release the GIL, or the window would freeze.
7. No `exec()` in coroutines; tokens never travel by asyncio.

Order of signals for each job: any number of `yielded`, then exactly one of `finished` and `failed`, whatever
the job raises: foreign code raises what is no `Exception` as well (a panic of a Rust library). A thread that
dies is replaced by one that goes on with the queue.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Qt, QTimer, Signal, SignalInstance, Slot

from engine.errors import Cancelled, EngineError

__all__ = ["Coalescing", "Job", "MakeGenerator", "StreamThread", "is_no_memory"]

log = logging.getLogger(__name__)

MakeGenerator = Callable[[threading.Event], Iterator[Any]]
"""Called on the worker's thread with the job's stop event; returns the generator to run there."""


class Coalescing(NamedTuple):
    """Which events need not cross one by one, what makes one event of several, and which others may come
    with the next of them.
    """

    takes: Callable[[Any], bool]
    join: Callable[[list[Any]], Any]
    waits: Callable[[Any], bool] = lambda event: False


class _Crossing(NamedTuple):
    """A signal on its way to the GUI thread: an event of the job that others may be gathered with or that
    may wait, or neither.
    """

    emit: Callable[..., None]
    job: int
    values: tuple[Any, ...]
    takes: bool
    waits: bool


UNEXPECTED = (
    "Something went wrong inside Inglenook: {kind}. Your conversations are safe; please report the details."
)
NO_MEMORY = (
    "There was not enough memory to go on. Your chats and settings are as they were: end other programs, "
    "or choose a shorter context or a smaller model, and load the model again."
)
CLOSE_TIMEOUT_S = 20.0
GATHER_MS, SLOWEST_MS = 30, 250
"""The shortest and the longest time that events which are gathered wait for others: less than anyone sees
as a pause between words.
"""
CROWDED, ROOMY = 60.0, 4.0
"""How many times as long as the GUI thread was at work they wait: while the worker needs every core, and
while it leaves some free.
"""


def is_no_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the computer or on a GPU; PyTorch says so with a RuntimeError for some of
    its allocators.
    """
    words = _text(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and (
            type(error).__name__ == "OutOfMemoryError"
            or "not enough memory" in words
            or "out of memory" in words
        )
    )


def _text(error: BaseException) -> str:
    """Its message, which may be one that Qt cannot take (half a surrogate pair from a file's name), or
    none at all.
    """
    try:
        return str(error).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - __str__ is the code of whoever raised it
        return type(error).__name__


def _traceback() -> str:
    try:
        return traceback.format_exc().encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - the same
        return ""


@dataclass(frozen=True, eq=False)
class Job:
    """The handle of one started generator.

    `stop` asks it to end soon; it still ends with `finished` or `failed`.
    """

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
    """Runs jobs in the order they were started. `on_error` gets what a job raises, on the worker's thread.

    Events that `gathered` takes cross in groups, joined; all of them, and what comes after them, in order.

    Signals (delivered on the thread that made this object):
        yielded(int job, object event): one event of the generator.
        finished(int job, object result): the generator returned.
        failed(int job, str sentence, str details): it raised; `details` is the traceback of a bug, or an
        error's report.
    """

    yielded = Signal(int, object)
    finished = Signal(int, object)
    failed = Signal(int, str, str)
    _arrived = Signal()

    def __init__(
        self,
        name: str,
        parent: QObject | None = None,
        gathered: Coalescing | None = None,
        on_error: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        super().__init__(parent)
        self._gathered = gathered
        self._on_error = on_error
        self._waiting: deque[_Crossing] = deque()
        self._taken = 0
        self._awake = False  # the GUI thread will look by itself
        self.patience = ROOMY
        self._worked: float | None = None
        self._lock = threading.Lock()
        self._arrived.connect(self.deliver, Qt.ConnectionType.QueuedConnection)
        self._again = QTimer(self)
        self._again.setSingleShot(True)
        self._again.setTimerType(Qt.TimerType.PreciseTimer)
        self._again.timeout.connect(self._look)
        self._numbers = itertools.count(1)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._open: dict[int, Job] = {}
        self._closed = False
        self._name = name
        self._begin()

    def _begin(self) -> None:
        """Start the thread, or the one that takes the place of one that died."""
        with self._lock:
            # A daemon, so that a job that hangs in foreign code cannot keep the process alive after close()
            # gave up on it.
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
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
        self._again.stop()  # what still crosses is for whoever calls `deliver`
        until = time.monotonic() + timeout_s
        while (thread := self._now()).is_alive() and (left := until - time.monotonic()) > 0:
            thread.join(left)  # another may have taken its place
        if thread.is_alive():
            log.error("thread %s did not end within %.0f s", self._name, timeout_s)
        return not thread.is_alive()

    def _now(self) -> threading.Thread:
        with self._lock:
            return self._thread

    @Slot()
    def deliver(self) -> None:
        """Hand on what has crossed, now. On the GUI thread."""
        if self._worked is None:
            self._worked = time.thread_time()
        end = self._taken + len(self._waiting)  # what comes meanwhile is for the next time
        # group by group: a receiver may run an event loop of its own
        while self._waiting and self._taken < end:
            first = self._take()
            for values in self._with_more(first) if first.takes else (first.values,):
                first.emit(first.job, *values)
        if not self._closed and not self._again.isActive():
            self._again.start(self._pause())

    def _pause(self) -> int:
        """Milliseconds until the next look, by the processor time that the GUI thread took since the last
        one, or for this first one.
        """
        now = time.thread_time()
        spent, self._worked = now - (now if self._worked is None else self._worked), now
        return round(min(SLOWEST_MS, max(GATHER_MS, 1000 * self.patience * spent)))

    def _take(self) -> _Crossing:
        self._taken += 1
        return self._waiting.popleft()

    def _with_more(self, first: _Crossing) -> list[tuple[Any, ...]]:
        """What its event and those that are gathered with it come to: one joined, then the last that only
        waited.
        """
        group, last, waiting = [first.values[0]], [], self._waiting
        while waiting and (other := waiting[0]).job == first.job and (other.takes or other.waits):
            if other.takes:
                group.append(other.values[0])
            else:
                last = [other.values]
            self._take()
        return [
            (self._gathered.join(group),) if self._gathered is not None and len(group) > 1 else first.values,
            *last,
        ]

    @Slot()
    def _look(self) -> None:
        with self._lock:
            self._awake = bool(self._waiting)
        if self._awake:
            self.deliver()
        else:
            self._worked = None

    def _cross(self, signal: SignalInstance, job: int, *values: object) -> None:
        """On the worker's thread: tell the GUI thread."""
        if self._gathered is None:
            signal.emit(job, *values)
            return
        is_event = signal is self.yielded
        takes = is_event and self._gathered.takes(values[0])
        waits = is_event and not takes and self._gathered.waits(values[0])
        with self._lock:
            self._waiting.append(_Crossing(signal.emit, job, values, takes, waits))
            wake = not (self._awake and (takes or waits))
            self._awake = True
        if wake:
            self._arrived.emit()

    def _work(self) -> None:
        job: Job | None = None
        try:
            while (job := self._jobs.get()) is not None:
                self._run(job)
                self._open.pop(job.id, None)
                job = None  # its generator may hold a model
        # raised into the thread from outside, between two jobs or while one was told of
        except BaseException as error:
            log.exception("thread %s died and is replaced", self._name)
            self._begin()
            if job is not None and self._open.pop(job.id, None) is not None:
                with contextlib.suppress(RuntimeError):  # this object is gone, and whoever listened with it
                    self._cross(self.failed, job.id, UNEXPECTED.format(kind=type(error).__name__), "")

    def _run(self, job: Job) -> None:
        if job.stopping:
            self._cross(self.finished, job.id, None)
            return
        # The one broad except of the program: whatever escapes here is a bug that would end the thread
        # silently and leave the window waiting for ever; so it is logged and told instead. The exception
        # itself does not cross (rule 4).
        signal, values = self.finished, tuple[object, ...]()
        try:
            values = (self._drive(job),)
        except EngineError as error:
            self._on_error(error)
            if isinstance(error, Cancelled) and job.stop_event.is_set():
                values = (None,)
            else:
                sentence = _text(error)
                log.warning("job %d: %s", job.id, sentence)
                signal, values = self.failed, (sentence, error.report)
        except BaseException as error:  # noqa: BLE001
            self._on_error(error)
            details = _traceback()
            log.error("job %d failed\n%s", job.id, details)
            sentence = NO_MEMORY if is_no_memory(error) else UNEXPECTED.format(kind=type(error).__name__)
            signal, values = self.failed, (sentence, details)
        self._open.pop(job.id, None)
        self._cross(signal, job.id, *values)

    def _drive(self, job: Job) -> object:
        generator = job.make_generator(job.stop_event)
        try:
            while True:
                self._cross(self.yielded, job.id, next(generator))
        except StopIteration as end:
            return end.value
        finally:
            if isinstance(generator, Generator):
                generator.close()
