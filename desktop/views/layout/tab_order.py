"""The order in which Tab visits controls, some of which are made late."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtWidgets import QLayout, QScrollArea, QWidget

from desktop.services.system.debounce import debounce

__all__ = ["TabOrder"]


class TabOrder(QObject):
    """Lets Tab visit all controls in `root` in the order of its layouts; Qt would use the order of their
    creation.
    """

    def __init__(self, root: QWidget) -> None:
        super().__init__(root)
        self._root = root
        self._soon = debounce(self, self._follow)  # Once for all controls that are made together.

    @Slot()
    def renew(self) -> None:
        """Controls were added: update the order soon."""
        self._soon.start(0)

    @Slot()
    def _follow(self) -> None:
        _follow_layout(self._root)


def _follow_layout(root: QWidget) -> None:
    before: QWidget | None = None
    for widget in _in_order(root):
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            if before is not None:
                QWidget.setTabOrder(before, widget)
            before = widget


def _in_order(widget: QWidget) -> Iterator[QWidget]:
    yield widget
    layout = widget.layout()
    if layout is not None:
        yield from _in_layout(layout)
    elif isinstance(widget, QScrollArea) and (inside := widget.widget()) is not None:
        yield from _in_order(inside)


def _in_layout(layout: QLayout) -> Iterator[QWidget]:
    for position in range(layout.count()):
        item = layout.itemAt(position)
        assert item is not None
        widget, inner = item.widget(), item.layout()
        if widget is not None:
            yield from _in_order(widget)
        elif inner is not None:
            yield from _in_layout(inner)
