"""Rules for what a screen reader and a finger find in a window, asked of Qt's own accessible objects.

Each widget is asked for its role, name and description; only visible ones count, and the popups of boxes,
which are shown for the purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QComboBox, QMenu, QScrollBar, QSplitterHandle, QWidget

__all__ = ["LEAST_TARGET", "faults"]

LEAST_TARGET = 24
"""Pixels in each direction, of what is clicked; WCAG 2.2, success criterion 2.5.8."""
_Role = QAccessible.Role
_NAMED = {
    _Role.Button, _Role.ButtonMenu, _Role.CheckBox, _Role.RadioButton, _Role.ComboBox, _Role.EditableText,
    _Role.SpinBox, _Role.Slider, _Role.List, _Role.Tree, _Role.Table, _Role.Link, _Role.PageTab,
    _Role.PageTabList, _Role.Dialog, _Role.PopupMenu, _Role.ButtonDropDown, _Role.Dial, _Role.Document,
}  # fmt: skip
_CLICKED = {
    _Role.Button, _Role.ButtonMenu, _Role.CheckBox, _Role.RadioButton, _Role.ComboBox, _Role.SpinBox,
    _Role.Slider, _Role.ButtonDropDown, _Role.PageTab,
}  # fmt: skip
_NO_ROLE = {_Role.NoRole, _Role.Client, _Role.Pane, _Role.Window}
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|<\||\|>|&(amp|lt|gt|nbsp|quot);")


def _place(widget: QWidget) -> str:
    names = []
    here: QWidget | None = widget
    while here is not None and len(names) < 4:
        names.append(here.objectName() or type(here).__name__)
        here = here.parentWidget()
    return " < ".join(names)


def _widgets(window: QWidget) -> Iterator[QWidget]:
    for widget in [window, *window.findChildren(QWidget)]:
        if widget.isVisible() or (isinstance(widget.parent(), QComboBox) and widget.isWindow()):
            yield widget


def faults(window: QWidget) -> list[str]:
    """What breaks the rules in `window` and in all that it shows; empty if nothing does."""
    found = []
    for widget in _widgets(window):
        interface = QAccessible.queryAccessibleInterface(widget)
        if interface is None:
            continue
        role = interface.role()
        name, description = (
            interface.text(QAccessible.Text.Name),
            interface.text(QAccessible.Text.Description),
        )
        words = f"{role.name} {name[:40]!r}: {_place(widget)}"
        focusable = widget.focusPolicy() != Qt.FocusPolicy.NoFocus and widget.isEnabled()
        if role in _NAMED and not name.strip() and not isinstance(widget, QMenu):
            found.append(f"no name: {words}")
        elif focusable and not name.strip() and widget.focusProxy() is None:
            found.append(f"no name, focusable: {words}")
        if focusable and role in _NO_ROLE and widget.focusProxy() is None:
            found.append(f"no role: {words}")
        for text in (name, description):
            if _MARKUP.search(text):
                found.append(f"markup in {text[:60]!r}: {words}")
        size = widget.size()
        if (
            role in _CLICKED
            and not isinstance(widget, QScrollBar | QSplitterHandle)
            and min(size.width(), size.height()) < LEAST_TARGET
        ):
            found.append(f"{size.width()}x{size.height()} px: {words}")
    return found
