"""A piece of a reply as its tokens: plain text over the tints of its tokens, with a cursor that goes from
token to token.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, NamedTuple

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QKeyEvent,
    QPainter,
    QPen,
    QPixmap,
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextLine,
    QTextOption,
)

from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript.row_widgets.base import DocumentRow
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style
from desktop.views.transcript.tokens.colours import ramp, step_of, strength
from engine.words import _

__all__ = ["TokenRow"]

_LINE_HEIGHT = 150.0
_SAFE = {0: 0xFFFD, 0x0D: 0x200B, 0x2029: 0x2028, 0xFDD0: 0xFFFD, 0xFDD1: 0xFFFD, 0xFFFC: 0xFFFD}
"""Characters with a meaning to a text document, each with the one that is shown instead."""


class _Box(NamedTuple):
    """The place of a token, or of its part on one line, in the document; a line break has its own place after
    the line.
    """

    token: int
    area: QRectF
    line_break: bool


class TokenRow(DocumentRow):
    """The tokens of a part of a message.

    Their boxes are measured once for each line; while the text grows only the last line is measured again.
    """

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self._view = context.tokens
        self._text = ""
        self._trace: TokenTrace | None = None
        self._astral: list[int] = []
        self._boxes: list[_Box] = []
        self._tops: list[float] = []
        self._lines: list[tuple[int, int]] = []
        self._covered = 0
        self.cursor_token = -1
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)

    # -- what is shown

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        text = row.text.translate(_SAFE)
        if fresh or row.trace is not self._trace or not text.startswith(self._text):
            self._set_text(text, style)
            if fresh:
                self.cursor_token = -1
        else:
            cursor = QTextCursor(self.document)
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(text[len(self._text) :])
        start = len(self._text)
        self._astral += [place for place, sign in enumerate(text[start:], start) if ord(sign) > 0xFFFF]
        self._text, self._trace = text, row.trace
        self.setAccessibleDescription(
            _(
                "Tokens of the reply. Use the arrow keys to go from token to token, and Enter to show a "
                "token's alternatives."
            )
        )

    def _set_text(self, text: str, style: Style) -> None:
        self._text, self._astral = "", []
        self._forget()
        self.document.renew(style.text_font)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.document.setDefaultTextOption(option)
        self.document.setPlainText(text)
        cursor = QTextCursor(self.document)
        cursor.select(QTextCursor.SelectionType.Document)
        shape = QTextBlockFormat()
        shape.setLineHeight(_LINE_HEIGHT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor.mergeBlockFormat(shape)

    def fit(self, width: int) -> int:
        if self.row_style is None or self.row is None:
            return 0
        room = max(40, width - self.row_style.px(1.0))  # the mark of a line break is after the text
        if self.document.textWidth() != room:
            self.document.set_width(room)
            self._forget()
        high = round(self.document.size().height())
        self._measure()
        return self.gap + high

    # -- boxes

    def _forget(self) -> None:
        self._boxes, self._tops, self._lines, self._covered = [], [], [], 0

    def _position(self, character: int) -> int:
        """The document position (UTF-16) of a character of the row's text."""
        return character + bisect_left(self._astral, character)

    def _character(self, position: int) -> int:
        """The inverse of `_position`."""
        low, high = 0, len(self._astral)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._astral[middle] + middle < position else (low, middle)
        return position - low

    def _measure(self) -> None:
        """Measure the boxes again from the last line, or from the first character whose token was
        not known.
        """
        row = self.row
        if row is None or row.trace is None:
            return
        again = self._position(max(0, self._covered - row.start))
        start = 0
        while self._lines:
            start, count = self._lines.pop()
            del self._boxes[count:], self._tops[count:]
            if start <= again:
                break
        block = self.document.findBlock(start)
        while block.isValid():
            self._measure_block(block, start)
            block = block.next()
        self._covered = row.covered

    def _measure_block(self, block: QTextBlock, start: int) -> None:
        """Measure the boxes of a paragraph's lines that begin at document position `start` or later."""
        row, layout = self.row, block.layout()
        assert row is not None
        for number in range(layout.lineCount()):
            line = layout.lineAt(number)
            if block.position() + line.textStart() >= start:
                last = number == layout.lineCount() - 1
                final = last and not block.next().isValid()
                self._measure_line(
                    block, line, broken=last and (not final or row.source.endswith("\n")), final=final
                )

    def _measure_line(self, block: QTextBlock, line: QTextLine, broken: bool, final: bool) -> None:
        """Measure the boxes of one line; `broken` when a line break ends it, `final` when it is the row's
        last.
        """
        row = self.row
        assert row is not None
        assert row.trace is not None
        trace, base = row.trace, block.position()
        first = base + line.textStart()
        low, upto = (row.start + self._character(place) for place in (first, first + line.textLength()))
        corner = self.document.documentLayout().blockBoundingRect(block).topLeft()
        high, top = line.ascent() + line.descent() + 2, corner.y() + line.y()
        self._lines.append((first, len(self._boxes)))
        for token in range(max(0, bisect_left(trace.starts, low) - 1), len(trace)):
            begin, stop = trace.starts[token], trace.end(token)
            if begin > upto or (begin == upto and not broken and not final):
                break
            if stop < low or stop == low != begin:
                continue
            left, right = (
                corner.x() + _x(line, self._position(place - row.start) - base)
                for place in (max(begin, low), min(stop, upto))
            )
            if right != left or begin == stop:
                self._add(
                    _Box(token, QRectF(min(left, right), top, max(3.0, abs(right - left)), high), False)
                )
            if broken and begin <= upto < stop:
                self._add(_Box(token, QRectF(right, top, high * 0.65, high), True))

    def _add(self, box: _Box) -> None:
        self._boxes.append(box)
        self._tops.append(box.area.top())

    # -- painting

    def paint_ground(self, painter: QPainter, exposed: QRect) -> None:
        if self.row_style is None or self._trace is None:
            return
        ground = self.row_style.colours.background
        mode, trace = self._view.mode, self._trace
        colours = ramp(mode, ground.lightnessF() < 0.5, ground.name())
        origin = self.origin()
        dots: list[QRectF] = []
        for box in self._exposed(exposed):
            area = box.area.translated(origin)
            painter.fillRect(area.adjusted(0, 0, -1, 0), colours[step_of(strength(mode, trace, box.token))])
            if trace.drafted(box.token):
                dots.append(area)
            if trace.healed(box.token):
                painter.fillRect(
                    QRectF(area.left(), area.bottom() - 2, area.width() - 1, 2), self.row_style.colours.link
                )
        dotted = _dots(self.row_style.colours.muted.name())
        for area in dots:
            painter.drawTiledPixmap(QRectF(area.left(), area.bottom() - 2, area.width() - 1, 2), dotted)

    def paint_document(self, painter: QPainter, exposed: QRect) -> None:
        super().paint_document(painter, exposed)
        if self.row_style is None or self.row is None:
            return
        origin = self.origin()
        message, marked = self._view.marked
        marked = marked if message == self.row.item.id else -1
        painter.setFont(self.row_style.small_font)
        for box in self._exposed(exposed):
            if box.line_break:
                painter.setPen(self.row_style.colours.text)
                painter.drawText(box.area.translated(origin), int(Qt.AlignmentFlag.AlignCenter), "↵")
            focused = box.token == self.cursor_token and self.hasFocus()
            if focused or box.token == marked:
                painter.setPen(
                    QPen(
                        self.row_style.colours.link if focused else self.row_style.colours.text,
                        2 if focused else 1,
                    )
                )
                painter.drawRect(box.area.translated(origin).adjusted(0.5, 0.5, -1.5, -0.5))

    def _exposed(self, exposed: QRect) -> list[_Box]:
        top = exposed.top() - self.gap
        first = bisect_left(self._tops, top - 3 * (self.row_style.em if self.row_style else 0))
        return self._boxes[first : bisect_right(self._tops, top + exposed.height() + 1)]

    # -- the pointer and the keyboard

    def token_at(self, point: QPoint) -> int:
        """The token at a point of the widget; -1 where there is none."""
        spot = QPointF(point) - self.origin()
        near = self._exposed(QRect(0, point.y(), 1, 1))
        return next(
            (box.token for box in reversed(near) if box.area.adjusted(0, -2, 0, 4).contains(spot)), -1
        )

    def token_area(self, token: int) -> QRect:
        """The place of a token in the widget; empty when the token is not in this row.

        Of a token on two lines, the longer part.
        """
        found = self._area(token)
        return found.translated(self.origin()).toRect() if found is not None else QRect()

    def _area(self, token: int) -> QRectF | None:
        start = bisect_left(self._boxes, token, key=lambda box: box.token)
        parts = [
            box.area
            for box in self._boxes[start : bisect_right(self._boxes, token, key=lambda box: box.token)]
        ]
        return max(parts, key=QRectF.width, default=None)

    def tokens(self) -> range:
        """The indexes of the tokens in this row."""
        return range(self._boxes[0].token, self._boxes[-1].token + 1) if self._boxes else range(0)

    def put_cursor(self, token: int) -> None:
        """Put the keyboard's cursor on a token of this row."""
        if self.row is not None:
            self.cursor_token = token
            self.update()
            self.signals.token_moved.emit(self.row, token)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        mine = self.tokens()
        if mine and event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason):
            self.put_cursor(self.cursor_token if self.cursor_token in mine else mine[0])
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if self.row is not None:
            self.signals.token_moved.emit(self.row, -1)
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        mine, keys = self.tokens(), Qt.Key
        plain = event.modifiers() in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.KeypadModifier)
        if not plain or not mine or self.row is None:
            super().keyPressEvent(event)
        elif event.key() in (keys.Key_Left, keys.Key_Right):
            self._go(self.cursor_token + (1 if event.key() == keys.Key_Right else -1))
        elif event.key() in (keys.Key_Up, keys.Key_Down):
            self._go(self._beside(1 if event.key() == keys.Key_Down else -1))
        elif event.key() in (keys.Key_Home, keys.Key_End):
            self._go(mine[0] if event.key() == keys.Key_Home else mine[-1])
        elif event.key() in (keys.Key_Return, keys.Key_Enter):
            self.signals.token_chosen.emit(self.row, self.cursor_token)
        else:
            super().keyPressEvent(event)

    def _go(self, token: int) -> None:
        mine = self.tokens()
        if token in mine:
            self.put_cursor(token)
        else:
            self.signals.token_left.emit(self.row, 1 if token >= mine.stop else -1)

    def _beside(self, step: int) -> int:
        """The token above (-1) or below (1) the cursor's; one outside the row when there is no such line."""
        here = self._area(self.cursor_token)
        if here is None:
            return self.tokens()[0]
        beyond = [box for box in self._boxes if (box.area.top() - here.top()) * step > 1]
        if not beyond:
            return self.tokens().stop if step > 0 else self.tokens().start - 1
        line = min(beyond, key=lambda box: (box.area.top() - here.top()) * step).area.top()
        middle = here.center().x()
        return min(
            (box for box in beyond if abs(box.area.top() - line) < 1),
            key=lambda box: abs(box.area.center().x() - middle),
        ).token


def _x(line: QTextLine, position: int) -> float:
    """The x coordinate of a position; Qt's type hint misses that this is a pair."""
    found: Any = line.cursorToX(position)
    return float(found[0])


_made: dict[str, QPixmap] = {}


def _dots(colour: str) -> QPixmap:
    """A tile of a dotted line: drawing dotted lines below hundreds of tokens would take a whole frame."""
    if colour not in _made:
        tile = QPixmap(4, 2)
        tile.fill(Qt.GlobalColor.transparent)
        painter = QPainter(tile)
        painter.fillRect(0, 0, 2, 2, QColor(colour))
        painter.end()
        _made[colour] = tile
    return _made[colour]
