"""Lays out pieces of text on pages: page breaks, what stays together, backgrounds and bars.

All measures are CSS pixels, as in Qt's rich text. Everything is drawn as shapes and glyphs, sharp at any
scale.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QColor,
    QFont,
    QFontMetricsF,
    QPainter,
    QPainterPath,
    QPalette,
    QPdfWriter,
    QPen,
    QTextBlock,
    QTextDocument,
    QTextFormat,
    QTextOption,
    QTextTable,
)

from desktop.services.transfer.pdf.inline_objects import FormulaHandler, put_inlays
from desktop.store.transfer.exporters.print import GRID, Piece, sheet
from engine.lazy_dataclass import dataclass

__all__ = ["Mark", "Paginator"]

FONT_PT = 10.0
INK, QUIET, BAR = QColor("#1c1c1e"), QColor("#5c5c66"), QColor("#c4c6d0")
PAD_X, PAD_Y, RADIUS = 12.0, 8.0, 6.0
"""Distance from the edge of a background to its text, and the radius of its corners."""
BAR_ROOM, BAR_WIDTH = 16.0, 2.5
SMALLEST = 0.6
"""The smallest scale for a wide table before words are broken."""
KEPT_WHOLE = 0.2
"""A piece of at most this fraction of the page height is not split."""
_RULE = QTextFormat.Property.BlockTrailingHorizontalRulerWidth
_CELL = 7.5
"""Distance from a table's edge to the text of its first cell: the padding, and what Qt adds for collapsed
borders.
"""
HEAD_ABOVE = 30.0
"""Distance from the line of the running head to the text below it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An entry of the outline: its text, its page (from 0), and how far below the top margin it points."""

    words: str
    page: int
    top: float


@dataclass(frozen=True)
class Laid:
    """A piece after layout: `scale` shrinks what is too wide, `cuts` are the heights at which it may be
    split.
    """

    piece: Piece
    document: QTextDocument
    left: float
    scale: float
    height: float
    cuts: list[float]

    @property
    def is_mirrored(self) -> bool:
        return self.document.begin().textDirection() == Qt.LayoutDirection.RightToLeft

    @property
    def tables(self) -> list[QRectF]:
        """The bounds of its tables in document coordinates; not those used as backgrounds of code or bars of
        quotes.
        """
        if GRID not in self.piece.html:
            return []
        frames = self.document.rootFrame().childFrames()
        return [_edges(self.document, frame) for frame in frames if isinstance(frame, QTextTable)]

    @property
    def pad(self) -> float:
        return PAD_Y if self.piece.ground else 0.0

    def least(self, page: float) -> float:
        """The height that must fit on one page: two lines, or the whole piece if it is short."""
        whole = (self.height <= page * KEPT_WHOLE and self.piece.begins) or len(self.cuts) < 3
        return 2 * self.pad + (self.height if whole else self.cuts[1])


class Paginator:
    """`marks` are the entries of the outline so far, `pages` the number of pages begun."""

    def __init__(self, writer: QPdfWriter, painter: QPainter, title: str) -> None:
        self._writer, self._painter, self._title = writer, painter, title
        self._width, self._height = float(writer.width()), float(writer.height())
        self._y = 0.0
        self._last: Piece | None = None  # the last piece printed, if it is on this page
        self.pages = 1
        self.marks: list[Mark] = []
        self._held: list[Laid] = []
        self._font = QFont()
        self._font.setPointSizeF(FONT_PT)
        self._sheets = {coloured: sheet(coloured) for coloured in (False, True)}
        self._formulas = FormulaHandler()
        self._font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
        self._option, self._words = QTextOption(), QTextOption()
        self._option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self._option.setUseDesignMetrics(True)
        self._words.setUseDesignMetrics(True)
        self._palette = QPalette(INK, QColor("white"))
        self._palette.setColor(QPalette.ColorRole.Text, INK)

    def put(self, piece: Piece) -> None:
        """Print a piece after the last one; a piece that `keeps` waits for the next."""
        self._held.append(self.lay(piece))
        if not piece.keeps:
            self.end()

    def begin(self, title: str) -> None:
        """Go on with another conversation, on a page of its own and with `title` in the outline."""
        self.end()
        self._title = ""  # the page begins with the title itself, as the first one does
        self._next_page()
        self._title = title
        self.marks.append(Mark(title, self.pages - 1, 0.0))

    def end(self) -> None:
        """Print the pieces that wait."""
        group, self._held = self._held, []
        if not group:
            return
        needed = (
            sum(laid.piece.before + laid.height for laid in group[:-1])
            + group[-1].piece.before
            + group[-1].least(self._height)
        )
        if 0 < self._height - self._y < needed and self._y > 0:
            self._next_page()
        for laid in group:
            self._print(laid)

    def _print(self, laid: Laid) -> None:
        piece, done = laid.piece, 0.0
        self._y += piece.before if self._y else 0.0
        if piece.mark:
            self.marks.append(Mark(piece.mark, self.pages - 1, self._y))
        while done < laid.height:
            above = laid.pad if (piece.begins and not done) or not self._y else 0.0
            room = self._height - self._y - above - laid.pad
            end = (
                laid.height
                if laid.height - done <= room + 0.5
                else _cut(laid.cuts, done, done + room, self._y <= 0)
            )
            if end <= done:
                self._next_page()
                continue
            below = laid.pad if end < laid.height or piece.ends else 0.0
            self._draw(laid, (done, end), (above, below))
            self._last, done = piece, end
            if done < laid.height:
                self._next_page()

    def _draw(self, laid: Laid, part: tuple[float, float], pads: tuple[float, float]) -> None:
        (start, end), (above, below) = part, pads
        painter, high = self._painter, above + end - start + below
        painter.save()
        if laid.piece.ground:
            rounded = (laid.piece.begins and not start, laid.piece.ends and end >= laid.height)
            painter.fillPath(
                _ground(QRectF(0, self._y, self._width, high), *rounded), QColor(laid.piece.ground)
            )
        elif laid.piece.bar:
            joined = laid.piece.before if not start and self._last is not None and self._last.bar else 0.0
            left = self._width - BAR_WIDTH if laid.is_mirrored else 0.0
            painter.fillRect(QRectF(left, self._y - joined, BAR_WIDTH, high + joined), BAR)
        lower = 1.5 if laid.piece.ground else 0.0  # optically centred: lines have their leading below
        painter.translate(laid.left, self._y + above - start + lower)
        painter.scale(laid.scale, laid.scale)
        context = QAbstractTextDocumentLayout.PaintContext()
        context.palette = self._palette  # the window's may be dark
        clip = QRectF(
            0, start / laid.scale, max(laid.document.size().width(), 1.0) + 1, (end - start) / laid.scale
        )
        context.clip = clip
        painter.setClipRect(clip)
        laid.document.documentLayout().draw(painter, context)
        painter.setPen(QPen(BAR, 2.0))
        for table in laid.tables:  # an edge where the table is split; half of it is clipped
            for height in [part / laid.scale for part in (start, end) if 0 < part < laid.height]:
                if table.top() < height < table.bottom():
                    painter.drawLine(QLineF(table.left(), height, table.right(), height))
        painter.restore()
        self._y += high

    def _next_page(self) -> None:
        if self._last is not None and self._last.ground and not self._last.ends:  # continues on the next page
            self._painter.fillRect(
                QRectF(0, self._y, self._width, min(PAD_Y, self._height - self._y)), QColor(self._last.ground)
            )
        self._writer.newPage()
        self.pages += 1
        self._y, self._last = 0.0, None
        font = QFont(self._font)
        font.setPointSizeF(8.5)
        self._painter.save()
        self._painter.setFont(font)
        self._painter.setPen(QUIET)
        metrics = QFontMetricsF(font, self._writer)
        words = metrics.elidedText(self._title, Qt.TextElideMode.ElideRight, self._width)
        place = QRectF(0, -HEAD_ABOVE - metrics.height(), self._width, metrics.height())
        self._painter.drawText(place, Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignBottom, words)
        self._painter.restore()

    def lay(self, piece: Piece) -> Laid:
        """Lay out a piece without printing it."""
        indent = PAD_X if piece.ground else BAR_ROOM if piece.bar else 0.0
        width = self._width - indent * (2 if piece.ground else 1)
        document = self._document(piece, width)
        wide = document.size().width()
        if GRID in piece.html and wide > width:  # shrink the text, then allow breaks inside words
            share = max(SMALLEST, width / wide)
            if share * wide > width + 1:
                document.setDefaultTextOption(self._option)
            document.setTextWidth(width / share)
            wide = document.size().width()
        scale = min(1.0, width / wide) if wide > width + 0.5 else 1.0
        mirrored = document.begin().textDirection() == Qt.LayoutDirection.RightToLeft
        cuts = [cut * scale for cut in _cuts(document, self._height / scale)]
        return Laid(
            piece,
            document,
            0.0 if mirrored and piece.bar else indent,
            scale,
            document.size().height() * scale,
            cuts,
        )

    def _document(self, piece: Piece, width: float) -> QTextDocument:
        document = QTextDocument()
        document.setUndoRedoEnabled(False)
        document.setDefaultFont(self._font)
        document.setDocumentMargin(0)
        document.setIndentWidth(22)
        document.setDefaultStyleSheet(self._sheets["<pre" in piece.html])
        document.setDefaultTextOption(self._words if GRID in piece.html else self._option)
        document.documentLayout().setPaintDevice(self._writer)
        document.setLayoutEnabled(False)
        document.setHtml(piece.html)
        if "<img" in piece.html:
            put_inlays(document, piece.formulas, self._formulas, width, self._height * 0.8)
        document.setLayoutEnabled(True)
        document.setTextWidth(width)
        return document


def _ground(place: QRectF, top: bool, bottom: bool) -> QPainterPath:
    """A rectangle, rounded at the top and bottom where the background begins and ends."""
    path = QPainterPath()
    path.setFillRule(Qt.FillRule.WindingFill)
    path.addRoundedRect(place, RADIUS, RADIUS)
    half = place.height() / 2
    if not top:
        path.addRect(place.adjusted(0, 0, 0, -half))
    if not bottom:
        path.addRect(place.adjusted(0, half, 0, 0))
    return path.simplified()


def _cuts(document: QTextDocument, page: float) -> list[float]:
    """Heights at which no line is split, nor a table row that is not very tall; the last one is the end."""
    spans = _lines(document, document.begin(), document.end())
    for frame in document.rootFrame().childFrames():
        if isinstance(frame, QTextTable):
            spans += [row for row in _rows(document, frame) if row[1] - row[0] < page / 3]
    merged: list[list[float]] = []
    for top, bottom in sorted(spans):
        if merged and top < merged[-1][1] - 0.5:
            merged[-1][1] = max(merged[-1][1], bottom)
        else:
            merged.append([top, bottom])
    return [(above[1] + below[0]) / 2 for above, below in pairwise(merged)] + [document.size().height()]


def _lines(document: QTextDocument, first: QTextBlock, end: QTextBlock) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    layout, block = document.documentLayout(), first
    while block.isValid() and block != end:
        top, text = layout.blockBoundingRect(block).top(), block.layout()
        # Qt adds an empty line over the end of each nested table
        hidden = block.length() == 1 and not block.blockFormat().hasProperty(_RULE)
        lines = (text.lineAt(number) for number in range(0 if hidden else text.lineCount()))
        found += [(top + line.y(), top + line.y() + line.height()) for line in lines]
        block = block.next()
    return found


def _edges(document: QTextDocument, table: QTextTable) -> QRectF:
    """The bounds of a table; Qt's own answer is off by the padding of a cell."""
    layout, found = document.documentLayout(), QRectF()
    for cell in (table.cellAt(0, 0), table.cellAt(table.rows() - 1, table.columns() - 1)):
        found = found.united(layout.blockBoundingRect(cell.firstCursorPosition().block()))
    return found.adjusted(-_CELL, -_CELL, _CELL, _CELL)


def _rows(document: QTextDocument, table: QTextTable) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for row in range(table.rows()):
        lines: list[tuple[float, float]] = []
        for column in range(table.columns()):
            cell = table.cellAt(row, column)
            lines += _lines(
                document, cell.firstCursorPosition().block(), cell.lastCursorPosition().block().next()
            )
        if lines:
            found.append((min(top for top, _ in lines), max(bottom for _, bottom in lines)))
    return found


def _cut(cuts: list[float], start: float, limit: float, fresh: bool) -> float:
    """The lowest cut within reach that leaves no single line; `start` if there is none, or `limit` on a
    `fresh` page.
    """
    first = bisect_right(cuts, start + 0.5)
    last = bisect_right(cuts, limit + 0.5) - 1
    if last == len(cuts) - 2 and last - first >= 2:
        last -= 1  # carry two lines over rather than one
    if last < first:
        return limit if fresh else start
    return start if last == first and not fresh and not start else cuts[last]
