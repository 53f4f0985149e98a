"""Dialogs for files, on screens of all sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPalette, QScreen
from PySide6.QtWidgets import QApplication, QDialogButtonBox, QFileDialog, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.dialogs.file_dialogs import ask_folder, ask_open, ask_save
from desktop.views.widgets.theme import SCHEMES, palette, tokens
from tests.desktop.views.contrast import contrast


def save(parent: QWidget | None, title: str, then: Callable[[list[Path]], object]) -> QFileDialog:
    return ask_save(parent, title, "a.txt", then)


@pytest.mark.parametrize("ask", [ask_open, ask_folder, save])
def test_its_buttons_are_on_a_small_screen(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., QFileDialog]
) -> None:
    small = QRect(0, 0, 683, 384)
    monkeypatch.setattr(QScreen, "availableGeometry", lambda self: small)
    dialog = ask(None, "A file", lambda _chosen: None)
    with qtbot.waitExposed(dialog):
        pass
    assert dialog.height() < small.height()
    assert dialog.width() <= small.width()
    buttons = dialog.findChild(QDialogButtonBox)
    assert buttons is not None
    assert dialog.rect().contains(QRect(buttons.mapTo(dialog, buttons.rect().topLeft()), buttons.size()))
    dialog.reject()


def test_on_a_large_screen_it_is_as_large_as_qt_makes_it(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QScreen, "availableGeometry", lambda self: QRect(0, 0, 2560, 1440))
    dialog = ask_folder(None, "A folder", lambda _chosen: None)
    with qtbot.waitExposed(dialog):
        pass
    hint = dialog.sizeHint()
    assert dialog.width() >= hint.width()
    assert dialog.height() >= hint.height()
    dialog.reject()


@pytest.mark.parametrize("direction", [Qt.LayoutDirection.LeftToRight, Qt.LayoutDirection.RightToLeft])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_icons_of_qts_own_dialog_are_seen(
    qtbot: QtBot,
    qapp: QApplication,
    request: pytest.FixtureRequest,
    scheme: str,
    direction: Qt.LayoutDirection,
) -> None:
    before = qapp.layoutDirection()
    request.addfinalizer(lambda: qapp.setLayoutDirection(before))
    qapp.setLayoutDirection(direction)
    parent = QWidget()
    qtbot.addWidget(parent)
    parent.setPalette(palette(tokens(scheme)))
    dialog = ask_open(parent, "A file", lambda _chosen: None)
    with qtbot.waitExposed(dialog):
        pass
    ground = dialog.palette().color(QPalette.ColorRole.Button).name()
    pictures = {}
    for name in ("backButton", "forwardButton", "toParentButton", "newFolderButton", "listModeButton",
                 "detailModeButton"):  # fmt: skip
        button = dialog.findChild(QToolButton, name)
        picture = pictures[name] = button.icon().pixmap(16, 16).toImage()
        drawn = [picture.pixelColor(x, y) for x in range(picture.width()) for y in range(picture.height())]
        assert contrast(max(drawn, key=lambda colour: colour.alpha()).name(), ground) >= 4.5
    left = [pictures["backButton"].pixelColor(x, 8).alpha() for x in range(16)]  # the point of the chevron
    mirrored = direction == Qt.LayoutDirection.RightToLeft
    assert (sum(left[8:]) > sum(left[:8])) == mirrored
    dialog.reject()
