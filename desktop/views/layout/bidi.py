"""Figures and words that keep their own order in an interface that runs from right to left: "100 %" is not
to become "% 100".
"""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

__all__ = ["isolated"]

_FIRST_STRONG_ISOLATE, _POP = "\u2068", "\u2069"


def isolated(text: str) -> str:
    """`text` for a mirrored interface: read in the direction of its own first letter, left to right for
    figures alone.
    """
    if (
        not text
        or text.startswith(_FIRST_STRONG_ISOLATE)
        or QGuiApplication.layoutDirection() != Qt.LayoutDirection.RightToLeft
    ):
        return text
    return f"{_FIRST_STRONG_ISOLATE}{text}{_POP}"
