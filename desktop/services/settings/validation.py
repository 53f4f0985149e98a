"""Checks what the user types: patterns, expressions, biases and adapters, by the engine on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.services.engine.stream_thread import Job, StreamThread
from engine.errors import EngineError

__all__ = ["CHECKS", "ValidationService"]

_PAUSE_MILLISECONDS = 200
Check = Callable[..., str]
"""Takes the values of some fields; returns a sentence about what is wrong with them, or ""."""


def _constraint(form: str, pattern: str) -> str:
    from engine.constraint import check_constraint  # llguidance is imported only if it is used

    return check_constraint(form, pattern)


def _expression(pattern: str) -> str:
    from engine.text.stops.regex import Expression

    return _problem(lambda: Expression(pattern)) if pattern else ""


def _bias(*lines: str) -> str:
    from engine.text.tokenizer.token_rules import bias_parts

    return _problem(lambda: [bias_parts(line) for line in lines if line.strip()])


def _adapters(*lines: str) -> str:
    from engine.generator.adapter_slot import parse_adapters
    from engine.weights.lora_adapter import open_adapter

    return _problem(lambda: [open_adapter(folder) for folder, _ in parse_adapters(lines)])


def _problem(make: Callable[[], object]) -> str:
    try:
        make()
    except EngineError as error:
        return str(error)
    return ""


CHECKS: dict[str, Check] = {
    "constraint": _constraint,
    "expression": _expression,
    "bias": _bias,
    "adapters": _adapters,
}
"""The kinds of checks by name."""


class ValidationService(QObject):
    """Checks the latest values of each kind a moment after they came; a later request replaces one that
    waits.

    Signals:
        checked(str kind, object values, str sentence): what is wrong with these values, or "".
    """

    checked = Signal(str, object, str)

    def __init__(self, checks: Mapping[str, Check] | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._checks = dict(CHECKS if checks is None else checks)
        self._worker: StreamThread | None = None  # created for the first check
        self._waiting: dict[str, tuple[Any, ...]] = {}
        self._running: dict[int, tuple[str, tuple[Any, ...]]] = {}
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_PAUSE_MILLISECONDS)
        self._timer.timeout.connect(self._begin)
        self._closed = False

    def check(self, kind: str, values: tuple[Any, ...], at_once: bool = False) -> None:
        """Check these values if no others come for a moment, or `at_once`."""
        self._waiting[kind] = values
        if at_once:
            self._begin()
        else:
            self._timer.start()

    def close(self) -> bool:
        """End the thread; False if it did not end in time."""
        self._closed = True
        self._timer.stop()
        return self._worker is None or self._worker.close()

    def _begin(self) -> None:
        self._timer.stop()
        if self._closed:
            return
        if self._worker is None:
            self._worker = StreamThread("checks", self)
            self._worker.finished.connect(self._on_finished)
            self._worker.failed.connect(self._on_failed)
        waiting, self._waiting = self._waiting, {}
        for kind, values in waiting.items():
            job = self._start(self._worker, kind, values)
            self._running[job.id] = (kind, values)

    def _start(self, worker: StreamThread, kind: str, values: tuple[Any, ...]) -> Job:
        check = self._checks[kind]

        def run(stop: threading.Event) -> Generator[None, None, str]:
            yield from ()  # a generator, as the thread runs them
            return check(*values)

        return worker.start(run)

    @Slot(int, object)
    def _on_finished(self, job_id: int, sentence: object) -> None:
        kind, values = self._running.pop(job_id)
        if not self._closed:
            self.checked.emit(kind, values, str(sentence or ""))

    @Slot(int, str, str)
    def _on_failed(self, job_id: int, sentence: str, details: str) -> None:
        kind, values = self._running.pop(job_id)
        if not self._closed:
            self.checked.emit(kind, values, sentence)
