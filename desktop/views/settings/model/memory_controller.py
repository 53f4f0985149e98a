"""Puts the memory bars into the Model and Context panes and keeps them live while sliders move."""

from __future__ import annotations

import dataclasses
from typing import Any

from PySide6.QtCore import QObject

from desktop.services.models.memory_forecast import MemoryForecast
from desktop.services.session.chat_session import ChatSession
from desktop.views.settings.model.memory_bar import MemoryBar
from desktop.views.settings.settings_pane import Inspector
from engine.settings import CacheSettings, LoadSettings, Settings

__all__ = ["MemoryController"]

_SLIDERS: dict[type[Settings], str] = {CacheSettings: "context_length", LoadSettings: "gpu_memory"}


class MemoryController(QObject):
    """`bars` by the settings class of their pane."""

    def __init__(
        self,
        session: ChatSession,
        forecast: MemoryForecast,
        inspector: Inspector,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._forecast = session, forecast
        self.bars: dict[type[Settings], MemoryBar] = {
            cls: MemoryBar(forecast) for cls in (CacheSettings, LoadSettings)
        }
        for cls, bar in self.bars.items():
            inspector.set_extra(cls, bar, below=True, words="memory ram vram weights cache free")
        for cls in _SLIDERS:
            inspector.forms[cls].typed.connect(lambda name, value, cls=cls: self._preview(cls, name, value))

    def _preview(self, cls: type[Settings], name: str, value: Any) -> None:
        if name == _SLIDERS[cls]:
            self._forecast.preview(dataclasses.replace(self._session.settings(cls), **{name: value}))  # type: ignore[type-var]
