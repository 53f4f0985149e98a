"""Writing messages: files, the queue, the reply's beginning, forks, saved prompts, slash commands."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QMimeData, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog

from desktop.store.attachments.files import MOST_BYTES
from desktop.store.attachments.message_format import Attachment, split
from desktop.store.settings.saved_prompts import Prompt
from desktop.views.composer.attachment_preview import AttachmentPreview
from desktop.views.composer.message_edit import HUGE_PASTE, LONGEST_RUN, is_huge
from desktop.views.composer.saved_prompt_form import SavedPromptForm
from desktop.views.transcript.rows import RowKind
from engine.settings import StopSettings
from tests.desktop import fakes
from tests.desktop.hand import Hand

Key, Held = Qt.Key, Qt.KeyboardModifier


@pytest.fixture
def hand(qtbot, qapp, tmp_path):
    found = Hand(qtbot, tmp_path)
    found.load()
    yield found
    found.close()


def harness(hand: Hand):
    return hand.window.composer_controller


def attach(hand: Hand, name: str, text: str | bytes) -> None:
    path = hand.folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    before = len(harness(hand).files.held())
    assert "attach" in hand.window.files.hint([path])
    hand.window.files.open([path])
    hand.qtbot.waitUntil(lambda: len(harness(hand).files.held()) > before)


def chips(hand: Hand) -> list[str]:
    return [f"{chip.face.text()} {chip.count.text()}" for chip in harness(hand).files.chips.chips]


def rows(hand: Hand, kind: RowKind) -> list:
    return [
        row
        for item in hand.items()
        for row in hand.window.chat.transcript.messages.rows_of(item.id)
        if row.kind is kind
    ]


def send(hand: Hand) -> None:
    hand.box.setFocus()
    hand.press(Key.Key_Return)


def test_a_file_is_shown_counted_sent_folded_and_kept_through_edit_and_regenerate(hand) -> None:
    attach(hand, "notes.md", "# Alpha beta\n\n```\ncode\n```\n")
    hand.qtbot.waitUntil(lambda: chips(hand) == ["notes.md 11 tokens"])
    hand.click("Preview of notes.md")
    preview = hand.window.findChild(AttachmentPreview)
    assert preview.box.toPlainText() == "# Alpha beta\n\n```\ncode\n```"
    preview.close()
    hand.type("What is it?")
    send(hand)
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 2)
    hand.wait_for("idle")
    sent = hand.items()[0].text
    assert hand.echo.chat.requests[-1].messages[-1].content == sent
    files, place = split(sent)
    assert [(file.name, file.text) for _, file in files] == [("notes.md", "# Alpha beta\n\n```\ncode\n```")]
    assert sent[place:] == "What is it?"
    assert hand.session.title == "What is it?"
    assert chips(hand) == []
    assert [row.text for row in rows(hand, RowKind.ATTACHMENT)] == ["notes.md"]
    assert [row.text for row in rows(hand, RowKind.BUBBLE)] == ["What is it?"]
    assert [hit.message_id for hit in hand.session.search("alpha")] == [
        item.id for item in reversed(hand.items())
    ]
    hand.qtbot.waitUntil(hand.window.chat.transcript.settled)
    hand.click("Attached file notes.md")
    assert "code" in hand.window.findChildren(AttachmentPreview)[-1].box.toPlainText()
    hand.window.findChildren(AttachmentPreview)[-1].close()
    hand.window.chat.message_commands.edit_last_own()
    assert hand.window.focusWidget().toPlainText() == "What is it?"
    QTest.keyClicks(hand.window.focusWidget(), " Really?")
    QTest.keyClick(hand.window.focusWidget(), Key.Key_Return, Held.ControlModifier)
    hand.qtbot.waitUntil(lambda: hand.items()[0].variant_count == 2)
    hand.wait_for("idle")
    assert hand.items()[0].text == sent + " Really?"
    hand.window.chat.message_commands.regenerate_last()
    hand.wait_for("idle")
    assert hand.echo.chat.requests[-1].messages[-1].content == sent + " Really?"


def test_a_file_too_long_says_by_how_much_and_is_trimmed_between_lines(hand) -> None:
    attach(hand, "long.txt", "\n".join(f"line {number} has five words" for number in range(2000)))
    hand.type("Sum it up")
    send(hand)
    offers = harness(hand).offers
    hand.qtbot.waitUntil(lambda: offers.isVisible() and "too long" in offers.words.text())
    assert not hand.items()
    assert hand.box.toPlainText() == "Sum it up"
    hand.click("Trim to fit")
    hand.qtbot.waitUntil(lambda: harness(hand).files.held()[0].attachment.note != "")
    held = harness(hand).files.held()[0].attachment
    assert held.note == f"first {held.text.count(chr(10)) + 1:,} of 2,000 lines"
    assert held.text.endswith("words")
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: offers.isVisible() and "fit" in offers.words.text())
    send(hand)
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 2)
    words = len(hand.items()[0].text.split())
    assert 4096 - 16 - 8 < words <= 4096 - 16
    hand.wait_for("idle")


def test_of_a_file_too_long_the_passages_that_match_the_question_can_be_kept(hand) -> None:
    lines = [f"line {number} has five words" for number in range(4000)]
    lines[3000] = "The harbour's lanterns were painted green"
    attach(hand, "long.txt", "\n".join(lines))
    offers = harness(hand).offers

    def held() -> Attachment:
        return harness(hand).files.held()[0].attachment

    hand.type("What colour were the lanterns in the harbour?")
    send(hand)
    hand.qtbot.waitUntil(lambda: offers.isVisible() and "too long" in offers.words.text())
    hand.click("Trim to fit")
    hand.qtbot.waitUntil(lambda: offers.isVisible() and "trimmed to fit" in offers.words.text())
    assert held().note.startswith("first ")
    hand.click("Use matching passages")
    hand.qtbot.waitUntil(lambda: offers.isVisible() and "match your words" in offers.words.text())
    assert lines[3000] in held().text
    assert "line 1 " not in held().text
    assert held().note.endswith(" passages")
    hand.click("Use the beginnings")
    hand.qtbot.waitUntil(lambda: offers.isVisible() and "trimmed to fit" in offers.words.text())
    assert held().note.endswith(" of 4,000 lines")
    assert held().text.startswith("line 0 ")
    hand.click("Use matching passages")
    hand.qtbot.waitUntil(lambda: offers.isVisible() and "match your words" in offers.words.text())
    send(hand)
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 2)
    assert lines[3000] in hand.items()[0].text
    hand.wait_for("idle")


def test_files_are_pasted_dropped_chosen_removed_and_refused_in_a_sentence(hand) -> None:
    path = hand.folder / "data.csv"
    path.write_bytes("a;b\nä;2".encode("utf-16"))
    pasted = QMimeData()
    pasted.setUrls([QUrl.fromLocalFile(str(path))])
    hand.box.insertFromMimeData(pasted)
    hand.qtbot.waitUntil(lambda: len(chips(hand)) == 1)
    assert harness(hand).files.held()[0].attachment.text == "a;b\nä;2"
    meter = hand.window.services.context_meter
    hand.qtbot.waitUntil(lambda: meter.measured.draft > 0)  # The bar counts attached files too.
    other = hand.folder / "photo.png"
    other.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    hand.click("Attach files")
    choose(hand.window, other)
    hand.qtbot.waitUntil(lambda: "photo.png” is damaged" in hand.window.chat.banner.text.text())
    hand.click("Remove data.csv")
    assert chips(hand) == []
    assert not hand.window.chat.composer.button.isEnabled()
    long = QMimeData()
    long.setText("word " * 600)
    hand.type("See: ")
    hand.box.insertFromMimeData(long)
    hand.click("Attach as a file")
    assert hand.box.toPlainText() == "See: "
    assert harness(hand).files.held()[0].attachment.name == "Pasted text.txt"


def test_the_offer_to_attach_a_pasted_text_goes_with_the_text(hand) -> None:
    offers, long = harness(hand).offers, QMimeData()
    long.setText("word\xa0" * 600)
    hand.type("See: ")
    hand.box.insertFromMimeData(long)
    hand.type("What is it about?")
    assert "The pasted text has 3,000 characters" in offers.words.text()
    assert offers.isVisible()
    cursor = hand.box.textCursor()
    cursor.setPosition(5)
    cursor.setPosition(3005, cursor.MoveMode.KeepAnchor)
    cursor.removeSelectedText()
    assert hand.box.toPlainText() == "See: What is it about?"
    assert not offers.isVisible()
    hand.box.insertFromMimeData(long)
    hand.click("Attach as a file")
    assert "word" not in hand.box.toPlainText()
    (held,) = harness(hand).files.held()
    assert held.attachment.text == "word\xa0" * 600


def test_a_pasted_text_that_is_too_long_for_the_box_becomes_a_file(hand) -> None:
    hand.type("See: ")
    pasted = QMimeData()
    pasted.setText("a line\r\n" * (HUGE_PASTE // 8) + "\n")
    hand.box.insertFromMimeData(pasted)
    assert hand.box.toPlainText() == "See: "
    (held,) = harness(hand).files.held()
    assert held.attachment.name == "Pasted text.txt"
    assert held.attachment.text == "a line\n" * (HUGE_PASTE // 8 - 1) + "a line"
    assert "The pasted text has 250,001 characters" in hand.window.chat.banner.text.text()
    assert not harness(hand).offers.isVisible()
    shorter = QMimeData()
    shorter.setText("x " * (HUGE_PASTE // 2 - 1) + "x")
    hand.box.insertFromMimeData(shorter)
    assert len(hand.box.toPlainText()) == HUGE_PASTE - 1 + len("See: ")
    assert len(harness(hand).files.held()) == 1


def test_a_pasted_text_without_a_space_becomes_a_file_long_before(hand) -> None:
    """A picture in base64: each key took two seconds after it."""
    assert not is_huge("x" * (LONGEST_RUN - 1) + " " + "x" * (LONGEST_RUN - 1))
    assert not is_huge("界" * LONGEST_RUN)  # may be broken anywhere
    pasted = QMimeData()
    pasted.setText("See " + "x" * LONGEST_RUN)
    hand.box.insertFromMimeData(pasted)
    assert hand.box.toPlainText() == ""
    assert len(harness(hand).files.held()) == 1


def test_a_pasted_text_that_is_too_large_for_a_file_is_refused(hand) -> None:
    pasted = QMimeData()
    pasted.setText("word " * (MOST_BYTES // 5 + 1))
    hand.box.insertFromMimeData(pasted)
    assert hand.box.toPlainText() == ""
    assert harness(hand).files.held() == []
    assert hand.window.chat.banner.text.text().startswith("“Pasted text.txt” is 8.39 MB, but at most")


def test_messages_wait_in_order_are_edited_removed_and_held_after_a_stop(hand) -> None:
    chat = hand.echo.chat
    chat.hold = threading.Event()
    hand.type("one")
    send(hand)
    hand.wait_for("prefill", "answering")
    for text in ("two", "three", "four"):
        hand.type(text)
        send(hand)
    assert [row.text.words for row in harness(hand).waiting.rows.rows] == ["two", "three", "four"]
    assert harness(hand).waiting.rows.title.text() == "Sent when the reply is complete"
    QTest.mouseClick(harness(hand).waiting.rows.rows[1].remove, Qt.MouseButton.LeftButton)
    QTest.mouseClick(harness(hand).waiting.rows.rows[1].edit, Qt.MouseButton.LeftButton)
    assert hand.box.toPlainText() == "four"
    hand.type("!")
    send(hand)
    chat.hold.set()
    hand.qtbot.waitUntil(lambda: hand.texts() == ["one", "one", "two", "two", "four!", "four!"])
    hand.wait_for("idle")
    assert not harness(hand).waiting.rows.isVisible()
    chat.hold = threading.Event()
    hand.type("five")
    send(hand)
    hand.type("six")
    send(hand)
    hand.click("Stop the reply")
    hand.wait_for("idle")
    assert harness(hand).waiting.rows.title.text() == "1 queued message"
    assert hand.texts()[-2:] == ["five", ""]
    hand.restart()
    hand.load()
    chat.hold.set()
    hand.click("Send", harness(hand).waiting.rows)
    hand.qtbot.waitUntil(lambda: hand.texts()[-2:] == ["six", "six"])
    assert not harness(hand).waiting.rows.rows


def test_a_waiting_message_goes_back_whole_before_what_is_being_written(hand) -> None:
    hand.echo.chat.hold = threading.Event()
    hand.type("one")
    send(hand)
    hand.wait_for("prefill", "answering")
    attach(hand, "notes.md", "# Alpha\n")
    hand.window.chat.composer.set_opening("Well,")
    hand.type("//stop is a path")
    send(hand)
    (waiting,) = hand.window.services.composer.queue.waiting(hand.session.conversation)
    assert waiting.text.endswith("\n\n/stop is a path")
    assert (chips(hand), hand.window.chat.composer.opening()) == ([], "")
    attach(hand, "more.md", "# Beta\n")
    hand.type("//new is one, too")
    QTest.mouseClick(harness(hand).waiting.rows.rows[0].edit, Qt.MouseButton.LeftButton)
    assert hand.box.toPlainText() == "//stop is a path\n\n/new is one, too"  # it would be no command
    assert [held.attachment.name for held in harness(hand).files.held()] == ["notes.md", "more.md"]
    assert hand.window.chat.composer.opening() == "Well,"
    assert not harness(hand).waiting.rows.rows
    assert hand.window.focusWidget() is hand.box
    hand.click("Stop the reply")
    hand.wait_for("idle")


def test_a_waiting_message_that_was_removed_is_put_back_into_its_own_chat(hand) -> None:
    hand.echo.chat.hold = threading.Event()
    hand.type("one")
    send(hand)
    hand.wait_for("prefill", "answering")
    hand.window.chat.composer.set_opening("Well,")
    hand.type("two")
    send(hand)
    talk, queue = hand.session.conversation, hand.window.services.composer.queue
    QTest.mouseClick(harness(hand).waiting.rows.rows[0].remove, Qt.MouseButton.LeftButton)
    assert queue.waiting(talk) == []
    hand.window.navigation.new_chat()
    hand.session.undo()
    assert hand.session.conversation == talk
    assert [(each.text, each.opening) for each in queue.waiting(talk)] == [("two", "Well,")]
    assert [row.text.words for row in harness(hand).waiting.rows.rows] == ["two"]
    hand.click("Stop the reply")
    hand.wait_for("idle")


def test_a_waiting_message_of_another_chat_is_sent_there(hand) -> None:
    chat = hand.echo.chat
    chat.hold = threading.Event()
    hand.type("one")
    send(hand)
    first = hand.session.conversation
    hand.type("two")
    send(hand)
    hand.window.navigation.new_chat()
    chat.hold.set()
    store = hand.session.stores.kept
    hand.qtbot.waitUntil(lambda: [m.text for m in store.path(first)] == ["one", "one", "two", "two"])
    assert hand.texts() == []
    assert hand.session.conversation != first


def test_what_is_typed_or_pasted_where_nothing_can_be_written_goes_into_the_message_box(hand) -> None:
    hand.say("Hello")
    transcript = hand.window.chat.transcript
    hand.qtbot.waitUntil(transcript.settled)
    for text, key in (("/", Key.Key_Slash), ("/h", Key.Key_H)):
        transcript.setFocus()
        hand.press(key)
        assert hand.box.hasFocus()
        assert hand.box.toPlainText() == text
    QGuiApplication.clipboard().setText(" there")
    transcript.setFocus()
    hand.press(Key.Key_V, Held.ControlModifier)
    assert hand.box.hasFocus()
    assert hand.box.toPlainText() == "/h there"
    transcript.setFocus()
    alt_gr = Held.ControlModifier | Held.AltModifier  # so does Windows name it
    QCoreApplication.sendEvent(transcript, QKeyEvent(QEvent.Type.KeyPress, Key.Key_At, alt_gr, "@"))
    assert hand.box.toPlainText() == "/h there@"
    hand.press(Key.Key_Backspace)

    transcript.setFocus()
    for key, held in (
        (Key.Key_Home, Held.NoModifier), (Key.Key_Space, Held.NoModifier), (Key.Key_Return, Held.NoModifier),
        (Key.Key_Y, Held.ControlModifier), (Key.Key_Y, Held.MetaModifier),
    ):  # fmt: skip
        hand.press(key, held)
    assert transcript.hasFocus()
    assert hand.box.toPlainText() == "/h there"

    transcript.begin_edit(hand.items()[0].id)
    hand.press(Key.Key_Z)
    assert not hand.box.hasFocus()
    assert hand.box.toPlainText() == "/h there"


def test_the_reply_begins_as_asked_once(hand) -> None:
    hand.echo.chat.reply = "Sure: it is blue."
    hand.click("Start the reply with")
    QTest.keyClicks(hand.window.focusWidget(), "Sure:")
    hand.press(Key.Key_Return)
    hand.say("Which colour?")
    assert hand.texts() == ["Which colour?", "Sure: it is blue."]
    assert hand.echo.chat.requests[-1].continue_last
    assert hand.window.chat.composer.opening() == ""
    assert not hand.window.chat.composer.opening_box.isVisible()


def test_an_edit_without_an_answer_and_a_fork(hand) -> None:
    hand.say("first")
    hand.say("second")
    hand.window.chat.message_commands.edit_last_own()
    QTest.keyClicks(hand.window.focusWidget(), " try")
    hand.click("Save without a reply")
    assert hand.texts() == ["first", "first", "second try"]
    assert (hand.items()[2].variant_index, hand.items()[2].variant_count) == (1, 2)
    assert hand.session.state == "idle"
    hand.window.chat.transcript.action.emit("previous", hand.items()[2].id)
    assert hand.texts()[2:] == ["second", "second"]
    source = hand.session.conversation
    hand.session.set_system_prompt("Be short.")
    tokens = hand.session.tokens(hand.items()[1].id)
    hand.window.chat.transcript.action.emit("fork", hand.items()[2].id)
    assert hand.session.conversation != source
    assert hand.texts() == ["first", "first", "second"]
    assert hand.items()[2].variant_count == 2
    assert hand.session.title == "first (fork)"
    assert hand.session.prompt.text == "Be short."
    copied = hand.session.tokens(hand.items()[1].id)
    assert list(copied.ids) == list(tokens.ids)
    assert hand.items()[1].footer
    made = hand.session.conversation
    hand.session.undo()
    assert hand.session.conversation == source
    assert made not in {row.id for row in hand.session.stores.kept.list()}


def test_a_saved_prompt_proposes_the_present_date(hand, monkeypatch) -> None:
    monkeypatch.setattr("desktop.views.composer.saved_prompt_form.today_text", lambda: "1 May 2026")
    form = SavedPromptForm(Prompt(1, "Plan", "Plan {{date}} and {{date=tomorrow}}."), hand.window)
    assert form.fields["date"].text() == "tomorrow"
    form.reject()
    form = SavedPromptForm(Prompt(1, "Plan", "Plan {{date}}."), hand.window)
    assert form.text() == "Plan 1 May 2026."
    form.fields["date"].show_text("today")
    assert form.text() == "Plan today."
    form.reject()


def test_slash_commands_and_prompts_with_variables(hand) -> None:
    popup = hand.window.prompts.popup
    hand.window.services.composer.prompts.put(Prompt(0, "Translate", "Say {{text}} in {{language=French}}."))
    hand.type("/")
    assert popup.isVisible()
    assert popup.entries()[0].word == "new"
    assert popup.entries()[-1].word == "Translate"
    hand.type("tra")
    hand.press(Key.Key_Tab)
    assert hand.box.toPlainText() == "/Translate"
    hand.press(Key.Key_Return)
    form = hand.window.findChild(SavedPromptForm)
    QTest.keyClicks(form.fields["text"], "hello")
    assert form.preview.toPlainText() == "Say hello in French."
    QTest.keyClick(form.fields["text"], Key.Key_Return, Held.ControlModifier)
    assert hand.box.toPlainText() == "Say hello in French."
    with hand.qtbot.waitActive(hand.window):
        hand.window.activateWindow()
    hand.box.clear()
    hand.type("/system Be kind")
    hand.press(Key.Key_Return)
    assert hand.session.prompt.text == "Be kind"
    assert not hand.items()
    hand.type("/preset prec")
    name = popup.entries()[0].value
    place = popup.list.visualItemRect(popup.list.item(0)).center()
    QTest.mouseClick(popup.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert hand.session.preset == name
    hand.type("/nothing like that")
    assert not popup.isVisible()
    hand.press(Key.Key_Return)
    hand.wait_for("idle")
    hand.say("//new")
    assert hand.texts()[::2] == ["/nothing like that", "/new"]
    hand.type("/regenerate")
    hand.press(Key.Key_Escape)
    assert not popup.isVisible()
    hand.box.clear()
    hand.type("/reg")
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: hand.items()[-1].variant_count == 2)
    hand.wait_for("idle")


def choose(window, path) -> None:
    """The file dialog of `window` is on: take this file."""
    dialog = next(found for found in window.findChildren(QFileDialog) if found.isVisible())
    dialog.filesSelected.emit([str(path)])
    dialog.reject()


def test_the_list_of_prompts_adds_changes_deletes_with_undo_imports_and_exports(hand) -> None:
    hand.click("Saved prompts")
    window = hand.window.prompts._list
    service = hand.window.services.composer.prompts
    QTest.mouseClick(window.new, Qt.MouseButton.LeftButton)
    QTest.keyClicks(window.name, "Short")
    window.text.setFocus()
    QTest.keyClicks(window.text, "Be {{how=brief}}.")
    assert window.hint.text() == "Asks for: how."
    window.text.commit()
    assert [(p.name, p.text) for p in service.prompts()] == [("Short", "Be {{how=brief}}.")]
    target = hand.folder / "prompts.json"
    QTest.mouseClick(window.save, Qt.MouseButton.LeftButton)
    choose(window, target)
    QTest.mouseClick(window.remove, Qt.MouseButton.LeftButton)
    assert service.prompts() == ()
    QTest.mouseClick(window.undo, Qt.MouseButton.LeftButton)
    assert [p.name for p in service.prompts()] == ["Short"]
    service.remove(service.prompts()[0].id)
    for _ in range(2):
        QTest.mouseClick(window.load, Qt.MouseButton.LeftButton)
        choose(window, target)
    assert [(p.name, p.text) for p in service.prompts()] == [("Short", "Be {{how=brief}}.")]
    QTest.mouseClick(window.insert, Qt.MouseButton.LeftButton)
    assert hand.window.findChild(SavedPromptForm).text() == "Be brief."


@pytest.mark.slow
def test_files_and_the_replys_beginning_survive_another_chat_and_a_restart(hand) -> None:
    hand.say("First")
    talk = hand.session.conversation
    attach(hand, "notes.md", "# Alpha\nbeta")
    hand.window.chat.composer.set_opening("Sure, ")
    hand.window.navigation.new_chat()
    assert (chips(hand), hand.window.chat.composer.opening()) == ([], "")
    hand.window.navigation.open_chat(talk)
    assert hand.window.chat.composer.opening() == "Sure, "
    hand.restart()
    hand.load()
    assert hand.session.conversation == talk
    assert [held.attachment.text for held in harness(hand).files.held()] == ["# Alpha\nbeta"]
    assert hand.window.chat.composer.opening() == "Sure, "
    hand.box.setFocus()
    hand.type("What is it?")
    send(hand)
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 4)
    assert hand.items()[-1].text.startswith("Sure, ")
    hand.wait_for("idle")
    hand.restart()
    assert (chips(hand), hand.window.chat.composer.opening(), hand.box.toPlainText()) == ([], "", "")


def test_a_long_message_without_files_is_cut_or_sent_anyway_with_a_warning_before_it_waits(hand) -> None:
    offers, long = harness(hand).offers, "word " * 5000 + "end"
    hand.window.chat.composer.set_text(long)
    send(hand)
    hand.qtbot.waitUntil(offers.isVisible)
    assert "too long" in offers.words.text()
    assert not hand.items()
    hand.click("Trim to fit")
    hand.qtbot.waitUntil(lambda: "trimmed to fit" in offers.words.text() and offers.isVisible())
    cut = hand.box.toPlainText()
    assert 4000 < len(cut.split()) <= 4096 - 16
    hand.press(Key.Key_Z, Held.ControlModifier)
    assert hand.box.toPlainText() == long
    send(hand)
    hand.qtbot.waitUntil(offers.isVisible)
    assert "5,001" in offers.words.text()
    assert not offers.other.isVisible()  # it would only fail
    hand.window.chat.composer.set_text("word " * 4089 + "end")  # leaves the reply 6 tokens, not 16
    send(hand)
    hand.qtbot.waitUntil(lambda: "10 tokens too long" in offers.words.text())
    hand.echo.chat.hold = threading.Event()
    hand.click("Send anyway")
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 2)
    hand.window.chat.composer.set_text(long)
    hand.wait_for("prefill", "answering")
    send(hand)
    assert "longer than the context" in offers.words.text()
    assert not harness(hand).waiting.rows.rows
    hand.click("Queue anyway")
    assert len(harness(hand).waiting.rows.rows) == 1
    hand.click("Stop the reply")
    hand.wait_for("idle")


def test_messages_wait_while_the_model_is_loaded_and_a_refusal_disappears(hand) -> None:
    hand.window.actions_by_name["unload"].trigger()
    hand.wait_for("no_model")
    hand.type("early")
    send(hand)
    banner = hand.window.chat.banner
    assert "No model is loaded" in banner.text.text()
    hand.echo.load_hold = threading.Event()
    hand.window.model_controller.open(hand.folder / "echo.gguf")
    hand.wait_for("loading")
    assert not banner.isVisible()
    send(hand)
    assert hand.box.toPlainText() == ""
    assert harness(hand).waiting.rows.title.text() == "Sent when the model is loaded"
    hand.echo.load_hold.set()
    hand.qtbot.waitUntil(lambda: hand.texts() == ["early", "early"])
    assert not harness(hand).waiting.rows.isVisible()


def test_the_reading_of_a_hard_pdf_is_stopped_at_its_chip(hand, monkeypatch) -> None:
    slow = hand.folder / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(slow))
    (hand.folder / "hard.pdf").write_bytes(b"%PDF-1.7\nhard")
    hand.window.files.open([hand.folder / "hard.pdf"])
    hand.qtbot.waitUntil(harness(hand).files.chips.stop.isVisible)
    hand.click("Stop reading files")
    hand.qtbot.waitUntil(lambda: not harness(hand).files.chips.isVisible())
    assert not hand.window.chat.banner.isVisible()
    assert chips(hand) == []


@pytest.fixture
def slow_pdf(hand, monkeypatch):
    """Opens a PDF file; the function that comes back lets its reader give this answer."""
    reader, answer = hand.folder / "slow", hand.folder / "answer"
    reader.write_text(f'#!/bin/sh\nwhile [ ! -e "{answer}" ]; do sleep 0.02; done\ncat "{answer}"\n')
    reader.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(reader))
    (hand.folder / "late.pdf").write_bytes(b"%PDF-1.7")
    hand.window.files.open([hand.folder / "late.pdf"])
    hand.qtbot.waitUntil(harness(hand).files.chips.stop.isVisible)

    def give(text: str) -> None:
        (hand.folder / "whole").write_text(text)
        (hand.folder / "whole").rename(answer)
        hand.qtbot.waitUntil(lambda: not harness(hand).files.chips.stop.isVisible())

    return give


PAGE = '{"total": 1, "pages": ["Ada keeps the lighthouse."], "cut": false}'


def test_a_message_waits_for_the_file_that_is_still_read(hand, slow_pdf) -> None:
    hand.type("Who keeps it?")
    send(hand)
    assert "sent when its files are read" in harness(hand).offers.words.text()
    assert not hand.items()
    slow_pdf(PAGE)
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 2)
    assert hand.texts()[0].startswith("Attached file: late.pdf\n```\nAda keeps the lighthouse.\n```")
    assert hand.texts()[0].endswith("Who keeps it?")
    assert hand.box.toPlainText() == ""
    assert not harness(hand).offers.isVisible()
    assert chips(hand) == []
    hand.wait_for("idle")
    assert len(hand.items()) == 2


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("change", ["typed", "refused", "stopped", "other chat"])
def test_a_message_that_waited_for_its_file_stays_unsent(hand, slow_pdf, change) -> None:
    hand.type("Who keeps it?")
    send(hand)
    if change == "typed":
        hand.type(" And why?")
    elif change == "stopped":
        hand.click("Stop reading files")
    elif change == "other chat":
        hand.window.actions_by_name["new_chat"].trigger()
    if change != "stopped":
        slow_pdf('{"trouble": "broken"}' if change == "refused" else PAGE)
    hand.qtbot.waitUntil(lambda: not harness(hand).files.chips.stop.isVisible())
    assert not harness(hand).offers.isVisible()
    assert not hand.items()
    left = {"typed": "Who keeps it? And why?", "other chat": ""}
    assert hand.box.toPlainText() == left.get(change, "Who keeps it?")


@pytest.mark.slow
def test_a_waiting_message_is_counted_again_before_it_is_sent(hand) -> None:
    chat, queue = hand.echo.chat, hand.window.services.composer.queue
    chat.hold = threading.Event()
    hand.type("one")
    send(hand)
    hand.wait_for("prefill", "answering")
    lines = "\n".join(f"line {number} has five words" for number in range(900))
    queue.add(f"Attached file: long.txt\n```\n{lines}\n```\n\nSum it up")
    queue.add("word " * 5000 + "end")
    chat.hold.set()
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 4 and not hand.session.replying_in)
    ((_, file),), place = split(hand.items()[2].text)
    assert "of 900 lines" in file.note
    assert hand.items()[2].text[place:] == "Sum it up"
    assert 4096 - 16 - 8 < len(hand.items()[2].text.split()) <= 4096 - 16
    hand.qtbot.waitUntil(lambda: "too long" in hand.window.chat.banner.text.text())
    assert harness(hand).waiting.rows.title.text() == "1 queued message"
    assert len(hand.items()) == 4
    hand.echo.chat.reply = "done"
    hand.window.chat.banner.hide()
    hand.click("Send", harness(hand).waiting.rows)  # it would only fail: it waits on, and why is said again
    hand.qtbot.waitUntil(hand.window.chat.banner.isVisible)
    assert hand.window.chat.banner.text.text().endswith("too long for the context. Shorten it.")
    (row,) = queue.waiting(hand.session.conversation)
    queue.remove(row.id)
    queue.add("word " * 4089 + "end")
    hand.qtbot.waitUntil(lambda: len(harness(hand).waiting.rows.rows) == 1)
    hand.click("Send", harness(hand).waiting.rows)  # only the reply's room lacks
    hand.qtbot.waitUntil(lambda: hand.texts()[-1] == "done" and len(hand.items()) == 6)


@pytest.mark.parametrize("while_replying", [False, True])
def test_a_short_message_is_counted_where_the_context_is_small(hand, monkeypatch, while_replying) -> None:
    monkeypatch.setattr(fakes, "ECHO_INFO", replace(fakes.ECHO_INFO, context_length=100))
    hand.load("small.gguf")
    offers, queue = harness(hand).offers, hand.window.services.composer.queue
    if while_replying:
        hand.echo.chat.hold = threading.Event()
        hand.type("one")
        send(hand)
        hand.wait_for("prefill", "answering")
        queue.add("a " * 110)  # 220 bytes: less than what is never counted with a large context
        hand.echo.chat.hold.set()
        hand.qtbot.waitUntil(lambda: "too long" in hand.window.chat.banner.text.text())
        assert len(hand.items()) == 2
    else:
        hand.window.chat.composer.set_text("a " * 110)
        send(hand)
        hand.qtbot.waitUntil(lambda: "26 tokens too long" in offers.words.text())
        assert not hand.items()


def test_what_fills_the_context_alone_offers_no_older_messages_to_drop(hand) -> None:
    offers = harness(hand).offers
    hand.session.set_settings(StopSettings(when_full="stop"))
    hand.window.chat.composer.set_text("word " * 5000)
    send(hand)
    hand.qtbot.waitUntil(offers.isVisible)
    assert "904 tokens too long" in offers.words.text()
    assert not offers.other.isVisible()


@pytest.mark.parametrize("change", ["another chat", "other words", "a file"])
def test_a_message_that_changed_while_it_was_shortened_stays_as_it_is(hand, change) -> None:
    composer, writing = hand.window.chat.composer, hand.window.services.composer
    first = hand.session.conversation
    composer.set_text("one two three")
    if change == "another chat":
        hand.say("one two three")
        first = hand.session.conversation
        hand.window.navigation.new_chat()
        composer.set_text("one two three")
    elif change == "other words":
        composer.set_text("three two one")
    else:
        attach(hand, "notes.md", "# Alpha\n")
    text = composer.text()
    writing.fitting.shortened.emit(first, "one two")
    assert composer.text() == text
    assert not harness(hand).offers.isVisible()


@pytest.mark.slow
def test_a_full_chat_offers_to_drop_its_oldest_turns(hand) -> None:
    offers = harness(hand).offers
    hand.session.set_settings(StopSettings(when_full="stop"))
    hand.echo.chat.reply = "word " * 2000
    hand.say("first")
    hand.echo.chat.reply = None
    hand.window.chat.composer.set_text("word " * 3000)
    send(hand)
    hand.qtbot.waitUntil(offers.isVisible)
    words = "The chat with this message is 905 tokens too long. It has 5,001 tokens. The context holds 4,096."
    assert offers.words.text() == words
    hand.click("Drop the oldest messages")
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 4)
    assert hand.session.settings(StopSettings).when_full == "drop_oldest"
    assert hand.box.toPlainText() == ""
    hand.wait_for("idle")


def test_a_reply_can_be_stopped_while_a_message_that_waited_is_read(hand) -> None:
    """Whoever hears late that the model is ready must not show it as the present state."""
    hand.echo.load_hold, hand.echo.chat.hold = threading.Event(), threading.Event()
    hand.window.model_controller.open(hand.folder / "echo.gguf")
    hand.wait_for("loading")
    hand.type("early")
    send(hand)
    hand.echo.load_hold.set()
    hand.wait_for("prefill")
    assert hand.button("Stop the reply").isVisible()
    hand.type("later")
    send(hand)
    hand.qtbot.waitUntil(lambda: len(hand.echo.chat.requests) == 1)
    first, hand.echo.chat.hold = hand.echo.chat.hold, threading.Event()  # the second reply is held as well
    first.set()
    hand.qtbot.waitUntil(lambda: len(hand.items()) == 4 and hand.session.state == "prefill")
    assert hand.button("Stop the reply").isVisible()
    hand.click("Stop the reply")
    hand.wait_for("idle")


@pytest.mark.slow
def test_drafts_move_along_when_a_temporary_chat_is_kept(hand) -> None:
    hand.session.new_temporary()
    attach(hand, "notes.md", "# Alpha\n")
    hand.type("Sum it up")
    hand.window.chat.composer.set_opening("Well,")
    hand.echo.chat.hold = threading.Event()
    hand.session.submit("one")
    hand.wait_for("prefill", "answering")
    hand.window.services.composer.queue.add("two")
    hand.session.stop()
    hand.wait_for("idle")
    hand.click("Keep this chat")
    assert not hand.session.temporary
    assert hand.box.toPlainText() == "Sum it up"
    assert hand.window.chat.composer.opening() == "Well,"
    assert [row.text.words for row in harness(hand).waiting.rows.rows] == ["two"]
    assert [held.attachment.name for held in harness(hand).files.held()] == ["notes.md"]
    kept = hand.session.conversation
    hand.restart()
    assert hand.session.conversation == kept
    assert [held.attachment.name for held in harness(hand).files.held()] == ["notes.md"]
    assert [row.text.words for row in harness(hand).waiting.rows.rows] == ["two"]


def test_find_counts_and_shows_matches_in_other_versions(hand: Hand) -> None:
    chat = hand.window.chat
    hand.echo.chat.reply = "an **old** answer, a needle"
    hand.say("first question")
    hand.echo.chat.reply = "another answer"
    chat.message_commands.regenerate_last()
    hand.wait_for("idle")
    chat.transcript.finding.open()
    bar = chat.transcript.finding.bar
    QTest.keyClicks(bar.box, "old answer")
    assert (bar.count.text(), bar.others.text()) == ("No matches", "1 in another version")
    QTest.keyClick(bar.box, Key.Key_Return)
    assert hand.items()[-1].text == "an **old** answer, a needle"
    hand.qtbot.waitUntil(lambda: bar.count.text() == "1 of 1")
    assert bar.isVisible()
    assert not bar.others.isVisible()
    bar.box.setText("answer")
    assert (bar.count.text(), bar.others.text()) == ("1 of 1", "1 in another version")
    QTest.mouseClick(bar.others, Qt.MouseButton.LeftButton)
    assert hand.items()[-1].text == "another answer"
    hand.qtbot.waitUntil(lambda: bar.count.text() == "1 of 1" and bar.others.isVisible())
