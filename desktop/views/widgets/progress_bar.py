"""Progress bars without a text in them."""

from __future__ import annotations

from PySide6.QtWidgets import QProgressBar

__all__ = ["progress_bar"]


def progress_bar(spoken: str, height: int = 8) -> QProgressBar:
    """A bar `height` pixels high that screen readers call `spoken`."""
    bar = QProgressBar()
    bar.setAccessibleName(spoken)
    bar.setTextVisible(False)
    bar.setFixedHeight(height)
    return bar
