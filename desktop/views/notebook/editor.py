"""A notebook's text: a plain-text editor in a readable column, which a model writes into, with
tinted tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QTextCursor
from PySide6.QtWidgets import QFrame, QPlainTextEdit

from desktop.items.text.text_units import TokenUnits
from desktop.store.conversations.token_trace import UNKNOWN, TokenTrace
from desktop.views.transcript.style import Style
from desktop.views.transcript.tokens.colours import PROBABILITY, ramp, step_of, strength
from engine.words import _

__all__ = ["NotebookEditor", "TokenBox", "safe"]

_SAFE = {0: 0xFFFD, 0x0D: 0x200B, 0x2029: 0x2028, 0xFDD0: 0xFFFD, 0xFDD1: 0xFFFD, 0xFFFC: 0xFFFD}
"""Characters with a meaning to a text document, each with the one that is shown instead."""
_READ = Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
_LEAST_MARGIN = 14


def safe(text: str) -> str:
    """`text` as a document can hold it, of the same length."""
    return text.translate(_SAFE)


class TokenBox(NamedTuple):
    """The place of a token, or of its part on one line, in the viewport."""

    token: int
    area: QRectF


class NotebookEditor(QPlainTextEdit):
    """Places are UTF-16 units of the document.

    Signals: typed(): the user changed the text. write_wanted(): Ctrl+Enter was pressed. left(): the editor
    lost the keyboard. token_wanted(int token, bool keyboard): the pointer is on a token (-1 for none), or its
    key was pressed.
    """

    typed = Signal()
    write_requested = Signal()
    left = Signal()
    token_requested = Signal(int, bool)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("notebookText")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAccessibleName(_("Document"))
        self.setPlaceholderText(
            _("Write the beginning of a text, then press Ctrl+Enter to let the model continue it.")
        )
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(6)
        self.viewport().setMouseTracking(True)
        self.text_style: Style | None = None
        self.mode, self.marked = "", -1
        self._units: TokenUnits | None = None
        # units at the start and at the end of the document that are the same in the tokens' text
        self._low = self._high = 0
        self.stale = False  # the text has changed since the tokens were set
        self._own = False  # this object is changing the document
        self.above = 0  # pixels above the text that something else covers; call `fit` after a change
        self._place: QTextCursor | None = None
        self._joins = False
        self.document().contentsChange.connect(self._on_change)

    # -- the document

    @property
    def length(self) -> int:
        """The length of the document in units."""
        return self.document().characterCount() - 1

    def text(self) -> str:
        """The whole text; unlike `toPlainText` it keeps no-break spaces."""
        return self.document().toRawText().replace("\u2029", "\n")

    def text_between(self, start: int, end: int) -> str:
        """The text from one place to another."""
        cursor = self._cursor(start, end)
        return cursor.selectedText().replace("\u2029", "\n")

    def load(self, text: str, place: int) -> None:
        """Show another document with the cursor at `place`, and forget the undo history."""
        self._own = True
        self._place = None
        self._units, self.marked = None, -1
        self.setPlainText(safe(text))
        self._own = False
        self.put_cursor(place)

    def put_cursor(self, place: int) -> None:
        """Put the cursor at a place and scroll to it."""
        self.setTextCursor(self._cursor(place, place))
        self.ensureCursorVisible()

    def replace(self, start: int, end: int, text: str) -> None:
        """Replace a part by `text`: one step of undoing, which text that is streamed next joins."""
        cursor = self._cursor(start, end)
        cursor.beginEditBlock()
        cursor.removeSelectedText()
        if text:
            cursor.insertText(safe(text))
        cursor.endEditBlock()
        self._joins = True

    def _cursor(self, start: int, end: int) -> QTextCursor:
        cursor = QTextCursor(self.document())
        cursor.setPosition(max(0, min(start, self.length)))
        cursor.setPosition(max(0, min(end, self.length)), QTextCursor.MoveMode.KeepAnchor)
        return cursor

    # -- what the model writes

    def begin_stream(self, place: int, joins: bool = False) -> None:
        """Let the model write at `place`, and take no keys; with `joins` its text is one undo step with the
        last `replace`.
        """
        self._place = self._cursor(place, place)
        self._joins = joins
        self.setTextInteractionFlags(_READ)

    def stream(self, text: str) -> None:
        """Insert the next text. What the reader sees stays in place, unless the model writes there."""
        cursor = self._place
        if cursor is None:
            return
        bar, high = self.verticalScrollBar(), self.viewport().height()
        first = self.cursorForPosition(QPoint(0, 0))
        last = self.cursorForPosition(QPoint(self.viewport().width(), high)).position()
        at = cursor.position()
        self._own = True
        if self._joins:
            cursor.joinPreviousEditBlock()
        else:
            cursor.beginEditBlock()
        cursor.insertText(safe(text))
        cursor.endEditBlock()
        self._own, self._joins = False, True
        if at < first.position():
            block = first.block()
            line = block.layout().lineForTextPosition(first.position() - block.position())
            bar.setValue(block.firstLineNumber() + (line.lineNumber() if line.isValid() else 0))
        elif at <= last and (below := self.cursorRect(cursor).bottom() - high) > 0:
            end = cursor.position() == self.length
            bar.setValue(
                bar.maximum() if end else bar.value() + -(-below // max(1, self.fontMetrics().lineSpacing()))
            )

    def end_stream(self) -> None:
        """The model has ended: take keys again."""
        self._place = None
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextEditorInteraction)

    @property
    def streaming(self) -> bool:
        """Whether a model is writing."""
        return self._place is not None

    # -- tokens

    def set_trace(self, trace: TokenTrace | None) -> None:
        """Set the tokens of the document's text, or of its beginning."""
        self._units = TokenUnits(trace) if trace is not None else None
        self._low = self._units.length if self._units is not None else 0
        self._high = self._low if self._low == self.length else 0
        self.stale = False
        self.viewport().update()

    @property
    def trace(self) -> TokenTrace | None:
        """The last trace that was set."""
        return self._units.trace if self._units is not None else None

    def grow_trace(self) -> None:
        """The trace of the text that is being written has grown."""
        if self._units is not None:
            self._units.grow()
            self._low = self._units.length

    def token_at(self, place: int) -> int:
        """The token at a place of the document; -1 where none is known."""
        units = self._units
        if units is None:
            return -1
        shift = self._shift(place)
        if shift is None or not 0 <= place + shift < units.length:
            return -1
        return bisect_right(units.starts, place + shift) - 1

    def token_range(self, token: int) -> tuple[int, int]:
        """The place of a token in the document; (-1, -1) where its text has changed."""
        units = self._units
        if units is None or not 0 <= token < len(units.starts):
            return -1, -1
        start, end = units.starts[token], units.end(token)
        if end <= self._low:
            return start, end
        shift = self.length - units.length
        return (start + shift, end + shift) if start >= units.length - self._high else (-1, -1)

    def _shift(self, place: int) -> int | None:
        """The offset from a place of the document to that of the tokens' text."""
        if place < self._low:
            return 0
        return (
            self._units.length - self.length
            if self._units is not None and place >= self.length - self._high
            else None
        )

    def boxes(self, exposed: QRect) -> list[TokenBox]:
        """The tokens on the lines in a part of the viewport."""
        found: list[TokenBox] = []
        block = self.firstVisibleBlock()
        corner = self.blockBoundingGeometry(block).translated(self.contentOffset()).topLeft()
        while block.isValid() and corner.y() <= exposed.bottom():
            rect = self.blockBoundingRect(block)
            if block.isVisible() and corner.y() + rect.height() >= exposed.top():
                layout = block.layout()
                for number in range(layout.lineCount()):
                    line = layout.lineAt(number)
                    top = corner.y() + line.y()
                    if top <= exposed.bottom() and top + line.height() >= exposed.top():
                        self._measure(found, line, block.position(), corner)
            corner += QPointF(0, rect.height())
            block = block.next()
        return found

    def _measure(self, found: list[TokenBox], line: Any, base: int, corner: QPointF) -> None:
        units = self._units
        assert units is not None
        place, stop = base + line.textStart(), base + line.textStart() + line.textLength()
        while place < stop:
            token = self.token_at(place)
            if token < 0:
                place = self.length - self._high if self._low <= place < self.length - self._high else stop
                continue
            start, end = self.token_range(token)
            if start < 0 or end <= place:  # only a part of the token is left
                place += 1
                continue
            left, right = (float(line.cursorToX(min(at, stop) - base)[0]) for at in (place, end))
            if units.trace.ids[token] != UNKNOWN:
                area = QRectF(
                    corner.x() + min(left, right),
                    corner.y() + line.y(),
                    max(2.0, abs(right - left)),
                    line.height(),
                )
                found.append(TokenBox(token, area))
            place = end

    def token_under(self, point: QPoint) -> int:
        """The token at a point of the viewport; -1 for none."""
        if not self.mode or self._units is None:
            return -1
        near = self.boxes(QRect(0, point.y(), self.viewport().width(), 1))
        return next((box.token for box in near if box.area.contains(QPointF(point))), -1)

    def area_of(self, token: int) -> QRect:
        """The place of a token in the viewport; empty when it is not on the screen."""
        parts = [box.area for box in self.boxes(self.viewport().rect()) if box.token == token]
        return max(parts, key=QRectF.width).toAlignedRect() if parts else QRect()

    def mark(self, token: int) -> None:
        """Frame a token."""
        if token != self.marked:
            self.marked = token
            self.viewport().update()

    def _on_change(self, place: int, _removed: int, added: int) -> None:
        if not self._own:
            self._low = min(self._low, place)
            self._high = max(0, min(self._high, self.length - place - added))
            self.marked, self.stale = -1, True
            self.typed.emit()

    # -- painting and keys

    def paintEvent(self, event: QPaintEvent) -> None:
        boxes = (
            self.boxes(event.rect())
            if self.mode and self._units is not None and self.text_style is not None
            else []
        )
        if boxes and self.text_style is not None and self._units is not None:
            ground = self.text_style.colours.background
            colours = ramp(self.mode or PROBABILITY, ground.lightnessF() < 0.5, ground.name())
            painter = QPainter(self.viewport())
            for box in boxes:
                shade = colours[step_of(strength(self.mode, self._units.trace, box.token))]
                painter.fillRect(box.area.adjusted(0, 1, -1, 0), shade)
                if box.token == self.marked:
                    painter.setPen(QPen(self.text_style.colours.text, 1))
                    painter.drawRect(box.area.adjusted(0.5, 0.5, -1.5, -0.5))
            painter.end()
        super().paintEvent(event)

    def fit(self) -> None:
        """Keep the text in a column of readable width."""
        column = self.text_style.column if self.text_style is not None else 820
        side = max(_LEAST_MARGIN, (self.width() - column) // 2)
        # where the scroll bar is
        beside = side - self.verticalScrollBar().sizeHint().width() if side > 40 else 2
        left, right = (beside, side) if self.isRightToLeft() else (side, beside)
        self.setViewportMargins(left, 12 + self.above, right, 0)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        if self.mode and not event.buttons():
            self.token_requested.emit(self.token_under(event.position().toPoint()), False)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.token_requested.emit(-1, False)

    def event(self, event: QEvent) -> bool:
        """Keep undo from the window too while a model writes: it would undo something that is not visible
        here. The margins are set before Qt places the text: while the editor is first shown, text that is
        placed once is not wrapped again.
        """
        if event.type() == QEvent.Type.Resize:
            self.fit()
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent):
            undoes = event.modifiers() == Qt.KeyboardModifier.ControlModifier and event.key() == Qt.Key.Key_Z
            if undoes or _is_token_key(event):
                event.accept()
                return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        held = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if _is_token_key(event):
            place = self.textCursor().position()
            here = self.token_at(place)
            self.token_requested.emit(here if here >= 0 else self.token_at(place - 1), True)
        elif enter and held == Qt.KeyboardModifier.ControlModifier:
            self.write_requested.emit()
        elif enter and held == Qt.KeyboardModifier.ShiftModifier and not self.streaming:
            self.textCursor().insertBlock()  # a real line break; Qt's own Shift+Enter inserts U+2028
            self.ensureCursorVisible()
        else:
            super().keyPressEvent(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste the text as it is, without styles."""
        self.insertPlainText(safe(source.text().replace("\r\n", "\n").replace("\r", "\n")))

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() and not source.hasUrls()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.left.emit()


def _is_token_key(event: QKeyEvent) -> bool:
    return (
        event.key() == Qt.Key.Key_Down
        and event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier == Qt.KeyboardModifier.AltModifier
    )
