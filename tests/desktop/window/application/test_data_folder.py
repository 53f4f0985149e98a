"""The data folder disappears while the program runs: it is noticed, and everything can be saved elsewhere."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QMessageBox

from desktop.services.system.data_folder import LOOK_MS
from desktop.services.tools.servers import ServerConfig
from desktop.store.conversations.conversations import ConversationStore
from desktop.store.database.connecting import check_file
from desktop.store.database.database import FILE_NAME, Database, Gone, StoreError
from desktop.store.database.open import open_conversations
from desktop.store.settings.preferences import Preferences
from tests.desktop.fakes import EchoApi, EchoChat
from tests.desktop.hand import Hand

pytestmark = pytest.mark.skipif("sys.platform == 'win32'", reason="open files cannot be removed there")


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def move(folder: Path) -> None:
    folder.rename(folder.with_name("moved away"))


def empty(folder: Path) -> None:
    """As an unmounted disk: the folder is there, and nothing in it."""
    move(folder)
    folder.mkdir()


def replace(folder: Path) -> None:
    """Another file of the same name lies there."""
    move(folder)
    folder.mkdir()
    open_conversations(folder / FILE_NAME).close()


WAYS = [remove, move, empty, replace]


@pytest.fixture
def make_hand(qtbot, qapp, tmp_path: Path) -> Iterator[Callable[..., Hand]]:
    hands: list[Hand] = []
    (tmp_path / "data").mkdir()

    def make(**how: object) -> Hand:
        hands.append(Hand(qtbot, tmp_path / "data", **how))
        return hands[-1]

    yield make
    for hand in hands:
        hand.desktop.services.data_folder.given_up = True
        hand.window.close_guard.sure = True
        hand.close()


def talking(make_hand: Callable[..., Hand]) -> Hand:
    hand = make_hand()
    hand.load()
    hand.say("before it went")
    return hand


def say(hand: Hand, text: str) -> None:
    """Send without the keyboard: after a dialog the system decides which window has the focus."""
    assert hand.session.submit(text)
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in)


def asked(hand: Hand) -> QMessageBox:
    """The question, which appears within one or two checks."""
    hand.qtbot.waitUntil(lambda: hand.window.data_folder.box is not None, timeout=5 * LOOK_MS)
    return hand.window.data_folder.box


def press(box: QMessageBox, words: str) -> None:
    next(button for button in box.buttons() if words in button.text()).click()


def choose_folder(hand: Hand, folder: Path) -> None:
    hand.qtbot.waitUntil(lambda: hand.window.findChild(QFileDialog, "dataTo") is not None)
    dialog = hand.window.findChild(QFileDialog, "dataTo")
    dialog.fileSelected.emit(str(folder))
    dialog.hide()


def said_in(folder: Path) -> list[list[str]]:
    database = open_conversations(folder / FILE_NAME)
    store = ConversationStore(database)
    found = [[message.text for message in store.path(row.id)] for row in store.list()]
    database.close()
    return found


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("go_away", WAYS)
def test_it_is_noticed_and_nothing_is_reported_as_saved(
    make_hand, tmp_path: Path, go_away: Callable[[Path], None]
) -> None:
    hand = talking(make_hand)
    before = hand.texts()
    go_away(tmp_path / "data")
    assert not hand.session.submit("said into the void")
    assert hand.texts() == before
    box = asked(hand)
    assert "no longer in" in box.text()
    words = [button.text() for button in box.buttons()]
    assert any("another folder" in text for text in words)
    assert any("here again" in text for text in words) == (go_away is not replace)
    press(box, "another folder")
    choose_folder(hand, tmp_path / "rescued")
    hand.qtbot.waitUntil(lambda: not hand.desktop.services.data_folder.gone)
    assert hand.window.data_folder.box is None
    assert f"--data {tmp_path / 'rescued'}" in hand.window.chat.banner.text.text()
    say(hand, "after it")
    assert hand.texts() == [*before, "after it", "after it"]
    hand.close()
    assert said_in(tmp_path / "rescued") == [[*before, "after it", "after it"]]
    assert Preferences(tmp_path / "rescued" / "preferences.json").last_model
    hand.open_window()


def test_a_running_reply_continues_and_is_saved_in_the_new_place(make_hand, tmp_path: Path) -> None:
    hold = threading.Event()
    hand = make_hand(echo=EchoApi(EchoChat(hold=hold)))
    hand.load()
    assert hand.session.submit("a question")
    hand.wait_for("answering", "prefill")
    remove(tmp_path / "data")
    press(asked(hand), "Later")
    hand.qtbot.waitUntil(hand.window.chat.banner.offer.isVisible)
    hold.set()
    hand.wait_for("idle")
    hand.qtbot.waitUntil(lambda: not hand.session.replying_in)
    assert hand.texts() == ["a question", "a question"]
    assert list(hand.session.save_replies().values()) == ["a question"]  # kept in memory
    hand.window.chat.banner.offer.click()
    press(asked(hand), "here again")
    hand.qtbot.waitUntil(lambda: not hand.desktop.services.data_folder.gone)
    assert hand.session.save_replies() == {}
    assert "from now on" in hand.window.chat.banner.text.text()
    assert "--data" not in hand.window.chat.banner.text.text()
    assert (tmp_path / "data" / "inglenook.lock").exists()
    hand.close()
    assert said_in(tmp_path / "data") == [["a question", "a question"]]
    hand.open_window()


@pytest.mark.slow
def test_a_folder_that_comes_back_is_noticed(make_hand, tmp_path: Path) -> None:
    hand = talking(make_hand)
    move(tmp_path / "data")
    asked(hand)
    (tmp_path / "moved away").rename(tmp_path / "data")
    hand.qtbot.waitUntil(lambda: hand.window.data_folder.box is None, timeout=5 * LOOK_MS)
    assert "is back" in hand.window.chat.banner.text.text()
    say(hand, "back")
    assert hand.texts()[-1] == "back"


def test_leaving_asks_and_a_forced_end_puts_everything_back(make_hand, tmp_path: Path) -> None:
    hand = talking(make_hand)
    remove(tmp_path / "data")
    assert not hand.window.close()
    box = asked(hand)
    assert any("Quit anyway" in button.text() for button in box.buttons())
    press(box, "Stay")
    assert hand.window.isVisible()
    hand.window.close_guard.sure = True  # the system ends the session, and waits for no answer
    hand.window.close()
    assert said_in(tmp_path / "data") == [["before it went", "before it went"]]


def test_abandoned_data_is_not_restored(make_hand, tmp_path: Path) -> None:
    """Who removes the folder may want just that."""
    hand = talking(make_hand)
    remove(tmp_path / "data")
    assert not hand.window.close()
    press(asked(hand), "Quit anyway")
    hand.qtbot.waitUntil(lambda: hand.desktop.ended)
    assert not (tmp_path / "data" / FILE_NAME).exists()


@pytest.mark.slow
def test_a_folder_with_other_chats_is_refused(make_hand, tmp_path: Path) -> None:
    hand = talking(make_hand)
    (tmp_path / "other").mkdir()
    open_conversations(tmp_path / "other" / FILE_NAME).close()
    before = (tmp_path / "other" / FILE_NAME).read_bytes()
    remove(tmp_path / "data")
    press(asked(hand), "another folder")
    choose_folder(hand, tmp_path / "other")
    assert "already" in asked(hand).text()
    assert (tmp_path / "other" / FILE_NAME).read_bytes() == before
    press(asked(hand), "another folder")
    choose_folder(hand, tmp_path / FILE_NAME / "below")  # it cannot be refused for nothing
    hand.qtbot.waitUntil(lambda: not hand.desktop.services.data_folder.gone)
    assert said_in(tmp_path / FILE_NAME / "below") == [["before it went", "before it went"]]


def test_the_tool_servers_are_saved_in_the_folder_that_is_used(make_hand, tmp_path: Path) -> None:
    hand = talking(make_hand)
    hand.desktop.services.tools.add(ServerConfig("files", "x", enabled=False))
    remove(tmp_path / "data")
    asked(hand)
    assert hand.desktop.services.data_folder.save_in(tmp_path / "rescued") == ""
    assert '"files"' in (tmp_path / "rescued" / "mcp.json").read_text("utf-8")


@pytest.mark.slow
def test_from_an_unreadable_disk_what_is_shown_is_saved(
    make_hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = talking(make_hand)
    remove(tmp_path / "data")
    asked(hand)
    database, execute = hand.session.stores.database, Database.execute

    def pulled_out(self: Database, sql: str, values: object = ()) -> object:
        if self is database and "quick_check" in sql:
            raise StoreError("disk I/O error")
        return execute(self, sql, values)

    def unreadable(self: Database, path: Path) -> None:
        raise StoreError("disk I/O error")

    monkeypatch.setattr(Database, "execute", pulled_out)
    monkeypatch.setattr(Database, "move_to", unreadable)
    assert hand.desktop.services.data_folder.save_in(tmp_path / "rescued") == ""
    assert hand.texts() == ["before it went", "before it went"]
    assert hand.session.submit("and on")
    hand.wait_for("idle")
    assert hand.texts()[-1] == "and on"


@pytest.mark.parametrize("go_away", WAYS)
def test_no_connection_makes_an_empty_file_in_its_place(
    tmp_path: Path, go_away: Callable[[Path], None]
) -> None:
    (tmp_path / "data").mkdir()
    database = open_conversations(tmp_path / "data" / FILE_NAME)
    store = ConversationStore(database)
    talk = store.create("Talk").id
    go_away(tmp_path / "data")
    there = sorted(path.name for path in (tmp_path / "data").glob("*"))
    for write in (
        lambda: store.create("More"),
        lambda: store.add_message(talk, None, "user", "words"),
        lambda: store.rename(talk, "Other"),
    ):
        with pytest.raises(Gone, match="no longer in"):
            write()
    assert store.get(talk).title == "Talk"  # Reading still works.
    if go_away is not replace:
        for read in (lambda: check_file(database.path), lambda: Database.second(database.path)):
            with pytest.raises(StoreError):
                read()
    database.close()
    assert sorted(path.name for path in (tmp_path / "data").glob("*")) == there
