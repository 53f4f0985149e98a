"""StreamThread: runs plain Python generators on one thread of its own, one at a time or in turns.

The thread rules of the program:

1. The GUI thread owns every QObject, item model and the database connection.
2. One StreamThread belongs to the engine: only there are the model, its cache and its threads used, loading
   and unloading included. Downloads and folder scans have their own, so that a slow server never blocks the
   model.
3. A StreamThread is made on the GUI thread, and its signals are connected there to `@Slot` methods of
   QObjects.
4. Frozen data of str, int, float and tuple crosses: no tensor, no live exception.
5. Every event crosses as one queued signal, except for the many small ones of a reply (`Coalescing`): the
   first of them wakes the GUI thread, and those that come soon after cross together. This is the only
   throttle of text. Its interval follows what showing the text costs: a CPU engine uses every core, and what
   the GUI thread takes is taken from it.
6. CPU kernels release the GIL, or the window would freeze.
7. No `exec()` in coroutines; tokens never travel by asyncio.

Order of signals for each job: any number of `yielded`, then exactly one of `finished` and `failed`, whatever
the job raises, also what is not an `Exception` (a panic of a Rust library). A thread that dies is replaced by
one that continues with the queue; the jobs that had begun fail with it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Qt, Signal, SignalInstance, Slot

from desktop.services.engine.job import Job, MakeGenerator, is_no_memory, message_of, traceback_text
from desktop.services.system.debounce import debounce
from engine.errors import Cancelled, EngineError
from engine.lazy_dataclass import dataclass
from engine.words import N_, translate

__all__ = ["CLOSE_TIMEOUT_S", "Coalescing", "StreamThread"]

log = logging.getLogger(__name__)


class Coalescing(NamedTuple):
    """`takes`: events that may cross together; `join` makes one of several. `waits`: events that may cross
    with the next of those; only the last of them does. `stays`: events that do not cross; it also gets the
    job's last event that did.
    """

    takes: Callable[[Any], bool]
    join: Callable[[list[Any]], Any]
    waits: Callable[[Any], bool] = lambda event: False
    stays: Callable[[Any, Any], bool] = lambda event, last: False


class _Crossing(NamedTuple):
    """A signal on its way to the GUI thread; `takes` and `waits` as in `Coalescing`."""

    emit: Callable[..., None]
    job: int
    values: tuple[Any, ...]
    takes: bool
    waits: bool


UNEXPECTED = N_("Something went wrong in Inglenook ({kind}). Your chats are safe. Please report the details.")
NO_MEMORY = N_(
    "There was not enough memory to continue. Your chats and settings are safe. Close other "
    "programs, or choose a shorter context or a smaller model, then reload the model."
)
CLOSE_TIMEOUT_S = 20.0
SHORTEST_MS, SLOWEST_MS = 30, 250
"""Events that cross together wait at least and at most this long: less than a visible pause."""
CROWDED, ROOMY = 60.0, 4.0
"""They wait this many times as long as the GUI thread was busy: if the worker needs all cores, and if not."""


@dataclass(eq=False)
class _Begun:
    """A job that runs, and its last event that has crossed."""

    job: Job
    events: Iterator[Any]
    last: Any = None


_END = Job(0, lambda stop: iter(()))
"""Ends the thread; none of a StreamThread's own jobs."""


