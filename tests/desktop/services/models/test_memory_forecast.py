"""What the memory bars count: also a model's own head, where it drafts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject, Signal
from pytestqt.qtbot import QtBot

from desktop.services.models.memory_forecast import MEMORY, PARTS, MemoryForecast, forecast
from engine.backends import main_memory
from engine.backends.choice import Gpu, Usable
from engine.core import ModelInfo
from engine.settings import CacheSettings, LoadSettings, Settings, SpeculationSettings

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


def test_a_drafter_goes_on_as_long_as_the_model() -> None:
    """An EAGLE-3 drafter's own context is that of the texts that it learnt from."""
    drafter = dataclasses.replace(
        INFO, path="drafter", assistant=True, context_length=32, kv_shapes=((2, 16),), mtp=False
    )
    counted = []
    for info in (drafter, dataclasses.replace(drafter, context_length=512)):
        found = forecast(INFO, info, CacheSettings(context_length=512), LoadSettings(), None)
        counted.append(found[-1].parts[PARTS.index("Draft model")])
    assert counted[0] == counted[1] > drafter.resident_bytes


def test_the_models_own_head_counts_while_it_drafts(qapp: Any) -> None:
    session = Session()
    forecast = MemoryForecast(session, Devices(), _never)  # type: ignore[arg-type]
    assert _draft(forecast) == 0
    session.drafting = SpeculationSettings(method="mtp")
    assert _draft(forecast) > INFO.mtp_bytes  # and a layer of keys and values
    session.model = dataclasses.replace(INFO, mtp=False, mtp_bytes=0)
    assert _draft(forecast) == 0
    forecast.close()


def test_the_header_of_a_draft_model_is_read_once_and_then_counts(qtbot: QtBot) -> None:
    read: list[Path] = []
    session = Session()
    session.drafting = SpeculationSettings(method="model", draft_model="/models/small.gguf")
    forecast = MemoryForecast(
        session,  # type: ignore[arg-type]
        Devices(),  # type: ignore[arg-type]
        lambda path: read.append(path) or dataclasses.replace(INFO, mtp=False),
    )
    with qtbot.waitSignal(forecast.changed):
        assert [_draft(forecast), _draft(forecast)] == [0, 0]  # not known yet
    assert _draft(forecast) > INFO.resident_bytes
    assert read == [Path("/models/small.gguf")]
    assert forecast.close()


@pytest.mark.parametrize(
    "drafting",
    [
        SpeculationSettings(method="none", draft_model="/models/small.gguf"),
        SpeculationSettings(method="ngram", draft_model="/models/small.gguf"),
        SpeculationSettings(method="model"),
    ],
)
def test_a_draft_model_that_is_not_used_takes_nothing(qapp: Any, drafting: SpeculationSettings) -> None:
    session = Session()
    session.drafting = drafting
    forecast = MemoryForecast(session, Devices(), _never)  # type: ignore[arg-type]
    assert _draft(forecast) == 0
    assert forecast.close()


GB = 10**9
LOADED = dataclasses.replace(INFO, resident_bytes=2 * GB, cache_bytes=GB // 2)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GB of memory, of which 10 GB are free."""
    monkeypatch.setattr(main_memory, "total_memory", lambda: 16 * GB)
    monkeypatch.setattr(main_memory, "free_memory", lambda: 10 * GB)


@pytest.mark.usefixtures("memory")
def test_what_other_programs_hold_is_neither_free_nor_the_models() -> None:
    (place,) = forecast(LOADED, None, CacheSettings(), LoadSettings(), None)
    others, weights, cache, draft, work = place.parts
    assert (place.name, place.total, others, draft) == (MEMORY, 16 * GB, 3 * GB + GB // 2, 0)
    assert weights > 0
    assert cache > 0
    assert place.free == 16 * GB - others - weights - cache - work
    (elsewhere,) = forecast(
        dataclasses.replace(LOADED, where="GPU 0"), None, CacheSettings(), LoadSettings(backend="cpu"), None
    )
    assert elsewhere.parts[0] == 6 * GB  # the memory that the model leaves is a GPU's
    (more,) = forecast(
        dataclasses.replace(LOADED, resident_bytes=9 * GB), None, CacheSettings(), LoadSettings(), None
    )
    assert more.parts[0] == 0


@pytest.mark.usefixtures("memory")
def test_a_draft_model_has_its_own_part_and_no_longer_cache_than_it_can_use() -> None:
    short = dataclasses.replace(INFO, context_length=64)
    drafts = []
    for draft in (short, dataclasses.replace(INFO, context_length=512)):
        (place,) = forecast(LOADED, draft, CacheSettings(), LoadSettings(), None)
        drafts.append(place.parts[3])
    assert 0 < drafts[0] < drafts[1]


@pytest.mark.usefixtures("memory")
def test_layers_are_shared_by_the_gpus_and_main_memory_has_no_part_then() -> None:
    gpus = Usable((Gpu(0, "A", 24 * GB, 20 * GB), Gpu(1, "B", 24 * GB, 23 * GB)))
    info = dataclasses.replace(LOADED, where="A and B", gpu_bytes=2 * GB)
    load = LoadSettings(backend="cuda")
    *cards, main = forecast(info, None, CacheSettings(), load, gpus)
    assert main.parts == (6 * GB, 0, 0, 0, 0)
    assert cards
    assert {card.total for card in cards} == {24 * GB}
    whole = forecast(
        dataclasses.replace(info, where=""), None, CacheSettings(), LoadSettings(backend="cpu"), None
    )
    assert sum(card.parts[1] for card in cards) == pytest.approx(whole[0].parts[1], rel=0.01)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(("gpus", "others"), [("1", {1: 1 * GB}), ("0,1", {0: 4 * GB, 1: 1 * GB})])
def test_each_gpu_that_is_chosen_has_what_other_programs_hold_and_a_share(
    gpus: str, others: dict[int, int]
) -> None:
    known = Usable((Gpu(0, "A", 24 * GB, 20 * GB), Gpu(1, "B", 24 * GB, 23 * GB)))
    info = dataclasses.replace(LOADED, gpu_bytes=2 * GB)
    *cards, main = forecast(info, None, CacheSettings(), LoadSettings(backend="cuda", gpus=gpus), known)
    assert [card.name for card in cards] == [f"GPU {index}, {'AB'[index]}" for index in others]
    assert [(card.total, card.parts[0]) for card in cards] == [(24 * GB, held) for held in others.values()]
    assert {card.parts[1] for card in cards} == {2 * GB // len(others)}
    assert main.parts[1:] == (0, 0, 0, 0)
