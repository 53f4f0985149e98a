"""Keeps the order of numbers and words in a right-to-left interface: "100 %" must not become "% 100"."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

__all__ = ["isolated"]

_FIRST_STRONG_ISOLATE, _POP = "\u2068", "\u2069"


def isolated(text: str) -> str:
    """`text` isolated for a mirrored interface: its first letter decides its direction; numbers alone run
    left to right.
    """
    if (
        not text
        or text.startswith(_FIRST_STRONG_ISOLATE)
        or QGuiApplication.layoutDirection() != Qt.LayoutDirection.RightToLeft
    ):
        return text
    return f"{_FIRST_STRONG_ISOLATE}{text}{_POP}"