class StreamThread(QObject):
    """Begins jobs in the order they were started. A job runs alone, unless it is `in_turns`: then it begins
    beside those that are, and each of them is asked for an event in turn. `on_error` gets what a job raises,
    on the worker's thread. `on_begin` is called first on the worker's thread.

    Events that `coalescing` takes cross joined; the events of a job stay in order. `backoff` is `CROWDED` or
    `ROOMY`.

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
        coalescing: Coalescing | None = None,
        on_error: Callable[[BaseException], None] = lambda error: None,
        on_begin: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(parent)
        self._on_begin = on_begin
        self._coalescing = coalescing
        self._on_error = on_error
        self._waiting: deque[_Crossing] = deque()
        self._taken = 0
        self._awake = False  # the GUI thread will look without being woken
        self.backoff = ROOMY
        self._worked: float | None = None
        self._lock = threading.Lock()
        self._arrived.connect(self.deliver, Qt.ConnectionType.QueuedConnection)
        self._again = debounce(self, self._look)
        self._again.setTimerType(Qt.TimerType.PreciseTimer)
        self._numbers = itertools.count(1)
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._next: Job | None = None  # taken from the queue, and waits for those that run
        self._begun: deque[_Begun] = deque()
        self._open: dict[int, Job] = {}
        self._closed = False
        self._name = name
        self._begin()

    def _begin(self) -> None:
        """Start the thread, or one that replaces a dead one."""
        with self._lock:
            # a daemon: a job that hangs in foreign code does not keep the process alive after close()
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    def start(self, make_generator: MakeGenerator, in_turns: bool = False) -> Job:
        """Queue a generator; from any thread. Raises RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("This StreamThread is closed; make a new one.")
        job = Job(next(self._numbers), make_generator, in_turns)
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
            self._jobs.put(_END)
        self._again.stop()  # the caller may still `deliver` what has crossed
        until = time.monotonic() + timeout_s
        while (thread := self._now()).is_alive() and (left := until - time.monotonic()) > 0:
            thread.join(left)  # another one may have replaced it
        if thread.is_alive():
            log.error("thread %s did not end within %.0f s", self._name, timeout_s)
        return not thread.is_alive()

    def _now(self) -> threading.Thread:
        with self._lock:
            return self._thread

    @Slot()
    def deliver(self) -> None:
        """Emit what has crossed. On the GUI thread."""
        if self._worked is None:
            self._worked = time.thread_time()
        with self._lock:  # job by job, so that what may cross together stands together
            first_come = {crossing.job: 0 for crossing in self._waiting}
            if len(first_come) > 1:
                for place, job in enumerate(first_come):
                    first_come[job] = place
                ordered = sorted(self._waiting, key=lambda crossing: first_come[crossing.job])
                self._waiting.clear()
                self._waiting.extend(ordered)
        end = self._taken + len(self._waiting)  # what comes meanwhile waits for the next call
        # group by group: a receiver may run its own event loop
        while self._waiting and self._taken < end:
            first = self._take()
            for values in self._with_more(first) if first.takes else (first.values,):
                first.emit(first.job, *values)
        if not self._closed and not self._again.isActive():
            self._again.start(self._pause())

    def _pause(self) -> int:
        """Milliseconds until the next look, from the processor time of the GUI thread since the last one."""
        now = time.thread_time()
        spent, self._worked = now - (now if self._worked is None else self._worked), now
        return round(min(SLOWEST_MS, max(SHORTEST_MS, 1000 * self.backoff * spent)))

    def _take(self) -> _Crossing:
        self._taken += 1
        return self._waiting.popleft()

    def _with_more(self, first: _Crossing) -> list[tuple[Any, ...]]:
        """Its event joined with those that follow, then the last one that only waited."""
        group, last, waiting = [first.values[0]], [], self._waiting
        while waiting and (other := waiting[0]).job == first.job and (other.takes or other.waits):
            if other.takes:
                group.append(other.values[0])
            else:
                last = [other.values]
            self._take()
        return [
            (self._coalescing.join(group),)
            if self._coalescing is not None and len(group) > 1
            else first.values,
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
        """Send a signal to the GUI thread, from the worker's thread."""
        if self._coalescing is None:
            signal.emit(job, *values)
            return
        is_event = signal is self.yielded
        takes = is_event and self._coalescing.takes(values[0])
        waits = is_event and not takes and self._coalescing.waits(values[0])
        with self._lock:
            self._waiting.append(_Crossing(signal.emit, job, values, takes, waits))
            wake = not (self._awake and (takes or waits))
            self._awake = True
        if wake:
            self._arrived.emit()

    def _work(self) -> None:
        try:
            self._on_begin()
            while self._next is not _END or self._begun:
                self._begin_next()
                for _ in range(len(self._begun)):
                    self._go_on()
        # raised into the thread from outside, between two jobs or while a signal was sent
        except BaseException as error:
            log.exception("thread %s died and is replaced", self._name)
            begun, self._begun = self._begun, deque()
            self._begin()
            for each in begun:
                _close(each.events)
                if self._open.pop(each.job.id, None) is not None:
                    with contextlib.suppress(RuntimeError):  # this object is gone, with its listeners
                        sentence = translate(UNEXPECTED, kind=type(error).__name__)
                        self._cross(self.failed, each.job.id, sentence, "")

    def _begin_next(self) -> None:
        """Begin the next job if that can be now; it is waited for if none runs."""
        if self._next is None:
            try:
                self._next = self._jobs.get(block=not self._begun)
            except queue.Empty:
                return
        job, beside = self._next, self._begun[0].job if self._begun else None
        if job is not _END and (beside is None or (job.in_turns and beside.in_turns)):
            self._begun.append(_Begun(job, _events(job)))
            self._next = None

    def _go_on(self) -> None:
        """Ask the job whose turn it is for an event; it is the last one then, unless it has ended."""
        begun = self._begun[0]
        job, events = begun.job, begun.events
        # The one broad except of the program: a bug that escaped here would end the thread silently, and the
        # window would wait for ever. It is logged and reported; the exception itself does not cross (rule 4).
        signal, values = self.finished, tuple[object, ...]()
        try:
            event = next(events)
            if self._coalescing is None or not self._coalescing.stays(event, begun.last):
                begun.last = event
                self._cross(self.yielded, job.id, event)
        except StopIteration as end:
            values = (end.value,)
        except EngineError as error:
            self._on_error(error)
            if isinstance(error, Cancelled) and job.stop_event.is_set():
                values = (None,)
            else:
                sentence = message_of(error)
                log.warning("job %d: %s", job.id, sentence)
                signal, values = self.failed, (sentence, error.report)
        except BaseException as error:  # noqa: BLE001
            self._on_error(error)
            details = traceback_text()
            log.error("job %d failed\n%s", job.id, details)
            sentence = translate(NO_MEMORY if is_no_memory(error) else UNEXPECTED, kind=type(error).__name__)
            signal, values = self.failed, (sentence, details)
        else:
            self._begun.rotate(-1)
            return
        _close(events)
        self._begun.popleft()
        self._open.pop(job.id, None)
        self._cross(signal, job.id, *values)


def _events(job: Job) -> Generator[Any, None, Any]:
    """A job's events, and its result; its generator is made when the first one is asked for, and never if it
    was stopped by then.
    """
    if job.stopping:
        return None
    made = job.make_generator(job.stop_event)
    try:
        while True:
            try:
                event = next(made)
            except StopIteration as end:
                return end.value
            yield event
    finally:
        _close(made)


def _close(events: Iterator[Any]) -> None:
    if isinstance(events, Generator):
        events.close()
