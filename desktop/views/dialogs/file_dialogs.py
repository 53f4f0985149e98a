"""File dialogs that do not block the window: the chosen paths arrive later; cancelling does nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QFileDialog, QToolButton, QWidget

from desktop.views.layout.on_screen import first_size
from desktop.views.widgets.icons import tinted

__all__ = ["ask_folder", "ask_open", "ask_save"]

_ICONS = {
    "backButton": "chevron-left", "forwardButton": "chevron-right", "toParentButton": "chevron-up",
    "newFolderButton": "new-folder", "listModeButton": "menu", "detailModeButton": "table",
}  # fmt: skip
"""Of the buttons in Qt's own dialog, by their object names: its style draws them dark on any ground."""
_MIRRORED = {"chevron-left": "chevron-right", "chevron-right": "chevron-left"}


def ask_open(
    parent: QWidget | None,
    title: str,
    then: Callable[[list[Path]], object],
    kinds: str = "",
    several: bool = False,
    start: Path | None = None,
) -> QFileDialog:
    """Let the user choose a file, or `several`, of `kinds` ("Text (*.txt);;All files (*)"), and pass them to
    `then`.
    """
    dialog = QFileDialog(parent, title, str(start or Path.home()), kinds)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFiles if several else QFileDialog.FileMode.ExistingFile)
    return _opened(dialog, then)


def ask_folder(
    parent: QWidget | None, title: str, then: Callable[[list[Path]], object], start: Path | None = None
) -> QFileDialog:
    """Let the user choose a folder and pass a list with it to `then`."""
    dialog = QFileDialog(parent, title, str(start or Path.home()))
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    return _opened(dialog, then)


def ask_save(
    parent: QWidget | None,
    title: str,
    name: str,
    then: Callable[[list[Path]], object],
    kinds: str = "",
    ending: str = "",
) -> QFileDialog:
    """Let the user choose where to save a file, by default called `name`, and pass a list with it to `then`.

    A name without an extension gets `ending` (".tar.gz") or the extension of `name`.
    """
    dialog = QFileDialog(parent, title, str(Path.home()), kinds)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix((ending or Path(name).suffix).removeprefix("."))
    dialog.selectFile(name)
    return _opened(dialog, then)


def _opened(dialog: QFileDialog, then: Callable[[list[Path]], object]) -> QFileDialog:
    dialog.filesSelected.connect(lambda chosen: then([Path(path) for path in chosen]))
    dialog.finished.connect(dialog.deleteLater)
    _draw_icons(dialog)
    hint = dialog.sizeHint()
    size = first_size(dialog, hint.width(), hint.height())
    if size != hint:  # on a small screen: the buttons of Qt's own dialog would be below it
        dialog.resize(size)
    dialog.open()
    return dialog


def _draw_icons(dialog: QFileDialog) -> None:
    """Draw the buttons of Qt's own dialog in the colour of the text; a dialog of the system has none."""
    group, role = QPalette.ColorGroup, QPalette.ColorRole.ButtonText
    normal, disabled = (dialog.palette().color(of, role).name() for of in (group.Active, group.Disabled))
    mirrored = dialog.layoutDirection() == Qt.LayoutDirection.RightToLeft
    for name, icon in _ICONS.items():
        button = dialog.findChild(QToolButton, name)
        if button is not None:
            button.setIcon(tinted(_MIRRORED.get(icon, icon) if mirrored else icon, normal, disabled))
