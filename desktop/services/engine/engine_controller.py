"""The engine as the GUI thread sees it: one state, and jobs in order.

States: "no_model", "loading" (or unloading), "idle", "prefill" (the prompt is read), "answering", "stopping".
The state is that of the oldest job that has not ended, so a model can be opened while a reply is still being
stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.cpu_yield import CpuYield
from desktop.services.engine.model_host import AskModel, Describe, ModelHost, OpenChat
from desktop.services.engine.stream_thread import CROWDED, ROOMY, Coalescing, Job, MakeGenerator, StreamThread
from engine.core import ChatRequest, Loading, ModelInfo, Prefill, Running, Text
from engine.settings import CacheSettings, LoadSettings

__all__ = ["STATES", "EngineController"]

STATES = ("no_model", "loading", "idle", "prefill", "answering", "stopping")

_LOAD, _UNLOAD, _ANSWER, _BACKGROUND = "load", "unload", "answer", "aside"
"""Kinds of jobs; the last kind does not show in the state."""


class _Task(NamedTuple):
    """A job and who hears of it: `event` each of its events, `ended` its result, or None with the sentence
    and the details of an error.
    """

    kind: str
    job: Job
    ended: Callable[[Any, str, str], object]
    event: Callable[[Any], object] | None = None
    path: str = ""


def _is_text(event: object) -> bool:
    return isinstance(event, Text) and not event.suppressed


def _joined(texts: list[Text]) -> Text:
    """Pieces of text as one."""
    return Text("".join(text.text for text in texts), tuple(token for text in texts for token in text.tokens))


class EngineController(QObject):
    """Loads models and runs replies on the engine's thread.

    Signals:
        state_changed(str): one of `STATES`.
        progress(str stage, int done, int total): of loading and of reading the prompt; total 0 is unknown.
        model_changed(object): the `ModelInfo` of the loaded model, or None.
        load_failed(str path, str sentence, str details)
    """

    state_changed = Signal(str)
    progress = Signal(str, int, int)
    model_changed = Signal(object)
    load_failed = Signal(str, str, str)

    def __init__(self, open_chat: OpenChat, describe: Describe, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._host = ModelHost(open_chat, describe)
        coalescing = Coalescing(_is_text, _joined, lambda event: isinstance(event, Running))
        self._worker = StreamThread("engine", self, coalescing, self._host.failed)
        self.yielded = self._worker.yielded
        """(int job, object event), as the engine's thread emits it: a reply's text takes no way round."""
        self.reply = 0
        """The job of the last reply."""
        self.yielded.connect(self._on_yielded)
        self._worker.finished.connect(self._on_finished)
        self._worker.failed.connect(self._on_failed)
        self._room = CpuYield(self)
        self._tasks: dict[int, _Task] = {}
        self._has_text = False
        self._state, self._emitting = "no_model", False
        self._model: ModelInfo | None = None
        self.stopped_by = ""
        """What ended the last reply before its time: "user", "load", "unload" or "close"; "" for nothing."""

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return self._state

    @property
    def needs_reload(self) -> bool:
        """Whether loading the model again may repair what failed last."""
        return self._host.needs_reload

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

    def answer(self, request: ChatRequest, ended: Callable[[str, str], None]) -> None:
        """Run a reply, only in state "idle". Its events come by `yielded` as those of job `reply`, texts that
        came soon after each other as one; then `ended` gets the sentence and the details of an error, both
        empty if there was none.
        """
        if self._state != "idle":
            raise RuntimeError(f"A reply cannot start in state {self._state!r}.")
        self._has_text, self.stopped_by = False, ""
        self.reply = self._start(
            _ANSWER,
            lambda stop: self._host.answer(request, stop),
            lambda _result, sentence, details: ended(sentence, details),
        ).id

    def run_in_background(self, make_generator: MakeGenerator, ended: Callable[[Any], object]) -> None:
        """Run a short task that needs the machine for itself, such as a measurement, without showing it in
        the state. `ended` gets its result; None if it failed or was stopped.
        """
        self._start(_BACKGROUND, make_generator, lambda result, *_: ended(result))

    def ask(self, work: AskModel, event: Callable[[Any], object], ended: Callable[[Any, str], object]) -> Job:
        """Have `work` done with the loaded model after what runs, without showing it in the state.

        On the GUI thread, `event` gets each event and `ended` the result, or None and the sentence of an
        error.
        """
        return self._start(
            _BACKGROUND,
            lambda stop: self._host.ask(work, stop),
            lambda result, sentence, _details: ended(result, sentence),
            event,
        )

    def make_room(self) -> None:
        """The user has acted: a model on the CPU leaves a core free until the user pauses."""
        self._room.hold()

    def stop(self) -> None:
        """Stop everything that runs or waits; a reply still ends with its `Done`."""
        self._stop("user")

    def _stop(self, cause: str) -> None:
        if any(task.kind == _ANSWER and not task.job.stopping for task in self._tasks.values()):
            self.stopped_by = cause
        for task in self._tasks.values():
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
    ) -> Job:
        job = self._worker.start(make_generator)
        self._tasks[job.id] = _Task(kind, job, ended, event, path)
        self._update()
        return job

    def _update(self) -> None:
        """Emit the state if it has changed.

        A listener may cause the next one, as a queued message does that waits for "idle": that is emitted
        after all listeners have heard of the first, or the last of them would hear them in reverse.
        """
        state = self._current_state()
        if state == self._state:
            return
        self._state = state
        self._room.on = self._worker.backoff == CROWDED and state in ("prefill", "answering")
        if self._emitting:
            return
        self._emitting, emitted = True, ""
        try:
            while emitted != self._state:
                emitted = self._state
                self.state_changed.emit(emitted)
        finally:
            self._emitting = False

    def _look_at_model(self) -> None:
        """Emit the model if it is another one now."""
        if self._host.info is not self._model:
            self._model = self._host.info
            self._worker.backoff = ROOMY if self._model is None or self._model.where else CROWDED
            self.model_changed.emit(self._model)

    def _current_state(self) -> str:
        task = next((task for task in self._tasks.values() if task.kind != _BACKGROUND), None)
        if task is None:
            return "idle" if self._model is not None else "no_model"
        if task.job.stopping:
            return "stopping"
        if task.kind != _ANSWER:
            return "loading"
        return "answering" if self._has_text else "prefill"

    @Slot(int, object)
    def _on_yielded(self, job_id: int, event: Any) -> None:
        self._room.begin()
        task = self._tasks.get(job_id)
        if task is not None and task.kind == _BACKGROUND and task.event is not None:
            task.event(event)
            return
        if isinstance(event, Loading):
            self.progress.emit(event.stage, event.done, event.total)
        elif isinstance(event, Prefill):
            self.progress.emit("Reading the prompt", event.done, event.total)
        elif isinstance(event, Text):
            self._has_text = True
        self._update()

    @Slot(int, object)
    def _on_finished(self, job_id: int, result: object) -> None:
        self._end(job_id, result, "", "")

    @Slot(int, str, str)
    def _on_failed(self, job_id: int, sentence: str, details: str) -> None:
        self._end(job_id, None, sentence, details)

    def _end(self, job_id: int, result: object, sentence: str, details: str) -> None:
        task = self._tasks.pop(job_id, None)
        if task is not None:
            task.ended(result, sentence, details)
            self._look_at_model()  # it has gone with its GPU if that was lost
        self._update()
