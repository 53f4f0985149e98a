"""Markdown of one block -> a QTextDocument in the transcript's look. Nothing is ever loaded from the net."""

from __future__ import annotations

from PySide6.QtCore import QUrl
from PySide6.QtGui import (
    QBrush,
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

__all__ = ["SafeDocument", "set_markdown", "style_new_rows"]

_GITHUB = QTextDocument.MarkdownFeature(
    QTextDocument.MarkdownFeature.MarkdownDialectGitHub.value | QTextDocument.MarkdownFeature.MarkdownNoHTML.value
)
_LINE_HEIGHT = 132.0
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
        level = before.intProperty(QTextFormat.Property.BlockQuoteLevel.value)
        if level:
            quote.setLeftMargin(look.px(0.9) * level)
            cursor.mergeBlockFormat(quote)
        if before.headingLevel():
            _style_heading(block, cursor, look, before.headingLevel())
        block = block.next()
    cursor.movePosition(QTextCursor.MoveOperation.End)
    cursor.mergeBlockFormat(last)


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
