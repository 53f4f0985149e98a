"""Markdown of one block -> a QTextDocument in the transcript's look. Nothing is ever loaded from the net."""

from __future__ import annotations

import re
from unicodedata import bidirectional

from PySide6.QtCore import QUrl
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFont,
    QFontMetricsF,
    QImage,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFrameFormat,
    QTextLength,
    QTextListFormat,
    QTextTable,
    QTextTableCellFormat,
    QTextTableFormat,
)

from desktop.blocks import Kind, mark_spans
from desktop.views.transcript.inlays import Inlay, fragments, put_inlays
from desktop.views.transcript.look import Look
from desktop.views.transcript.pictures import PictureKey

__all__ = ["BOXED", "DONE", "NO_BREAK", "SafeDocument", "set_markdown", "style_new_rows"]

_GITHUB = QTextDocument.MarkdownFeature(
    QTextDocument.MarkdownFeature.MarkdownDialectGitHub.value | QTextDocument.MarkdownFeature.MarkdownNoHTML.value
)
_LINE_HEIGHT = 132.0
DONE = QTextFormat.Property.UserProperty.value + 3
BOXED = QTextFormat.Property.UserProperty.value + 4
"""Of a block: it begins with a sign that is not seen, in whose place the row draws a box."""
"""The property of a list item that is done."""
NO_BREAK = "\u2011"
"""The hyphen at which no line is broken."""
_LONGEST_JOINED = 18
"""Characters of a word in a table whose hyphens do not break it."""
_CELL_END = re.compile(r"(?<!\\)\|")
_HYPHENED = re.compile(r"(?<!\S)[^\s-]+(?:-[^\s-]+)+(?!\S)")
_PROPORTIONAL = QTextBlockFormat.LineHeightTypes.ProportionalHeight.value


class SafeDocument(QTextDocument):
    """A document without undo that answers every request for a resource it was not given with an empty picture."""

    def __init__(self) -> None:
        super().__init__()
        self.setUndoRedoEnabled(False)
        self.setDocumentMargin(0)
        self._empty = QImage(1, 1, QImage.Format.Format_ARGB32)
        self._empty.fill(0)

    def set_width(self, width: float) -> None:
        """Lay out for `width` pixels; Qt would lay out everything anew for the same width too."""
        if width != self.textWidth():
            self.setTextWidth(width)

    def loadResource(self, kind: int, name: QUrl | str) -> object:
        """No file is read and no address is asked, whatever a message names."""
        return self._empty


def set_markdown(document: QTextDocument, source: str, look: Look, kind: Kind = Kind.PROSE, inlay: Inlay | None = None) -> set[PictureKey]:
    """Show `source`, the body of one block of this `kind`, in `document`.

    Formulas and pictures of this machine come from `inlay`; returns those that it has yet to make. Without it, formulas are shown
    as LaTeX and all pictures as links.
    """
    source, spans = mark_spans(source)
    table = kind is Kind.TABLE
    if table:
        source = _mirrored(source)
    document.clear()  # so that nothing below lays out the old text once more
    document.setDefaultFont(look.text_font)
    document.setIndentWidth(look.px(1.35))
    if table:
        document.setTextWidth(-1)
        document.setLayoutEnabled(False)  # once at the end, not after each step
    cursor = QTextCursor(document)
    if not table:  # the frames of a table are known only after the edit
        cursor.beginEditBlock()
    document.setMarkdown(source.replace("![](", "![picture]("), _GITHUB)
    if kind is Kind.LIST:
        document.setIndentWidth(max(look.px(1.35), _number_width(document, look)))
    if table:
        cursor.beginEditBlock()
    if "![" in source:
        _replace_images(document, look)
    _style_blocks(document, cursor, look, kind)
    if "`" in source or "](" in source or "://" in source or "www." in source or "    " in source or "@" in source:
        _style_fragments(document, cursor, look)
    if table:
        _style_tables(document, look)
        if "-" in source and NO_BREAK not in source:
            _join_hyphens(document)
    pending = put_inlays(document, spans, look, inlay) if spans else set()
    cursor.endEditBlock()
    if table:
        document.setLayoutEnabled(True)
        document.markContentsDirty(0, document.characterCount())
    return pending


