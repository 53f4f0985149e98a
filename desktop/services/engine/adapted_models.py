"""The loaded model as a chat's adapters make it: their template may have other tags and another switch."""

from __future__ import annotations

import threading
from collections.abc import Generator
from functools import partial

from PySide6.QtCore import QObject, Signal, Slot

from desktop.services.engine.engine_controller import EngineController
from engine.core import ChatSource, ModelInfo

__all__ = ["AdaptedModels"]

Lines = tuple[str, ...]
"""`AdapterSettings.adapters`."""


class AdaptedModels(QObject):
    """Asks the engine about each set of adapters once for each loaded model; until it has answered, and where
    the adapters cannot be read, which a reply reports, they count as changing nothing.

    Signals:
        found(): a set of adapters that was asked for does change something.
    """

    found = Signal()

    def __init__(self, engine: EngineController) -> None:
        super().__init__(engine)
        self._engine = engine
        self._known: dict[Lines, ModelInfo] = {}
        engine.model_changed.connect(self._forget)

    def of(self, adapters: Lines) -> ModelInfo | None:
        """The loaded model with these adapters, None for none; one of a server takes no adapters."""
        model = self._engine.model
        if model is None or model.host or not adapters:
            return model
        if adapters not in self._known:
            self._known[adapters] = model
            self._engine.ask(
                partial(_describe, adapters), lambda _event: None, partial(self._take, adapters, model)
            )
        return self._known[adapters]

    def _take(self, adapters: Lines, asked: ModelInfo, answer: ModelInfo | None, _sentence: str) -> None:
        if asked is self._engine.model and answer is not None and answer != asked:
            self._known[adapters] = answer
            self.found.emit()

    @Slot()
    def _forget(self) -> None:
        self._known.clear()


def _describe(
    adapters: Lines, source: ChatSource, _stop: threading.Event
) -> Generator[None, None, ModelInfo]:
    yield from ()
    return source.described(adapters)
