"""Checks what the user types: patterns, expressions, biases and adapters, by the engine on a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from PySide6.QtCore import QObject, Signal

from desktop.services.engine.background import Background
from desktop.services.system.debounce import debounce
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

    return _problem(lambda: Expression(pattern))


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
        self._background = Background("checks", self)
        self._waiting: dict[str, tuple[Any, ...]] = {}
        self._timer = debounce(self, self._begin, _PAUSE_MILLISECONDS)

    def check(self, kind: str, values: tuple[Any, ...], at_once: bool = False) -> None:
        """Check these values if no others come for a moment, or `at_once`."""
        self._waiting[kind] = values
        if at_once:
            self._begin()
        else:
            self._timer.start()

    def close(self) -> bool:
        """End the thread; False if it did not end in time."""
        self._timer.stop()
        return self._background.close()

    def _begin(self) -> None:
        self._timer.stop()
        waiting, self._waiting = self._waiting, {}
        for kind, values in waiting.items():
            self._start(kind, values)

    def _start(self, kind: str, values: tuple[Any, ...]) -> None:
        def ended(sentence: str | None, _details: str = "") -> None:
            self.checked.emit(kind, values, sentence or "")

        check = self._checks[kind]
        self._background.call(lambda _stop: check(*values), ended, ended)
