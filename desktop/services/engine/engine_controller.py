"""The engine as the GUI thread sees it: its states, and jobs in order.

States: "no_model", "loading" (or unloading), "idle", "waiting" (a reply waits for its turn or for memory
that others have), "prefill" (the prompt is read), "answering", "stopping". Several replies run at the same
time, in one chat or in several, and each is known by the message that it is written into. Each chat has a
state of its own: that of its replies, else that of the loading. The state of the engine is that of the oldest
job that has not ended, so a model can be opened while replies are still being stopped.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.cpu_yield import CpuYield
from desktop.services.engine.job import Job, MakeGenerator
from desktop.services.engine.model_host import AskModel, Describe, ModelHost, OpenChat
from desktop.services.engine.stream_thread import CROWDED, ROOMY, Coalescing, StreamThread
from engine.core import ChatRequest, Loading, ModelInfo, Prefill, Priority, Running, Text, Waiting
from engine.lazy_dataclass import dataclass
from engine.platform import core_yield
from engine.settings import CacheSettings, LoadSettings
from engine.words import _

__all__ = ["STATES", "EngineController"]

STATES = ("no_model", "loading", "idle", "waiting", "prefill", "answering", "stopping")
_LIVELIEST = ("answering", "prefill", "waiting", "stopping")
"""Which of its replies' states a chat has: the first of these."""

_LOAD, _UNLOAD, _ANSWER, _BACKGROUND = "load", "unload", "answer", "aside"
"""Kinds of jobs; the last kind does not show in the state."""


@dataclass(eq=False)
class _Task:
    """A job and who hears of it: `event` each of its events, `ended` its result, or None with the sentence
    and the details of an error. `stopped_by` as in `EngineController.answer`.
    """

    kind: str
    job: Job
    ended: Callable[[Any, str, str], object]
    event: Callable[[Any], object] | None = None
    path: str = ""
    chat: int = 0
    message: int = 0
    priority: Priority = field(default_factory=Priority)
    queued: bool = False
    has_text: bool = False
    stopped_by: str = ""

    @property
    def state(self) -> str:
        if self.job.stopping:
            return "stopping"
        if self.kind != _ANSWER:
            return "loading"
        if self.queued:
            return "waiting"
        return "answering" if self.has_text else "prefill"


class _Shown(NamedTuple):
    """What a job that shows in the state was when `changed` was last emitted."""

    kind: str
    chat: int
    message: int
    state: str


def _is_text(event: object) -> bool:
    return isinstance(event, Text) and not event.suppressed


def _stays(event: object, last: object) -> bool:
    """Whether a reply only waits, as the window knows."""
    return isinstance(event, Waiting) and (not event.queued or event == last)


def _joined(texts: list[Text]) -> Text:
    """Pieces of text as one."""
    return Text("".join(text.text for text in texts), tuple(token for text in texts for token in text.tokens))


