"""The loaded model stays until the new one can be loaded."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.engine.model_host import Leaving, ModelHost, open_chat
from desktop.services.engine.stream_thread import StreamThread
from engine.core import ChatRequest, Done, Loading, Message
from engine.errors import EngineError
from engine.settings import CacheSettings, LoadSettings, SamplerSettings, StopSettings
from tests.desktop.fakes import EchoApi
from tests.engine.models.oracle import finish
from tests.tiny import TINY, write_folder, write_gguf

LOAD, CACHE = LoadSettings(backend="reference"), CacheSettings(context_length=512, memory=1)


def answers(slot: ModelHost) -> bool:
    """Whether the loaded model writes."""
    request = ChatRequest(
        (Message("user", "Hello"),), SamplerSettings(temperature=0.0), StopSettings(max_tokens=3)
    )
    *_, last = slot.answer(request, threading.Event())
    return isinstance(last, Done)


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[ModelHost]:
    """With a tiny real model."""
    made = ModelHost()
    finish(made.load(write_gguf(tmp_path / "first.gguf"), LOAD, CACHE, threading.Event()))
    yield made
    finish(made.unload(threading.Event()))
    assert made.info is None


def _without_tokenizer(folder: Path) -> Path:
    path = write_folder(folder / "m")
    (path / "tokenizer.json").unlink()
    return path


def _cut(folder: Path) -> Path:
    path = write_gguf(folder / "m.gguf")
    path.write_bytes(path.read_bytes()[:-1])
    return path


BAD: dict[str, Any] = {
    "no file": lambda folder: folder / "nothing.gguf",
    "cut short": _cut,
    "unknown": lambda folder: write_folder(folder / "m", architecture="Rwkv5ForCausalLM"),
    "no tokenizer": _without_tokenizer,
    "a template that is none": lambda folder: write_gguf(
        folder / "m.gguf", tokenizer__chat_template="{% for %}"
    ),
    "a context that cannot be": lambda folder: write_gguf(folder / "m.gguf", TINY.but(context_length=256)),
}


def test_a_file_without_a_name_of_its_own_is_called_after_its_folder(slot: ModelHost, tmp_path: Path) -> None:
    assert slot.info is not None
    own = slot.info.name
    (tmp_path / "Tiny 1B").mkdir()
    path = write_gguf(tmp_path / "Tiny 1B" / "model.gguf")
    finish(slot.load(path, LOAD, CACHE, threading.Event()))
    assert slot.info is not None
    assert (slot.info.name, own != "Tiny 1B") == ("Tiny 1B", True)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_model_does_not_cost_the_loaded_one(slot: ModelHost, tmp_path: Path, what: str) -> None:
    before = slot.info
    with pytest.raises(EngineError):
        finish(slot.load(BAD[what](tmp_path), LOAD, CACHE, threading.Event()))
    assert slot.info is before is not None
    assert answers(slot)


def test_a_file_that_changes_while_it_is_loaded(slot: ModelHost, tmp_path: Path) -> None:
    """The old model has been released by then, and can be loaded again."""
    path = write_gguf(tmp_path / "m.gguf")
    loading = slot.load(path, LOAD, CACHE, threading.Event())
    while next(loading).stage != "Loading the weights":
        pass
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(EngineError, match=r"m\.gguf was changed while tensor .* was read"):
        finish(loading)
    assert slot.info is None
    finish(slot.load(tmp_path / "first.gguf", LOAD, CACHE, threading.Event()))
    assert answers(slot)


def test_another_model_replaces_it(slot: ModelHost, tmp_path: Path) -> None:
    assert finish(slot.load(write_folder(tmp_path / "second"), LOAD, CACHE, threading.Event())) is slot.info
    assert slot.info is not None
    assert slot.info.format == "safetensors"
    assert answers(slot)


def test_stopped_at_any_event(slot: ModelHost, tmp_path: Path) -> None:
    """Until the weights are read the old model stays; from then on there is none."""
    path = write_gguf(tmp_path / "m.gguf")
    stages: list[tuple[str, bool]] = []
    for count in range(1, 8):
        if slot.info is None:
            finish(slot.load(tmp_path / "first.gguf", LOAD, CACHE, threading.Event()))
        stop = threading.Event()
        loading = slot.load(path, LOAD, CACHE, stop)
        stage = [next(loading).stage for _ in range(count)][-1]
        stop.set()
        assert finish(loading) is None
        stages.append((stage, slot.info is not None))
    assert [kept for _, kept in stages] == sorted((kept for _, kept in stages), reverse=True)
    assert all(
        kept == (stage in ("Reading the model's headers", "Starting the engine")) for stage, kept in stages
    )
    assert {kept for _, kept in stages} == {True, False}


def test_the_old_model_survives_a_bad_file() -> None:
    echo = EchoApi()
    slot = ModelHost(echo.open_chat, echo.describe)
    first = finish(slot.load(Path("good.gguf"), LOAD, CACHE, threading.Event()))
    with pytest.raises(EngineError):
        finish(slot.load(Path("bad.gguf"), LOAD, CACHE, threading.Event()))
    assert slot.info is first
    assert not echo.chat.closed
    assert answers(slot)
    finish(slot.unload(threading.Event()))
    assert echo.chat.closed


def test_the_engine_is_said_to_start_before_the_model_is_looked_at(tmp_path: Path) -> None:
    """Importing it takes a second or two, the first time."""
    leaving = Leaving(None, lambda: None)
    loading = open_chat(tmp_path / "gone.gguf", LOAD, CACHE, threading.Event(), leaving)
    assert next(loading) == Loading("Starting the engine", 0, 1)
    with pytest.raises(EngineError, match=r"gone\.gguf"):
        list(loading)


def test_a_panic_while_a_model_is_loaded_asks_for_a_fresh_start(qtbot: QtBot) -> None:
    """It is not an Exception and may have left anything; a generator that is closed leaves nothing."""

    class Panic(BaseException):
        pass

    def open_chat(*_: object) -> Generator[Loading, None, Any]:
        yield Loading("Reading the model's headers", 0, 1)
        raise Panic

    slot = ModelHost(open_chat, EchoApi().describe)
    leaving = slot.load(Path("a.gguf"), LOAD, CACHE, threading.Event())
    next(leaving)
    leaving.close()
    assert not slot.needs_reload
    worker = StreamThread("loading", on_error=slot.failed)
    with qtbot.waitSignal(worker.failed):
        worker.start(lambda stop: slot.load(Path("a.gguf"), LOAD, CACHE, stop))
    assert worker.close()
    assert slot.needs_reload
