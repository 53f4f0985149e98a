"""Footnotes of a message: the text that a number leads to, and its style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtGui import QBrush, QTextCharFormat, QTextCursor, QTextDocument

from desktop.views.transcript.rendering.inline_objects import FOOTNOTE_SCHEME
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style

__all__ = ["note_row", "note_style", "number_note"]


def note_row(rows: Sequence[Row], address: str) -> Row | None:
    """The row with the footnote that the link `address` names; None if there is no such footnote."""
    label = address.removeprefix(FOOTNOTE_SCHEME)
    if label == address:
        return None
    return next((row for row in rows if row.block is not None and row.block.label == label), None)


def note_style(style: Style) -> Style:
    """The style of footnotes: `style` in small letters."""
    return replace(style, text_font=style.small_font)


def number_note(document: QTextDocument, label: str, style: Style) -> None:
    """Put the number of a footnote before its text."""
    shape = QTextCharFormat()
    shape.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignSuperScript)
    shape.setForeground(QBrush(style.colours.link))
    cursor = QTextCursor(document)
    cursor.insertText(label, shape)
    cursor.insertText("\u2002", QTextCharFormat())