class EngineController(QObject):
    """Loads models and runs replies on the engine's thread.

    Signals:
        changed(): the state of the engine or of a chat is another one.
        became_free(): a job has ended, and a chat in which no reply runs can begin one; after `changed`.
        progress(int message, str stage, int done, int total): of reading the prompt of the reply in that
            message, or of loading (0); total 0 is unknown.
        model_changed(object): the `ModelInfo` of the loaded model, or None.
        load_failed(str path, str sentence, str details)
    """

    changed = Signal()
    became_free = Signal()
    progress = Signal(int, str, int, int)
    model_changed = Signal(object)
    load_failed = Signal(str, str, str)

    def __init__(self, open_chat: OpenChat, describe: Describe, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._host = ModelHost(open_chat, describe)
        coalescing = Coalescing(
            _is_text, _joined, waits=lambda event: isinstance(event, Running), stays=_stays
        )
        self._worker = StreamThread("engine", self, coalescing, self._host.failed, core_yield.lower_priority)
        self.yielded = self._worker.yielded
        """(int job, object event), as the engine's thread emits it: a reply's text takes no way round."""
        self.yielded.connect(self._on_yielded)
        self._worker.finished.connect(self._on_finished)
        self._worker.failed.connect(self._on_failed)
        self._room = CpuYield(self)
        self._tasks: dict[int, _Task] = {}
        self._lent: set[threading.Event] = set()
        self._shown: tuple[_Shown, ...] = ()
        self._front = 0
        self._has_model = False
        self._model: ModelInfo | None = None

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return self._shown[0].state if self._shown else "idle" if self._has_model else "no_model"

    def state_in(self, chat: int) -> str:
        """One of `STATES`, as it is for a chat; others may be answered meanwhile. Of several replies in it,
        the liveliest counts.
        """
        states = {shown.state for shown in self._shown if shown.kind == _ANSWER and shown.chat == chat}
        if states:
            return next(state for state in _LIVELIEST if state in states)
        if any(shown.kind != _ANSWER for shown in self._shown):
            return next(shown.state for shown in self._shown if shown.kind != _ANSWER)
        return "idle" if self._has_model else "no_model"

    def state_of(self, message: int) -> str:
        """The state of the reply that is written into a message; "idle" if none is."""
        return next((shown.state for shown in self._shown if message and shown.message == message), "idle")

    @property
    def writing(self) -> int:
        """How many replies run that nobody has stopped."""
        return sum(shown.kind == _ANSWER and shown.state != "stopping" for shown in self._shown)

    @property
    def needs_reload(self) -> bool:
        """Whether loading the model again may repair what failed last."""
        return self._host.needs_reload

    @property
    def lost(self) -> tuple[str, str]:
        """The sentence and the report of a lost device, until a model is loaded again; else empty."""
        return self._host.lost

    def message_of(self, job: int) -> int:
        """The message into which a job's reply is written; 0 if it has ended."""
        return self._tasks[job].message if job in self._tasks else 0

    @property
    def model(self) -> ModelInfo | None:
        """The loaded model."""
        return self._model

    @property
    def loads(self) -> bool:
        """Whether a model is being loaded. Any thread may ask."""
        return any(shown.kind == _LOAD for shown in self._shown)

    @property
    def opening(self) -> str:
        """The path of the model that is being loaded, or waits for what runs to stop; "" for none."""
        paths = [task.path for task in self._tasks.values() if task.kind == _LOAD and not task.job.stopping]
        return paths[-1] if paths else ""

    def open_model(self, path: Path, load: LoadSettings, cache: CacheSettings) -> None:
        """Load a model in place of the present one; whatever runs is stopped first."""
        self._stop("load")

        def ended(_result: object, sentence: str, details: str) -> None:
            self._look_at_model()
            if sentence:
                self.load_failed.emit(str(path), sentence, details)

        self._start(_LOAD, lambda stop: self._host.load(path, load, cache, stop), ended, path=str(path))

    def unload_model(self) -> None:
        """Release the model; whatever runs is stopped first."""
        self._stop("unload")
        self._start(_UNLOAD, self._host.unload, lambda *_unused: None)

    def answer(
        self, chat: int, message: int, request: ChatRequest, ended: Callable[[str, str, str], None]
    ) -> None:
        """Run a reply into a message of a chat, beside all others; only while a model is there, none is being
        loaded, and no reply runs in that message. Its events come by `yielded`, texts that came soon after
        each other as one; then `ended` gets the sentence and the details of an error, both empty if there was
        none, and what ended the reply before its time: "user", "load", "unload" or "close"; "" for nothing.
        """
        loads = any(shown.kind != _ANSWER for shown in self._shown)
        if loads or not self._has_model or self.state_of(message) != "idle":
            raise RuntimeError(f"A reply cannot start in state {self.state_in(chat)!r}.")
        priority = Priority(int(chat == self._front))
        request = dataclasses.replace(request, priority=priority)
        task: _Task

        def end(_result: object, sentence: str, details: str) -> None:
            ended(sentence, details, task.stopped_by)

        job = self._worker.start(lambda stop: self._host.answer(request, stop), in_turns=True)
        self._tasks[job.id] = task = _Task(_ANSWER, job, end, chat=chat, message=message, priority=priority)
        self._update()

    @Slot(int)
    def bring_forward(self, chat: int) -> None:
        """The replies of this chat go before those of all others, those that run included."""
        self._front = chat
        for task in self._tasks.values():
            task.priority.value = int(task.chat == chat)

    def run_in_background(self, make_generator: MakeGenerator, ended: Callable[[Any], object]) -> None:
        """Run a short task that needs the machine for itself, such as a measurement, without showing it in
        the state. `ended` gets its result; None if it failed or was stopped.
        """
        self._start(_BACKGROUND, make_generator, lambda result, *_unused: ended(result))

    def ask(self, work: AskModel, event: Callable[[Any], object], ended: Callable[[Any, str], object]) -> Job:
        """Have `work` done with the loaded model, in turn with the replies, without showing it in the state.

        On the GUI thread, `event` gets each event and `ended` the result, or None and the sentence of an
        error.
        """
        return self._start(
            _BACKGROUND,
            lambda stop: self._host.ask(work, stop),
            lambda result, sentence, _details: ended(result, sentence),
            event,
            in_turns=True,
        )

    def lend(self, make_generator: MakeGenerator) -> threading.Event:
        """Run a generator on the engine's thread for another program, in turn with the replies, until it ends
        or the returned event is set. Its events do not cross. It is asked to end before a model is loaded or
        unloaded.

        Any thread may call this. Raises RuntimeError after `close`.
        """
        stop = threading.Event()

        def run(_stop: threading.Event) -> Iterator[Any]:
            try:
                yield from make_generator(stop)
            finally:
                self._lent.discard(stop)

        self._lent.add(stop)
        self._worker.start(run, in_turns=True)
        return stop

    @property
    def host(self) -> ModelHost:
        """The loaded model itself; only for generators on the engine's thread."""
        return self._host

    def make_room(self) -> None:
        """The user has acted: a model on the CPU leaves a core free until the user pauses."""
        self._room.hold()

    def stop(self) -> None:
        """Stop everything that runs or waits; a reply still ends with its `Done`."""
        self._stop("user")

    def stop_in(self, chat: int) -> None:
        """Stop all replies of a chat."""
        self._stop(
            "user", (task for task in self._tasks.values() if task.kind == _ANSWER and task.chat == chat)
        )

    def stop_reply(self, message: int) -> None:
        """Stop the reply that is written into a message."""
        self._stop("user", (task for task in self._tasks.values() if message and task.message == message))

    def _stop(self, cause: str, tasks: Iterable[_Task] | None = None) -> None:
        for task in tuple(self._tasks.values() if tasks is None else tasks):
            task.stopped_by = task.stopped_by or cause
            task.job.stop()
        if cause != "user":
            for stop in tuple(self._lent):
                stop.set()
        self._update()

    def close(self) -> bool:
        """Stop all, release the model and join the thread; False if it did not end in time."""
        self._stop("close")
        self._room.end()
        in_time = self._worker.close(last=self._host.unload)
        self._worker.deliver()  # the last texts, and usually the reply's end
        return in_time

    def _start(
        self,
        kind: str,
        make_generator: MakeGenerator,
        ended: Callable[[Any, str, str], object],
        event: Callable[[Any], object] | None = None,
        path: str = "",
        in_turns: bool = False,
    ) -> Job:
        job = self._worker.start(make_generator, in_turns)
        self._tasks[job.id] = _Task(kind, job, ended, event, path)
        self._update()
        return job

    def _update(self) -> None:
        """Emit `changed` if a state has changed."""
        tasks = [task for task in self._tasks.values() if task.kind != _BACKGROUND]
        found = tuple(_Shown(task.kind, task.chat, task.message, task.state) for task in tasks)
        now = found, self._model is not None
        if now == (self._shown, self._has_model):
            return
        self._shown, self._has_model = now
        writes = any(shown.state in ("prefill", "answering") for shown in self._shown)
        self._room.on = self._worker.backoff == CROWDED and writes
        self.changed.emit()

    def _look_at_model(self) -> None:
        """Emit the model if it is another one now."""
        if self._host.info is not self._model:
            self._model = self._host.info
            elsewhere = self._model is None or self._model.where or self._model.host
            self._worker.backoff = ROOMY if elsewhere else CROWDED
            self.model_changed.emit(self._model)

    @Slot(int, object)
    def _on_yielded(self, job_id: int, event: Any) -> None:
        self._room.begin()
        task = self._tasks.get(job_id)
        if task is not None and task.kind == _BACKGROUND and task.event is not None:
            task.event(event)
            return
        if task is None:
            return
        before = task.state
        task.queued = isinstance(event, Waiting)
        task.has_text = task.has_text or isinstance(event, Text)
        if task.state != before:
            self._update()
        if isinstance(event, Loading):
            self.progress.emit(task.message, event.stage, event.done, event.total)
        elif isinstance(event, Prefill):
            self.progress.emit(task.message, _("Reading the prompt"), event.done, event.total)

    @Slot(int, object)
    def _on_finished(self, job_id: int, result: object) -> None:
        self._end(job_id, result, "", "")

    @Slot(int, str, str)
    def _on_failed(self, job_id: int, sentence: str, details: str) -> None:
        self._end(job_id, None, sentence, details)

    def _end(self, job_id: int, result: object, sentence: str, details: str) -> None:
        task = self._tasks.pop(job_id, None)
        if task is None:  # another program's
            self._look_at_model()
            self._update()
            return
        task.ended(result, sentence, details)
        self._look_at_model()  # it has gone with its GPU if that was lost
        self._update()
        loads = any(shown.kind != _ANSWER for shown in self._shown)
        if task.kind != _BACKGROUND and self._has_model and not loads:
            self.became_free.emit()
