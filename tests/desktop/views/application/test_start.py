"""The log window, error reports, notifications and the menu entry, through the window."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QSystemTrayIcon

from desktop import menu_entry
from desktop.diagnostics import Diagnostics
from desktop.services.system.single_instance import Request
from desktop.settings import Behaviour
from desktop.views.application.controller import make_notifier
from desktop.views.application.error_report_dialog import ErrorReportDialog
from desktop.views.application.log_window import LogWindow
from desktop.views.application.tray_notifier import TrayNotifier
from tests.desktop.hand import Hand

SECRET = "the pelican keeps the key"
NO_RAISE = r"This plugin does not support raise\(\)"


@pytest.fixture
def hand(qtbot, tmp_path) -> Iterator[Hand]:
    found = Hand(qtbot, tmp_path)
    yield found
    found.close()


@pytest.fixture
def diagnostics(tmp_path, qapp) -> Iterator[Diagnostics]:
    found = Diagnostics(tmp_path / "logs")
    yield found
    found.close()


def dialog(hand: Hand, kind: type[QDialog]) -> QDialog:
    shown = [found for found in hand.window.findChildren(kind) if found.isVisible()]
    assert len(shown) == 1
    return shown[0]


def trigger(hand: Hand, name: str) -> None:
    hand.window.actions_by_name[name].trigger()


def test_the_log_is_shown_as_it_grows(diagnostics, hand, qtbot) -> None:
    writer = logging.getLogger("desktop.test")
    writer.info("a first line")
    assert hand.window.application_controller.log_window is None
    trigger(hand, "log")
    window = dialog(hand, LogWindow)
    assert "a first line" in window.text.toPlainText()
    writer.warning("a warning\nwith a second line")
    writer.error("an error of %s", "Pelicans")
    qtbot.waitUntil(lambda: "Pelicans" in window.text.toPlainText())
    window.level.setCurrentIndex(2)
    assert "a first line" not in window.text.toPlainText()
    assert "with a second line" in window.text.toPlainText()
    QTest.keyClicks(window.words, "pelicans")
    assert window.text.toPlainText().count("\n") == 0
    assert window.count.text() == "1 entry"
    assert [mark.cursor.selectedText() for mark in window.text.extraSelections()] == ["Pelicans"]
    hand.click("Copy", window)
    assert QGuiApplication.clipboard().text() == window.text.toPlainText()
    assert "Pelicans" in QGuiApplication.clipboard().text()
    window.words.setText("nowhere to be found")
    assert window.count.text() == "No matching entries"
    assert not window.copy.isEnabled()
    window.words.clear()
    window.level.setCurrentIndex(0)
    for file in (hand.folder / "logs").glob("inglenook.log*"):  # The log is rotated.
        file.rename(file.with_name("old"))
    diagnostics._handlers[0].close()
    writer.info("a line in the new file")
    qtbot.waitUntil(lambda: "a line in the new file" in window.text.toPlainText())
    assert "a first line" in window.text.toPlainText()
    QTest.keyClick(window, Qt.Key.Key_Escape)
    assert not window.isVisible()
    trigger(hand, "log")
    assert dialog(hand, LogWindow) is window


def test_an_error_report_contains_no_chat_text(diagnostics, hand, monkeypatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: hand.folder)
    hand.load()
    hand.say(SECRET)
    logging.getLogger("desktop.test").info("the data are in %s/chats", hand.folder)
    try:
        raise KeyError("something")
    except KeyError as error:
        diagnostics._on_exception(KeyError, error, error.__traceback__)
    trace = f"Traceback\n  File {hand.folder}/x.py\nKeyError: 'something'"
    hand.desktop.show_trouble("Something went wrong in Inglenook (KeyError).", trace)
    banner = hand.window.chat.banner
    assert banner.isVisible()
    hand.click("Show report")
    report = dialog(hand, ErrorReportDialog)
    hand.click("Copy report", report)
    text = QGuiApplication.clipboard().text()
    assert text == report.text.toPlainText()
    model = "Model: echo, echo, gguf"
    for part in (
        "Something went wrong",
        "Inglenook: ",
        "PySide6-Essentials: ",
        "System: ",
        model,
        "  File ~/x.py",
        "in ~/chats",
    ):
        assert part in text, part
    assert SECRET not in text
    assert str(hand.folder) not in text
    hand.click("Show log", report)
    assert dialog(hand, LogWindow).isVisible()
    hand.click("Close", report)
    hand.say("the program goes on")
    assert hand.texts()[-1] == "the program goes on"


def test_a_crash_of_the_last_run_is_reported_and_its_model_not_loaded(hand) -> None:
    hand.load()
    hand.restart(last_run="Fatal Python error: Segmentation fault")
    banner = hand.window.chat.banner
    hand.qtbot.waitUntil(banner.isVisible)
    assert "crashed the last time" in banner.text.text()
    assert "not loaded automatically" in banner.text.text()
    assert hand.session.state == "no_model"
    assert len(hand.echo.opened) == 1
    hand.click("Show report")
    assert "Segmentation fault" in dialog(hand, ErrorReportDialog).text.toPlainText()
    hand.restart(last_run="")
    hand.qtbot.waitUntil(hand.window.chat.banner.isVisible)
    assert "the cause is unknown" in hand.window.chat.banner.text.text()
    hand.wait_for("idle")
    assert len(hand.echo.opened) == 2
    hand.click("Dismiss", hand.window.chat.banner)
    assert not hand.window.chat.banner.isVisible()


@pytest.mark.qt_log_ignore(NO_RAISE, extend=True)
def test_files_of_a_start_and_of_a_later_one_are_opened(hand) -> None:
    hand.load("old.gguf")
    other, third = hand.folder / "other.gguf", hand.folder / "third.gguf"
    for path in (other, third):
        path.touch()
    hand.restart(files=(other,))
    hand.qtbot.waitUntil(lambda: hand.session.model is not None)
    assert [path.name for path in hand.echo.opened] == ["old.gguf", "other.gguf"]
    hand.window.showMinimized()
    hand.desktop.asked(Request((third, hand.folder / "a letter.xyz")))
    hand.qtbot.waitUntil(lambda: len(hand.echo.opened) == 3)
    assert hand.echo.opened[-1] == third
    assert not hand.window.isMinimized()
    assert "a letter.xyz" in hand.window.chat.banner.text.text()


class FakeNotifier:
    """Keeps what it was asked to show."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []
        self.broken = False
        self.closed = False

    def show(self, title, text, clicked, failed) -> None:
        self.shown.append((title, text))
        self.clicked = clicked
        if self.broken:
            failed()

    def close(self) -> None:
        self.closed = True


