"""The engine as the GUI thread sees it: its states, and jobs in order.

States: "no_model", "loading" (or unloading), "idle", "prefill" (the prompt is read), "answering", "stopping".
Replies of several chats run at the same time, and each chat has a state of its own: that of its reply, else
that of the loading. The state of the engine is that of the oldest job that has not ended, so a model can be
opened while replies are still being stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.cpu_yield import CpuYield
from desktop.services.engine.model_host import AskModel, Describe, ModelHost, OpenChat
from desktop.services.engine.stream_thread import CROWDED, ROOMY, Coalescing, Job, MakeGenerator, StreamThread
from engine.core import ChatRequest, Loading, ModelInfo, Prefill, Running, Text, Waiting
from engine.settings import CacheSettings, LoadSettings

__all__ = ["STATES", "EngineController"]

STATES = ("no_model", "loading", "idle", "prefill", "answering", "stopping")

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
    has_text: bool = False
    stopped_by: str = ""

    @property
    def state(self) -> str:
        if self.job.stopping:
            return "stopping"
        if self.kind != _ANSWER:
            return "loading"
        return "answering" if self.has_text else "prefill"


class _Shown(NamedTuple):
    """What a job that shows in the state was when `changed` was last emitted."""

    kind: str
    chat: int
    state: str


def _is_text(event: object) -> bool:
    return isinstance(event, Text) and not event.suppressed


def _joined(texts: list[Text]) -> Text:
    """Pieces of text as one."""
    return Text("".join(text.text for text in texts), tuple(token for text in texts for token in text.tokens))


class EngineController(QObject):
    """Loads models and runs replies on the engine's thread.

    Signals:
        changed(): the state of the engine or of a chat is another one.
        became_free(): a job has ended, and a chat in which no reply runs can begin one; after `changed`.
        progress(int chat, str stage, int done, int total): of reading the prompt of that chat's reply, or of
            loading (0); total 0 is unknown.
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
            _is_text,
            _joined,
            waits=lambda event: isinstance(event, Running),
            stays=lambda event: isinstance(event, Waiting),
        )
        self._worker = StreamThread("engine", self, coalescing, self._host.failed)
        self.yielded = self._worker.yielded
        """(int job, object event), as the engine's thread emits it: a reply's text takes no way round."""
        self.yielded.connect(self._on_yielded)
        self._worker.finished.connect(self._on_finished)
        self._worker.failed.connect(self._on_failed)
        self._room = CpuYield(self)
        self._tasks: dict[int, _Task] = {}
        self._shown: tuple[_Shown, ...] = ()
        self._has_model = False
        self._model: ModelInfo | None = None

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return self._shown[0].state if self._shown else "idle" if self._has_model else "no_model"

    def state_in(self, chat: int) -> str:
        """One of `STATES`, as it is for a chat; others may be answered meanwhile."""
        found = [shown for shown in self._shown if shown.kind == _ANSWER and shown.chat == chat]
        found += [shown for shown in self._shown if shown.kind != _ANSWER]
        return found[0].state if found else "idle" if self._has_model else "no_model"

    @property
    def needs_reload(self) -> bool:
        """Whether loading the model again may repair what failed last."""
        return self._host.needs_reload

    @property
    def lost(self) -> tuple[str, str]:
        """The sentence and the report of a lost device, until a model is loaded again; else empty."""
        return self._host.lost

    def chat_of(self, job: int) -> int:
        """The chat in which a job's reply is written; 0 if it has ended."""
        return self._tasks[job].chat if job in self._tasks else 0

    @property
    def model(self) -> ModelInfo | None:
        """The loaded model."""
        return self._model

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
        self._start(_UNLOAD, self._host.unload, lambda *_: None)

    def answer(self, chat: int, request: ChatRequest, ended: Callable[[str, str, str], None]) -> None:
        """Run a reply beside those of other chats, only while the state in its own is "idle". Its events come
        by `yielded`, texts that came soon after each other as one; then `ended` gets the sentence and the
        details of an error, both empty if there was none, and what ended the reply before its time: "user",
        "load", "unload" or "close"; "" for nothing.
        """
        if (state := self.state_in(chat)) != "idle":
            raise RuntimeError(f"A reply cannot start in state {state!r}.")
        task: _Task

        def end(_result: object, sentence: str, details: str) -> None:
            ended(sentence, details, task.stopped_by)

        job = self._worker.start(lambda stop: self._host.answer(request, stop), in_turns=True)
        self._tasks[job.id] = task = _Task(_ANSWER, job, end, chat=chat)
        self._update()

    def run_in_background(self, make_generator: MakeGenerator, ended: Callable[[Any], object]) -> None:
        """Run a short task that needs the machine for itself, such as a measurement, without showing it in
        the state. `ended` gets its result; None if it failed or was stopped.
        """
        self._start(_BACKGROUND, make_generator, lambda result, *_: ended(result))

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

    def make_room(self) -> None:
        """The user has acted: a model on the CPU leaves a core free until the user pauses."""
        self._room.hold()

    def stop(self) -> None:
        """Stop everything that runs or waits; a reply still ends with its `Done`."""
        self._stop("user")

    def stop_in(self, chat: int) -> None:
        """Stop the reply of a chat."""
        answers = [task for task in self._tasks.values() if task.kind == _ANSWER]
        self._stop("user", [task for task in answers if task.chat == chat])

    def _stop(self, cause: str, tasks: Sequence[_Task] | None = None) -> None:
        for task in tuple(self._tasks.values()) if tasks is None else tasks:
            task.stopped_by = task.stopped_by or cause
            task.job.stop()
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
        now = tuple(_Shown(task.kind, task.chat, task.state) for task in tasks), self._model is not None
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
            self._worker.backoff = ROOMY if self._model is None or self._model.where else CROWDED
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
        if isinstance(event, Loading):
            self.progress.emit(task.chat, event.stage, event.done, event.total)
        elif isinstance(event, Prefill):
            self.progress.emit(task.chat, "Reading the prompt", event.done, event.total)
        elif isinstance(event, Text) and not task.has_text:
            task.has_text = True
            self._update()

    @Slot(int, object)
    def _on_finished(self, job_id: int, result: object) -> None:
        self._end(job_id, result, "", "")

    @Slot(int, str, str)
    def _on_failed(self, job_id: int, sentence: str, details: str) -> None:
        self._end(job_id, None, sentence, details)

    def _end(self, job_id: int, result: object, sentence: str, details: str) -> None:
        task = self._tasks.pop(job_id, None)
        if task is None:
            return
        task.ended(result, sentence, details)
        self._look_at_model()  # it has gone with its GPU if that was lost
        self._update()
        loads = any(shown.kind != _ANSWER for shown in self._shown)
        if task.kind != _BACKGROUND and self._has_model and not loads:
            self.became_free.emit()