def _number_width(document: QTextDocument, look: Look) -> float:
    """The room that the widest number of a list takes, with what Qt leaves between it and the text; 0 without numbers."""
    metrics, widest = QFontMetricsF(look.text_font), 0.0
    block = document.begin()
    while block.isValid():
        found = block.textList()
        if found is not None and found.format().style() == QTextListFormat.Style.ListDecimal:
            widest = max(widest, metrics.horizontalAdvance(found.itemText(block) + "  "))
        block = block.next()
    return widest


def _style_blocks(document: QTextDocument, cursor: QTextCursor, look: Look, kind: Kind) -> None:
    """One format for all paragraphs, then what differs: list items, quotes, headings, the last one.

    Qt makes a paragraph of its own after each hard line break; in a block of prose there are no others, so they have no space.
    """
    usual = QTextBlockFormat()
    usual.setLineHeight(_LINE_HEIGHT, _PROPORTIONAL)
    usual.setTopMargin(0)
    usual.setBottomMargin(look.px(0.6) if kind in (Kind.LIST, Kind.QUOTE) else 0)
    cursor.select(QTextCursor.SelectionType.Document)
    cursor.mergeBlockFormat(usual)
    if kind is Kind.TABLE:
        return
    item, last, quote = QTextBlockFormat(), QTextBlockFormat(), QTextBlockFormat()
    item.setBottomMargin(look.px(0.22))
    last.setBottomMargin(0)
    block = document.begin()
    while block.isValid():
        cursor.setPosition(block.position())
        before = block.blockFormat()
        if block.textList() is not None:
            cursor.mergeBlockFormat(item)
            _style_task(block, cursor, before.marker())
        level = before.intProperty(QTextFormat.Property.BlockQuoteLevel.value)
        if level:
            quote.setLeftMargin(look.px(0.9) * level)
            cursor.mergeBlockFormat(quote)
        if before.headingLevel():
            _style_heading(block, cursor, look, before.headingLevel())
        block = block.next()
    cursor.movePosition(QTextCursor.MoveOperation.End)
    cursor.mergeBlockFormat(last)


def _style_task(block: QTextBlock, cursor: QTextCursor, marker: QTextBlockFormat.MarkerType) -> None:
    """Qt would cross the box of a done item: it draws an empty one, and the row puts a tick into it. Beside a number there is no room
    for a box: there the row draws it over a sign before the words, which is what is copied.
    """
    if marker == QTextBlockFormat.MarkerType.NoMarker:
        return
    made, done = QTextBlockFormat(), marker == QTextBlockFormat.MarkerType.Checked
    if block.textList().format().style() == QTextListFormat.Style.ListDecimal:
        made.setMarker(QTextBlockFormat.MarkerType.NoMarker)
        unseen = QTextCharFormat(cursor.charFormat())
        unseen.setForeground(QBrush(QColor(0, 0, 0, 0)))
        cursor.insertText("\u2611 " if done else "\u2610 ", unseen)
        made.setProperty(BOXED, True)
    else:
        made.setMarker(QTextBlockFormat.MarkerType.Unchecked)
    made.setProperty(DONE, done)
    cursor.mergeBlockFormat(made)


def _style_heading(block: QTextBlock, cursor: QTextCursor, look: Look, level: int) -> None:
    cursor.setPosition(block.position())
    made = QTextBlockFormat()
    made.setLineHeight(116.0, _PROPORTIONAL)
    cursor.mergeBlockFormat(made)
    for start, length, shape in fragments(block):
        bigger = QTextCharFormat(shape)
        bigger.clearProperty(QTextFormat.Property.FontSizeAdjustment.value)
        bigger.setFontPointSize(look.text_font.pointSizeF() * look.heading_sizes[min(level, 6) - 1])
        bigger.setFontWeight(QFont.Weight.DemiBold)
        cursor.setPosition(start)
        cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
        cursor.setCharFormat(bigger)


def _style_fragments(document: QTextDocument, cursor: QTextCursor, look: Look) -> None:
    """Code inside text on its tint, links in the link colour."""
    code = QTextCharFormat()
    code.setFontFamilies(look.code_font.families() or [look.code_font.family()])
    code.setFontPointSize(look.text_font.pointSizeF() * 0.93)
    code.setBackground(QBrush(look.colours.code))
    link = QTextCharFormat()
    link.setForeground(QBrush(look.colours.link))
    found: list[tuple[int, int, QTextCharFormat]] = []
    block = document.begin()
    while block.isValid():
        for start, length, shape in fragments(block):
            if shape.isAnchor():
                found.append((start, length, link))
            if shape.fontFixedPitch() or "monospace" in (shape.fontFamilies() or []):
                found.append((start, length, code))
        block = block.next()
    for start, length, shape in found:
        cursor.setPosition(start)
        cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
        cursor.mergeCharFormat(shape)