@pytest.mark.slow
@pytest.mark.qt_log_ignore(NO_RAISE, extend=True)
def test_a_long_unseen_reply_is_notified(hand, monkeypatch) -> None:
    fake, seen, step = FakeNotifier(), [False], [25.0]
    watch = hand.window.application_controller.watch
    monkeypatch.setattr(watch, "_make", lambda: fake)
    monkeypatch.setattr(watch, "_in_front", lambda: seen[0])
    now = [0.0]

    def clock() -> float:
        now[0] += step[0]
        return now[0]

    watch.clock = clock
    hand.load()
    hand.say("tell me <b>more</b>")
    reported = hand.session.conversation
    assert fake.shown == [(f"The reply in “{hand.session.title}” is ready", "After 25 seconds")]
    step[0] = 19.0
    hand.say("too short to tell")
    seen[0], step[0] = True, 90.0
    hand.say("and here somebody looked")
    seen[0] = False
    hand.session.set_settings(Behaviour(notify_after=0))
    hand.say("and here nobody wants to know")
    assert len(fake.shown) == 1
    hand.session.set_settings(Behaviour(notify_after=60))
    hand.echo.chat.error = ZeroDivisionError()
    hand.say("one that fails")
    hand.qtbot.waitUntil(lambda: len(fake.shown) == 2)
    assert fake.shown[1] == (f"The reply in “{hand.session.title}” ended early", "After 1 min 30 s")
    hand.echo.chat.error = None
    hand.window.navigation.new_chat()
    assert hand.session.conversation != reported
    fake.clicked("a leave")
    assert hand.session.conversation == reported
    alerts: list[bool] = []
    watch.unheard.connect(lambda: alerts.append(True))
    fake.broken = True
    hand.say("nobody hears this")
    assert alerts == [True]
    hand.close()
    assert fake.closed
    hand.open_window()


