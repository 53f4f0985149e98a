"""The distances that all windows share, so that they look alike."""

from __future__ import annotations

from PySide6.QtWidgets import QLayout

__all__ = ["SCALE", "dialog_margins"]

SCALE = (4, 8, 12, 16, 24)
"""Pixels within a control, between controls, between groups, around a window, between sections."""


def dialog_margins(layout: QLayout) -> None:
    """Set the margins and the spacing of a window's outermost layout."""
    layout.setContentsMargins(SCALE[3], SCALE[3], SCALE[3], SCALE[3])
    layout.setSpacing(SCALE[1])
