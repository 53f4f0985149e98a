"""Replies side by side in the window: written at once, stopped, kept; with keys, in small windows."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QEnterEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop.services.session.several import ColumnSettings
from desktop.settings import Appearance, Behaviour
from desktop.store.conversations.personas import Persona, PersonaStore
from desktop.store.database.database import StoreError
from desktop.views.comparison.dialog import CompareDialog, label_of
from desktop.views.comparison.page import ComparisonPage
from desktop.views.transcript.rows import RowKind
from engine.settings import ConstraintSettings, SamplerSettings
from tests.desktop.hand import Hand

Key, Mod = Qt.Key, Qt.KeyboardModifier
CTRL_SHIFT = Mod.ControlModifier | Mod.ShiftModifier


@pytest.fixture
def hand(qtbot, tmp_path):
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.session.set_settings(Appearance())  # fonts and colours are those of the whole process
    found.close()


def page(hand: Hand) -> ComparisonPage:
    found = hand.window.comparisons.page
    assert found is not None
    assert found.isVisible()
    return found


def shown(hand: Hand) -> list[str]:
    """The texts of all columns."""
    return ["".join(item.text for item in column.messages.items()) for column in page(hand).columns]


def whole(hand: Hand) -> bool:
    """Whether all columns are made."""
    comparison = page(hand).comparison
    return comparison is not None and len(page(hand).columns) == len(comparison.columns)


def until_written(hand: Hand) -> None:
    hand.qtbot.waitUntil(
        lambda: not hand.session.busy and whole(hand) and not any(each.runs for each in page(hand).columns)
    )


def held(hand: Hand, count: int) -> threading.Event:
    """Begin `count` replies to the last message that wait for the event."""
    hand.session.set_settings(dataclasses.replace(hand.session.settings(Behaviour), several=count))
    gate = hand.echo.chat.hold = threading.Event()
    before = len(hand.echo.chat.requests)
    hand.press(Key.Key_S, CTRL_SHIFT)
    hand.qtbot.waitUntil(lambda: len(hand.echo.chat.requests) == before + count and whole(hand))
    return gate


def dialog_of(hand: Hand) -> CompareDialog:
    found = hand.window.comparisons.dialog
    assert found is not None
    hand.qtbot.waitUntil(found.isVisible)
    return found


def test_all_replies_are_seen_being_written_and_one_is_kept(hand) -> None:
    hand.say("apples and pears")
    gate = held(hand, 3)
    assert not hand.window.chat.transcript.isVisible()
    assert page(hand).title.words == "3 replies to “apples and pears”"
    assert all(column.words.text().startswith("Reading the prompt") for column in page(hand).columns)
    hand.echo.chat.running_every = 1
    gate.set()
    until_written(hand)
    assert shown(hand) == ["apples and pears"] * 3
    for column in page(hand).columns:
        assert column.words.text().startswith("3 tokens · ")
        assert column.words.text().endswith(" tok/s")
        assert column.title.text().startswith(f"{column.place}. Seed ")
    kept = page(hand).columns[1].column.message
    hand.click("Keep reply 2")
    assert hand.window.chat.transcript.isVisible()
    assert not hand.window.comparisons.page.isVisible()
    assert hand.items()[-1].id == kept
    assert hand.items()[-1].variant_count == 4
    assert len(hand.session.replies.models) == 1, "columns that have gone show nothing any more"


def test_replies_that_have_to_be_json_are_code(hand) -> None:
    hand.say("apples")
    hand.session.set_settings(ConstraintSettings(format="json"))
    gate = held(hand, 2)
    assert [item.language for each in page(hand).columns for item in each.messages.items()] == ["json"] * 2
    gate.set()
    until_written(hand)
    for column in page(hand).columns:
        (item,) = column.messages.items()
        (code,) = [row for row in column.transcript.messages.rows_of(item.id) if row.source]
        assert (code.kind, code.text) == (RowKind.CODE, "apples")


def test_each_column_has_its_own_stop_and_esc_stops_all(hand) -> None:
    hand.say("apples")
    gate = held(hand, 3)
    hand.click("Stop reply 2")
    hand.qtbot.waitUntil(lambda: not page(hand).columns[1].runs)
    hand.qtbot.waitUntil(lambda: page(hand).columns[1].words.text() == "stopped by you")
    assert [column.runs for column in page(hand).columns] == [True, False, True]
    assert page(hand).stop.isVisible()
    page(hand).columns[0].transcript.setFocus()
    hand.press(Key.Key_Escape)
    until_written(hand)
    assert [column.words.text() for column in page(hand).columns] == ["stopped by you"] * 3
    assert not page(hand).stop.isVisible()
    page(hand).columns[0].transcript.setFocus()
    hand.press(Key.Key_Escape)
    assert hand.window.chat.transcript.isVisible(), "a second Esc closes the page"
    assert not gate.is_set()


@pytest.mark.slow
def test_the_keyboard_keeps_one_and_the_others_can_be_deleted(hand) -> None:
    hand.say("apples")
    before = hand.items()[-1].id
    held(hand, 3).set()
    until_written(hand)
    kept = page(hand).columns[2].column.message
    page(hand).discard.setChecked(True)
    page(hand).columns[0].transcript.setFocus()
    hand.press(Key.Key_3, Mod.ControlModifier)
    assert hand.items()[-1].id == kept
    assert hand.session.stores.kept.variants(kept) == (before, kept)
    assert hand.window.chat.banner.text.text() == "The other replies were deleted."
    hand.click("Undo", hand.window.chat.banner)
    assert hand.items()[-1].variant_count == 4
    assert hand.items()[-1].id == kept


def test_one_button_stands_out_that_of_the_column_in_use(hand) -> None:
    hand.say("Which one?")
    held(hand, 3).set()
    until_written(hand)
    columns = page(hand).columns

    def outstanding() -> list[int]:
        return [each.place for each in columns if each.keep.property("tone") == "primary"]

    columns[0].transcript.setFocus()
    assert outstanding() == [1]
    columns[2].transcript.setFocus()
    assert outstanding() == [3]
    QApplication.sendEvent(columns[1], QEnterEvent(QPoint(20, 20), QPoint(20, 20), QPoint(20, 20)))
    assert outstanding() == [2]


def test_text_in_the_message_box_gets_several_replies(hand) -> None:
    hand.type("plums")
    hand.session.set_settings(dataclasses.replace(hand.session.settings(Behaviour), several=2))
    hand.press(Key.Key_S, CTRL_SHIFT)
    until_written(hand)
    assert shown(hand) == ["plums", "plums"]
    assert hand.window.chat.composer.text() == ""
    assert hand.texts() == ["plums", "plums"]


def test_a_long_text_is_counted_first(hand) -> None:
    hand.window.chat.composer.set_text("word " * 600)
    hand.session.set_settings(dataclasses.replace(hand.session.settings(Behaviour), several=2))
    hand.press(Key.Key_S, CTRL_SHIFT)
    hand.qtbot.waitUntil(lambda: hand.window.comparisons.page is not None)
    until_written(hand)
    assert len(hand.echo.chat.requests) == 2
    hand.echo.chat.hold = None
    hand.say("pears")
    assert len(hand.echo.chat.requests) == 3, "the next message has one reply again"


def test_another_reply_shows_the_chat(hand) -> None:
    hand.say("apples")
    held(hand, 2).set()
    until_written(hand)
    hand.press(Key.Key_R, Mod.ControlModifier)
    hand.qtbot.waitUntil(lambda: hand.window.chat.transcript.isVisible())
    hand.wait_for("idle")
    assert hand.items()[-1].variant_count == 4


def test_what_produced_a_reply_is_shown_from_its_column(hand) -> None:
    hand.say("apples")
    held(hand, 2).set()
    until_written(hand)
    second = page(hand).columns[1]
    second.transcript.act("origin", second.column.message)
    details = hand.window.reply_details.dialog
    assert details is not None
    assert details.reply.message.id == second.column.message
    details.close()
    menu = second.transcript.make_menu(QPoint(20, 20))
    texts = {action.text() for action in menu.actions()}
    menu.deleteLater()
    assert texts.isdisjoint({"Regenerate the reply", "Delete message", "Edit message", "Compare replies…"})


def test_the_end_of_a_reply_that_cannot_be_saved_is_shown(hand, monkeypatch) -> None:
    hand.say("apples")
    gate = held(hand, 2)

    def fail(*_what: object) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(type(hand.session.stores.kept), "finish", fail)
        gate.set()
        until_written(hand)
        assert [column.words.text().startswith("1 token") for column in page(hand).columns] == [True, True]
        assert shown(hand) == ["apples", "apples"]
    assert hand.session.save_replies() == {}


def test_keys_of_the_transcript_reach_the_columns(hand) -> None:
    hand.say("apples and pears")
    held(hand, 2).set()
    until_written(hand)
    second = page(hand).columns[1].transcript
    second.setFocus()
    hand.press(Key.Key_F, Mod.ControlModifier)
    hand.qtbot.waitUntil(lambda: second.finding.bar.isVisible())
    hand.press(Key.Key_Escape)
    hand.box.setFocus()
    hand.press(Key.Key_Up)
    assert hand.window.chat.transcript.isVisible(), "an own message is edited in the chat"
    hand.qtbot.waitUntil(lambda: QApplication.focusWidget() is not hand.box)


@pytest.mark.slow
def test_columns_follow_the_look_and_the_model(hand) -> None:
    hand.echo.chat.reply = "[T]secret[/T]words"
    hand.say("apples")
    held(hand, 2).set()
    until_written(hand)
    looks = {column.transcript.messages.tags for column in page(hand).columns}
    assert looks == {hand.window.chat.transcript.messages.tags}
    look = hand.session.settings(Appearance)

    def sizes() -> set[float]:
        views = [hand.window.chat.transcript, *(column.transcript for column in page(hand).columns)]
        return {view.messages.style.text_font.pointSizeF() for view in views}

    [before] = sizes()
    hand.session.set_settings(dataclasses.replace(look, text_scale=150))
    hand.qtbot.waitUntil(lambda: sizes() == {1.5 * before})
    page(hand).leave()
    hand.window.comparisons.compare_versions()
    hand.qtbot.waitUntil(lambda: whole(hand))
    hand.qtbot.waitUntil(lambda: sizes() == {1.5 * before})


def test_several_replies_cannot_begin_with_a_given_text(hand) -> None:
    hand.window.chat.composer.set_opening("Sure,")
    hand.type("plums")
    hand.press(Key.Key_S, CTRL_SHIFT)
    assert "cannot start with a given text" in hand.window.chat.banner.text.text()
    assert hand.window.chat.composer.text() == "plums"
    assert hand.texts() == []


def test_greedy_sampling_says_why_not(hand) -> None:
    hand.session.set_settings(dataclasses.replace(hand.session.settings(SamplerSettings), temperature=0.0))
    hand.type("plums")
    hand.press(Key.Key_S, CTRL_SHIFT)
    assert "would be the same" in hand.window.chat.banner.text.text()
    assert hand.window.chat.composer.text() == "plums"


def test_shift_on_the_button_and_the_menu_write_several(hand) -> None:
    hand.say("apples")
    transcript = hand.window.chat.transcript
    hand.qtbot.waitUntil(transcript.settled)
    button = next(
        widget.buttons["regenerate"]
        for row, widget in transcript.pool.footers()
        if row.item.role == "assistant"
    )
    QTest.mouseClick(button, Qt.MouseButton.LeftButton, Mod.ShiftModifier)
    until_written(hand)
    assert len(page(hand).columns) == 4
    page(hand).leave()
    transcript.act("versions", hand.items()[-1].id)
    hand.qtbot.waitUntil(lambda: whole(hand))
    assert len(page(hand).columns) == 5
    assert page(hand).columns[0].title.text() == "1. Version 1"


@pytest.mark.slow
def test_the_dialog_asks_for_settings_personas_and_models(hand) -> None:
    ada = PersonaStore(hand.session.stores.database).save(Persona(0, "Ada", "", "You are Ada."))
    hand.say("apples")
    hand.press(Key.Key_X, CTRL_SHIFT)
    dialog = dialog_of(hand)
    assert [row.remove.isEnabled() for row in dialog.rows] == [False, False]
    hand.click("Add a reply", dialog)
    hand.click("Add a reply", dialog)
    assert not dialog.add.isEnabled()
    hand.click("Remove reply 4", dialog)
    first, second, third = dialog.rows
    first.preset.setCurrentText("Precise")
    second.temperature.setValue(1.5)
    second.seed.setText("12")
    third.persona.setCurrentText("Ada")
    assert not first.model.isVisible(), "there is only the loaded one"
    QTest.keyClick(dialog, Key.Key_Return)
    until_written(hand)
    titles = [column.title.text() for column in page(hand).columns]
    assert titles == ["1. Precise", "2. Temperature 1.5, seed 12", "3. Ada"]
    sampled = [request.sampler for request in hand.echo.chat.requests[-3:]]
    assert (sampled[1].temperature, sampled[1].seed) == (1.5, 12)
    assert hand.echo.chat.requests[-1].messages[0].content == "You are Ada."
    assert sampled[0] != sampled[2]
    page(hand).leave()
    hand.window.comparisons.compare()
    again = dialog_of(hand)
    assert [row.preset.currentText() for row in again.rows] == [
        "Precise",
        "As in this chat",
        "As in this chat",
    ]
    assert again.rows[2].persona.currentData() == ada.id
    QTest.keyClick(again, Key.Key_Escape)
    hand.qtbot.waitUntil(lambda: hand.window.comparisons.dialog is None)


def test_columns_of_other_models_say_what_they_wait_for(hand) -> None:
    hand.say("apples")
    other = hand.folder / "other.gguf"
    other.touch()
    load = hand.echo.load_hold = threading.Event()
    service = hand.desktop.services.comparisons
    assert service.begin(hand.items()[-1].id, [ColumnSettings(label="One"), ColumnSettings(model=str(other))])
    hand.qtbot.waitUntil(lambda: page(hand).columns[1].words.text() == "Loading other.")
    first, second = page(hand).columns
    assert [column.title.text() for column in (first, second)] == ["1. One · echo", "2. other"]
    assert not second.keep.isEnabled()
    assert second.runs
    load.set()
    until_written(hand)
    assert shown(hand) == ["apples", "apples"]
    assert second.keep.isEnabled()
    hand.click("Keep reply 1")
    banner = hand.window.chat.banner
    assert banner.text.text() == "This reply was written by echo, which is not loaded."
    hand.click("Load echo", banner)
    hand.qtbot.waitUntil(lambda: hand.session.model is not None and hand.session.model.name == "echo")


def test_reading_a_prompt_shows_its_progress(hand) -> None:
    hand.say("apples")
    held(hand, 2)
    second = page(hand).columns[1]
    hand.session.replies.engine.progress.emit(second.column.message, "Reading the prompt", 512, 4000)
    assert second.words.text() == "Reading the prompt, 512 of 4,000"
    assert page(hand).columns[0].words.text().startswith("Reading the prompt")
    hand.press(Key.Key_Escape)
    until_written(hand)


def test_the_page_belongs_to_its_chat(hand) -> None:
    hand.say("apples")
    mine = hand.session.conversation
    gate = held(hand, 2)
    hand.press(Key.Key_N, Mod.ControlModifier)
    assert hand.window.chat.transcript.isVisible()
    assert not hand.window.comparisons.page.isVisible()
    gate.set()
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in)
    hand.window.navigation.open_chat(mine)
    hand.qtbot.waitUntil(lambda: whole(hand))
    assert shown(hand) == ["apples", "apples"]
    hand.press(Key.Key_K, CTRL_SHIFT)
    assert hand.session.notebook
    assert not hand.window.chat.transcript.isVisible()
    assert not hand.window.comparisons.page.isVisible()


def test_a_message_below_what_is_compared_shows_the_chat_again(hand) -> None:
    hand.say("apples")
    held(hand, 2).set()
    until_written(hand)
    hand.echo.chat.hold = None
    hand.say("pears")
    hand.qtbot.waitUntil(hand.window.chat.transcript.isVisible)
    assert hand.texts() == ["apples", "apples", "pears", "pears"]


def test_the_pane_key_goes_through_the_page(hand) -> None:
    hand.say("apples")
    held(hand, 2).set()
    until_written(hand)
    visited = []
    hand.window.top_bar.picker.setFocus()
    for _ in range(2):
        hand.press(Key.Key_F6)
        visited.append(QApplication.focusWidget())
    assert visited == [page(hand).columns[0].transcript, hand.box]


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_small_window_scrolls_to_the_columns(hand, theme) -> None:
    hand.session.set_settings(dataclasses.replace(hand.session.settings(Appearance), theme=theme))
    hand.echo.chat.reply = "A long reply. " * 60
    hand.say("apples " * 60)
    held(hand, 8).set()
    until_written(hand)
    hand.window.resize(520, 480)
    hand.qtbot.waitUntil(lambda: hand.window.width() == 520)
    area = page(hand).area
    last = page(hand).columns[-1]
    hand.qtbot.waitUntil(lambda: area.horizontalScrollBar().maximum() > 0)

    def reached() -> bool:
        area.ensureWidgetVisible(last.keep, 4, 4)
        shown = QRect(last.keep.mapTo(area.viewport(), QPoint(0, 0)), last.keep.size())
        return area.viewport().rect().contains(shown)

    hand.qtbot.waitUntil(reached)  # a low window cuts the text, not the buttons
    assert last.transcript.height() >= 4 * last.fontMetrics().lineSpacing(), "lines that can be read"
    assert last.words.geometry().top() >= last.transcript.geometry().bottom()
    assert page(hand).minimumSizeHint().width() <= page(hand).width()
    assert page(hand).close_button.isVisible()
    assert page(hand).rect().contains(page(hand).close_button.geometry())
    assert area.horizontalScrollBar().value() > 0
    held(hand, 2).set()
    until_written(hand)
    assert area.horizontalScrollBar().value() == 0, "a new comparison begins at its first reply"


@pytest.mark.slow
def test_the_window_can_close_while_several_are_written(hand) -> None:
    hand.say("apples")
    held(hand, 3)
    hand.restart()
    assert hand.texts() == ["apples", ""]
    assert hand.items()[-1].variant_count == 4
    assert not any(item.running for item in hand.items())
    assert hand.window.comparisons.page is None


def test_labels() -> None:
    assert label_of(ColumnSettings()) == "As in this chat"
    assert (
        label_of(ColumnSettings("Precise", 0.25, 7, 3), [(3, "Ada")])
        == "Ada, Precise, temperature 0.25, seed 7"
    )
    assert label_of(ColumnSettings(temperature=0.0)) == "Temperature 0"
    assert label_of(ColumnSettings(seed=0)) == "Seed 0"


@pytest.mark.slow
def test_a_column_that_was_not_written_is_tried_again_by_key(hand) -> None:
    hand.say("Hello there")
    hand.desktop.services.comparisons.begin(
        hand.session.messages.items()[0].id, [ColumnSettings(), ColumnSettings(model="/models/missing.gguf")]
    )
    until_written(hand)
    written, missing = page(hand).columns
    assert not written.retry.isVisible()
    assert missing.retry.isVisible()
    assert missing.retry.accessibleName() == "Generate reply 2 again"
    assert not missing.keep.isEnabled()
    missing.column.settings = dataclasses.replace(missing.column.settings, model="/models/x.gguf")
    missing.retry.setFocus()
    QTest.keyClick(missing.retry, Key.Key_Space)
    assert not missing.retry.isVisible()
    assert not missing.retry.hasFocus()
    until_written(hand)
    assert missing.keep.isEnabled()
    assert not missing.retry.isVisible()
    assert shown(hand)[1] == shown(hand)[0]
