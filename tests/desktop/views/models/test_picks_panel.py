"""“Get models” opens with recommended models, offline too; each is got, resumed and loaded from its card."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from desktop.views.models.hub_page import OFFLINE
from engine.errors import DownloadError
from tests.desktop.views.models.test_library import Deck

pytestmark = pytest.mark.gui


@pytest.fixture
def deck(qtbot: QtBot, qapp, tmp_path: Path, monkeypatch) -> Iterator[Deck]:
    monkeypatch.setattr("engine.backends.choice.free_memory", lambda: 11_000_000_000)
    found = Deck(qtbot, tmp_path, 0)
    found.hand.window.actions_by_name["get_models"].trigger()
    qtbot.waitUntil(lambda: len(found.window.hub.picks.cards) == 3)
    yield found
    found.hand.close()


def cards(deck: Deck):
    return {card.suggestion.why: card for card in deck.window.hub.picks.cards}


def test_it_opens_with_three_models_and_asks_nobody(deck: Deck) -> None:
    page = deck.window.hub
    assert deck.window.tabs.currentWidget() is page
    assert page.picks.isVisible()
    assert list(cards(deck)) == ["small", "good", "largest"]
    assert "11 GB of free memory" in page.picks.state.text()
    assert "tokens/s" in cards(deck)["good"].facts.text()
    assert deck.hub.asked == []


@pytest.mark.slow
def test_a_model_is_downloaded_paused_resumed_and_loaded(deck: Deck) -> None:
    service, card = deck.hand.desktop.services.hub, cards(deck)["good"]
    deck.hub.gate = threading.Semaphore(3)
    assert card.get.text() == "Download"
    card.get.click()
    pick = card.suggestion.pick
    deck.qtbot.waitUntil(lambda: service.downloads[0].done > 0)
    assert service.downloads[0].choice == pick.choice
    assert not card.get.isEnabled()
    service.pause(service.downloads[0].key)
    deck.qtbot.waitUntil(lambda: card.get.text() == "Resume")
    deck.hub.gate.release(20)
    card.get.click()
    deck.qtbot.waitUntil(lambda: card.get.text() == "Load")
    Path(service.downloads[0].path).parent.mkdir(exist_ok=True)
    Path(service.downloads[0].path).touch()
    card.get.click()
    deck.hand.wait_for("idle")
    assert [str(path) for path in deck.shelf.opened] == [service.downloads[0].path]


def test_a_model_that_is_here_is_loaded(deck: Deck) -> None:
    card = cards(deck)["small"]
    name = card.suggestion.pick.files[0].name
    deck.shelf.names.append(name.removesuffix(".gguf"))
    deck.window.refresh()
    deck.qtbot.waitUntil(lambda: card.get.text() == "Load")
    assert card.get.accessibleName() == f"Load {card.suggestion.pick.name}"
    deck.qtbot.waitUntil(lambda: not deck.hand.desktop.services.local_models.searching)


def test_offline_the_list_is_shown_and_says_what_a_download_needs(deck: Deck) -> None:
    page, service = deck.window.hub, deck.hand.desktop.services.hub
    service.set_offline(True)
    cards(deck)["good"].get.click()
    assert service.downloads == ()
    assert page.picks.state.text() == OFFLINE
    page.picks.renew.click()
    assert deck.hub.asked == []
    service.set_offline(False)
    deck.hub.error = DownloadError("There is no network.")
    cards(deck)["good"].get.click()
    deck.qtbot.waitUntil(lambda: [each.state for each in service.downloads] == ["failed"])
    assert cards(deck)["good"].get.text() == "Retry"


def test_the_list_is_updated_when_asked_only(deck: Deck) -> None:
    panel = deck.window.hub.picks
    panel.renew.click()
    assert not panel.renew.isEnabled()
    deck.qtbot.waitUntil(panel.renew.isEnabled)
    assert deck.hub.asked == ["picks"]
    assert "2 January 2999" in panel.made.text()
    deck.hub.error = DownloadError("There is no network.")
    panel.renew.click()
    deck.qtbot.waitUntil(lambda: panel.state.text() == "There is no network.")
    assert panel.renew.isEnabled()


@pytest.mark.slow
def test_a_search_takes_their_place_until_one_goes_back(deck: Deck) -> None:
    page = deck.window.hub
    assert page.back.isHidden()
    QTest.keyClicks(page.query, "qwen")
    page.go.click()
    deck.qtbot.waitUntil(lambda: page.found.rowCount() == 3)
    assert page.results.isVisible()
    assert not page.picks.isVisible()
    page.back.click()
    assert page.picks.isVisible()
    assert page.back.isHidden()


@pytest.mark.slow
def test_without_room_for_any_it_says_so(deck: Deck, monkeypatch) -> None:
    monkeypatch.setattr("engine.backends.choice.free_memory", lambda: 500_000_000)
    deck.hand.desktop.services.library._later()
    deck.qtbot.waitUntil(lambda: deck.window.hub.picks.cards == [])
    assert deck.window.hub.picks.state.text().startswith("None of the recommended models fits")
