"""Boxes whose inner parts have names for screen readers, which Qt leaves without."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QComboBox, QLineEdit, QToolButton, QWidget

from desktop.views.widgets.wheel_guard import guard_wheel
from engine.words import _

__all__ = ["ComboBox", "add_clear_button"]

_LEAST = 12
"""The least width of a box in average characters."""


class ComboBox(QComboBox):
    """A box whose list has the name of the box. It may be narrower than its choices, which the list shows
    whole. The wheel changes it only while it has the focus.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        guard_wheel(self, self)

    def minimumSizeHint(self) -> QSize:
        least = super().minimumSizeHint()
        return QSize(min(least.width(), self.fontMetrics().averageCharWidth() * _LEAST), least.height())

    def showPopup(self) -> None:
        self.view().setAccessibleName(self.accessibleName())
        super().showPopup()


def add_clear_button(line: QLineEdit) -> None:
    """Show a button in the box, while it has text, that clears it."""
    line.setClearButtonEnabled(True)
    button = line.findChild(QToolButton)
    if button is not None:
        button.setAccessibleName(_("Clear"))
        button.setToolTip(_("Clear"))
