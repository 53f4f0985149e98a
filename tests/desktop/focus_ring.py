"""Whether one sees where the keyboard is: what changes in the picture of a widget when it gets the focus."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import Shiboken

__all__ = ["LEAST_CONTRAST", "LEAST_PIXELS", "unseen_focus"]

LEAST_CONTRAST = 3.0
"""WCAG 2.2, success criterion 2.4.13 (and 1.4.11): of a changed pixel with what it was before."""
LEAST_PIXELS = 40
"""Fewer changed pixels are no focus ring: a text cursor has 15 to 20."""
_AROUND = 48
"""The frame of the message box is 8 pixels away from it, the line above the chat up to 45."""
_CARET = {"NotebookEditor"}
"""Fills its page, and shows its text cursor."""
_ALONE = {"TokenPopup"}
"""Is there only while it has the focus."""
_Pixels = np.ndarray


def _picture(widget: QWidget) -> _Pixels:
    """The widget and what is around it, as its window shows them: float[height, width, 3], linear light."""
    window = widget.window()
    area = QRect(widget.mapTo(window, QPoint(0, 0)), widget.size()) if widget is not window else widget.rect()
    shown = window.grab(area.adjusted(-_AROUND, -_AROUND, _AROUND, _AROUND)).toImage()
    image = shown.convertToFormat(QImage.Format.Format_RGB32)
    data = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine() // 4, 4)
    parts = data[:, : image.width(), 2::-1].astype(np.float64) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def _changed(before: _Pixels, after: _Pixels) -> int:
    """How many pixels have a contrast of at least 3 with what they were."""
    if before.shape != after.shape:
        return before.size
    weights = np.array([0.2126, 0.7152, 0.0722])
    one, other = before @ weights + 0.05, after @ weights + 0.05
    return int(np.count_nonzero(np.maximum(one, other) / np.minimum(one, other) >= LEAST_CONTRAST))


def _focusable(window: QWidget) -> Iterator[QWidget]:
    for widget in window.findChildren(QWidget):
        if type(widget).__name__ in _CARET | _ALONE:
            continue
        takes = widget.focusPolicy() & Qt.FocusPolicy.TabFocus and widget.focusProxy() is None
        if takes and widget.isVisible() and widget.isEnabled() and not widget.visibleRegion().isEmpty():
            yield widget


def unseen_focus(window: QWidget) -> Iterator[str]:
    """The widgets of an active window that Tab reaches and that look the same with the focus."""
    had = QApplication.focusWidget()
    for widget in [*_focusable(window)]:
        if not Shiboken.isValid(widget) or not widget.isVisible():
            continue
        window.setFocus(Qt.FocusReason.OtherFocusReason)
        if (other := QApplication.focusWidget()) is not None:
            other.clearFocus()
        QApplication.processEvents()
        if not Shiboken.isValid(widget) or not widget.isVisible():  # a popup closes without the focus
            continue
        before = _picture(widget)
        widget.setFocus(Qt.FocusReason.TabFocusReason)
        QApplication.processEvents()
        if not Shiboken.isValid(widget) or not widget.hasFocus():
            continue
        count = _changed(before, _picture(widget))
        if count < LEAST_PIXELS:
            name = widget.accessibleName() or getattr(widget, "text", str)()
            yield f"focus is not seen ({count} px): {type(widget).__name__} {name!r} {widget.objectName()}"
    if had is not None and Shiboken.isValid(had) and had.isVisible():
        had.setFocus()
