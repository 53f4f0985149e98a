"""Notebooks in the whole window: a document that the user and the model write in turn, saved, undone,
branched from a token.
"""

from __future__ import annotations

import dataclasses
import json
import threading

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from desktop.app import EngineApi
from desktop.settings import Appearance
from desktop.store.conversations.bulk_insert import read_whole
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.records import NOTEBOOK
from desktop.store.conversations.token_trace import UNKNOWN
from desktop.store.database.database import DiskFull
from desktop.store.transfer.exporters.own import own_json
from desktop.views.transcript.find_bar import FindBar
from engine.core import Trimmed
from engine.settings import CacheSettings, SamplerSettings, StopSettings
from tests.desktop.fakes import EchoChat, echo_token
from tests.desktop.hand import Hand

Key, Modifier = Qt.Key, Qt.KeyboardModifier
pytestmark = pytest.mark.gui


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path)
    found.load()
    found.press(Key.Key_K, Modifier.ControlModifier | Modifier.ShiftModifier)
    yield found
    found.close()


def page(hand: Hand):
    return hand.window.notebooks.open_page


def editor(hand: Hand):
    return page(hand).editor


def write(hand: Hand, reply: str) -> None:
    hand.echo.chat.reply = reply
    hand.press(Key.Key_Return, Modifier.ControlModifier)
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: not editor(hand).streaming)


def keys(hand: Hand, text: str) -> None:
    """Type the text; QTest has no keys for an emoji, which is sent like an input method's."""
    for sign in text:
        QTest.keyClicks(editor(hand), sign) if sign.isascii() else editor(hand).insertPlainText(sign)


def stored(hand: Hand):
    store = hand.session.stores.of(hand.session.conversation)
    return store.path(hand.session.conversation)[0]


@pytest.mark.parametrize("pane", [False, True])
def test_a_new_notebook_wraps_its_text_where_it_can_be_seen(qtbot, qapp, tmp_path, pane) -> None:
    hand = Hand(qtbot, tmp_path, pane=pane)
    hand.press(Key.Key_K, Modifier.ControlModifier | Modifier.ShiftModifier)
    here = editor(hand)
    here.insertPlainText("some words of a long line " * 40)
    here.viewport().repaint()
    laid = here.document().firstBlock().layout()
    widest = max(laid.lineAt(place).naturalTextWidth() for place in range(laid.lineCount()))
    room = here.viewport().width() - 2 * here.document().documentMargin()
    assert laid.lineCount() > 4
    assert room - 200 < widest <= room
    hand.close()


def test_a_document_is_written_in_turns_undone_and_kept(hand) -> None:
    assert page(hand).isVisible()
    assert not hand.window.chat.composer.isVisible()
    assert not hand.window.context.bar.isVisible()
    assert hand.window.focusWidget() is editor(hand)
    keys(hand, "Once upon")
    hand.qtbot.waitUntil(lambda: stored(hand).text == "Once upon")
    write(hand, " a time there was")
    assert editor(hand).text() == "Once upon a time there was"
    asked = hand.echo.chat.requests[-1]
    assert (asked.plain, asked.messages[-1].content, asked.messages[0].role) == (
        True,
        "Once upon",
        "document",
    )
    assert stored(hand).text == "Once upon a time there was"
    assert hand.session.conversations.summaries()[0].title == "Once upon a time there was"
    hand.press(Key.Key_Z, Modifier.ControlModifier)
    assert editor(hand).text() == "Once upon"
    hand.press(Key.Key_Y, Modifier.ControlModifier)
    assert editor(hand).text() == "Once upon a time there was"
    write(hand, " 😀 end")
    keys(hand, "!")
    hand.click("Undo")
    assert editor(hand).text() == "Once upon a time there was!"
    hand.restart()
    assert editor(hand).text() == "Once upon a time there was!"
    assert hand.session.conversations.summaries()[0].kind == NOTEBOOK
    hand.window.navigation.new_chat()
    assert page(hand) is None
    assert hand.window.chat.composer.isVisible()
    assert hand.items() == ()


def test_it_writes_at_the_cursor_and_what_is_behind_stays_unread(hand) -> None:
    keys(hand, "A😀 tail")
    place = len("A😀".encode("utf-16-le")) // 2
    editor(hand).put_cursor(place)
    assert "5 characters after it are kept but not read" in page(hand).bar.note.text()
    write(hand, " one 😀 two")
    assert hand.echo.chat.requests[-1].messages[-1].content == "A😀"
    assert editor(hand).text() == stored(hand).text == "A😀 one 😀 two tail"
    trace = hand.session.tokens(stored(hand).id)
    assert trace.text == "A😀 one 😀 two tail"
    assert [id == UNKNOWN for id in trace.ids] == [True, False, False, False, True]
    editor(hand).put_cursor(0)
    keys(hand, "X")
    page(hand).flush()
    assert stored(hand).text == "XA😀 one 😀 two tail"
    page(hand).set_mode("probability")
    assert hand.session.tokens(stored(hand).id).ids[1:-1] == trace.ids[1:-1]
    two = editor(hand).token_at(editor(hand).length - len(" tail") - 1)
    assert editor(hand).trace.token(two).text == " two"
    start, end = editor(hand).token_range(two)
    assert editor(hand).text_between(start, end) == " two"


