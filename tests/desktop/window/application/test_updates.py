"""Help > Check for updates: asked, found, installed, gone back; and the weekly check, which is off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox

from desktop.services.system import updates as updates_module
from desktop.services.system.updates import WEEK_S
from desktop.settings import Appearance, Behaviour
from desktop.views.application.update_dialog import UpdateDialog
from desktop.views.transcript.links import LinkDialog
from tests.desktop.fake_updates import NOTES, FakeUpdates
from tests.desktop.hand import Hand


@pytest.fixture
def hand(qtbot, qapp, tmp_path: Path) -> Iterator[Hand]:
    hand = Hand(qtbot, tmp_path)
    hand.desktop.services.updates.api = FakeUpdates()
    yield hand
    hand.close()


def fake(hand: Hand) -> FakeUpdates:
    api = hand.desktop.services.updates.api
    assert isinstance(api, FakeUpdates)
    return api


def opened(hand: Hand) -> UpdateDialog:
    hand.window.actions_by_name["updates"].trigger()
    dialog = hand.window.application_controller.update_dialog
    assert dialog is not None
    return dialog


def test_a_newer_version_is_shown_installed_and_started(hand, qtbot, qapp, monkeypatch) -> None:
    api, restarted = fake(hand), []
    monkeypatch.setattr(updates_module, "relaunch", lambda: restarted.append(True) or True)
    dialog = opened(hand)
    qtbot.waitUntil(dialog.act.isVisible)
    assert "Inglenook 2.0 (2026-11-25) is available. You have 1.0." in dialog.words.text()
    assert dialog.notes.toPlainText() == NOTES.replace("- ", "")
    assert dialog.notes.document().begin().textList() is not None
    assert dialog.notes.isVisible()
    assert not dialog.back.isVisible()
    assert api.installs == 0
    api.go.clear()
    hand.click("Install", dialog)
    qtbot.waitUntil(lambda: dialog.bar.value() == 285)
    assert dialog.words.text() == "Fetching Inglenook 2.0: 40 MB of 140 MB"
    api.go.set()
    qtbot.waitUntil(lambda: dialog.act.text() == "Restart now")
    assert "2.0 is installed" in dialog.words.text()
    assert dialog.back.isVisible()
    hand.click("Restart now", dialog)
    qtbot.waitUntil(lambda: hand.desktop.ended)
    assert hand.window.after_end(qapp) == 0
    assert restarted == [True]


def test_enter_takes_the_next_step(hand, qtbot) -> None:
    """Installs what was found, does nothing while that runs, and closes a dialog that only says something."""
    dialog = opened(hand)
    qtbot.waitUntil(dialog.act.hasFocus)
    dialog.notes.setFocus()
    fake(hand).go.clear()
    QTest.keyClick(dialog.notes, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: dialog.bar.value() == 285)
    QTest.keyClick(dialog.notes, Qt.Key.Key_Return)
    assert dialog.isVisible()
    fake(hand).go.set()
    qtbot.waitUntil(lambda: dialog.act.text() == "Restart now")
    assert dialog.act.hasFocus()
    hand.click("Close", dialog)
    fake(hand).update = None
    dialog = opened(hand)
    qtbot.waitUntil(lambda: dialog.words.text() == "Inglenook 1.0 is the latest version.")
    qtbot.waitUntil(dialog.shut.hasFocus)
    QTest.keyClick(dialog, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: hand.window.application_controller.update_dialog is None)


def test_notes_are_shown_as_markdown_and_a_link_is_opened_only_if_wanted(hand, qtbot) -> None:
    api = fake(hand)
    assert api.update is not None
    api.update = replace(api.update, notes="## Faster\n\nSee [*all*](https://example.org/all) and `--data`.")
    dialog = opened(hand)
    qtbot.waitUntil(dialog.notes.isVisible)
    assert dialog.notes.toPlainText() == "Faster\nSee all and --data."
    light = dialog.notes.toHtml()
    hand.session.set_settings(Appearance(theme="dark"))
    qtbot.waitUntil(lambda: dialog.notes.toHtml() != light)
    dialog.notes.setFocus()
    QTest.keyClick(dialog.notes, Qt.Key.Key_Tab)
    QTest.keyClick(dialog.notes, Qt.Key.Key_Return)
    (question,) = dialog.findChildren(LinkDialog)
    assert question.informativeText() == "https://example.org/all"
    question.reject()
    dialog.reject()


def test_without_being_asked_nothing_is_checked_and_nothing_starts_again(hand, qapp, monkeypatch) -> None:
    monkeypatch.setattr(updates_module, "relaunch", lambda: pytest.fail("nobody wanted that"))
    updates = hand.desktop.services.updates
    updates.begin()
    updates.look()
    assert not updates._timer.isActive()
    assert fake(hand).checks == 0
    hand.window.close()
    assert hand.window.after_end(qapp) == 0


def test_the_latest_version_says_so(hand, qtbot) -> None:
    fake(hand).update = None
    dialog = opened(hand)
    qtbot.waitUntil(lambda: dialog.words.text() == "Inglenook 1.0 is the latest version.")
    assert not dialog.act.isVisible()
    assert not dialog.bar.isVisible()
    hand.click("Close", dialog)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("sentence", ["The list is not signed.", "The server's name was not found."])
def test_a_failed_check_is_a_sentence_and_can_be_tried_again(hand, qtbot, sentence) -> None:
    fake(hand).sentence = sentence
    dialog = opened(hand)
    qtbot.waitUntil(lambda: dialog.words.text() == sentence)
    fake(hand).sentence = ""
    hand.click("Try again", dialog)
    qtbot.waitUntil(lambda: dialog.act.text() == "Install")
    fake(hand).sentence = "The disk is full."
    hand.click("Install", dialog)
    qtbot.waitUntil(lambda: dialog.words.text() == "The disk is full.")
    fake(hand).sentence = ""
    hand.click("Try again", dialog)
    qtbot.waitUntil(lambda: dialog.act.text() == "Restart now")
    hand.click("Close", dialog)


def test_closing_the_dialog_stops_the_download(hand, qtbot) -> None:
    dialog = opened(hand)
    qtbot.waitUntil(dialog.act.isVisible)
    fake(hand).go.clear()
    hand.click("Install", dialog)
    qtbot.waitUntil(lambda: dialog.bar.value() > 0)
    with qtbot.waitSignal(hand.desktop.services.updates.stopped):
        hand.click("Cancel", dialog)
    assert fake(hand).kept is None
    assert hand.window.application_controller.update_dialog is None


def test_other_installations_say_how_they_are_updated(hand, qtbot) -> None:
    fake(hand).advised = "Inglenook was installed with pip."
    dialog = opened(hand)
    qtbot.waitUntil(dialog.notes.isVisible)
    assert dialog.advice.isVisible()
    assert not dialog.act.isVisible()
    dialog.reject()
    fake(hand).source = False
    dialog = opened(hand)
    assert "built without an address" in dialog.words.text()
    assert dialog.advice.text() == "Inglenook was installed with pip."
    assert fake(hand).checks == 1
    dialog.reject()


def test_the_version_before_can_be_brought_back(hand, qtbot) -> None:
    fake(hand).update, fake(hand).kept = None, Path("before")
    dialog = opened(hand)
    qtbot.waitUntil(lambda: "latest" in dialog.words.text())
    for sentence, words in (
        ("It cannot be put back.", "cannot be put back"),
        ("", "previous version is restored"),
    ):
        fake(hand).sentence = sentence
        hand.click("Roll back…", dialog)
        box = dialog.findChildren(QMessageBox)[-1]
        hand.click("Go back", box)
        qtbot.waitUntil(lambda words=words: words in dialog.words.text())
    assert dialog.act.text() == "Restart now"
    assert not dialog.back.isVisible()
    dialog.reject()


@pytest.mark.slow
def test_the_weekly_check_is_once_a_week_and_only_tells(hand, qtbot) -> None:
    updates, session, now = hand.desktop.services.updates, hand.session, [1e9]
    updates._clock = lambda: now[0]
    session.set_settings(replace(session.settings(Behaviour), weekly_check=True))
    updates.begin()
    assert updates._timer.isActive()
    with qtbot.waitSignal(updates.available):
        updates.look()
    assert "Inglenook 2.0 is available." in hand.window.chat.banner.text.text()
    for later, checks in ((WEEK_S - 1, 1), (WEEK_S, 2)):
        now[0] = 1e9 + later
        updates.look()
        qtbot.waitUntil(lambda: updates._job is None)
        assert fake(hand).checks == checks
    hand.click("Show…")
    dialog = hand.window.application_controller.update_dialog
    assert dialog is not None
    assert dialog.act.text() == "Install"
    assert fake(hand).checks == 2
    dialog.reject()
    fake(hand).sentence, now[0] = "No network.", 1e9 + 3 * WEEK_S
    updates.look()
    qtbot.waitUntil(lambda: updates._job is None)
    assert "No network" not in hand.window.chat.banner.text.text()
    assert session.preferences.updates_checked_at == 1e9 + WEEK_S
