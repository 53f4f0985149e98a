"""Rules for what a screen reader and a finger find in a window, asked of Qt's own accessible objects. No
interface is made in Python, because PySide6 crashes with some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication, QComboBox, QLineEdit, QMenu, QToolButton, QWidget

__all__ = ["LEAST_TARGET", "faults", "popup_faults"]

LEAST_TARGET = 24
"""Logical pixels in each direction of what is clicked: WCAG 2.2, success criterion 2.5.8."""
_Role = QAccessible.Role
_NAMED = {
    _Role.Button, _Role.ButtonMenu, _Role.CheckBox, _Role.RadioButton, _Role.ComboBox, _Role.EditableText,
    _Role.SpinBox, _Role.Slider, _Role.List, _Role.Tree, _Role.Table, _Role.Link, _Role.Dialog,
    _Role.ButtonDropDown,
}  # fmt: skip
_CLICKED = {
    _Role.Button, _Role.ButtonMenu, _Role.CheckBox, _Role.RadioButton, _Role.ComboBox, _Role.SpinBox,
    _Role.Slider, _Role.ButtonDropDown,
}  # fmt: skip
_NO_ROLE = {_Role.NoRole, _Role.Client, _Role.Pane, _Role.Window}
_AREAS = {"TranscriptView", "VerticalScrollArea", "StatsPlot", "TokenRow"}
"""What is read or scrolled, and has keys for that, but no role of Qt's; a name it must have."""
_QUOTES = {"TokenRow"}
"""What shows a text as it is, with the marks in it."""
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|<\||\|>|&(amp|lt|gt|nbsp|quot);")


def _place(widget: QWidget) -> str:
    names = []
    here: QWidget | None = widget
    while here is not None and len(names) < 4:
        names.append(here.objectName() or type(here).__name__)
        here = here.parentWidget()
    return " < ".join(names)


def _shown(window: QWidget) -> Iterator[QWidget]:
    for widget in [window, *window.findChildren(QWidget)]:
        if widget.isVisible():
            yield widget


def faults(window: QWidget) -> list[str]:
    """What breaks the rules in `window` and in all that it shows; empty if nothing does."""
    return [fault for widget in _shown(window) for fault in _faults(widget)]


def _faults(widget: QWidget) -> Iterator[str]:
    interface = QAccessible.queryAccessibleInterface(widget)
    if interface is None:
        return
    role, kind = interface.role(), type(widget).__name__
    name = interface.text(QAccessible.Text.Name)
    description = interface.text(QAccessible.Text.Description)
    words = f"{role.name} {name[:40]!r}: {_place(widget)}"
    takes_keys = (
        widget.focusPolicy() != Qt.FocusPolicy.NoFocus and widget.isEnabled() and widget.focusProxy() is None
    )
    if not name.strip() and not isinstance(widget, QMenu) and (role in _NAMED or takes_keys):
        yield f"no name: {words}"
    if takes_keys and role in _NO_ROLE and kind not in _AREAS:
        yield f"no role: {words}"
    yield from (
        f"markup in {text[:60]!r}: {words}"
        for text in (name, description)
        if kind not in _QUOTES and _MARKUP.search(text)
    )
    # the button that clears a box is made by Qt in its own size; its keys are Ctrl+A and Delete
    inner = isinstance(widget, QToolButton) and isinstance(widget.parent(), QLineEdit)
    if role in _CLICKED and not inner and min(widget.width(), widget.height()) < LEAST_TARGET:
        yield f"{widget.width()}x{widget.height()} px: {words}"


def popup_faults(window: QWidget) -> list[str]:
    """The same for the list of every box in `window`, opened and closed; not for dialogs of Qt."""
    found: list[str] = []
    for box in window.findChildren(QComboBox):
        of_qt = box.window().inherits("QFileDialog") or box.objectName() in ("lookInCombo", "fileTypeCombo")
        if box.isVisible() and box.isEnabled() and box.count() and not of_qt:
            box.showPopup()
            popup = QApplication.activePopupWidget()
            found += faults(popup) if popup is not None else [f"no popup: {_place(box)}"]
            box.hidePopup()
    return found
