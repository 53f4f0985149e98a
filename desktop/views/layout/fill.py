"""Fills rows and columns of widgets."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QBoxLayout, QLayout, QRadioButton, QWidget

from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.wrapping_text import WrappingCheckBox

__all__ = ["fill"]

L = TypeVar("L", bound=QBoxLayout | FlowLayout)
Part = QWidget | QLayout | int | tuple[QWidget | QLayout, int]


def fill(
    layout: L, *parts: Part, margins: tuple[int, int, int, int] | None = None, spacing: int | None = None
) -> L:
    """Add `parts` to `layout` in order: widgets and layouts, or pairs of one with its share of free space; a
    number is empty space with that share. A check box or radio button is as wide as its words, and so is its
    focus ring. `margins` are left, top, right, bottom. Returns `layout`.
    """
    for part in parts:
        if isinstance(part, int):
            layout.addStretch(part)
            continue
        content, stretch = part if isinstance(part, tuple) else (part, 0)
        if isinstance(content, WrappingCheckBox | QRadioButton) and isinstance(layout, QBoxLayout):
            layout.addWidget(content, stretch, Qt.AlignmentFlag.AlignLeft)
        elif isinstance(content, QWidget):
            layout.addWidget(content, stretch)
        else:
            layout.addLayout(content, stretch)
    if margins is not None:
        layout.setContentsMargins(*margins)
    if spacing is not None:
        layout.setSpacing(spacing)
    return layout
