"""The whole desktop with a fake model: everything that a user does with a conversation."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QAccessible, QDragEnterEvent, QDropEvent, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QFileDialog, QWidget

from desktop.app import FIRST_CHATS, Desktop, EngineApi
from desktop.items.chats.conversations import ID_ROLE
from desktop.services.engine.cpu_yield import CpuYield
from desktop.settings import Appearance
from desktop.store.database.database import StoreError
from desktop.store.settings.preferences import Preferences
from desktop.views.commands.shortcuts_dialog import ShortcutsDialog
from engine.core import Downloaded, Downloading
from engine.errors import BadCheckpoint, DownloadError
from engine.platform.language import PREFERENCES
from engine.settings import SamplerSettings
from tests.desktop.fakes import EchoApi, EchoChat
from tests.desktop.hand import Hand

CTRL, ALT, SHIFT = (
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.AltModifier,
    Qt.KeyboardModifier.ShiftModifier,
)
Key = Qt.Key


@pytest.fixture
def make_hand(qtbot, qapp, tmp_path):
    hands: list[Hand] = []

    def make(**how) -> Hand:
        hands.append(Hand(qtbot, tmp_path, **how))
        return hands[-1]

    yield make
    for hand in hands:
        hand.close()


@pytest.fixture
def hand(make_hand) -> Hand:
    found = make_hand()
    found.load()
    return found


def banner(hand: Hand) -> str:
    return hand.window.chat.banner.text.text() if hand.window.chat.banner.isVisible() else ""


# -- the turns of a conversation


def test_type_enter_and_read(hand) -> None:
    hand.say("Hello there, friend")
    assert [(item.role, item.text) for item in hand.items()] == [
        ("user", "Hello there, friend"),
        ("assistant", "Hello there, friend"),
    ]
    assert hand.window.chat.composer.text() == ""
    assert hand.window.windowTitle() == "Hello there, friend – Inglenook"
    assert "tokens" in hand.window.chat.status.context.text()


def test_escape_stops_and_keeps_what_was_written(make_hand) -> None:
    hand = make_hand(echo=EchoApi(EchoChat(reply="word " * 5000, delay_s=0.002)))
    hand.load()
    hand.type("go")
    hand.press(Key.Key_Return)
    hand.wait_for("answering")
    assert hand.window.chat.composer.button.accessibleName() == "Stop the reply"
    hand.press(Key.Key_Escape)
    hand.wait_for("idle")
    reply = hand.items()[-1].text
    assert reply.startswith("word")
    assert len(reply) < 5000
    assert hand.window.chat.composer.button.accessibleName() == "Send message"


def test_escape_stops_while_the_prompt_is_read(make_hand) -> None:
    hand = make_hand(echo=EchoApi(EchoChat(prefill_steps=1000, prefill_delay_s=0.005)))
    hand.load()
    hand.type("go on for long")
    hand.press(Key.Key_Return)
    hand.wait_for("prefill")
    hand.qtbot.waitUntil(lambda: "Reading the prompt" in hand.window.chat.status.state.text())
    hand.press(Key.Key_Escape)
    hand.wait_for("idle")


def test_escape_with_nothing_to_stop_dismisses_the_notice_then_clears_the_selection(hand) -> None:
    hand.say("some words to select")
    transcript = hand.window.chat.transcript
    transcript.setFocus()
    hand.press(Key.Key_A, CTRL)
    assert transcript.selection.text()
    hand.window.chat.show_notice("A note.", "info")
    hand.press(Key.Key_Escape)
    assert banner(hand) == ""
    assert transcript.selection.text()
    hand.press(Key.Key_Escape)
    assert not transcript.selection.text()


def test_regenerate_keeps_the_earlier_reply(hand) -> None:
    hand.echo.chat.reply = "first"
    hand.say("question")
    hand.echo.chat.reply = "second"
    hand.press(Key.Key_R, CTRL)
    hand.qtbot.waitUntil(lambda: hand.texts() == ["question", "second"])
    hand.wait_for("idle")
    assert (hand.items()[-1].variant_index, hand.items()[-1].variant_count) == (1, 2)
    hand.press(Key.Key_Left, ALT)
    assert hand.texts() == ["question", "first"]
    hand.press(Key.Key_Right, ALT)
    assert hand.texts() == ["question", "second"]


def test_edit_asks_again_and_keeps_the_earlier_turn(hand) -> None:
    hand.say("teh question")
    hand.press(Key.Key_Up)  # in the empty box: edit the last own message
    editor = QApplication.focusWidget()
    assert editor is not hand.box
    editor.selectAll()
    hand.qtbot.keyClicks(editor, "the question")
    hand.qtbot.keyClick(editor, Key.Key_Return, CTRL)
    hand.qtbot.waitUntil(lambda: hand.texts() == ["the question", "the question"])
    hand.wait_for("idle")
    assert hand.items()[0].variant_count == 2


def test_continue_writes_on(hand) -> None:
    hand.echo.chat.reply = "one two three four"
    hand.window.inspector.changed.emit(type(hand.session.settings(_stops())), "max_tokens", 2)
    hand.say("count")
    assert hand.texts()[-1] == "one two"
    hand.press(Key.Key_Return, ALT)
    hand.qtbot.waitUntil(lambda: hand.texts()[-1] == "one two three four")
    hand.wait_for("idle")
    assert hand.echo.chat.requests[-1].continue_last


def _stops():
    from engine.settings import StopSettings

    return StopSettings


def test_delete_and_undo_by_key_and_by_button(hand) -> None:
    hand.say("first")
    hand.say("second")
    act = hand.window.chat.transcript.action
    act.emit("delete", hand.items()[2].id)
    assert hand.texts() == ["first", "first"]
    assert "deleted" in banner(hand)
    hand.window.chat.transcript.setFocus()
    hand.press(Key.Key_Z, CTRL)
    assert hand.texts() == ["first", "first", "second", "second"]
    assert banner(hand) == ""
    act.emit("delete", hand.items()[0].id)
    assert hand.texts() == []
    hand.click("Undo", hand.window.chat.banner)
    assert len(hand.texts()) == 4


def test_deleting_one_version_shows_the_other(hand) -> None:
    hand.echo.chat.reply = "first"
    hand.say("question")
    hand.echo.chat.reply = "second"
    hand.press(Key.Key_R, CTRL)
    hand.qtbot.waitUntil(lambda: hand.texts() == ["question", "second"])
    hand.wait_for("idle")
    hand.window.chat.transcript.action.emit("delete", hand.items()[-1].id)
    assert hand.texts() == ["question", "first"]
    assert "version was deleted" in banner(hand)
    hand.click("Undo", hand.window.chat.banner)
    assert hand.texts() == ["question", "second"]


def test_ctrl_z_in_a_text_box_is_the_box_s_own(hand) -> None:
    hand.say("first")
    hand.window.chat.transcript.action.emit("delete", hand.items()[0].id)
    hand.type("abc")
    hand.press(Key.Key_Z, CTRL)
    assert hand.texts() == []
    assert hand.window.chat.composer.text() == ""


def test_no_bare_key_deletes_anything(hand) -> None:
    hand.say("keep me")
    for widget in (hand.window.chat.transcript, hand.window.sidebar.list, hand.window.panes):
        widget.setFocus()
        for key in (
            Key.Key_Backspace,
            Key.Key_D,
            Key.Key_X,
            *([Key.Key_Delete] if widget is not hand.window.sidebar.list else []),
        ):
            hand.press(key)
    assert hand.texts() == ["keep me", "keep me"]
    assert hand.session.conversations.rowCount() == 1


def test_chats_are_made_switched_renamed_deleted_and_restored(hand) -> None:
    hand.say("first chat")
    hand.press(Key.Key_N, CTRL)
    assert hand.texts() == []
    hand.type("a draft")
    first = hand.session.conversations.index(1, 0).data(_id_role())
    hand.window.navigation.open_chat(first)
    assert hand.texts() == ["first chat", "first chat"]
    assert hand.window.chat.composer.text() == ""
    hand.press(Key.Key_F2)
    hand.qtbot.keyClicks(QApplication.focusWidget(), "Renamed")
    hand.press(Key.Key_Return)
    assert hand.session.title == "Renamed"
    assert hand.window.windowTitle() == "Renamed – Inglenook"
    hand.window.actions_by_name["delete_chat"].trigger()
    assert hand.window.chat.composer.text() == "a draft"
    hand.click("Undo", hand.window.chat.banner)
    assert hand.session.title == "Renamed"


def _id_role():
    from desktop.items.chats.conversations import ID_ROLE

    return ID_ROLE


def test_search_opens_the_message(hand) -> None:
    hand.say("about lighthouses")
    found = hand.session.conversation
    hand.press(Key.Key_N, CTRL)
    hand.press(Key.Key_F, CTRL | SHIFT)
    hand.qtbot.keyClicks(QApplication.focusWidget(), "lighthouses")
    sidebar = hand.window.sidebar
    hand.qtbot.waitUntil(sidebar.results.isVisible)
    place = sidebar.results.visualRect(sidebar.hits.index(0, 0)).center()
    hand.qtbot.mouseClick(sidebar.results.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert hand.session.conversation == found


def test_settings_reach_the_request_and_show_their_source(hand) -> None:
    form = hand.window.inspector.forms[SamplerSettings]
    box = next(w for w in form.findChildren(QAbstractSpinBox) if w.accessibleName() == "Temperature")
    box.setValue(1.3)
    hand.say("warm")
    assert hand.echo.chat.requests[-1].sampler.temperature == 1.3
    assert form.row("temperature").reset.isVisible()
    assert "this chat" in form.row("temperature").reset.toolTip()
    hand.press(Key.Key_N, CTRL)
    assert box.value() == SamplerSettings().temperature
    hand.window.navigation.open_chat(hand.session.conversations.index(1, 0).data(_id_role()))
    assert box.value() == 1.3
    hand.click("Save as defaults")
    assert "saved default" in form.row("temperature").reset.toolTip()
    hand.press(Key.Key_N, CTRL)
    assert box.value() == 1.3
    hand.qtbot.mouseClick(form.row("temperature").reset, Qt.MouseButton.LeftButton)
    assert box.value() == SamplerSettings().temperature


def test_the_system_prompt_reaches_the_request(hand) -> None:
    prompt = hand.window.inspector.prompt
    prompt.setFocus()
    hand.qtbot.keyClicks(prompt, "Be brief.")
    hand.say("hi")
    assert (
        hand.echo.chat.requests[-1].messages[0].role,
        hand.echo.chat.requests[-1].messages[0].content,
    ) == ("system", "Be brief.")


def test_copy_the_last_reply(hand) -> None:
    hand.echo.chat.reply = "**bold** words"
    hand.say("x")
    hand.press(Key.Key_C, CTRL | SHIFT)
    assert QGuiApplication.clipboard().text() == "**bold** words"


# -- restart


def test_everything_is_restored_after_a_restart(hand) -> None:
    hand.say("remember this")
    hand.session.set_settings(SamplerSettings(top_k=7))
    hand.press(Key.Key_R, CTRL)
    hand.qtbot.waitUntil(lambda: hand.items()[-1].variant_count == 2)
    hand.wait_for("idle")
    hand.restart()
    assert hand.texts() == ["remember this", "remember this"]
    assert hand.items()[-1].variant_count == 2
    assert hand.session.settings(SamplerSettings).top_k == 7
    assert hand.window.windowTitle().startswith("remember this")
    hand.wait_for("idle")  # the model of last time was opened again
    assert hand.window.picker.accessibleName() == "Model: echo"
    hand.say("and go on")
    assert len(hand.texts()) == 4


def test_closing_during_a_reply_keeps_the_text_and_ends_soon(make_hand) -> None:
    hand = make_hand(echo=EchoApi(EchoChat(reply="word " * 5000, delay_s=0.002)))
    hand.load()
    hand.type("go")
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: len(hand.texts()[-1]) > 200)
    before = len(hand.texts()[-1])
    hand.restart()
    assert len(hand.texts()[-1]) >= before


def test_window_geometry_and_panes_come_back(hand) -> None:
    hand.window.resize(780, 640)  # the offscreen platform's screen is 800 pixels wide
    hand.press(Key.Key_B, CTRL)
    assert not hand.window.sidebar.isVisible()
    hand.restart()
    assert (hand.window.width(), hand.window.height()) == (780, 640)
    assert not hand.window.sidebar.isVisible()
    hand.press(Key.Key_B, CTRL)
    assert hand.window.sidebar.isVisible()


def test_a_second_window_on_the_same_data_is_refused(hand) -> None:
    with pytest.raises(StoreError, match="already open"):
        Desktop(QApplication.instance(), hand.folder, hand.api)


# -- models


def test_without_a_model_the_text_is_kept_and_a_reason_given(make_hand) -> None:
    hand = make_hand()
    hand.type("hello?")
    hand.press(Key.Key_Return)
    assert hand.window.chat.composer.text() == "hello?"
    assert "No model is loaded" in banner(hand)


def test_a_broken_model_leaves_the_chat_usable_and_says_why(hand) -> None:
    hand.say("before")
    hand.echo.fail_with = BadCheckpoint("The file ends in the middle of a tensor; download it again.")
    hand.window.model_controller.open(hand.folder / "other.gguf")
    hand.qtbot.waitUntil(lambda: "middle of a tensor" in banner(hand))
    assert hand.texts() == ["before", "before"]
    hand.click("Copy details", hand.window.chat.banner)
    assert "middle of a tensor" in QGuiApplication.clipboard().text()
    hand.echo.fail_with = None
    hand.load()
    hand.say("after")
    assert len(hand.texts()) == 4


def test_a_bug_in_the_engine_is_one_sentence_with_details_to_copy(hand) -> None:
    hand.echo.chat.error = ZeroDivisionError("boom")
    hand.type("x")
    hand.press(Key.Key_Return)
    hand.qtbot.waitUntil(lambda: "ZeroDivisionError" in banner(hand))
    assert "Traceback" not in banner(hand)
    hand.click("Copy details", hand.window.chat.banner)
    assert "Traceback" in QGuiApplication.clipboard().text()
    hand.wait_for("idle")


def drop(window, *paths) -> bool:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    here = QPointF(window.rect().center())
    enter = QDragEnterEvent(
        here.toPoint(),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    QApplication.sendEvent(window, enter)
    if not enter.isAccepted():
        return False
    assert window.drop_hint.isVisible()
    event = QDropEvent(
        here, Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    event.setAccepted(False)
    QApplication.sendEvent(window, event)
    assert not window.drop_hint.isVisible()
    return event.isAccepted()


def test_a_model_dropped_onto_the_window_is_opened(make_hand, tmp_path) -> None:
    hand = make_hand()
    file, folder, other = tmp_path / "a model.gguf", tmp_path / "folder", tmp_path / "notes.txt"
    for path in (file, other):
        path.touch()
    folder.mkdir()
    assert drop(hand.window, file, other)
    hand.qtbot.waitUntil(lambda: "“notes.txt” is empty" in banner(hand))
    hand.wait_for("idle")
    assert hand.echo.opened == [file]
    assert drop(hand.window, folder)
    hand.qtbot.waitUntil(lambda: hand.echo.opened == [file, folder])
    hand.wait_for("idle")


def test_a_dropped_folder_of_documents_is_attached(hand) -> None:
    folder = hand.folder / "minutes"
    folder.mkdir()
    for name in ("may.txt", "june.txt"):
        (folder / name).write_text(f"What was said in {name}.")
    loaded = list(hand.echo.opened)
    assert hand.window.files.hint([folder]) == "Drop the files here to attach them to your message"
    assert drop(hand.window, folder)
    files = hand.desktop.services.composer.attachments
    hand.qtbot.waitUntil(lambda: len(files.held(hand.session.conversation)) == 2)
    assert banner(hand) == ""
    hand.say("Compare them.")
    hand.qtbot.waitUntil(lambda: len(hand.echo.chat.requests) == 1)  # the message is counted before
    sent = hand.echo.chat.requests[0].messages[-1].content
    assert "What was said in june.txt." in sent
    assert "What was said in may.txt." in sent
    hand.qtbot.waitUntil(lambda: hand.session.state == "idle" and not hand.session.replying_in)
    assert hand.echo.opened == loaded


def test_a_folder_with_one_gguf_file_means_that_file(make_hand, tmp_path) -> None:
    hand = make_hand()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "only.gguf").touch()
    hand.window.model_controller.open(tmp_path / "folder")
    hand.wait_for("idle")
    assert hand.echo.opened[0].name == "only.gguf"


class FakeFetch:
    """A download that continues when released, fails, or is cancelled."""

    def __init__(self) -> None:
        self.go, self.error, self.calls = threading.Event(), None, 0

    def __call__(self, folder, stop):
        self.calls += 1
        yield Downloading("Fetching the model", 40_000_000, 98_000_000)
        while not self.go.wait(0.005):
            if stop.is_set():
                raise DownloadError("The download was stopped.")
        if self.error:
            raise self.error
        folder.mkdir(exist_ok=True)
        (folder / "starter.gguf").touch()
        yield Downloaded(str(folder / "starter.gguf"))


def test_a_model_file_is_chosen_in_a_dialog_that_leaves_the_window_running(hand, tmp_path) -> None:
    chosen = tmp_path / "chosen.gguf"
    chosen.touch()
    hand.window.actions_by_name["open_file"].trigger()
    dialog = hand.window.findChild(QFileDialog)
    dialog.selectFile(str(chosen))
    dialog.accept()
    hand.qtbot.waitUntil(lambda: hand.echo.opened[-1] == chosen)
    hand.wait_for("idle")


def test_a_screen_reader_hears_the_beginning_and_the_end_and_no_token(hand, monkeypatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr("desktop.views.chat.announcer.announce", lambda widget, text: heard.append(text))
    hand.say("one two three four five six")
    assert heard[0] == "Generating the reply"
    assert len(heard) == 2
    assert heard[1].startswith("The reply has ended: ")
    assert "tokens per second" in heard[1]


def test_first_run_download_cancel_fail_retry_and_load(make_hand) -> None:
    fetch = FakeFetch()
    hand = make_hand(fetch=fetch)
    welcome = hand.window.chat.welcome
    assert welcome.first_run.isVisible()
    hand.click("Download starter model")
    hand.qtbot.waitUntil(lambda: "40 MB of 98 MB" in welcome.first_run.progress.sentence.text())
    hand.click("Cancel download")
    hand.qtbot.waitUntil(lambda: welcome.first_run.download.isVisible())
    assert not welcome.first_run.trouble.isVisible()
    fetch.error = DownloadError("There is no network; open a model file instead.")
    fetch.go.set()
    hand.click("Download starter model")
    hand.qtbot.waitUntil(welcome.first_run.trouble.isVisible)
    assert "no network" in welcome.first_run.trouble.text()
    fetch.error = None
    hand.click("Retry the download")
    hand.wait_for("idle")
    assert fetch.calls == 3
    assert welcome.ready.isVisible()
    assert hand.echo.opened[-1].name == "starter.gguf"


def test_starter_argument_fetches_and_loads(make_hand) -> None:
    fetch = FakeFetch()
    fetch.go.set()
    hand = make_hand(fetch=fetch)
    hand.restart(starter=True)
    hand.wait_for("idle")
    assert fetch.calls == 1


@pytest.mark.slow
def test_model_argument_wins_over_the_last_model(hand, tmp_path) -> None:
    other = tmp_path / "other.gguf"
    other.touch()
    hand.restart(model=other)
    hand.wait_for("idle")
    assert hand.echo.opened[-1] == other


def test_the_menu_lists_recent_models_and_greys_what_cannot_be_used(hand) -> None:
    (hand.folder / "models").mkdir()
    (hand.folder / "models" / "missing-parts.gguf").touch()
    picker = hand.window.picker
    picker.entries_requested.emit()
    hand.qtbot.waitUntil(lambda: len(picker._entry_actions) == 2)
    good, bad = picker._entry_actions
    assert good.isChecked()
    assert not bad.isEnabled()
    assert "There is no model" in bad.text()
    hand.echo.opened.clear()
    good.trigger()
    hand.wait_for("loading")
    hand.wait_for("idle")
    assert hand.echo.opened == [hand.folder / "echo.gguf"]


def test_unload_and_load_again(hand) -> None:
    hand.window.actions_by_name["unload"].trigger()
    hand.wait_for("no_model")
    assert hand.window.picker.accessibleName() == "Choose a model"
    assert not hand.window.actions_by_name["unload"].isEnabled()
    assert hand.window.chat.welcome.first_run.isVisible()


# -- the window


@pytest.mark.slow
def test_every_shortcut_is_unique_and_listed(hand) -> None:
    keys = [key.toString() for action in hand.window.actions_by_name.values() for key in action.shortcuts()]
    assert len(keys) == len(set(keys))
    hand.press(Key.Key_Slash, CTRL)
    dialog = QApplication.activeModalWidget()
    assert isinstance(dialog, ShortcutsDialog)
    assert dialog.rows  # those not seen at first are made, too
    words = " ".join(label.text() for label in dialog.findChildren(QWidget) if hasattr(label, "text"))
    for text in ("New chat", "Ctrl+N", "Regenerate", "Ctrl+R", "Shift+Enter"):
        assert text in words
    dialog.close()


@pytest.mark.slow
def test_text_size_keys(hand) -> None:
    before = hand.window.sidebar.font().pointSizeF()
    hand.press(Key.Key_Plus, CTRL)
    assert hand.session.settings(Appearance).text_scale == 110
    assert hand.window.sidebar.font().pointSizeF() == pytest.approx(before * 1.1)
    for _ in range(20):
        hand.press(Key.Key_Plus, CTRL)
    assert hand.session.settings(Appearance).text_scale == 200
    hand.press(Key.Key_0, CTRL)
    hand.press(Key.Key_Minus, CTRL)
    assert hand.session.settings(Appearance).text_scale == 90
    hand.press(Key.Key_0, CTRL)


def test_a_saved_text_size_applies_from_the_start(make_hand, tmp_path) -> None:
    before = QApplication.font()
    Preferences(tmp_path / PREFERENCES).save_settings(Appearance(text_scale=150))
    window = make_hand().window
    for widget in (
        window,
        window.sidebar,
        window.chat.status.state,
        window.chat.composer.box,
        window.model_settings.device.combo,
    ):
        assert widget.font().pointSizeF() == pytest.approx(before.pointSizeF() * 1.5)
    window.settings_controller.scale_text(0)
    assert window.chat.status.state.font().pointSizeF() == pytest.approx(before.pointSizeF())


def test_ctrl_l_goes_to_the_message_box(hand) -> None:
    hand.window.sidebar.query.setFocus()
    hand.press(Key.Key_L, CTRL)
    assert QApplication.focusWidget() is hand.box


def test_panes_hide_by_key_and_when_it_gets_narrow(hand) -> None:
    window = hand.window
    window.resize(1200, 700)
    assert window.sidebar.isVisible()
    assert window.inspector.isVisible()
    window.resize(700, 700)
    assert window.sidebar.isVisible()
    assert not window.inspector.isVisible()
    window.resize(360, 700)
    assert window.width() == 360
    assert not window.sidebar.isVisible()
    assert window.chat.isVisible()
    hand.press(Key.Key_B, CTRL)  # no room beside the conversation: it takes its place
    assert window.sidebar.isVisible()
    assert not window.chat.isVisible()
    hand.click("Back to the chat", window.sidebar)
    assert window.chat.isVisible()
    window.resize(1200, 700)
    assert window.sidebar.isVisible()
    assert window.inspector.isVisible()
    hand.press(Key.Key_B, CTRL)
    assert not window.sidebar.isVisible()
    window.resize(1210, 700)
    assert not window.sidebar.isVisible()


def test_nothing_is_cut_off_at_360_pixels(hand) -> None:
    hand.say("narrow")
    hand.window.resize(360, 700)
    QApplication.processEvents()
    right = hand.window.width()
    for widget in (hand.window.chat.composer.button, hand.window.picker, hand.window.top_bar.right, hand.box):
        edge = widget.mapTo(hand.window, QPoint(widget.width(), 0)).x()
        assert edge <= right, widget.accessibleName()


def test_every_control_has_an_accessible_name(hand) -> None:
    hand.say("hello")
    for group in hand.window.inspector.groups:
        group.header.setChecked(True)
    hand.window.chat.banner.show_notice("x", "error", undo=True)
    nameless = []
    for widget in hand.window.findChildren(QWidget):
        if widget.focusPolicy() == Qt.FocusPolicy.NoFocus or not widget.isVisibleTo(hand.window):
            continue
        interface = QAccessible.queryAccessibleInterface(widget)
        if interface is None or not interface.text(QAccessible.Text.Name):
            nameless.append(f"{type(widget).__name__} {widget.objectName()}")
    assert nameless == []


def test_an_unhandled_error_is_one_sentence_in_the_window(hand) -> None:
    hand.desktop.show_trouble("Something went wrong in Inglenook (KeyError).")
    assert "KeyError" in banner(hand)


@pytest.mark.slow
def test_a_long_list_is_read_after_the_first_paint(hand, monkeypatch) -> None:
    """A screen's worth before; all of it where the open chat is further down, so that it can be seen in
    its place.
    """
    kept = hand.session.stores.kept
    for number in range(FIRST_CHATS + 50):
        kept.create(f"Chat {number}")
    oldest = min(row.id for row in kept.list())
    listed: list[int] = []

    def painted(desktop: Desktop, *arguments) -> None:
        listed.append(desktop.session.conversations.rowCount())
        after_paint(desktop, *arguments)
        listed.append(desktop.session.conversations.rowCount())

    after_paint = Desktop._after_paint
    monkeypatch.setattr(Desktop, "_after_paint", painted)
    for last in (max(row.id for row in kept.list()), oldest):
        hand.session.open_conversation(last)
        listed.clear()
        hand.restart()
        hand.qtbot.waitUntil(lambda: len(listed) == 2)
        assert listed == [FIRST_CHATS if last != oldest else FIRST_CHATS + 51, FIRST_CHATS + 51]
        assert hand.session.conversation == last
        assert hand.window.sidebar.list.currentIndex().data(ID_ROLE) == last
        kept = hand.session.stores.kept


def test_neither_torch_nor_numba_is_imported_before_the_model(tmp_path) -> None:
    """Nothing is read that is not shown yet; `tests.bench.bench_start` measures how long a start takes."""
    code = f"""
