"""Work off the GUI thread for a service: each job says who hears of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Slot

from desktop.services.engine.job import Job, MakeGenerator
from desktop.services.engine.stream_thread import CLOSE_TIMEOUT_S, StreamThread

__all__ = ["Background"]

Ended = Callable[[Any], object]
"""Gets a job's result; None if it was stopped before it began, or failed and nobody else hears of that."""
Failed = Callable[[str, str], object]
"""Gets the sentence and the details of an error, as `StreamThread.failed`."""


class _Listener(NamedTuple):
    event: Callable[[Any], object]
    ended: Ended
    failed: Failed


class Background(QObject):
    """A thread called `name`, made for the first job. Jobs run in order; on the GUI thread, their callbacks
    hear of them until `close`.
    """

    def __init__(self, name: str, parent: QObject) -> None:
        super().__init__(parent)
        self._name = name
        self._thread: StreamThread | None = None
        self._listeners: dict[int, _Listener] = {}
        self._closed = False

    def start(
        self,
        make_generator: MakeGenerator,
        ended: Ended = lambda result: None,
        failed: Failed | None = None,
        event: Callable[[Any], object] = lambda event: None,
        in_turns: bool = False,
    ) -> Job:
        """Run a generator: `event` gets what it yields, then `ended` or `failed` comes. Not after `close`.
        Those that are `in_turns` run beside each other.
        """
        if self._closed:
            return Job(0, make_generator)
        if self._thread is None:
            self._thread = StreamThread(self._name, self)
            self._thread.yielded.connect(self._on_yielded)
            self._thread.finished.connect(self._on_finished)
            self._thread.failed.connect(self._on_failed)
        job = self._thread.start(make_generator, in_turns)
        self._listeners[job.id] = _Listener(event, ended, failed or (lambda _sentence, _details: ended(None)))
        return job

    def call(self, work: Callable[[threading.Event], Any], ended: Ended, failed: Failed | None = None) -> Job:
        """Run a function, which gets the job's stop event."""

        def run(stop: threading.Event) -> Generator[None, None, Any]:
            yield from ()
            return work(stop)

        return self.start(run, ended, failed)

    def drop(self, job: Job | None) -> None:
        """Stop a job and hear no more of it."""
        if job is not None:
            job.stop()
            self._listeners.pop(job.id, None)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Stop all jobs and end the thread; False if it did not end in time."""
        self._closed = True
        self._listeners.clear()
        return self._thread is None or self._thread.close(timeout_s=timeout_s)

    @Slot(int, object)
    def _on_yielded(self, job: int, event: object) -> None:
        if (listener := self._listeners.get(job)) is not None:
            listener.event(event)

    @Slot(int, object)
    def _on_finished(self, job: int, result: object) -> None:
        if (listener := self._listeners.pop(job, None)) is not None:
            listener.ended(result)

    @Slot(int, str, str)
    def _on_failed(self, job: int, sentence: str, details: str) -> None:
        if (listener := self._listeners.pop(job, None)) is not None:
            listener.failed(sentence, details)