def _replace_images(document: QTextDocument, look: Look) -> None:
    """A picture becomes a link with its description: the reader decides whether anything is fetched."""
    found: list[tuple[int, int, str, str]] = []
    block = document.begin()
    while block.isValid():
        for start, length, before in fragments(block):
            if before.isImageFormat():
                picture = before.toImageFormat()
                alt = str(picture.property(QTextFormat.Property.ImageAltText.value) or "")
                found.append((start, length, alt, picture.name()))
        block = block.next()
    cursor = QTextCursor(document)
    for start, length, alt, address in reversed(found):
        cursor.setPosition(start)
        cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
        shape = QTextCharFormat()
        shape.setAnchor(True)
        shape.setAnchorHref(address)
        shape.setForeground(QBrush(look.colours.link))
        cursor.insertText(alt, shape)


def _join_hyphens(document: QTextDocument) -> None:
    """Short words stay whole in narrow cells: their hyphens become such that do not break."""
    cursor = QTextCursor(document)
    block = document.begin()
    while block.isValid():
        text = block.text()
        found = [word for word in _HYPHENED.finditer(text) if len(word[0]) <= _LONGEST_JOINED] if "-" in text and text.isascii() else []
        for word in found:
            for place, letter in enumerate(word[0], start=block.position() + word.start()):
                if letter == "-":
                    cursor.setPosition(place)
                    cursor.setPosition(place + 1, QTextCursor.MoveMode.KeepAnchor)
                    cursor.insertText(NO_BREAK, cursor.charFormat())
        block = block.next()


def _mirrored(source: str) -> str:
    """A table whose head is written from right to left has its first column at the right: Qt has them from the left always."""
    rows = [_cells(line) for line in source.strip("\n").split("\n")]
    heads = [next((bidirectional(letter) for letter in cell if bidirectional(letter) in ("L", "R", "AL")), "") for cell in rows[0]]
    if 2 * sum(head in ("R", "AL") for head in heads) <= sum(bool(head) for head in heads):
        return source
    wide = len(heads)
    return "\n".join("|" + "|".join([*[" "] * (wide - len(row)), *row[wide - 1 :: -1]]) + "|" for row in rows) + "\n"


def _cells(line: str) -> list[str]:
    found = _CELL_END.split(line.strip().removeprefix("|"))
    return found[:-1] if len(found) > 1 and not found[-1].strip() else found


def _style_tables(document: QTextDocument, look: Look) -> None:
    """Thin lines between rows, room in the cells, a bold head."""
    for frame in document.rootFrame().childFrames():
        if not isinstance(frame, QTextTable):
            continue
        shape = QTextTableFormat(frame.format().toTableFormat())
        shape.setBorder(0)
        shape.setBorderCollapse(True)
        shape.setCellSpacing(0)
        shape.setCellPadding(0)
        shape.setMargin(0)
        shape.setWidth(QTextLength(QTextLength.Type.PercentageLength, 100))
        frame.setFormat(shape)
        _style_rows(frame, 0, look)


def style_new_rows(table: QTextTable, first: int, look: Look) -> None:
    """Give the rows from `first` on, which are new at the end of `table`, the transcript's look."""
    _style_rows(table, first - 1, look)  # the one before is the last one no more


def _style_rows(table: QTextTable, first: int, look: Look) -> None:
    for row in range(first, table.rows()):
        room = _cell_format(look, head=row == 0, line=row < table.rows() - 1)
        for column in range(table.columns()):
            table.cellAt(row, column).setFormat(room)


def _cell_format(look: Look, head: bool, line: bool) -> QTextTableCellFormat:
    room = QTextTableCellFormat()
    room.setLeftPadding(look.px(0.6))
    room.setRightPadding(look.px(0.6))
    room.setTopPadding(look.px(0.4))
    room.setBottomPadding(look.px(0.32))
    if head:
        room.setBackground(QBrush(look.colours.code))
    if line:
        room.setBottomBorder(1)
        room.setBottomBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        room.setBottomBorderBrush(QBrush(look.colours.line))
    return room
