"""The library's estimates: made while it is visible, with each model's settings; measured once for all."""

from __future__ import annotations

import dataclasses
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from desktop.services.models.fit_estimates import LibraryService, measure_bandwidth
from desktop.services.models.local_models import LocalModelsService
from engine.core import ModelInfo, Stats
from engine.errors import EngineError
from engine.hub.local.scan import FoundModel
from engine.models.memory.fit import Fit
from engine.settings import CacheSettings
from tests.desktop.fakes import ECHO_INFO
from tests.desktop.services.conftest import Harness


class Library:
    """Local models and the service over a session; `fits` is what was estimated."""

    def __init__(self, harness: Harness, folder: Path, rate: float = 10e9) -> None:
        self.harness, self.folder, self.rate = harness, folder, rate
        self.asked: list[int] = []
        self.threads: set[int] = set()
        self.fits: dict[str, Fit] = {}
        for name in ("a.gguf", "b.gguf"):
            (folder / name).touch()
        self.catalogue = LocalModelsService(self.describe, self.find)
        self.service = LibraryService(harness.session, self.catalogue, folder, self.measure)
        self.service.estimated.connect(self.fits.update)

    def describe(self, path: Path) -> ModelInfo:
        return dataclasses.replace(ECHO_INFO, path=str(path), name=path.stem)

    def find(self, folders: Sequence[tuple[str, str]], stop: threading.Event) -> Iterator[FoundModel]:
        yield from (FoundModel(self.folder / name, name, "Here") for name in ("a.gguf", "b.gguf"))
        yield FoundModel(self.folder / "broken", "broken", "Here", "It is broken.")

    def measure(self, threads: int) -> float:
        self.asked.append(threads)
        self.threads.add(threading.get_ident())
        if self.rate < 0:
            raise EngineError("It cannot be measured.")
        return self.rate

    def fit(self, name: str) -> Fit | None:
        return self.fits.get(str(self.folder / name))

    def close(self) -> None:
        assert self.service.close()
        assert self.catalogue.close()


@pytest.fixture
def library(harness: Harness, tmp_path: Path) -> Iterator[Library]:
    found = Library(harness, tmp_path)
    yield found
    found.close()


def test_nothing_happens_before_the_library_is_visible(library: Library) -> None:
    with library.harness.qtbot.waitSignal(library.catalogue.finished):
        library.catalogue.refresh([], [])
    library.harness.qtbot.wait(150)
    assert library.fits == {}
    assert library.asked == []


def test_estimates(library: Library) -> None:
    library.harness.session.keep_for_model(
        str(library.folder / "b.gguf"), CacheSettings, {"context_length": 1024}
    )
    library.service.set_active(True)
    library.catalogue.refresh([], [])
    wait = library.harness.qtbot.waitUntil
    wait(lambda: (fit := library.fit("b.gguf")) is not None and fit.tokens_per_second > 0, timeout=10_000)
    first, second = library.fit("a.gguf"), library.fit("b.gguf")
    assert first is not None
    assert second is not None
    assert (first.context_length, second.context_length) == (4096, 1024)
    assert first.cache > second.cache
    assert library.fit("broken") is None
    assert library.service.bandwidth == 10e9
    assert threading.get_ident() not in library.threads
    library.harness.session.set_settings(CacheSettings(context_length=512))
    wait(lambda: (fit := library.fit("a.gguf")) is not None and fit.context_length == 512)
    library.service.set_active(False)
    library.service.set_active(True)
    assert library.asked == [0]  # once for the session


def test_no_measurement_while_a_reply_runs(library: Library) -> None:
    harness = library.harness
    harness.load()
    harness.chat.hold = threading.Event()
    assert harness.session.submit("wait")
    harness.qtbot.waitUntil(lambda: harness.session.state == "prefill")
    library.service.set_active(True)
    assert library.asked == []
    harness.chat.hold.set()
    harness.qtbot.waitUntil(lambda: library.asked == [0])


