"""How a picture is put below the baseline of its line, which Qt's documents have no setting for: by a font
that reaches so far.
"""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtGui import QFont, QFontMetrics

__all__ = ["descending"]


@lru_cache(maxsize=512)
def descending(family: str, descent: int) -> int:
    """The pixel size at which a font goes `descent` pixels below the baseline, or nearly: as far below it
    Qt puts what has this font.
    """
    font, low, high = QFont(family), 1, 64 * descent + 8
    while low < high:
        middle = (low + high) // 2
        font.setPixelSize(middle)
        if QFontMetrics(font).descent() < descent:
            low = middle + 1
        else:
            high = middle
    return low
