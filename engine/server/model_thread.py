"""ModelThread: a plain thread that owns a model and runs the work of all clients in turns."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field
from typing import Any

from engine.chat import LocalChat
from engine.core import Loading, Waiting
from engine.lazy_dataclass import dataclass
from engine.server.failure import CHANGED, LOADING, ApiError, Failure
from engine.server.host import Outlet, ServedModel, Work, pumped

Opener = Callable[[threading.Event], Generator[Loading, None, LocalChat]]
"""Loads a model, as `engine.chat.open_chat` does; setting the event ends it."""

_NO_MODEL = Failure(
    503, "No model is loaded; load one with POST /v1/models/load.", "server_error", code="model_not_loaded"
)


@dataclass(eq=False)
class _Task:
    """Some work in the queue. `alone`: it begins when all before it has ended, and what follows waits."""

    begin: Callable[[threading.Event], Generator[Waiting, None, None]]
    alone: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        self.stop.set()


class ModelThread:
    """An `engine.server.host.EngineHost`, which loads the models of `openers`, by their names, one at a time.

    `close` ends everything and releases the model.
    """

    def __init__(self, openers: Mapping[str, Opener]) -> None:
        self._openers = dict(openers)
        self._created = int(time.time())
        self._chat: LocalChat | None = None
        self._loaded: ServedModel | None = None
        self._loading = False
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._running: deque[tuple[_Task, Generator[Waiting, None, None]]] = deque()
        self._next: _Task | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def models(self) -> Sequence[ServedModel]:
        loaded = self._loaded
        others = [ServedModel(name, created=self._created) for name in self._openers]
        if loaded is None:
            return others
        return [loaded, *(model for model in others if model.id != loaded.id)]

    def absence(self) -> Failure:
        return LOADING if self._loading else _NO_MODEL

    def submit(self, work: Work, outlet: Outlet) -> _Task:
        asked = self._loaded

        def begin(stop: threading.Event) -> Generator[Any, None, None]:
            if self._chat is None:
                raise ApiError(self.absence())
            if self._loaded is not asked:
                raise ApiError(CHANGED)
            yield from work(self._chat, stop)

        return self._put(_Task(lambda stop: pumped(lambda: begin(stop), stop, outlet)))

    def load(self, model: str, outlet: Outlet) -> _Task:
        return self._put(
            _Task(lambda stop: pumped(lambda: self._load(model, stop), stop, outlet), alone=True)
        )

    def unload(self, outlet: Outlet) -> _Task:
        return self._put(_Task(lambda stop: pumped(self._release, stop, outlet), alone=True))

    def close(self) -> None:
        """End all work, release the model and wait for the thread."""
        self._closing = True
        self._queue.put(None)
        self._thread.join()

    def _put(self, task: _Task) -> _Task:
        self._queue.put(task)
        return task

    # -- on the thread

    def _run(self) -> None:
        while not self._closing:
            self._begin_next()
            for _ in range(len(self._running)):
                self._go_on()
        self._drop_all()
        for _ in self._release():
            pass

    def _begin_next(self) -> None:
        """Begin the next task if it can be now; wait for one if nothing runs."""
        while not self._closing:
            if self._next is None:
                try:
                    self._next = self._queue.get(block=not self._running)
                except queue.Empty:
                    return
                if self._next is None:
                    return
            task = self._next
            if self._running and (task.alone or self._running[0][0].alone):
                return
            self._next = None
            self._running.append((task, task.begin(task.stop)))

    def _go_on(self) -> None:
        """Ask the work whose turn it is for its next event."""
        task, events = self._running.popleft()
        try:
            next(events)
        except StopIteration:
            return
        self._running.append((task, events))

    def _drop_all(self) -> None:
        """End what runs, and what is in the queue."""
        while self._running:
            self._running.popleft()[1].close()
        while True:
            task, self._next = self._next, None
            try:
                task = task or self._queue.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                task.cancel()
                for _ in task.begin(task.stop):
                    pass

    def _load(self, model: str, stop: threading.Event) -> Generator[Loading, None, None]:
        if self._loaded is not None and self._loaded.id == model:
            return
        opener = self._openers.get(model)
        if opener is None:
            raise ApiError(unknown_model(model))
        self._loading = True
        try:
            yield from self._release()
            chat = yield from opener(stop)
        finally:
            self._loading = False
        self._chat = chat
        info = chat.info
        self._loaded = ServedModel.of(
            info, model, chat.context_length, self._created, chat.thinking, chat.adapters.usual
        )

    def _release(self) -> Generator[Loading, None, None]:
        chat, self._chat, self._loaded = self._chat, None, None
        if chat is not None:
            chat.close()
        yield from ()


def unknown_model(model: str) -> Failure:
    """The failure of a request that names a model that there is not."""
    return Failure(
        404, f"There is no model named {model[:200]!r}; GET /v1/models lists the available ones.",
        param="model", code="model_not_found",
    )  # fmt: skip