def test_another_token_cuts_the_document_and_goes_on(hand) -> None:
    hand.session.set_settings(
        dataclasses.replace(hand.session.settings(Appearance), token_colours="probability")
    )
    keys(hand, "Say")
    write(hand, " one two three")
    editor(hand).put_cursor(len("Say one"))
    hand.press(Key.Key_Down, Modifier.AltModifier)
    popup = page(hand).tokens.popup
    assert popup.isVisible()
    assert popup.title.text() == "␣two"
    hand.echo.chat.reply = " four"
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: editor(hand).text().endswith(" four"))
    hand.wait_for("idle")
    other = echo_token(" two", 5).alternatives[1]
    assert editor(hand).text() == stored(hand).text == f"Say one{other.text} four"
    trace = hand.session.tokens(stored(hand).id)
    assert list(trace.ids[1:3]) == [echo_token(" one", 0).id, other.id]
    hand.press(Key.Key_Z, Modifier.ControlModifier)
    assert editor(hand).text() == "Say one two three"


@pytest.mark.slow
def test_it_writes_again_with_another_seed_and_in_the_background(hand) -> None:
    hand.session.set_settings(SamplerSettings(seed=5))
    keys(hand, "Go")
    write(hand, " left")
    hand.echo.chat.reply = " right way"
    hand.press(Key.Key_R, Modifier.ControlModifier)
    hand.qtbot.waitUntil(lambda: editor(hand).text() == "Go right way" and not editor(hand).streaming)
    assert [request.sampler.seed == 5 for request in hand.echo.chat.requests] == [True, False]
    hand.wait_for("idle")
    hand.press(Key.Key_Z, Modifier.ControlModifier)
    assert editor(hand).text() == "Go left"
    hand.echo.chat.hold = threading.Event()
    notebook = hand.session.conversation
    editor(hand).put_cursor(2)
    hand.echo.chat.reply = " far away"
    hand.click("Continue")
    hand.wait_for("prefill", "answering")
    keys(hand, "no key is taken")
    hand.window.navigation.new_chat()
    hand.echo.chat.hold.set()
    hand.qtbot.waitUntil(lambda: not hand.session.busy)
    hand.window.navigation.open_chat(notebook)
    assert editor(hand).text() == "Go far away left"
    assert page(hand).written_text() == " far away"
    hand.click("Undo")
    assert editor(hand).text() == "Go left"


def test_what_is_left_out_is_said_in_tokens_and_nothing_to_go_on_from_is_said(hand, monkeypatch) -> None:
    hand.press(Key.Key_Return, Modifier.ControlModifier)
    assert "Write something first" in page(hand).bar.note.text()
    assert not hand.echo.chat.requests
    before = EchoChat.stream

    def stream(self, request, stop):
        yield Trimmed(0, 1280)
        yield from before(self, request, stop)

    monkeypatch.setattr(EchoChat, "stream", stream)
    keys(hand, "Go")
    write(hand, " on")
    assert "first 1,280 tokens of the document were not read" in page(hand).bar.note.text()
    assert "message" not in page(hand).bar.note.text()
    hand.qtbot.waitUntil(lambda: page(hand).bar.figures.text() == "2 / 4,096 tokens")


def test_a_notebook_is_found_exported_and_kept_as_a_chat_is(hand, qtbot) -> None:
    keys(hand, "The lighthouse keeper")
    page(hand).flush()
    (hit,) = hand.session.search("lighthouse")
    hand.window.navigation.new_chat()
    hand.window.sidebar_controller.open_hit(hit)
    assert editor(hand).textCursor().selectedText().lower() == "the lighthouse"[4:] or hit.place == 4
    record = read_whole(hand.session.stores.database, hand.session.conversation)
    assert json.loads("".join(own_json([record])))[0]["kind"] == NOTEBOOK
    hand.window.actions_by_name["new_temporary_notebook"].trigger()
    keys(hand, "Secret")
    hand.window.actions_by_name["keep"].trigger()
    assert editor(hand).text() == "Secret"
    assert not hand.session.temporary
    assert not hand.window.actions_by_name["attach"].isEnabled()
    assert not hand.window.personas.picker.isVisible()


