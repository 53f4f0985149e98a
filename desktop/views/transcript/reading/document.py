"""A whole message as one document in the transcript's style, and the places of its headings, lists, tables,
code blocks, formulas and links.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from PySide6.QtCore import QTextBoundaryFinder
from PySide6.QtGui import (
    QBrush,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextDocumentFragment,
    QTextTable,
)

from desktop.blocks import Block, Kind
from desktop.blocks.spoken_math import spoken_math
from desktop.services.formulas.rich_text import fragments
from desktop.store.attachments.picture_marks import marks
from desktop.views.transcript.rendering.inline_objects import SPOKEN
from desktop.views.transcript.rendering.markdown import SafeDocument, set_markdown
from desktop.views.transcript.row_widgets.picture import picture_name
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.style import Style
from engine.lazy_dataclass import dataclass
from engine.words import _, ngettext

__all__ = [
    "Landmark", "cell_text", "copied_text", "landmarks", "sentence_beside", "table_at", "write_message",
]  # fmt: skip

_PROSE = (Kind.PROSE, Kind.HEADING, Kind.LIST, Kind.QUOTE, Kind.FOOTNOTE, Kind.TABLE)
CODE = "code"


@dataclass(frozen=True)
class Landmark:
    """A place to go to: its `kind` ("heading", "code", "list", "table", "formula", "link"), first and last
    position in the document, what a screen reader says, and what is copied. Enter shows or hides a "thought",
    which is the `number`-th of the message, and shows "more".
    """

    kind: str
    start: int
    end: int
    words: str
    source: str
    number: int = 0


class _Writer:
    """Writes blocks at the end of `document`."""

    def __init__(self, document: QTextDocument, style: Style) -> None:
        self._cursor, self._style = QTextCursor(document), style
        self.found: list[Landmark] = []

    def markdown(self, source: str, kind: Kind, row: Row) -> None:
        """Prose, a list, a quote, a table or a footnote."""
        part = SafeDocument()
        alert = row.block.alert if row.block is not None and not row.block.joined else ""
        set_markdown(part, source, self._style, kind, None, row.references, alert, spoken_math, row.growing)
        part.setLayoutEnabled(True)
        self._begin()
        first = QTextCursor(self._cursor.block())
        self._cursor.insertFragment(QTextDocumentFragment(part))
        # the first paragraph of a fragment takes on the format of the one that it is put into
        if part.begin().textList() is None and first.currentTable() is None:
            shape = part.begin().blockFormat()
            shape.setTopMargin(self._style.px(0.5))
            first.mergeBlockFormat(shape)
        self._cursor.movePosition(QTextCursor.MoveOperation.End)

    def plain(self, text: str, muted: bool = False) -> None:
        """Text as it is."""
        shape = QTextCharFormat()
        shape.setFont(self._style.text_font)
        shape.setForeground(QBrush(self._style.colours.muted if muted else self._style.colours.text))
        self._begin()
        self._cursor.insertText(text, shape)

    def place(self, kind: str, shown: str, words: str, source: str = "", number: int = 0) -> None:
        """A paragraph that is a landmark; `shown` stands there."""
        self.plain(shown, muted=kind != "formula")
        end = self._cursor.position()
        self.found.append(Landmark(kind, end - len(shown), end, words, source, number))

    def code_block(self, block: Block) -> None:
        """Code, which can be found again and copied."""
        shape, place = QTextCharFormat(), QTextBlockFormat()
        shape.setFont(self._style.code_font)
        shape.setForeground(QBrush(self._style.colours.text))
        place.setBackground(QBrush(self._style.colours.code))
        body = block.body
        self._begin(place)
        start = self._cursor.position()
        self._cursor.insertText(body.replace("\n", "\u2028"), shape)  # one paragraph
        count = body.count("\n") + 1
        words = (
            ngettext("Code block in {language}, {n} line", "Code block in {language}, {n} lines", count,
                language=block.language)
            if block.language
            else ngettext("Code block, {n} line", "Code block, {n} lines", count)
        )  # fmt: skip
        self.found.append(Landmark(CODE, start, self._cursor.position(), words, body))

    def _begin(self, shape: QTextBlockFormat | None = None) -> None:
        made = shape if shape is not None else QTextBlockFormat()
        made.setTopMargin(self._style.px(0.5))
        if self._cursor.position() > 0:
            self._cursor.insertBlock(made, QTextCharFormat())
        else:
            self._cursor.setBlockFormat(made)


def write_message(document: QTextDocument, rows: Iterable[Row], style: Style) -> list[Landmark]:
    """Fill `document` with the rows of one message; returns its code blocks, display formulas, thoughts, and
    where more of it can be shown.
    """
    document.clear()
    document.setDefaultFont(style.text_font)
    document.setIndentWidth(style.px(1.35))
    writer = _Writer(document, style)
    code: list[Row] = []
    thinks = calls = False
    for row in [*rows, None]:
        if code and (row is None or row.kind is not RowKind.CODE or row.first):
            _write_code(writer, code)
            code = []
        if thinks and (row is None or row.block is None or not row.block.thought):
            thinks = False
            writer.plain(_("End of the call") if calls else _("End of the thoughts"), muted=True)
        if row is None:
            break
        if row.kind is RowKind.CODE:
            code.append(row)
        elif row.kind is RowKind.MATH:
            words = spoken_math(row.text)
            writer.place("formula", words, _("Formula: {words}", words=words), row.text)
        elif row.kind is RowKind.THOUGHT:
            what = (
                _("shown. Press Enter to hide them.") if row.open else _("hidden. Press Enter to show them.")
            )
            writer.place("thought", row.text, f"{row.text}, {what}", "", row.ordinal)
            thinks, calls = row.open, row.item.call is not None
        elif row.kind is RowKind.MORE:
            writer.place("more", row.text, _("{text}. Press Enter.", text=row.text))
        elif row.kind is RowKind.ATTACHMENT:
            writer.plain(_("Attached file: {text}", text=row.text))
        elif row.kind is RowKind.PICTURE:
            writer.plain("\n".join(map(picture_name, marks(row.source))))
        elif row.kind in (RowKind.BUBBLE, RowKind.NOTICE):
            writer.plain(row.text)
        elif row.kind in (RowKind.TEXT, RowKind.TABLE, RowKind.TOKENS) and row.block is not None:
            kind = row.block.kind
            writer.markdown(row.text, kind if kind in _PROSE else Kind.PROSE, row)
    return writer.found


def _write_code(writer: _Writer, rows: list[Row]) -> None:
    block = rows[0].block
    if block is not None:
        writer.code_block(replace(block, source="".join(row.source for row in rows), closed=True))


def landmarks(document: QTextDocument, written: Iterable[Landmark]) -> list[Landmark]:
    """Every landmark of the document, in order; `written` are those that `write_message` returned."""
    found = list(written)
    lists: set[int] = set()
    block = document.begin()
    while block.isValid():
        level, group = block.blockFormat().headingLevel(), block.textList()
        start, end = block.position(), block.position() + len(block.text())
        if level:
            found.append(
                Landmark(
                    "heading",
                    start,
                    end,
                    _("Heading level {level}: {text}", level=level, text=block.text()),
                    block.text(),
                )
            )
        if group is not None and group.objectIndex() not in lists:
            lists.add(group.objectIndex())
            last = group.item(group.count() - 1)
            text = "\n".join(group.item(place).text() for place in range(group.count()))
            words = ngettext("List with {n} item", "List with {n} items", group.count())
            found.append(Landmark("list", start, last.position() + len(last.text()), words, text))
        found.extend(_links(block))
        found.extend(_formulas(block))
        block = block.next()
    for table in _tables(document):
        size = ngettext("{n} row", "{n} rows", table.rows())
        columns = ngettext("{n} column", "{n} columns", table.columns())
        words = _(
            "Table with {size} and {columns}. Press Enter to read its cells.", size=size, columns=columns
        )
        lines = ["\t".join(cell_text(table, row, column) for column in range(table.columns()))
                 for row in range(table.rows())]  # fmt: skip
        found.append(Landmark("table", table.firstPosition(), table.lastPosition(), words, "\n".join(lines)))
    return sorted(found, key=lambda each: each.start)


def _links(block: QTextBlock) -> list[Landmark]:
    """The links of a paragraph; a link of several formats is one."""
    found: list[Landmark] = []
    place = block.begin()
    while not place.atEnd():
        part = place.fragment()
        address = part.charFormat().anchorHref()
        if address and found and found[-1].end == part.position() and found[-1].source == address:
            last = found.pop()
            words = f"{last.words}{part.text()}"
            found.append(Landmark("link", last.start, part.position() + part.length(), words, address))
        elif address:
            found.append(
                Landmark("link", part.position(), part.position() + part.length(), part.text(), address)
            )
        place += 1
    return [
        Landmark(link.kind, link.start, link.end, _("Link: {words}", words=link.words), link.source)
        for link in found
    ]


def _formulas(block: QTextBlock) -> list[Landmark]:
    """The formulas among the words of a paragraph."""
    return [
        Landmark(
            "formula", start, start + length, _("Formula: {words}", words=words), str(shape.property(SPOKEN))
        )
        for start, length, shape in fragments(block)
        if shape.hasProperty(SPOKEN)
        and (words := block.text()[start - block.position() : start - block.position() + length])
    ]


def _tables(document: QTextDocument) -> list[QTextTable]:
    return [frame for frame in document.rootFrame().childFrames() if isinstance(frame, QTextTable)]


def cell_text(table: QTextTable, row: int, column: int) -> str:
    """The text of a cell, on one line."""
    cell = table.cellAt(row, column)
    cursor = cell.firstCursorPosition()
    cursor.setPosition(cell.lastCursorPosition().position(), QTextCursor.MoveMode.KeepAnchor)
    return " ".join(cursor.selectedText().replace("\u2029", " ").split())


def table_at(document: QTextDocument, position: int) -> QTextTable | None:
    """The table that this position is in."""
    cursor = QTextCursor(document)
    cursor.setPosition(position)
    return cursor.currentTable()


def copied_text(cursor: QTextCursor) -> str:
    """The selected text; formulas in words are copied as the Markdown that they were written in."""
    start, end = cursor.selectionStart(), cursor.selectionEnd()
    made: list[str] = []
    block = cursor.document().findBlock(start)
    while block.isValid() and block.position() < end:
        for place, length, shape in fragments(block):
            first, last = max(place, start), min(place + length, end)
            if first >= last:
                continue
            text = block.text()[first - block.position() : last - block.position()]
            whole = first == place and last == place + length
            made.append(str(shape.property(SPOKEN)) if whole and shape.hasProperty(SPOKEN) else text)
        block = block.next()
        if block.isValid() and block.position() < end:
            made.append("\n")
    return "".join(made).replace("\u2028", "\n")


def sentence_beside(document: QTextDocument, position: int, by: int) -> tuple[int, str] | None:
    """Where the next (1) or previous (-1) sentence begins, and its text; None at the end of the document."""
    block = document.findBlock(position)
    while block.isValid():
        finder = QTextBoundaryFinder(QTextBoundaryFinder.BoundaryType.Sentence, block.text())
        starts = [0]
        while finder.toNextBoundary() >= 0:
            starts.append(finder.position())
        spans = [
            (block.position() + start, block.text()[start:end].strip())
            for start, end in itertools.pairwise(starts)
        ]
        beyond = [(start, text) for start, text in spans
                  if text and (start > position if by > 0 else start < position)]  # fmt: skip
        if beyond:
            return beyond[0] if by > 0 else beyond[-1]
        block = block.next() if by > 0 else block.previous()
    return None