def test_without_a_measurement_there_is_no_speed(harness: Harness, tmp_path: Path) -> None:
    library = Library(harness, tmp_path, rate=-1.0)
    library.service.set_active(True)
    library.catalogue.refresh([], [])
    harness.qtbot.waitUntil(lambda: library.fit("a.gguf") is not None)
    harness.qtbot.waitUntil(lambda: library.asked == [0])
    found = library.fit("a.gguf")
    assert found is not None
    assert found.tokens_per_second == 0.0
    library.close()


def replied(library: Library, *, tokens: int = 64, seconds: float = 2.0, drafted: int = 0) -> None:
    """A reply of the loaded model has run alone."""
    session = library.harness.session
    session.replies.ran.emit(7, Stats(new_tokens=tokens, decode_seconds=seconds, drafted_tokens=drafted))
    session.reply_ended.emit(session.conversation, 7, False)


def loaded(library: Library, name: str = "a.gguf", offloaded: int = 0) -> Library:
    """The library, with a model that takes long to read loaded."""
    library.harness.echo.describe = lambda path: dataclasses.replace(  # type: ignore[method-assign]
        ECHO_INFO, path=str(path), weights_bytes=10**9, offloaded_bytes=offloaded
    )
    library.harness.load(str(library.folder / name))
    return library


def test_speeds_are_learned_from_replies(library: Library) -> None:
    wait = library.harness.qtbot.waitUntil
    replied(loaded(library), tokens=65)
    library.service.set_active(True)
    library.catalogue.refresh([], [])
    wait(lambda: library.fit("a.gguf") is not None and library.fit("b.gguf") is not None)
    first, second = library.fit("a.gguf"), library.fit("b.gguf")
    assert first is not None
    assert second is not None
    assert (first.tokens_per_second, first.measured) == (32.0, True)
    assert not second.measured
    assert second.tokens_per_second > 32.0  # much smaller, on the same machine
    assert library.service.bandwidth > 0
    assert library.asked == []  # what a reply has shown need not be measured
    replied(library, tokens=65, seconds=1.0)
    replied(library, tokens=65, seconds=1.0)
    wait(lambda: (fit := library.fit("a.gguf")) is not None and fit.tokens_per_second == 64.0)


def test_what_says_nothing_about_speed_is_not_learned(library: Library) -> None:
    replied(loaded(library), tokens=31)
    replied(library, seconds=0.0)
    session = library.harness.session
    session.reply_ended.emit(session.conversation, 7, False)  # nothing is known of it
    assert library.service.bandwidth == 0.0
    replied(library, drafted=5)  # its own speed, but not the machine's
    assert library.service.bandwidth == 0.0
    library.service.set_active(True)
    library.catalogue.refresh([], [])
    library.harness.qtbot.waitUntil(lambda: (fit := library.fit("a.gguf")) is not None and fit.measured)


def test_a_model_that_is_partly_on_the_disk_says_nothing_about_memory(library: Library) -> None:
    replied(loaded(library, offloaded=10**8))
    assert library.service.bandwidth == 0.0
    library.service.set_active(True)
    library.catalogue.refresh([], [])
    library.harness.qtbot.waitUntil(lambda: (fit := library.fit("a.gguf")) is not None and not fit.measured)


def test_replies_beside_others_are_not_learned(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = loaded(library).harness.session.replies
    growing = SimpleNamespace(message_id=7)
    monkeypatch.setattr(type(replies), "conversations", (1, 2))
    monkeypatch.setattr(replies, "growing_in", lambda chat: (growing,))
    replied(library)
    assert library.service.bandwidth == 0.0
    monkeypatch.setattr(type(replies), "conversations", (1,))
    replied(library)
    assert library.service.bandwidth > 0


@pytest.mark.slow
def test_the_measurement_itself() -> None:
    assert 1e9 < measure_bandwidth(1) < 1e12


@pytest.mark.parametrize(
    "answer", ["", "no number", "-1.0", OSError("no more processes"), subprocess.TimeoutExpired("python", 1)]
)
def test_a_bandwidth_that_cannot_be_measured_is_unknown(
    monkeypatch: pytest.MonkeyPatch, answer: str | Exception
) -> None:
    def run(*args: object, **kwargs: object) -> subprocess.CompletedProcess[str]:
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess([], 1, answer, "")

    monkeypatch.setattr(subprocess, "run", run)
    assert measure_bandwidth(2) == 0.0
