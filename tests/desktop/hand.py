"""A whole desktop over a fake model, driven like a user: keys into the focus, clicks on named buttons."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent, QSize, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget

from desktop.app import Desktop, EngineApi
from desktop.items.chats.messages import MessageItem
from desktop.settings import Behaviour
from desktop.views.layout.panes import RIGHT
from desktop.views.transcript.rendering.code_highlight import IdleRunner
from engine.core import Downloaded, Downloading
from tests.conftest import WAIT_MS
from tests.desktop.fakes import EchoApi

__all__ = ["Hand", "no_fetch", "settled"]

LARGE = QSize(1180, 780)
"""The window as it is first shown on a large screen; that of the tests is small."""


def no_fetch(folder: Path, stop: threading.Event) -> Iterator[Downloading | Downloaded]:
    """A download that must not happen."""
    raise AssertionError("nothing asked for a download")
    yield


def settled(hand: Hand) -> bool:
    """Whether nothing of the desktop waits for its turn, for tests that share one window; what would begin
    seconds later does not.
    """
    timers = (*hand.desktop.findChildren(QTimer), *hand.window.findChildren(QTimer))
    waiting = [each for each in timers if each.isActive() and each.isSingleShot()]
    for each in waiting:
        if each.interval() > 1000:
            each.stop()
    return (
        not hand.desktop.services.local_models.searching
        and not any(each.isActive() for each in waiting)
        and all(runner.idle() for runner in hand.window.findChildren(IdleRunner))
    )


class Hand:
    """The hand on one window; `restart` closes it and opens another one on the same data.

    The model is asked for replies only: with `titles` also for titles of chats. The settings pane is open,
    unless `pane` leaves it as at a first start.
    """

    def __init__(
        self, qtbot, folder: Path, echo: EchoApi | None = None, fetch=no_fetch, api: EngineApi | None = None,
        titles: bool = False, pane: bool = True,
    ) -> None:  # fmt: skip
        self.titles = titles
        self.qtbot, self.folder, self.echo = qtbot, folder, echo or EchoApi()
        self.api = api or EngineApi(self.echo.open_chat, self.echo.describe, fetch, self.echo.draft_problem)
        self.open_window(LARGE)
        if pane:
            self.window.panes.set_requested(RIGHT, True)

    def open_window(self, size: QSize | None = None, **start) -> None:
        self.desktop = Desktop(QApplication.instance(), self.folder, self.api)
        self.window, self.session = self.desktop.window, self.desktop.session
        behaviour = self.session.settings(Behaviour)
        if behaviour.model_titles != self.titles:
            self.session.set_settings(replace(behaviour, model_titles=self.titles))
        if size is not None:
            self.window.resize(size)
        self.desktop.start(**start)
        with self.qtbot.waitActive(self.window):
            self.window.activateWindow()

    def close(self) -> None:
        self.window.close()
        self.window.deleteLater()
        self.desktop.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        # the widgets of other tests are made four times as fast without
        QApplication.instance().setStyleSheet("")

    def restart(self, **start) -> None:
        self.close()
        self.open_window(**start)

    def load(self, name: str = "echo.gguf") -> None:
        path = self.folder / name
        path.touch()
        self.window.model_controller.open(path)
        self.wait_for("idle")

    def wait_for(self, *states: str, timeout: int = WAIT_MS) -> None:
        self.qtbot.waitUntil(lambda: self.session.state in states, timeout=timeout)

    @property
    def box(self) -> QWidget:
        return self.window.chat.composer.box

    def type(self, text: str) -> None:
        self.box.setFocus()
        QTest.keyClicks(self.box, text)

    def say(self, text: str) -> None:
        """Type, send, and wait for the whole reply."""
        self.type(text)
        self.press(Qt.Key.Key_Return)
        self.wait_for("idle")
        self.qtbot.waitUntil(lambda: not self.session.replying_in)

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        """A key to whatever has the focus; shortcuts included."""
        target = QApplication.focusWidget() or self.window
        QTest.keyClick(target, key, modifier)

    def items(self) -> tuple[MessageItem, ...]:
        return self.session.messages.items()

    def texts(self) -> list[str]:
        return [item.text for item in self.items()]

    def button(self, name: str, within: QWidget | None = None) -> QAbstractButton:
        shown = [
            button for button in (within or self.window).findChildren(QAbstractButton) if button.isVisible()
        ]
        found = [button for button in shown if name in (button.accessibleName() or button.text())]
        assert found, name
        return found[-1]

    def click(self, name: str, within: QWidget | None = None) -> None:
        QTest.mouseClick(self.button(name, within), Qt.MouseButton.LeftButton)
