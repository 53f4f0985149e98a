"""Dialogs for files, on screens of all sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QRect
from PySide6.QtGui import QScreen
from PySide6.QtWidgets import QDialogButtonBox, QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from desktop.views.dialogs.file_dialogs import ask_folder, ask_open, ask_save


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
