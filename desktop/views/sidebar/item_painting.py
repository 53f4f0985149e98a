"""Draws rows of the sidebar: background, text with highlighted matches, icons."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QPointF, QRect, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPalette, QPen, QTextCharFormat, QTextLayout, QTextOption
from PySide6.QtWidgets import QStyle, QStyleOptionViewItem

from desktop.views.widgets.icons import pixmap

__all__ = ["HIGH", "PAD", "RADIUS", "background", "icon", "line", "paragraph", "side"]

PAD, RADIUS, HIGH = 10, 7, 14
"""Pixels: padding beside the text, corner radius, and how much taller a row is than its text."""
CHOSEN, MARKED, OVER, FOUND = 46, 30, 16, 64
"""Opacity (of 255) of the accent on rows that are selected, open or under the pointer, and on matches."""


def background(
    painter: QPainter, option: QStyleOptionViewItem, marked: bool = False, target: bool = False
) -> None:
    """Draw the background of a row: selected, hovered, `marked` as open, `target` of a drag; with a focus
    ring.
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
        painter.setPen(QPen(accent, 2) if focused or target else Qt.PenStyle.NoPen)
        painter.drawRoundedRect(body, RADIUS, RADIUS)
    if marked:
        bar = side(option, QRect(body.left(), body.top() + 6, 3, body.height() - 12))
        painter.setBrush(accent)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawRoundedRect(bar, 1.5, 1.5)


def side(option: QStyleOptionViewItem, rect: QRect) -> QRect:
    """Mirror a left-to-right rectangle if the window runs right to left."""
    return QStyle.visualRect(option.direction, option.rect, rect)


def icon(painter: QPainter, option: QStyleOptionViewItem, name: str, rect: QRect, colour: QColor) -> None:
    """Draw an icon, sharp on every screen."""
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
    """Draw one line of text, elided at its end."""
    painter.setFont(font or option.font)
    painter.setPen(colour)
    painter.setLayoutDirection(Qt.LayoutDirection.LayoutDirectionAuto)  # by the title's own letters
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
    """Draw text on up to `lines` lines, with `spans` (in characters) highlighted."""
    font = font or option.font
    formats = []
    for first, end in spans:
        mark = QTextLayout.FormatRange()
        mark.start, mark.length = _units(text[:first]), _units(text[first:end])
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
    """Characters as Qt counts them (UTF-16 code units)."""
    return len(text) if text.isascii() else sum(2 if char > "\uffff" else 1 for char in text)
