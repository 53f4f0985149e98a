"""The distances that all windows share, so that none looks as if it came from another program."""

from __future__ import annotations

from PySide6.QtWidgets import QLayout

__all__ = ["SCALE", "dialog_margins"]

SCALE = (4, 8, 12, 16, 24)
"""Pixels between things: within a control, beside each other, between groups, around a window, between
sections.
"""


def dialog_margins(layout: QLayout) -> None:
    """The edges and the inner distance of the outermost layout of a window."""
    layout.setContentsMargins(SCALE[3], SCALE[3], SCALE[3], SCALE[3])
    layout.setSpacing(SCALE[1])
