"""The size of dialogs whose text wraps."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QWidget

from desktop.views.widgets.scroll_area import DialogBody

__all__ = ["fit_dialog", "grow_dialog"]

_NARROWEST = 320
_BESIDE, _AROUND = 40, 24


def fit_dialog(dialog: QDialog, width: int) -> None:
    """Make `dialog` `width` pixels wide or less, to stay inside the window below it, and as high as its text
    then needs; what is higher than that window scrolls.
    """
    layout, parent = dialog.layout(), dialog.parentWidget()
    if layout is None:
        return
    if parent is not None:
        width = min(width, max(_NARROWEST, parent.window().width() - _BESIDE))
    _activate(dialog)
    width = max(width, dialog.minimumSizeHint().width())
    height = (
        layout.totalHeightForWidth(width) if layout.hasHeightForWidth() else layout.totalSizeHint().height()
    )
    if parent is not None:
        height = min(height, max(_NARROWEST, parent.window().height() - _AROUND))
    dialog.resize(width, max(height, dialog.minimumSizeHint().height()))


def grow_dialog(dialog: QDialog) -> None:
    """Make `dialog` higher if its text needs that now, up to the height of the window below it."""
    layout, parent = dialog.layout(), dialog.parentWidget()
    if layout is None or parent is None or not layout.hasHeightForWidth():
        return
    _activate(dialog)
    needed = min(layout.totalMinimumHeightForWidth(dialog.width()), parent.window().height())
    if dialog.height() < needed:
        dialog.resize(dialog.width(), needed)


def _activate(dialog: QDialog) -> None:
    """Lay out `dialog`, the innermost widgets first: what a text in one of them now needs is otherwise known
    outside only with the next event.
    """
    for widget in (*reversed(dialog.findChildren(QWidget)), dialog):
        layout = widget.layout()
        if layout is not None and not widget.isHidden():
            layout.activate()
        elif isinstance(widget, DialogBody):
            widget.updateGeometry()