def test_a_full_disk_keeps_what_is_typed_until_there_is_room(hand, monkeypatch) -> None:
    def full(self, message_id, text, settled=True):
        raise DiskFull("There is no room.")

    number = stored(hand).id
    with monkeypatch.context() as broken:
        broken.setattr(ConversationStore, "set_text", full)
        keys(hand, "kept")
        page(hand).flush()
        assert "cannot be saved now" in hand.window.chat.banner.text.text()
        notebook = hand.session.conversation
        hand.window.navigation.new_chat()
        hand.window.navigation.open_chat(notebook)
        assert editor(hand).text() == "kept"
        assert stored(hand).text == ""
    hand.window.notebooks.saver.retry()
    assert hand.session.stores.of(number).message(number).text == "kept"


def test_the_reader_who_scrolled_away_stays_there_and_who_reads_along_follows(hand) -> None:
    editor(hand).insertPlainText("\n".join(f"line {number}" for number in range(300)))
    bar = editor(hand).verticalScrollBar()
    hand.echo.chat.hold = threading.Event()
    hand.echo.chat.reply = "\nnew words" * 40
    hand.click("Continue")
    hand.wait_for("prefill", "answering")
    bar.setValue(20)
    hand.echo.chat.hold.set()
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: not editor(hand).streaming)
    assert bar.value() == 20
    write(hand, "\nmore" * 30)  # The cursor followed the text, so the view shows it.
    assert bar.value() == 20
    editor(hand).put_cursor(editor(hand).length)
    write(hand, "\nlast" * 30)
    assert bar.value() > 250
    assert editor(hand).cursorRect().bottom() <= editor(hand).viewport().height()
    editor(hand).put_cursor(8)
    bar.setValue(100)
    top = editor(hand).cursorForPosition(editor(hand).rect().topLeft()).block().text()
    write(hand, "\nabove" * 30)
    assert editor(hand).cursorForPosition(editor(hand).rect().topLeft()).block().text() == top


def test_words_are_found_in_the_document(hand) -> None:
    keys(hand, "😀 word and Word")
    hand.press(Key.Key_F, Modifier.ControlModifier)
    QTest.keyClicks(hand.window.focusWidget(), "word")
    assert len(page(hand).finding.places) == 2
    box, bar = page(hand).editor, page(hand).findChild(FindBar)
    # it lies on no line
    assert box.viewport().geometry().top() + box.geometry().top() > bar.geometry().bottom()
    hand.press(Key.Key_Return)
    assert editor(hand).textCursor().selectedText() in ("word", "Word")
    hand.press(Key.Key_Escape)
    assert not page(hand).finding.is_open
    assert box.viewport().geometry().top() < bar.height()
    assert hand.window.focusWidget() is editor(hand)


@pytest.mark.slow
@pytest.mark.real_model
def test_the_starter_writes_a_document_and_goes_on_from_another_token(
    qtbot, qapp, tmp_path, starter_path
) -> None:
    real = Hand(qtbot, tmp_path, api=EngineApi())
    session = real.session
    session.set_settings(CacheSettings(context_length=512))
    session.set_settings(dataclasses.replace(session.settings(Appearance), token_colours="probability"))
    real.window.model_controller.open(starter_path)
    real.wait_for("idle", timeout=300_000)
    session.new_notebook()
    for settings in (SamplerSettings(temperature=0.0), StopSettings(max_tokens=12)):  # the document's own
        session.set_settings(settings)
    keys(real, "Once upon a time 🎉 there was")

    def wait() -> None:
        qtbot.waitUntil(lambda: session.state == "idle" and not editor(real).streaming, timeout=300_000)

    real.press(Key.Key_Return, Modifier.ControlModifier)
    wait()
    first = editor(real).text()
    assert first.startswith("Once upon a time 🎉 there was")
    trace = session.tokens(stored(real).id)
    assert trace.text == first == stored(real).text
    assert sum(id != UNKNOWN for id in trace.ids) == 12
    reported = real.window.services.provenance.of(stored(real).id)
    assert len(reported.expected) == len(trace) - 1
    token = editor(real).token_at(editor(real).length - 1) - 3
    editor(real).put_cursor(editor(real).token_range(token)[0])
    real.press(Key.Key_Down, Modifier.AltModifier)
    real.press(Key.Key_Return)
    wait()
    second = session.tokens(stored(real).id)
    assert second.text == editor(real).text() == stored(real).text != first
    assert list(second.ids[:token]) == list(trace.ids[:token])
    assert second.ids[token] != trace.ids[token]
    real.press(Key.Key_Z, Modifier.ControlModifier)
    assert editor(real).text() == first
    real.close()


def test_a_document_that_was_cut_off_says_so_without_calling_it_a_reply(hand) -> None:
    store, session = hand.session.stores.kept, hand.session
    store.set_text(session.document().message_id, "Half a sen", settled=False)
    ConversationStore(session.stores.database)  # as the next start does
    hand.window.notebooks._refresh()
    assert (
        session.document().notice
        == "Inglenook ended while this was being written. The text written so far was saved."
    )
    assert editor(hand).text() == "Half a sen"
    keys(hand, "t")
    hand.qtbot.waitUntil(lambda: not session.document().notice)
