"""How rows of the sidebar are drawn: their ground, their words with found places marked, their little
pictures.
"""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QPointF, QRect, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPalette, QTextCharFormat, QTextLayout, QTextOption
from PySide6.QtWidgets import QStyle, QStyleOptionViewItem

from desktop.views.widgets.icons import pixmap

__all__ = ["HIGH", "PAD", "RADIUS", "ground", "icon", "line", "paragraph", "side"]

PAD, RADIUS, HIGH = 10, 7, 14
"""Pixels: beside the words, of the corners, and what a row is higher than its text."""
CHOSEN, MARKED, OVER, FOUND = 46, 30, 16, 64
"""How strongly the accent lies on rows that are chosen, open, pointed at, and on words that were found; of
255.
"""


def ground(
    painter: QPainter, option: QStyleOptionViewItem, marked: bool = False, target: bool = False
) -> None:
    """The ground of a row: chosen, pointed at, `marked` as the one that is open, `target` of a drag; with
    the focus's ring.
    """
    state, accent = option.state, QColor(option.palette.color(QPalette.ColorRole.Accent))
    chosen = bool(state & QStyle.StateFlag.State_Selected)
    over = bool(state & QStyle.StateFlag.State_MouseOver)
    body = option.rect.adjusted(1, 1, -1, -1)
    focused = bool(state & QStyle.StateFlag.State_HasFocus)
    if chosen or over or marked or focused or target:
        fill = QColor(accent)
        fill.setAlpha(CHOSEN if chosen or target else MARKED if marked else OVER if over else 0)
        painter.setBrush(fill)
        painter.setPen(accent if focused or target else Qt.PenStyle.NoPen)
        painter.drawRoundedRect(body, RADIUS, RADIUS)
    if marked:
        bar = side(option, QRect(body.left(), body.top() + 6, 3, body.height() - 12))
        painter.setBrush(accent)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawRoundedRect(bar, 1.5, 1.5)


def side(option: QStyleOptionViewItem, rect: QRect) -> QRect:
    """A rectangle, given for writing from left to right, where it belongs in the direction of the window."""
    return QStyle.visualRect(option.direction, option.rect, rect)


def icon(painter: QPainter, option: QStyleOptionViewItem, name: str, rect: QRect, colour: QColor) -> None:
    """A stroke drawing, sharp on every screen."""
    size = max(1, round(rect.width() * painter.device().devicePixelRatioF()))
    painter.drawPixmap(side(option, rect), pixmap(name, colour.name(), size))


def line(
    painter: QPainter,
    option: QStyleOptionViewItem,
    text: str,
    rect: QRect,
    colour: QColor,
    font: QFont | None = None,
) -> None:
    """One line of words, shortened at its end."""
    painter.setFont(font or option.font)
    painter.setPen(colour)
    painter.setLayoutDirection(Qt.LayoutDirection.LayoutDirectionAuto)  # a title reads as its own letters do
    shown = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, rect.width())
    leading = (
        Qt.AlignmentFlag.AlignRight
        if option.direction == Qt.LayoutDirection.RightToLeft
        else Qt.AlignmentFlag.AlignLeft
    )
    painter.drawText(
        side(option, rect), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignAbsolute | leading, shown
    )


def paragraph(
    painter: QPainter, option: QStyleOptionViewItem, text: str, spans: Iterable[tuple[int, int]], rect: QRect,
    colour: QColor, lines: int, font: QFont | None = None,
) -> None:  # fmt: skip
    """Words on up to `lines` lines, with those in `spans` (characters) marked."""
    font = font or option.font
    formats = []
    for first, behind in spans:
        mark = QTextLayout.FormatRange()
        mark.start, mark.length = _units(text[:first]), _units(text[first:behind])
        shape = QTextCharFormat()
        back = QColor(option.palette.color(QPalette.ColorRole.Accent))
        back.setAlpha(FOUND)
        shape.setBackground(back)
        shape.setForeground(option.palette.color(QPalette.ColorRole.WindowText))
        mark.format = shape
        formats.append(mark)
    layout = QTextLayout(text, font)
    layout.setFormats(formats)
    shape_of_lines = QTextOption()
    shape_of_lines.setWrapMode(
        QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere if lines > 1 else QTextOption.WrapMode.NoWrap
    )
    shape_of_lines.setTextDirection(option.direction if not text else Qt.LayoutDirection.LayoutDirectionAuto)
    layout.setTextOption(shape_of_lines)
    layout.beginLayout()
    y = 0.0
    for _ in range(lines):
        made = layout.createLine()
        if not made.isValid():
            break
        made.setLineWidth(rect.width())
        made.setPosition(QPointF(0, y))
        y += made.height()
    layout.endLayout()
    painter.save()
    area = side(option, rect)
    painter.setClipRect(area)
    painter.setPen(colour)
    layout.draw(painter, area.topLeft())
    painter.restore()


def _units(text: str) -> int:
    """Characters as Qt counts them."""
    return len(text) if text.isascii() else sum(2 if char > "\uffff" else 1 for char in text)
