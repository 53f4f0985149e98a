"""What every row widget can do, and rows that are a text document: painting, hit testing, selection."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QBrush,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPalette,
    QTextCharFormat,
    QTextCursor,
)
from PySide6.QtWidgets import QApplication, QWidget

from desktop.blocks.spoken_text import unmarked
from desktop.items.chats.messages import author_label
from desktop.views.transcript.rendering.inline_objects import selected_source
from desktop.views.transcript.rendering.line_numbers import baseline, line_number
from desktop.views.transcript.rendering.markdown import SafeDocument
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.style import Style

__all__ = ["DocumentRow", "RowWidget"]

_NAMED = 400
_MARKED = (RowKind.TEXT, RowKind.TABLE)
"""Whose text is Markdown."""
_LINE_ENDS = {0x2028: "\n", 0x2029: "\n", 0xFDD0: "", 0xFDD1: "", 0xFFFC: "", 0x200B: ""}


class RowWidget(QWidget):
    """A row on the screen.

    It shows one `Row` after another; the free space above the row is part of it.
    """

    def __init__(self, context: RowContext) -> None:
        super().__init__(context.parent)
        self.signals = context.signals
        self.row: Row | None = None
        self.row_style: Style | None = None
        self.revision = -1
        self.grown_at = -1
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def bind(self, row: Row, style: Style) -> None:
        """Show `row`; does nothing when the row is already shown as it is now."""
        if row is self.row and style is self.row_style and row.revision == self.revision:
            return
        fresh = row is not self.row or style is not self.row_style
        self.row, self.row_style, self.revision = row, style, row.revision
        words = row.text if len(row.text) <= _NAMED else row.text[:_NAMED] + "…"
        if row.kind in _MARKED:
            words = unmarked(words)
        self.setAccessibleName(f"{author_label(row.item)}: {words}" if words else author_label(row.item))
        self.grown_at = -1
        self.show_row(row, style, fresh)
        if self.grown_at < 0:
            self.update()

    def release(self) -> None:
        """Stop showing the row; the widget waits for another one."""
        self.row = None
        self.yield_focus(self)
        self.row_style = None
        self.hide()

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        """Take what `row` shows; `fresh` is false when the same row has only grown or changed slightly.

        A row that knows the character from which it looks different sets `grown_at`, and updates itself when
        it is fitted.
        """

    def fit(self, width: int) -> int:
        """Lay out for `width` pixels and return the height, gap included."""
        return self.gap + self.fontMetrics().height()

    def placed(self) -> None:
        """The row has its place on the screen, which changes when the reader scrolls."""

    def watch(self, control: QWidget) -> None:
        """Emit `signals.focused` when `control` gets the keyboard."""
        control.installEventFilter(self)

    def yield_focus(self, control: QWidget) -> None:
        """Give the keyboard to the view before `control` is hidden; otherwise Qt gives it to the next button
        anywhere.
        """
        focused = QApplication.focusWidget()
        viewport = self.parentWidget()
        if (
            viewport is not None
            and focused is not None
            and (focused is control or control.isAncestorOf(focused))
        ):
            viewport.setFocus(Qt.FocusReason.OtherFocusReason)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FocusIn and self.row is not None:
            self.signals.focused.emit(self.row)
        return super().eventFilter(watched, event)

    @property
    def gap(self) -> int:
        """The free space above in pixels."""
        return self.row_style.px(self.row.gap) if self.row is not None and self.row_style is not None else 0

    def reveal(self, shown: bool) -> None:
        """Show or hide the buttons: the pointer or the focus is in this message, or it is the last one."""

    def position_at(self, point: QPoint) -> int:
        """The text position nearest to `point`; 0 for a row without text."""
        return 0

    def line_at(self, height: int) -> int:
        """A number for the line of text at a height, which stays valid when formulas above it are drawn; -1
        for none.
        """
        return -1

    def line_height(self, line: int) -> int:
        """The height of the baseline of that line."""
        return 0

    def link_at(self, point: QPoint) -> str:
        """The address of the link at `point`, or nothing."""
        return ""

    def over_text(self, point: QPoint) -> bool:
        """Whether `point` is over text."""
        return False

    def select(self, start: int, end: int) -> None:
        """Select the text between two positions; equal ones select nothing, (0, -1) all."""

    def selected_text(self) -> str:
        """The selected text exactly as shown."""
        return ""

    def word_at(self, point: QPoint) -> tuple[int, int]:
        """The positions around the word at `point`."""
        return 0, 0


class DocumentRow(RowWidget):
    """A row whose text is a document, painted at `origin` and cut to `area`."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self.document = SafeDocument()
        self._selection = (0, 0)
        self._whole = False
        self._marked: tuple[str, int, int] = ("", -1, -1)
        self._marks: list[QTextCursor] = []

    def release(self) -> None:
        super().release()
        self._selection, self._whole = (0, 0), False
        self.mark("", -1)

    def origin(self) -> QPointF:
        """The position of the document's top left corner in the widget."""
        return QPointF(0, self.gap)

    def area(self) -> QRectF:
        """The part of the widget that shows the document."""
        return QRectF(0, self.gap, self.width(), self.height() - self.gap)

    def box(self) -> QRectF:
        """The area that is tinted when the whole row is selected."""
        return self.area().adjusted(0, -min(3, self.gap), 0, 0)

    def muted(self) -> bool:
        """Whether the text is muted, as in thoughts."""
        return self.row is not None and self.row.block is not None and self.row.block.thought

    def fit(self, width: int) -> int:
        self.document.set_width(width)
        self.update_growth()
        return self.gap + round(self.document.size().height())

    def update_growth(self, above: int = 0) -> None:
        """Paint again what is below the top of the line at `grown_at`, and `above` pixels more."""
        if self.grown_at >= 0:
            top = round(self.origin().y() + self._line_top(self.grown_at)) - above - 2
            self.update(0, top, self.width(), self.height() - top)

    def plain(self) -> bool:
        """Whether nothing is selected or marked in the text."""
        return self._selection == (0, 0) and not self._whole and not self._marks

    def _line_top(self, position: int) -> float:
        """The top of the line with that character in the document."""
        block = self.document.findBlock(position)
        line = block.layout().lineForTextPosition(position - block.position())
        return self.document.documentLayout().blockBoundingRect(block).top() + (
            line.y() if line.isValid() else 0
        )

    def position_at(self, point: QPoint) -> int:
        spot = QPointF(point) - self.origin()
        if spot.y() < 0:
            return 0
        return max(0, self.document.documentLayout().hitTest(spot, Qt.HitTestAccuracy.FuzzyHit))

    def line_at(self, height: int) -> int:
        spot = QPointF(0, max(0.0, height - self.origin().y()))
        return line_number(
            self.document, max(0, self.document.documentLayout().hitTest(spot, Qt.HitTestAccuracy.FuzzyHit))
        )

    def line_height(self, line: int) -> int:
        return round(self.origin().y() + baseline(self.document, line))

    def link_at(self, point: QPoint) -> str:
        if not self.area().contains(QPointF(point)):
            return ""
        return self.document.documentLayout().anchorAt(QPointF(point) - self.origin())

    def over_text(self, point: QPoint) -> bool:
        return self.area().contains(QPointF(point))

    def select(self, start: int, end: int) -> None:
        target = (0, 0) if end < 0 else (min(start, end), max(start, end))
        if target != self._selection or self._whole != (end < 0):
            self._selection, self._whole = target, end < 0
            self.update()

    def mark(self, query: str, present: int) -> None:
        """Mark every match of `query`, regardless of case, match number `present` more strongly; none for an
        empty query.
        """
        target = (query, present, self.document.revision() if query else -1)
        if target == self._marked:
            return
        self._marked, self._marks = target, []
        found = self.document.find(query, 0) if query else QTextCursor()
        while not found.isNull():
            self._marks.append(found)
            found = self.document.find(query, found)
        self.update()

    def mark_top(self) -> int:
        """The height of the current match in this widget, of the first line where there is none."""
        if not self._marks or self._marked[1] < 0:
            return self.gap
        cursor = self._marks[min(self._marked[1], len(self._marks) - 1)]
        return round(self.origin().y() + self._line_top(cursor.selectionStart()))

    def _mark_selections(self, style: Style) -> list[QAbstractTextDocumentLayout.Selection]:
        made: list[QAbstractTextDocumentLayout.Selection] = []
        for number, cursor in enumerate(self._marks):
            mark = QAbstractTextDocumentLayout.Selection()
            mark.cursor = cursor
            shape = QTextCharFormat()
            present = number == min(self._marked[1], len(self._marks) - 1)
            shape.setBackground(QBrush(style.colours.found if present else style.colours.notice))
            shape.setForeground(QBrush(style.colours.on_found if present else style.colours.text))
            shape.setFontUnderline(present)
            mark.format = shape
            made.append(mark)
        return made

    def cursor_of(self, start: int, end: int) -> QTextCursor:
        """A cursor that selects the text between two positions, moved inside the document if it got
        shorter.
        """
        last = self.document.characterCount() - 1
        cursor = QTextCursor(self.document)
        cursor.setPosition(min(start, last))
        cursor.setPosition(min(end, last), QTextCursor.MoveMode.KeepAnchor)
        return cursor

    def selected_text(self) -> str:
        return selected_source(self.cursor_of(*self._selection)).translate(_LINE_ENDS)

    def word_at(self, point: QPoint) -> tuple[int, int]:
        cursor = self.cursor_of(*[self.position_at(point)] * 2)
        cursor.select(QTextCursor.SelectionType.WordUnderCursor)
        return cursor.selectionStart(), cursor.selectionEnd()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.row_style is None:
            return
        painter = QPainter(self)
        self.paint_ground(painter, event.rect())
        if self._whole:
            path = QPainterPath()
            path.addRoundedRect(self.box(), 4, 4)
            painter.fillPath(path, self.row_style.colours.selection)
        self.paint_document(painter, event.rect())
        painter.end()

    def paint_ground(self, painter: QPainter, exposed: QRect) -> None:
        """Paint what is under the text."""

    def paint_document(self, painter: QPainter, exposed: QRect) -> None:
        """Paint the document with its selection, inside `area`."""
        style = self.row_style
        if style is None:
            return
        window = self.area().intersected(QRectF(exposed))
        if window.isEmpty():
            return
        origin = self.origin()
        context = QAbstractTextDocumentLayout.PaintContext()
        colours = QPalette(self.palette())
        colours.setColor(QPalette.ColorRole.Text, style.colours.muted if self.muted() else style.colours.text)
        context.palette = colours
        context.clip = window.translated(-origin)
        selections = self._mark_selections(style)
        start, end = self._selection
        if start != end:
            chosen = QAbstractTextDocumentLayout.Selection()
            chosen.cursor = self.cursor_of(start, end)
            shape = QTextCharFormat()
            shape.setBackground(QBrush(style.colours.selection))
            shape.setForeground(QBrush(colours.color(QPalette.ColorRole.Text)))
            chosen.format = shape
            selections.append(chosen)
        if selections:
            context.selections = selections
        painter.save()
        painter.setClipRect(window)
        painter.translate(origin)
        self.document.documentLayout().draw(painter, context)
        painter.restore()