def test_each_system_has_its_notifier_and_no_icon_is_left_behind(qapp) -> None:
    bus, tray = make_notifier("linux"), make_notifier("win32")
    assert type(bus).__name__ == "BusNotifier"
    assert isinstance(tray, TrayNotifier)
    failed: list[bool] = []
    # the offscreen platform has no tray
    tray.show("a title", "a text", lambda token: None, lambda: failed.append(True))
    assert failed == [True]
    tray.close()
    assert tray.children() == [tray._timer]
    bus.close()


@pytest.mark.qt_log_ignore("No such signal QPlatformNativeInterface::systemTrayWindowChanged")
def test_a_notification_in_the_tray_is_gone_after_a_click(qtbot, monkeypatch) -> None:
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", lambda: True)
    monkeypatch.setattr(QSystemTrayIcon, "supportsMessages", lambda: True)
    shown, clicks, parent = [], [], QObject()
    monkeypatch.setattr(QSystemTrayIcon, "showMessage", lambda _icon, *message: shown.append(message))
    tray = TrayNotifier(parent)
    assert tray.parent() is parent

    def icons() -> list[QSystemTrayIcon]:
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        return tray.findChildren(QSystemTrayIcon)

    for title in ("First", "Second"):
        tray.show(title, "a text", clicks.append, lambda: pytest.fail("there is a tray"))
    [icon] = icons()
    assert icon.isVisible()
    assert [(title, text, wait) for title, text, _picture, wait in shown] == [
        ("First", "a text", 15_000), ("Second", "a text", 15_000),
    ]  # fmt: skip
    icon.messageClicked.emit()
    assert (clicks, icons()) == ([""], [])
    tray.show("Third", "a text", clicks.append, lambda: None)
    icons()[0].activated.emit(QSystemTrayIcon.ActivationReason.Trigger)
    assert (clicks, icons()) == (["", ""], [])
    tray.show("Fourth", "a text", clicks.append, lambda: None)
    tray.findChild(QTimer).timeout.emit()  # fifteen seconds later
    assert (clicks, icons()) == (["", ""], [])


def test_the_menu_s_entry_is_made_and_removed_in_the_window(hand, monkeypatch) -> None:
    present = [False]

    def put() -> str:
        time.sleep(0.02)
        present[0] = True
        return "Inglenook was added to the applications menu."

    def take() -> str:
        raise menu_entry.EntryError("It may not be removed. Check the permissions.")

    monkeypatch.setattr(menu_entry, "installed", lambda: present[0])
    monkeypatch.setattr(menu_entry, "install", put)
    monkeypatch.setattr(menu_entry, "uninstall", take)
    trigger(hand, "menu_entry")
    entry = hand.window.application_controller.entry_dialog
    assert "is not in the applications menu" in entry.words.text()
    shown = [button.text() for button in entry.findChildren(QAbstractButton) if button.isVisible()]
    assert shown == ["Add", "Close"]
    hand.click("Add", entry)
    hand.qtbot.waitUntil(lambda: "was added" in entry.outcome.text())
    assert entry.put.text() == "Add again"
    hand.click("Remove", entry)
    hand.qtbot.waitUntil(lambda: "Check the permissions" in entry.outcome.text())
    hand.click("Close", entry)
    assert not entry.isVisible()
