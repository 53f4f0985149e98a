"""What is cut off in a window: texts without enough room, and controls that nothing can bring into view."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QLabel,
    QLineEdit,
    QMainWindow,
    QToolButton,
    QWidget,
)

from desktop.views.models.model_picker import ModelPicker
from desktop.views.personas.persona_picker import PersonaPicker
from desktop.views.settings.form_row import Source
from desktop.views.widgets.wrapping_text import WrappingButton, WrappingCheckBox

__all__ = ["clipped", "lost"]

_ELIDED = (ModelPicker, PersonaPicker, Source)
"""Their text is elided; their tool tip, or that of the row that they stand in, has it whole."""
_SLACK = 2
_OFF = Qt.ScrollBarPolicy.ScrollBarAlwaysOff


def _place(widget: QWidget) -> str:
    names = []
    here: QWidget | None = widget
    while here is not None and len(names) < 4:
        names.append(here.objectName() or type(here).__name__)
        here = here.parentWidget()
    return " < ".join(names)


def _needed(widget: QLabel | QAbstractButton) -> QSize:
    """The least size in which all of its text is shown."""
    if isinstance(widget, WrappingButton | WrappingCheckBox):
        return widget.minimumSizeHint()
    if isinstance(widget, QLabel) and widget.wordWrap():
        return QSize(widget.minimumSizeHint().width(), widget.heightForWidth(widget.width()))
    return widget.sizeHint()


def _is_picture(button: QToolButton) -> bool:
    only_icon = button.toolButtonStyle() == Qt.ToolButtonStyle.ToolButtonIconOnly
    return only_icon and not button.icon().isNull()


def clipped(window: QWidget) -> Iterator[str]:
    """Labels and buttons of `window` whose text is cut."""
    for widget in window.findChildren(QWidget):
        if not widget.isVisible() or not isinstance(widget, QLabel | QAbstractButton):
            continue
        if not widget.text().strip() or isinstance(widget.parent(), QLineEdit) or isinstance(widget, _ELIDED):
            continue
        if isinstance(widget, QToolButton) and _is_picture(widget):
            continue
        needed, size = _needed(widget), widget.size()
        if needed.width() > size.width() + _SLACK or needed.height() > size.height() + _SLACK:
            yield (
                f"cut: {widget.text()[:50]!r} has {size.width()}x{size.height()} of "
                f"{needed.width()}x{needed.height()} px: {_place(widget)}"
            )


def lost(window: QWidget) -> Iterator[str]:
    """Labels, buttons and boxes outside of what is seen, where nothing scrolls to them."""
    for widget in window.findChildren(QWidget):
        shown = isinstance(widget, QLabel | QAbstractButton | QLineEdit) or (
            widget.focusPolicy() != Qt.FocusPolicy.NoFocus and widget.focusProxy() is None
        )
        if widget.isVisible() and shown and widget.width() > 0 and (sides := _outside(widget)):
            yield f"out of reach {sides}: {_words(widget)!r}: {_place(widget)}"


def _words(widget: QWidget) -> str:
    text = widget.accessibleName() or getattr(widget, "text", str)()
    return str(text)[:50]


def _outside(widget: QWidget) -> str:
    """In which direction a part of it is out of reach; "" for none."""
    area, here = QRect(QPoint(0, 0), widget.size()), widget
    across = down = True
    while (parent := here.parentWidget()) is not None and not here.isWindow():
        area.translate(here.pos())
        if isinstance(parent, QMainWindow) or parent.isWindow() or _is_viewport(parent):
            across, down = _scrolls(parent)
            if not across and (area.left() < -_SLACK or area.right() > parent.width() + _SLACK):
                return "sideways"
            if not down and (area.top() < -_SLACK or area.bottom() > parent.height() + _SLACK):
                return "up or down"
            if across or down:  # it can be brought into view, in that direction
                area = QRect(
                    QPoint(0 if across else area.left(), 0 if down else area.top()),
                    QSize(1 if across else area.width(), 1 if down else area.height()),
                )
        here = parent
    return ""


def _is_viewport(widget: QWidget) -> bool:
    area = widget.parentWidget()
    return isinstance(area, QAbstractScrollArea) and area.viewport() is widget


def _scrolls(widget: QWidget) -> tuple[bool, bool]:
    """Whether a viewport scrolls across and down."""
    area = widget.parentWidget()
    if not isinstance(area, QAbstractScrollArea) or area.viewport() is not widget:
        return False, False
    across = area.horizontalScrollBarPolicy() != _OFF and area.horizontalScrollBar().maximum() > 0
    return across, area.verticalScrollBar().maximum() > 0
