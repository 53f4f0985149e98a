"""Labels, and properties that the style sheet looks at."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget

__all__ = ["set_styled", "text_label"]


def text_label(text: str = "", tone: str = "", wraps: bool = False, plain: bool = False) -> QLabel:
    """A label in the style sheet's `tone`. It `wraps` its lines; if `plain`, it shows "<b>" as it is."""
    label = QLabel(text)
    if tone:
        label.setProperty("tone", tone)
    if plain:
        label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(wraps)
    return label


def set_styled(widget: QWidget, name: str, value: object) -> None:
    """Set a property that selects the widget's style."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        widget.style().unpolish(widget)
        widget.style().polish(widget)
