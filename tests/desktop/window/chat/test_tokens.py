"""The token inspector in the whole window: colours, popup, continuing from another token."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop.settings import Appearance
from desktop.store.conversations.token_trace import UNKNOWN
from desktop.views.transcript.tokens.popup import AlternativeButton
from desktop.views.transcript.tokens.row import TokenRow
from engine.settings import OutputSettings, SpeculationSettings
from tests.desktop.fakes import echo_token
from tests.desktop.hand import Hand

Key, Modifier = Qt.Key, Qt.KeyboardModifier
pytestmark = pytest.mark.gui


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.close()


def inspect(hand: Hand) -> None:
    hand.press(Key.Key_T, Modifier.ControlModifier | Modifier.ShiftModifier)


def rows(hand: Hand) -> list[TokenRow]:
    hand.window.chat.transcript.flush()
    live = hand.window.chat.transcript.pool.live
    return [
        widget
        for row, widget in sorted(live.items(), key=lambda pair: pair[0].index)
        if isinstance(widget, TokenRow)
    ]


def popup(hand: Hand):
    return hand.window.chat.transcript.inspection.popup


def hover(hand: Hand, token: int) -> None:
    """Rest with the pointer on a token of the last reply until its popup is there."""
    hand.window.chat.transcript.inspection.close()
    row = rows(hand)[-1]
    viewport = hand.window.chat.transcript.viewport()
    QTest.mouseMove(viewport, QPoint(1, viewport.height() - 2))
    QTest.mouseMove(viewport, viewport.mapFromGlobal(row.mapToGlobal(row.token_area(token).center())))
    hand.qtbot.waitUntil(popup(hand).isVisible)


def other(hand: Hand, place: int) -> AlternativeButton:
    return popup(hand).buttons[place]


def id_of(word: str) -> int:
    return echo_token(word, 0).id


def trace(hand: Hand, place: int = -1):
    return hand.session.tokens(hand.items()[place].id)


def test_tokens_are_shown_and_remembered_and_can_be_copied(hand) -> None:
    hand.say("one two three")
    assert not rows(hand)
    assert not hand.window.chat.legend.isVisible()
    inspect(hand)
    assert hand.window.chat.legend.isVisible()
    assert [row.row.text for row in rows(hand)] == ["one two three"]
    hand.click("Token colours: Entropy")
    assert hand.session.settings(Appearance).token_colours == "entropy"
    hand.press(Key.Key_C, Modifier.ControlModifier | Modifier.ShiftModifier)
    assert QApplication.clipboard().text() == "one two three"
    hand.restart()
    hand.wait_for("idle")
    assert hand.window.chat.legend.buttons["entropy"].isChecked()
    assert [row.row.text for row in rows(hand)] == ["one two three"]
    inspect(hand)
    assert not rows(hand)
    inspect(hand)
    assert hand.session.settings(Appearance).token_colours == "entropy"


def test_the_popup_says_what_is_known_of_a_token(hand) -> None:
    hand.session.set_settings(SpeculationSettings(method="ngram"))
    hand.say("one two three")
    inspect(hand)
    hover(hand, 1)
    found, token = popup(hand), echo_token(" two", 5)
    assert found.title.text() == "␣two"
    for words in (
        f"model {100 * token.raw_probability:.1f} %",
        f"id {token.id}",
        f"{token.entropy:.2f} nats",
        "drafted",
        "after 0.50 s",
    ):
        assert words in found.figures.text()
    names = [button.accessibleName() for button in found.buttons]
    assert len(names) == 5
    assert names[0].startswith("“␣two”")
    assert "used here" in names[0]
    assert "dropped by the sampler" in names[3]
    assert "Continue from here" in names[3]
    assert [button.isEnabled() for button in found.buttons] == [False, True, True, True, True]
    for row in rows(hand):
        assert row.accessibleName()
    hover(hand, 0)
    assert "drafted" not in popup(hand).figures.text()
    QTest.mouseMove(hand.window.chat.transcript.viewport(), QPoint(2, 2))
    hand.qtbot.waitUntil(lambda: not popup(hand).isVisible())


@pytest.mark.slow
def test_another_token_is_clicked_and_the_reply_goes_on_from_there(hand) -> None:
    hand.say("one two three four")
    inspect(hand)
    hover(hand, 2)
    chosen = other(hand, 1)
    gate = hand.echo.chat.hold = threading.Event()
    QTest.mouseClick(chosen, Qt.MouseButton.LeftButton)
    request = hand.echo.chat.requests
    hand.qtbot.waitUntil(lambda: len(request) == 2)
    ids = (id_of("one"), id_of(" two"), chosen.other.id)
    assert request[1].continue_ids == ids
    assert (request[1].continue_last, request[1].messages[-1].content) == (True, "one two three1")
    hand.qtbot.waitUntil(lambda: [row.row.text for row in rows(hand)] == ["one two three1"])
    assert not popup(hand).isVisible()
    hover(hand, 1)
    assert "wait for the reply being written" in popup(hand).note.text()
    assert not any(button.isEnabled() for button in popup(hand).buttons)
    gate.set()
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: other(hand, 1).isEnabled())  # the open popup knows that the reply is over
    assert hand.texts()[-1] == "one two three1 four"
    assert [row.row.text for row in rows(hand)] == ["one two three1 four"]
    assert hand.items()[-1].variant_count == 2
    hand.restart()
    hand.wait_for("idle")
    assert tuple(trace(hand).ids) == (*ids, id_of(" four"))
    assert trace(hand).token(2).probability == pytest.approx(chosen.other.probability)
    hand.click("Previous version")
    assert [row.row.text for row in rows(hand)] == ["one two three four"]


def test_from_the_keyboard(hand) -> None:
    hand.say("one two three")
    inspect(hand)
    row = rows(hand)[0]
    row.setFocus(Qt.FocusReason.TabFocusReason)
    hand.press(Key.Key_Right)
    hand.press(Key.Key_Return)
    assert popup(hand).isVisible()
    hand.press(Key.Key_Down)
    hand.press(Key.Key_Return)
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: hand.texts()[-1] == "one two2 three")
    assert hand.echo.chat.requests[-1].continue_ids == (
        id_of("one"),
        echo_token(" two", 5).alternatives[2].id,
    )


def test_a_click_shows_a_tokens_popup_and_another_place_takes_it_away(hand) -> None:
    hand.say("one two three")
    inspect(hand)
    hover(hand, 1)
    row, viewport = rows(hand)[-1], hand.window.chat.transcript.viewport()

    def at(token: int) -> QPoint:
        return viewport.mapFromGlobal(row.mapToGlobal(row.token_area(token).center()))

    left = Qt.MouseButton.LeftButton
    QTest.mouseClick(viewport, left, pos=at(1))
    assert popup(hand).isVisible()
    hand.window.chat.transcript.inspection.close()
    QTest.mouseClick(viewport, left, pos=at(0))  # at once, without resting
    assert popup(hand).isVisible()
    QTest.mousePress(viewport, left, pos=at(0))
    QTest.mouseMove(viewport, at(0) + QPoint(60, 0))  # a selection is drawn
    assert not popup(hand).isVisible()
    QTest.mouseRelease(viewport, left, pos=at(2))
    hover(hand, 1)
    QTest.mouseClick(viewport, left, pos=QPoint(3, viewport.height() - 3))
    assert not popup(hand).isVisible()


def test_a_popup_reached_with_the_pointer_stays(hand) -> None:
    hand.say("one two three")
    inspect(hand)
    hover(hand, 0)
    hand.press(Key.Key_Escape)
    row = rows(hand)[0]
    row.setFocus(Qt.FocusReason.TabFocusReason)
    hand.press(Key.Key_Return)
    viewport = hand.window.chat.transcript.viewport()
    hand.window.chat.transcript.inspection.leave()
    hand.qtbot.wait(400)
    assert popup(hand).isVisible()  # It has the focus.
    hand.press(Key.Key_Escape)
    assert not popup(hand).isVisible()
    QTest.mouseClick(viewport, Qt.MouseButton.LeftButton, pos=QPoint(30, 30))
    assert hand.window.isVisible()


@pytest.mark.slow
def test_why_a_reply_cannot_be_continued(hand) -> None:
    hand.say("one two three")
    inspect(hand)
    hand.session.unload_model()
    hand.wait_for("no_model")
    hover(hand, 1)
    assert popup(hand).note.text() == "To continue from here, open a model first."
    hand.load("stranger.gguf")
    hand.qtbot.waitUntil(lambda: "written by “echo”" in popup(hand).note.text())
    assert not any(button.isEnabled() for button in popup(hand).buttons)
    hand.echo.chat.reply = "one two three four"
    hand.session.continue_reply(hand.items()[-1].id)
    hand.wait_for("idle")
    hover(hand, 1)
    assert "Several models" in popup(hand).note.text()
    assert trace(hand).model == ""


def test_an_alternative_that_ends_the_reply_is_no_way_on(hand) -> None:
    stop = echo_token(" two", 5).alternatives[1].id
    describe = hand.echo.describe
    hand.echo.describe = lambda path: dataclasses.replace(describe(path), stop_token_ids=(stop,))
    hand.load("ends.gguf")
    hand.say("one two")
    inspect(hand)
    hover(hand, 1)
    assert [button.isEnabled() for button in popup(hand).buttons] == [False, False, True, True, True]
    assert "ends the reply" in other(hand, 1).accessibleName()


def test_an_edited_reply_has_no_tokens_and_what_follows_has(hand) -> None:
    hand.say("one two three four")
    hand.session.edit(hand.items()[-1].id, "one two")
    inspect(hand)
    assert trace(hand) is None
    assert not rows(hand)
    hand.session.continue_reply(hand.items()[-1].id)
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: [row.row.text for row in rows(hand)] == ["one two three four"])
    assert list(trace(hand).ids) == [UNKNOWN, id_of(" three"), id_of(" four")]
    hover(hand, 0)
    assert popup(hand).title.text() == "Text without tokens"
    assert not popup(hand).buttons
    hover(hand, 2)
    QTest.mouseClick(other(hand, 2), Qt.MouseButton.LeftButton)
    hand.qtbot.waitUntil(lambda: len(hand.echo.chat.requests) == 3)
    assert hand.echo.chat.requests[-1].continue_ids == ()  # the ids of what was typed are not known
    assert hand.echo.chat.requests[-1].messages[-1].content == "one two three four2"
    hand.wait_for("idle")


def test_a_continued_reply_keeps_the_tokens_it_had(hand) -> None:
    hand.session.set_settings(dataclasses.replace(hand.session.settings(OutputSettings), alternatives=0))
    hand.echo.chat.reply = "one two three four"
    hand.echo.chat.ending = ("max_tokens", "")
    hand.say("go")
    hand.echo.chat.reply = "one two three four five six"
    hand.session.continue_reply(hand.items()[-1].id)
    hand.wait_for("idle")
    assert trace(hand).text == "one two three four five six"
    assert trace(hand).ids_before(6) == tuple(map(id_of, ("one", " two", " three", " four", " five", " six")))
    inspect(hand)
    hover(hand, 1)
    assert "No alternatives were saved" in popup(hand).note.text()


def test_a_reply_is_shown_as_tokens_while_it_is_written(hand) -> None:
    inspect(hand)
    hand.echo.chat.reply, hand.echo.chat.delay_s = "word " * 400, 0.002
    hand.type("go")
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: bool(rows(hand)) and len(rows(hand)[-1].row.text) > 200)
    hand.press(Key.Key_Escape)
    hand.wait_for("idle")
    assert trace(hand).text == hand.texts()[-1]
    shown = "".join(row.source for row in hand.window.chat.transcript.pool.live if row.trace is not None)
    assert hand.texts()[-1].endswith(shown[-100:])