import os, sys, pathlib
os.environ["QT_QPA_PLATFORM"] = "offscreen"
from desktop.app import Desktop, make_application
app = make_application(["inglenook"])
desktop = Desktop(app, pathlib.Path({str(tmp_path)!r}))
desktop.start()
app.processEvents()
assert desktop.window.isVisible()
dear = ("torch", "numba", "transformers", "numpy", "tokenizers", "jinja2", "ziamath", "pypdf")
dear += ("mcp", "pydantic")
heavy = [name for name in dear if name in sys.modules]
views = [name for name in sys.modules if name.startswith("desktop.views.")]
later = [name for name in views if name.endswith(("_dialog", "_window"))]
heavy += [name for name in later if name != "desktop.views.main_window"]
desktop.window.close()
sys.exit(f"imported too early: {{heavy}}" if heavy else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_api_defaults_to_the_engine() -> None:
    from desktop.services.engine import model_host
    from desktop.services.models import draft_models, starter_download

    assert EngineApi() == EngineApi(
        model_host.open_chat, model_host.describe, starter_download.fetch_starter, draft_models.draft_problem
    )


def test_while_the_user_types_the_model_leaves_a_core_and_garbage_waits(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(CpuYield, "hold", lambda room: asked.append(True))
    QTest.keyClick(hand.window.windowHandle(), Key.Key_A)
    assert hand.desktop.acting
    assert asked == [True]
