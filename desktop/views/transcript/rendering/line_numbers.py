"""Numbers for the lines of a document that stay valid when pictures arrive: the paragraph, and the characters
of Markdown before the line in it.
"""

from __future__ import annotations

from PySide6.QtGui import QTextBlock, QTextDocument

from desktop.services.formulas.rich_text import fragments
from desktop.views.transcript.rendering.inline_objects import source_length

__all__ = ["baseline", "line_number"]

_CHARACTERS = 1 << 24


def line_number(document: QTextDocument, position: int) -> int:
    """The number of the line that holds a position."""
    block = document.findBlock(position)
    line = block.layout().lineForTextPosition(position - block.position())
    start = line.textStart() if line.isValid() else 0
    return block.blockNumber() * _CHARACTERS + _length_before(block, start)


def baseline(document: QTextDocument, number: int) -> float:
    """The height of the baseline of that line in the document; of the last line where the document got
    shorter.
    """
    paragraph, characters = divmod(number, _CHARACTERS)
    block = document.findBlockByNumber(min(paragraph, document.blockCount() - 1))
    line = block.layout().lineForTextPosition(
        min(_position_after(block, characters), max(0, block.length() - 1))
    )
    return document.documentLayout().blockBoundingRect(block).top() + (
        line.y() + line.ascent() if line.isValid() else 0.0
    )


def _length_before(block: QTextBlock, start: int) -> int:
    """The number of characters of Markdown behind the text of a paragraph before `start`."""
    if "\ufffc" not in block.text()[:start]:
        return start
    passed = 0
    for begin, length, shape in fragments(block):
        if begin - block.position() < start:
            passed += source_length(shape, min(length, block.position() + start - begin))
    return passed


def _position_after(block: QTextBlock, characters: int) -> int:
    """The inverse of `_length_before`."""
    if "\ufffc" not in block.text():
        return characters
    passed = 0
    for start, length, shape in fragments(block):
        wide = source_length(shape, length)
        if passed + wide > characters:
            return start - block.position() + (0 if shape.isImageFormat() else characters - passed)
        passed += wide
    return block.length() - 1
