"""The hub's service against a fake hub: answers in order, downloads that pause, resume, fail and leave
nothing.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.services.models.hub import HubApi, HubService
from desktop.store.settings.preferences import Preferences
from engine.core import Downloaded, Downloading
from engine.errors import DownloadError
from engine.hub import HubChoice, HubModel, Picks, UnfinishedDownload
from engine.settings import LoadSettings


def choice(title: str = "Q4_K_M", model: str = "org/model", size: int = 1000) -> HubChoice:
    return HubChoice(model, "a" * 40, title, "gguf", (), size)


class FakeHub(HubApi):
    """Answers from lists; downloads advance as `gate` is released, in steps of ten bytes of a hundred."""

    def __init__(self) -> None:
        self.offline: list[bool] = []
        self.token = ""
        self.gate: threading.Semaphore | None = None
        self.had: dict[str, int] = {}
        self.discarded: list[str] = []
        self.error: Exception | None = None
        self.left: list[UnfinishedDownload] = []
        self.asked: list[str] = []
        self.hold = threading.Event()
        self.hold.set()

    def renew_picks(self, folder: Path, stop: threading.Event) -> Picks:
        self.asked.append("picks")
        if self.error is not None:
            raise self.error
        return dataclasses.replace(self.picks(folder), updated="2999-01-02")

    def search(self, query: str, stop: threading.Event) -> list[HubModel]:
        self.asked.append("search")
        while not self.hold.wait(0.005):
            if stop.is_set():
                raise DownloadError("it was stopped")
        if self.error is not None:
            raise self.error
        return [HubModel(f"org/{query}-{number}", "org") for number in range(3)]

    def choices(
        self, model_id: str, folder: Path, load: LoadSettings, stop: threading.Event
    ) -> list[HubChoice]:
        return [choice("Q2_K", model_id), choice("Q4_K_M", model_id)]

    def download(
        self, choice: HubChoice, folder: Path, stop: threading.Event
    ) -> Iterator[Downloading | Downloaded]:
        for step in range(self.had.get(choice.title, 0) + 1, 11):
            while self.gate is not None and not self.gate.acquire(timeout=0.005):
                if stop.is_set():
                    raise DownloadError("it was stopped (the next attempt continues from there)")
            if self.error is not None:
                raise self.error
            self.had[choice.title] = step
            yield Downloading("Downloading", step * choice.bytes // 10, choice.bytes)
        yield Downloaded(str(folder / f"{choice.title}.gguf"))

    def discard(self, choice: HubChoice, folder: Path) -> None:
        self.had.pop(choice.title, None)
        self.discarded.append(choice.title)

    def unfinished(self, folder: Path) -> list[UnfinishedDownload]:
        return self.left

    def set_token(self, token: str) -> str:
        self.token = token
        return "It is kept for this run only." if token == "weak" else ""

    def token_source(self) -> str:
        return "keyring" if self.token else ""

    def set_offline(self, on: bool) -> None:
        self.offline.append(on)


class Deck:
    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.qtbot, self.hub = qtbot, FakeHub()
        self.preferences = Preferences(folder / "preferences.json")
        self.service = HubService(self.preferences, folder / "models", self.hub)
        self.said: list[tuple[object, ...]] = []
        for name in ("found", "chosen", "trouble", "finished", "token_changed"):
            getattr(self.service, name).connect(lambda *values, name=name: self.said.append((name, *values)))

    def states(self) -> list[tuple[str, str, int]]:
        return [(fetching.choice.title, fetching.state, fetching.done) for fetching in self.service.downloads]

    def until(self, *states: tuple[str, str, int]) -> None:
        self.qtbot.waitUntil(lambda: self.states() == list(states))


@pytest.fixture
def deck(qtbot: QtBot, tmp_path: Path) -> Iterator[Deck]:
    found = Deck(qtbot, tmp_path)
    yield found
    found.hub.hold.set()
    assert found.service.close()


def test_search_and_choices(deck: Deck) -> None:
    deck.service.search("qwen")
    deck.qtbot.waitUntil(lambda: bool(deck.said))
    name, query, models = deck.said.pop()
    assert (name, query) == ("found", "qwen")
    assert [model.id for model in models] == ["org/qwen-0", "org/qwen-1", "org/qwen-2"]  # type: ignore[attr-defined]
    deck.service.ask_choices("org/qwen-1")
    deck.qtbot.waitUntil(lambda: bool(deck.said))
    assert deck.said[0][:2] == ("chosen", "org/qwen-1")


def test_only_the_latest_search_is_answered(deck: Deck) -> None:
    busy: list[bool] = []
    deck.service.busy_changed.connect(busy.append)
    deck.hub.hold.clear()
    deck.service.search("slow")
    deck.service.search("quick")
    deck.hub.hold.set()
    deck.qtbot.waitUntil(lambda: busy[-1:] == [False])
    assert [said[:2] for said in deck.said] == [("found", "quick")]


def test_an_error_is_one_sentence(deck: Deck) -> None:
    deck.hub.error = DownloadError("The hub could not be reached.")
    deck.service.search("x")
    deck.qtbot.waitUntil(lambda: deck.said == [("trouble", "search", "The hub could not be reached.")])


def test_a_download(deck: Deck) -> None:
    deck.service.download(choice())
    deck.until(("Q4_K_M", "finished", 1000))
    assert deck.said[-1][0] == "finished"
    assert str(deck.said[-1][1]).endswith("Q4_K_M.gguf")
    deck.service.forget(("org/model", "Q4_K_M"))
    deck.until()


def test_pause_and_resume(deck: Deck) -> None:
    deck.hub.gate = threading.Semaphore(3)
    deck.service.download(choice())
    deck.until(("Q4_K_M", "running", 300))
    deck.service.pause(("org/model", "Q4_K_M"))
    deck.until(("Q4_K_M", "paused", 300))
    deck.hub.gate.release(20)
    deck.service.download(choice())
    deck.service.download(choice())  # a second click does nothing
    deck.until(("Q4_K_M", "finished", 1000))
    assert [said[0] for said in deck.said] == ["finished"]


def test_cancel_leaves_nothing(deck: Deck) -> None:
    deck.hub.gate = threading.Semaphore(2)
    deck.service.download(choice())
    deck.until(("Q4_K_M", "running", 200))
    deck.service.discard(("org/model", "Q4_K_M"))
    deck.until()
    deck.qtbot.waitUntil(lambda: deck.hub.discarded == ["Q4_K_M"])
    assert deck.hub.had == {}


def test_downloads_run_one_by_one_and_a_waiting_one_can_be_cancelled(deck: Deck) -> None:
    deck.hub.gate = threading.Semaphore(1)
    for title in ("A", "B", "C"):
        deck.service.download(choice(title))
    deck.until(("A", "running", 100), ("B", "waiting", 0), ("C", "waiting", 0))
    waits = deck.service.downloads[1]
    assert (waits.total, waits.sentence) == (1000, "Waiting for the previous download")
    deck.service.discard(("org/model", "B"))
    deck.hub.gate.release(40)
    deck.until(("A", "finished", 1000), ("C", "finished", 1000))
    assert "B" not in deck.hub.had


def test_a_step_of_unknown_size_keeps_the_size_that_is_known(
    deck: Deck, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(
        _hub: FakeHub, choice: HubChoice, folder: Path, stop: threading.Event
    ) -> Iterator[Downloading]:
        yield Downloading("Downloading", 1000, choice.bytes)
        yield Downloading("Checking the file", 1000, 0)
        while not stop.wait(0.005):
            pass
        raise DownloadError("it was stopped")

    monkeypatch.setattr(FakeHub, "download", checked)
    deck.service.download(choice())
    deck.qtbot.waitUntil(lambda: deck.service.downloads[0].sentence == "Checking the file")
    assert (deck.service.downloads[0].done, deck.service.downloads[0].total) == (1000, 1000)


def test_a_failed_download_can_be_retried(deck: Deck) -> None:
    deck.hub.error = DownloadError("The hash is wrong.")
    deck.service.download(choice())
    deck.until(("Q4_K_M", "failed", 0))
    assert deck.service.downloads[0].sentence == "The hash is wrong."
    deck.hub.error = None
    deck.service.download(choice())
    deck.until(("Q4_K_M", "finished", 1000))


def test_a_folder_without_downloads_has_none_that_are_unfinished(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    assert HubApi().unfinished(tmp_path) == []


def test_unfinished_downloads_of_an_earlier_run(deck: Deck) -> None:
    deck.hub.left = [UnfinishedDownload(choice("Q8_0"), 400)]
    deck.hub.had["Q8_0"] = 4
    deck.service.begin()
    deck.until(("Q8_0", "paused", 400))
    deck.service.discard(("org/model", "Q8_0"))
    deck.qtbot.waitUntil(lambda: deck.hub.discarded == ["Q8_0"])


def test_only_the_place_of_the_token_is_reported(deck: Deck) -> None:
    deck.service.begin()
    deck.service.set_token("secret")
    deck.service.set_token("weak")
    deck.service.set_token("")
    deck.qtbot.waitUntil(lambda: len(deck.said) == 4)
    assert deck.said == [
        ("token_changed", "", ""), ("token_changed", "keyring", ""),
        ("token_changed", "keyring", "It is kept for this run only."), ("token_changed", "", ""),
    ]  # fmt: skip


def test_the_offline_switch_is_saved_and_applied_before_every_request(deck: Deck) -> None:
    deck.service.set_offline(True)
    assert deck.preferences.offline
    deck.service.search("x")
    deck.qtbot.waitUntil(lambda: bool(deck.said))
    assert set(deck.hub.offline) == {True}
