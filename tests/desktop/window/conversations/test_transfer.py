"""Chats exported in every format, imported by menu and drop, backed up and restored, and a full disk."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pypdf import PdfReader
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QMessageBox

from desktop.store.conversations.conversations import ConversationStore
from desktop.store.conversations.records import NOTEBOOK
from desktop.store.database.database import FILE_NAME, Database
from tests.desktop.hand import Hand
from tests.desktop.store.database.test_full_disk import full, room
from tests.desktop.store.transfer.importers.files import chatgpt, written

pytestmark = pytest.mark.gui
LONG = ("w" * 300 + " ") * 70
THINKING = "<think>\nWhat do they mean?\n</think>\nThis is **the answer**."


@pytest.fixture
def hand(qtbot, tmp_path: Path) -> Iterator[Hand]:
    made = Hand(qtbot, tmp_path)
    yield made
    made.close()


def choose(hand: Hand, name: str, path: Path) -> None:
    """Take `path` in the file dialog of this name, as its button does."""
    hand.qtbot.waitUntil(
        lambda: any(each.isVisible() for each in hand.window.findChildren(QFileDialog, name))
    )
    dialog = hand.window.findChildren(QFileDialog, name)[-1]
    dialog.fileSelected.emit(str(path))
    dialog.filesSelected.emit([str(path)])
    dialog.done(QFileDialog.DialogCode.Accepted)


def export(hand: Hand, label: str, path: Path, thoughts: bool = True) -> None:
    dialog = hand.window.transfer.export_dialog
    hand.click(label, dialog)
    dialog.thoughts.setChecked(thoughts)
    hand.click("Export…", dialog)
    choose(hand, "exportTo", path)
    hand.qtbot.waitUntil(lambda: hand.window.transfer.export_dialog is None)


def begin_long(hand: Hand) -> threading.Event:
    """Ask for `LONG`, which goes on behind its first word when the event is set."""
    goes_on = threading.Event()
    hand.echo.chat.reply, hand.echo.chat.pauses = LONG, {2: goes_on}
    hand.type("Go on")
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: bool(hand.session.replying_in))
    return goes_on


def suggested(hand: Hand, label: str) -> str:
    """The name that the file dialog offers."""
    dialog = hand.window.transfer.export_dialog
    hand.click(label, dialog)
    hand.click("Export…", dialog)
    (asked,) = hand.window.findChildren(QFileDialog, "exportTo")
    name = Path(asked.selectedFiles()[0]).name
    asked.done(QFileDialog.DialogCode.Rejected)
    hand.qtbot.waitUntil(lambda: not hand.window.findChildren(QFileDialog, "exportTo"))
    return name


def banner(hand: Hand) -> str:
    return hand.window.chat.banner.text.text()


def trigger(hand: Hand, name: str) -> None:
    hand.window.actions_by_name[name].trigger()


def test_the_last_code_of_the_replies_is_copied(hand: Hand) -> None:
    hand.load()
    hand.say("A question with ```code```")
    QGuiApplication.clipboard().setText("before")
    trigger(hand, "copy_code")
    assert "no code" in banner(hand)
    assert QGuiApplication.clipboard().text() == "before"
    hand.echo.chat.reply = "```py\nfirst\n```\n\n```py\nsecond\n```\n"
    hand.say("Another")
    hand.echo.chat.reply = "No code"
    hand.say("And another")
    trigger(hand, "copy_code")
    assert QGuiApplication.clipboard().text() == "second"
    assert "was copied" in banner(hand)


def test_what_is_selected_is_quoted_in_the_message(hand: Hand) -> None:
    hand.load()
    hand.echo.chat.reply = "One.\n\nTwo."
    hand.say("Hello")
    hand.type("See")
    hand.window.chat.transcript.select_all()
    hand.window.chat.transcript.act("quote", hand.session.messages.items()[-1].id)
    quoted = hand.box.toPlainText()
    assert quoted.startswith("See\n\n> ")
    assert "\n> One.\n>\n> Two." in quoted
    assert quoted.endswith("\n\n")
    assert hand.box.hasFocus()
    hand.type("Why?")
    assert hand.box.toPlainText() == f"{quoted}Why?"
    hand.box.undo()
    hand.box.undo()
    assert hand.box.toPlainText() == "See"


def test_out_and_in_again(hand: Hand, tmp_path: Path) -> None:
    hand.load()
    hand.echo.chat.reply = THINKING
    hand.say("A question / with: signs")
    for label, ending in (
        ("Markdown", ".md"),
        ("Web page", ".html"),
        ("JSON, everything", ".inglenook.json"),
        ("PDF", ".pdf"),
    ):
        trigger(hand, "export_chat")
        assert suggested(hand, label).endswith(ending)
        export(hand, label, tmp_path / f"a{ending}")
        assert "exported" in banner(hand)
    assert "What do they mean?" in (tmp_path / "a.md").read_text()
    assert "<strong>the answer</strong>" in (tmp_path / "a.html").read_text()
    pages = PdfReader(tmp_path / "a.pdf").pages
    text = " ".join("".join(page.extract_text() for page in pages).split())
    assert "What do they mean? This is the answer" in text
    assert "1 of 1" in text
    trigger(hand, "export_chat")
    export(hand, "Markdown", tmp_path / "b.md", thoughts=False)
    assert "What do they mean?" not in (tmp_path / "b.md").read_text()
    trigger(hand, "export_chat")
    hand.window.transfer.export_dialog.thoughts.setChecked(False)  # then another format is chosen
    export(hand, "JSON, everything", tmp_path / "b.inglenook.json", thoughts=False)
    assert (tmp_path / "b.inglenook.json").read_bytes() == (tmp_path / "a.inglenook.json").read_bytes()
    trigger(hand, "copy_chat")
    assert QGuiApplication.clipboard().text() == (tmp_path / "a.md").read_text()

    hand.window.navigation.new_chat()
    hand.type("Another")
    QTest.keyClick(hand.box, Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.texts()) == 2 and not hand.session.replying_in)
    assert [row.title for row in hand.session.stores.kept.list()] == ["Another", "A question / with: signs"]
    (tmp_path / "out").mkdir()
    trigger(hand, "export_all")
    export(hand, "PDF", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "A question with signs.pdf",
        "Another.pdf",
    ]

    (tmp_path / "a.inglenook.json").rename(tmp_path / "a.json")  # the name is the user's
    trigger(hand, "import_chats")
    choose(hand, "importFrom", tmp_path / "a.json")
    window = hand.window.transfer.import_window
    hand.qtbot.waitUntil(lambda: window.close_button.text() == "Close")
    assert window.heading.text() == "All of these chats have already been imported"
    hand.click("Close", window)


def test_all_chats_are_exported_but_empty_ones(hand: Hand) -> None:
    kept = hand.session.stores.kept
    kept.create()
    kept.create(kind=NOTEBOOK)
    begun, titled = kept.create().id, kept.create("Plans").id
    kept.add_message(begun, None, "assistant", "A greeting gives a chat no title.")
    trigger(hand, "export_all")
    assert set(hand.window.transfer.export_dialog.ids) == {begun, titled}
    hand.click("Cancel", hand.window.transfer.export_dialog)


def test_an_export_that_cannot_be_written_says_so_and_can_go_elsewhere(hand: Hand, tmp_path: Path) -> None:
    hand.load()
    hand.say("Hello")
    trigger(hand, "export_chat")
    dialog = hand.window.transfer.export_dialog
    for label in ("Markdown", "PDF"):
        dialog.begin(label, tmp_path / "missing" / "a.md")
        hand.qtbot.waitUntil(lambda: dialog.choose.isVisible())
        assert "Choose another place" in dialog.trouble.text()
    export(hand, "Markdown", tmp_path / "a.md")
    assert (tmp_path / "a.md").exists()
    assert not list(tmp_path.glob("*.part"))


def test_dropped_chats_are_imported_while_a_reply_runs(hand: Hand, tmp_path: Path) -> None:
    hand.load()
    begin_long(hand)
    talk = hand.session.conversation
    chats = [chatgpt(number) for number in range(30)]
    path = written(
        tmp_path / "conversations.json", [*chats[:10], {"mapping": {}, "title": "Bad"}, 5, *chats[10:]]
    )
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    assert hand.window.files.hint([path]) == "Drop the chats here to import them"
    event = QDropEvent(
        QPointF(50, 50),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    hand.window.dropEvent(event)
    window = hand.window.transfer.import_window
    assert window.isVisible()
    assert not window.isModal()
    hand.qtbot.waitUntil(lambda: window.close_button.text() == "Close")
    assert window.heading.text() == "30 chats were imported"
    assert window.counts.isVisible()  # one is unreadable
    assert window.show_chats.isDefault()
    assert "conversations.json, entry 11 (byte" in window.broken.toPlainText()
    hand.click("Copy list", window)
    assert QGuiApplication.clipboard().text() == window.broken.toPlainText()
    titles = [
        hand.session.conversations.index(row).data() for row in range(hand.session.conversations.rowCount())
    ]
    assert {f"Sky {number}" for number in range(30)} <= set(titles)
    assert hand.session.replying_in == (talk,)
    hand.click("Open the first chat", window)
    assert hand.texts() == ["Why is the sky blue?", "Rayleigh scattering.", "Thanks", "Gladly."]
    hand.session.stop()
    hand.wait_for("idle")


def test_a_dropped_folder_of_chats_is_imported_and_one_of_a_model_is_opened(
    hand: Hand, tmp_path: Path
) -> None:
    chats, model = tmp_path / "exported", tmp_path / "model"
    (chats / "deep").mkdir(parents=True)
    model.mkdir()
    written(chats / "account.json", {"name": "me"})
    written(chats / "deep" / "one.json", [chatgpt(1)])
    written(model / "chats.json", [chatgpt(2)])
    written(model / "config.json", {})
    opened: list[Path] = []
    hand.window.model_controller.open = opened.append
    hand.window.files.open([chats, model])
    window = hand.window.transfer.import_window
    hand.qtbot.waitUntil(lambda: window.heading.text() == "1 chat was imported")
    assert not window.counts.isVisible()  # the heading says it
    assert opened == [model]


def test_other_json_is_not_imported(hand: Hand, tmp_path: Path) -> None:
    for number, text in enumerate(
        ('{"name": "package", "version": "1.0"}', "[1, 2, 3]", "no json", '[{"a": 1}]', "")
    ):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        assert hand.window.files.hint([path]) != "Drop the chats here to import them"
    large = tmp_path / "large.json"
    large.write_text(json.dumps([chatgpt(text="x" * 200_000)]))
    other = tmp_path / "data.json"
    other.write_text(json.dumps([{"id": number, "value": "x" * 50} for number in range(9000)]))
    begin = time.thread_time()
    assert hand.window.files.hint([large]) == "Drop the chats here to import them"
    assert hand.window.files.hint([other]) != "Drop the chats here to import them"
    assert time.thread_time() - begin < 0.2


@pytest.mark.slow
def test_an_import_can_be_cancelled(hand: Hand, tmp_path: Path) -> None:
    path = written(tmp_path / "many.json", [chatgpt(number, "long text " * 2000) for number in range(400)])
    hand.window.files.open([path])
    window = hand.window.transfer.import_window
    hand.qtbot.waitUntil(lambda: window.bar.value() > 0)
    hand.click("Cancel", window)
    hand.qtbot.waitUntil(lambda: window.close_button.text() == "Close")
    assert window.heading.text() == "The import was cancelled"
    assert window.counts.isVisible()
    assert 0 < len(hand.session.stores.kept.list()) < 400
    hand.click("Close", window)
    assert not window.isVisible()


def test_back_to_a_backup(hand: Hand, tmp_path: Path) -> None:
    hand.load()
    hand.say("Kept for good")
    trigger(hand, "restore_backup")
    dialog = hand.window.backups.dialog
    hand.qtbot.waitUntil(lambda: "no backups yet" in dialog.words.text())
    hand.click("Back up now", dialog)
    hand.qtbot.waitUntil(lambda: dialog.list.count() == 1)
    assert "1 chat · " in dialog.list.item(0).text()
    hand.window.navigation.new_chat()
    hand.echo.chat.delay_s, hand.echo.chat.reply = 0.01, "word " * 1000
    hand.type("Written later")
    QTest.keyClick(hand.box, Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: bool(hand.session.replying_in))
    hand.click("Restore…", dialog)
    box = hand.window.findChild(QMessageBox, "restoreQuestion")
    hand.click("Restore", box)
    hand.qtbot.waitUntil(lambda: "Your chats were restored" in banner(hand))
    assert [row.title for row in hand.session.stores.kept.list() if row.title] == ["Kept for good"]
    assert hand.texts()[:1] == ["Kept for good"]
    hand.wait_for("idle")
    hand.echo.chat.delay_s, hand.echo.chat.reply = 0.0, None
    hand.say("and on")  # The program keeps the loaded model.
    aside = next(
        path
        for path in tmp_path.glob(f"{FILE_NAME}.before-restore-*")
        if path.suffix not in (".sqlite3-wal", ".sqlite3-shm")
    )
    before = Database(aside)
    assert {row.title for row in ConversationStore(before).list()} >= {"Kept for good", "Written later"}
    before.close()


@pytest.mark.slow
def test_a_damaged_file_is_reported_and_can_be_shown(hand: Hand, tmp_path: Path) -> None:
    hand.load()
    hand.say("Hello")
    hand.close()
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = b"\xa5" * (len(data) - len(data) // 2)
    path.write_bytes(data)
    hand.open_window()
    assert "was damaged; it is kept as" in banner(hand)
    assert hand.button("Show the file").isVisible()


def test_a_file_that_was_empty_offers_the_backups(hand: Hand, tmp_path: Path) -> None:
    hand.load()
    hand.say("Hello")
    hand.close()
    os.truncate(tmp_path / FILE_NAME, 0)
    hand.open_window()
    assert "was empty" in banner(hand)
    hand.click("Restore from a backup…")
    assert hand.window.backups.dialog is not None
    hand.window.backups.dialog.reject()


def test_a_full_disk(hand: Hand, monkeypatch) -> None:
    hand.load()
    hand.say("First")
    reported: list[str] = []
    hand.session.notice.connect(lambda sentence, level: reported.append(sentence))
    goes_on = begin_long(hand)
    database = hand.session.stores.database
    database.execute("UPDATE conversations SET title = title")
    full(database)
    goes_on.set()
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in)
    assert hand.texts()[-1] == LONG  # it stays on screen
    assert sum("not enough disk space" in sentence for sentence in reported) == 1
    hand.window.chat.composer.set_text("mine " * 2000)
    hand.press(Qt.Key.Key_Return)
    assert hand.box.toPlainText() == "mine " * 2000  # and so does what could not be sent
    talk = hand.session.conversation
    hand.window.navigation.new_chat()
    hand.session.open_conversation(talk)
    assert hand.texts()[-1] == LONG
    room(database)
    hand.session.replies.unsaved._timer.setInterval(1)
    hand.qtbot.waitUntil(lambda: "Saving works again, and everything is saved." in reported)
    assert hand.session.stores.kept.path(talk)[-1].text == LONG
    assert hand.session.stores.kept.path(talk)[-1].state == "complete"


def test_a_full_disk_is_no_longer_reported_when_there_is_room_again(hand: Hand) -> None:
    hand.load()
    hand.say("First")
    database = hand.session.stores.database
    full(database)
    hand.window.chat.composer.set_text("mine " * 2000)
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: bool(banner(hand)))
    assert "not enough disk space" in banner(hand)
    room(database)
    hand.press(Qt.Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.texts()) == 4 and not hand.session.replying_in)
    assert hand.window.chat.banner.isHidden()
    assert hand.texts()[2] == ("mine " * 2000).strip()

    full(database)
    hand.window.chat.composer.set_text("more " * 2000)
    hand.window.autosave.save()
    assert "Your text is not saved yet: There is not enough disk space" in banner(hand)
    room(database)
    hand.window.autosave.save()
    assert banner(hand) == "Saving works again, and everything is saved."

    hand.window.chat.composer.set_text("")
    full(database)
    hand.window.chat.composer.set_text("last " * 4000)
    hand.window.autosave.save()
    assert "not saved yet" in banner(hand)
    room(database)
    hand.press(Qt.Key.Key_Return)  # this draft was never saved, and need not be removed
    hand.qtbot.waitUntil(lambda: len(hand.texts()) == 6 and not hand.session.replying_in)
    assert banner(hand) == "Saving works again, and everything is saved."


@pytest.mark.slow
def test_quitting_with_an_unsaved_end_asks_first(hand: Hand, tmp_path: Path) -> None:
    hand.load()
    hand.say("First")
    goes_on = begin_long(hand)
    database, talk = hand.session.stores.database, hand.session.conversation
    full(database)
    goes_on.set()
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in)
    leaving = hand.window.close_guard

    def ask() -> QMessageBox:
        hand.window.close()
        assert hand.window.isVisible()
        return leaving.box

    assert "not enough disk space" in ask().informativeText()
    hand.click("Stay", leaving.box)
    hand.qtbot.waitUntil(lambda: leaving.box is None)
    hand.window.close()
    first = leaving.box
    hand.click("Retry", first)
    hand.qtbot.waitUntil(lambda: leaving.box not in (None, first))  # it still cannot
    hand.click("Save the text to a file…", leaving.box)
    choose(hand, "unsavedTo", tmp_path / "missing" / "reply.md")
    hand.qtbot.waitUntil(lambda: "Choose another place" in banner(hand))
    assert hand.window.isVisible()
    hand.qtbot.waitUntil(lambda: not hand.window.findChildren(QFileDialog, "unsavedTo"))
    hand.window.close()
    hand.click("Save the text to a file…", leaving.box)
    choose(hand, "unsavedTo", tmp_path / "reply.md")
    hand.qtbot.waitUntil(lambda: not hand.window.isVisible())
    assert (tmp_path / "reply.md").read_text() == LONG + "\n"
    hand.restart()
    kept = hand.session.stores.kept.path(talk)[-1]
    assert kept.state == "stopped"
    assert LONG.startswith(kept.text)


@pytest.mark.slow
def test_with_room_again_quitting_saves_and_asks_nothing(hand: Hand) -> None:
    hand.load()
    hand.say("First")
    goes_on = begin_long(hand)
    database, talk = hand.session.stores.database, hand.session.conversation
    full(database)
    goes_on.set()
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in)
    hand.window.close()
    room(database)
    hand.click("Retry", hand.window.close_guard.box)
    hand.qtbot.waitUntil(lambda: not hand.window.isVisible())
    hand.restart()
    assert hand.session.stores.kept.path(talk)[-1].text == LONG
