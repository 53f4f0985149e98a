"""A conversation printed as PDF by Qt's rich text, off the GUI thread, one small piece after another: memory stays bounded.

Source: https://doc.qt.io/qt-6/threads-modules.html#painting-in-threads
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from PySide6.QtCore import QEventLoop, QLocale, QMarginsF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QPageLayout, QPageSize, QPainter, QPdfWriter, QTextDocument, QTextOption

from desktop.store.errors import StoreError
from desktop.store.exchange import ConversationRecord, Progress
from desktop.store.exporters.print import Piece, print_pieces, sheet
from desktop.store.exporters.reading import shown_path
from desktop.store.exporters.write import written_whole

__all__ = ["page_size", "write_pdf"]

DPI = 96
"""Qt's rich text reckons sizes in CSS pixels; what is drawn is shapes and glyphs, sharp at any size."""
MARGIN_MM = 18.0
FOOT = 26.0
"""Pixels kept for the page number."""
KEPT_WHOLE = 0.2
"""What is no longer than this part of a page is not cut."""
FONT_PT = 10
_LETTER = ("US", "CA", "MX", "PH", "CL", "CO", "VE", "CR", "GT", "PA", "DO", "SV", "NI", "PR")


def page_size(territory: str = "") -> QPageSize:
    """Letter where people print on it, else A4; by the system's region where none is given."""
    code = territory or QLocale.territoryToCode(QLocale.system().territory())
    return QPageSize(QPageSize.PageSizeId.Letter if code in _LETTER else QPageSize.PageSizeId.A4)


def write_pdf(conversation: ConversationRecord, path: Path, size: QPageSize | None = None) -> Iterator[Progress]:
    """Print it to `path`, telling how many of its pieces are done (the total is an estimate by messages). Ended early, or failing,
    it leaves a file that was there as it was. Raises `StoreError` when the file cannot be written.
    """
    _dispatcher = QEventLoop()  # a long document starts timers, for which a thread of Python's has nothing before
    total = 2 + 2 * len(shown_path(conversation))
    with written_whole(path) as part:
        part.touch()  # trouble with the place shows here, in words
        writer = QPdfWriter(str(part))
        writer.setPageSize(size or page_size())
        writer.setPageMargins(QMarginsF(MARGIN_MM, MARGIN_MM, MARGIN_MM, MARGIN_MM), QPageLayout.Unit.Millimeter)
        writer.setResolution(DPI)
        writer.setTitle(" ".join(conversation.title.split()) or "Conversation")
        writer.setCreator("Inglenook")
        painter = QPainter()
        if not painter.begin(writer):
            raise StoreError(f"The PDF cannot be written as {path}; choose another place or make room there.")
        is_whole = False
        try:
            press = _Press(writer, painter)
            for done, piece in enumerate(print_pieces(conversation)):
                press.put(piece)
                yield Progress(min(done, total), total)
                time.sleep(0)  # a piece is laid out without a stop: the window has its turn between two
            press.number()
            is_whole = True
        finally:
            is_whole = painter.end() and is_whole
            if not is_whole:
                part.unlink(missing_ok=True)
    if not is_whole:
        raise StoreError(f"The PDF cannot be written as {path}; choose another place or make room there.")


class _Press:
    """Puts pieces below each other and begins new pages."""

    def __init__(self, writer: QPdfWriter, painter: QPainter) -> None:
        self._writer, self._painter = writer, painter
        self._width = float(writer.width())
        self._height = writer.height() - FOOT
        self._y = 0.0
        self._page = 1
        self._font = QFont()
        self._font.setPointSizeF(FONT_PT)
        self._sheet = sheet()

    def put(self, piece: Piece) -> None:
        """Print a piece where the last one ended, cut between two lines where the page ends."""
        document = self._document(piece.html)
        height = document.size().height()
        self._y += piece.before if self._y else 0.0
        left = self._height - self._y
        if left < min(piece.room, self._height / 2) or left < height <= self._height * KEPT_WHOLE:
            self._next_page()
        lines = _lines(document) if height > self._height - self._y else []
        done = 0.0
        while done < height:
            end = height
            if height - done > self._height - self._y:
                end = _cut(lines, done, done + self._height - self._y)
            self._draw(document, done, end)
            done = end
            if done < height:
                self._next_page()

    def _draw(self, document: QTextDocument, start: float, end: float) -> None:
        self._painter.save()
        self._painter.translate(0, self._y - start)
        document.drawContents(self._painter, QRectF(0, start, self._width, end - start))
        self._painter.restore()
        self._y += end - start

    def number(self) -> None:
        """Write the page's number below it."""
        self._painter.save()
        font = QFont(self._font)
        font.setPointSizeF(FONT_PT * 0.85)
        self._painter.setFont(font)
        self._painter.setPen(QColor("#5c5c66"))
        place = QRectF(0, self._height, self._width, FOOT)
        self._painter.drawText(place, Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignBottom, str(self._page))
        self._painter.restore()

    def _next_page(self) -> None:
        self.number()
        self._writer.newPage()
        self._page += 1
        self._y = 0.0

    def _document(self, html: str) -> QTextDocument:
        document = QTextDocument()
        document.setDefaultFont(self._font)
        document.setDocumentMargin(0)
        document.setDefaultStyleSheet(self._sheet)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        document.setDefaultTextOption(option)
        document.documentLayout().setPaintDevice(self._writer)
        document.setHtml(html)
        document.setTextWidth(self._width)
        return document


def _lines(document: QTextDocument) -> list[tuple[float, float]]:
    """Top and bottom of every line, those of table cells beside each other too."""
    found: list[tuple[float, float]] = []
    layout, block = document.documentLayout(), document.begin()
    while block.isValid():
        top, text = layout.blockBoundingRect(block).top(), block.layout()
        lines = (text.lineAt(number) for number in range(text.lineCount()))
        found += [(top + line.y(), top + line.y() + line.height()) for line in lines]
        block = block.next()
    return found


def _cut(lines: list[tuple[float, float]], start: float, limit: float) -> float:
    """The lowest place in reach that cuts no line; where there is none, the limit itself."""
    for _, bottom in sorted(lines, key=lambda line: -line[1]):
        if start < bottom <= limit and not any(top < bottom - 0.5 and bottom + 0.5 < below for top, below in lines):
            return bottom
    return limit
