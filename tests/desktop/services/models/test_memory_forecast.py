"""What the memory bars count: also a model's own head, where it drafts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from desktop.services.models.memory_forecast import PARTS, MemoryForecast
from engine.core import ModelInfo
from engine.settings import Settings, SpeculationSettings

INFO = ModelInfo(
    path="m.gguf", name="m", architecture="qwen35", format="gguf", parameters=1, bits_per_weight=4.5,
    weights_bytes=3_000_000, layers=2, context_length=512, vocab_size=300, kv_bytes_per_token=64,
    stop_token_ids=(), has_chat_template=True, kv_shapes=((2, 16), (2, 16)), resident_bytes=3_000_000,
    mtp=True, mtp_bytes=1_000_000,
)  # fmt: skip


class Session(QObject):
    """What the forecast asks of a session."""

    model_changed = Signal(object)
    settings_changed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.model: ModelInfo | None = INFO
        self.drafting = SpeculationSettings()

    def settings(self, cls: type[Settings]) -> Settings:
        return self.drafting if cls is SpeculationSettings else cls()


class Devices(QObject):
    """No GPU is known."""

    found = Signal()
    usable = None


def _draft(forecast: MemoryForecast) -> int:
    (place,) = forecast.places()
    return place.parts[PARTS.index("Draft model")]


def _never(path: Path) -> Any:
    raise AssertionError("no headers need to be read")


def test_the_models_own_head_counts_while_it_drafts(qapp: Any) -> None:
    session = Session()
    forecast = MemoryForecast(session, Devices(), _never)  # type: ignore[arg-type]
    assert _draft(forecast) == 0
    session.drafting = SpeculationSettings(method="mtp")
    assert _draft(forecast) > INFO.mtp_bytes  # and a layer of keys and values
    session.model = dataclasses.replace(INFO, mtp=False, mtp_bytes=0)
    assert _draft(forecast) == 0
    forecast.close()
