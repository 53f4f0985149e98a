"""The rows of the command palette: icon, title with the matching letters marked, detail, keys."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetrics,
    QPainter,
    QPalette,
    QTextCharFormat,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from desktop.items.commands.palette import KINDS, PaletteRow
from desktop.items.rows_model import RowsModel
from desktop.views.widgets.icons import pixmap
from engine.words import _

__all__ = ["PaletteList", "PaletteRows"]

Index = QModelIndex | QPersistentModelIndex
ROW_ROLE = int(Qt.ItemDataRole.UserRole) + 1
_SIDE = 12
# The painter mirrors them in right-to-left languages.
_LEADING = Qt.AlignmentFlag.AlignLeading | Qt.AlignmentFlag.AlignVCenter
_TRAILING = Qt.AlignmentFlag.AlignTrailing | Qt.AlignmentFlag.AlignVCenter


class PaletteRows(RowsModel[PaletteRow]):
    """The rows that are shown."""

    @property
    def rows(self) -> Sequence[PaletteRow]:
        return self._rows

    def value(self, row: PaletteRow, role: int) -> object:
        """The title, the row's accessible text, why it is disabled as a tool tip, or the row itself."""
        if role == Qt.ItemDataRole.DisplayRole:
            return row.match.entry.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return row.accessible_text
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.match.entry.trouble or row.match.entry.detail or None
        return row if role == ROW_ROLE else None


class _Painter(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        row = index.data(ROW_ROLE)
        line = QFontMetrics(option.font).height()
        height = 2 * line + 18 if row.match.entry.kind == "message" else line + 16
        return QSize(100, height + (line + 14 if row.heading else 0))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row: PaletteRow = index.data(ROW_ROLE)
        palette, line = option.palette, QFontMetrics(option.font).height()
        right_to_left = option.direction == Qt.LayoutDirection.RightToLeft
        muted = palette.color(QPalette.ColorRole.PlaceholderText)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        body = QRect(option.rect)
        if row.heading:
            small = _small(option.font, QFont.Weight.DemiBold)
            painter.setFont(small)
            painter.setPen(muted)
            place = QRect(body.left() + _SIDE, body.top() + 9, body.width() - 2 * _SIDE, line)
            painter.drawText(place, _LEADING, row.heading)
            body.setTop(body.top() + line + 14)
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)
        if chosen or option.state & QStyle.StateFlag.State_MouseOver:
            fill = QColor(palette.color(QPalette.ColorRole.Highlight))
            fill.setAlpha(44 if chosen else 16)
            painter.setBrush(fill)
            painter.setPen(palette.color(QPalette.ColorRole.Highlight) if chosen else Qt.PenStyle.NoPen)
            painter.drawRoundedRect(QRectF(body).adjusted(1.5, 0.5, -1.5, -0.5), 7, 7)
        self._write(painter, option, row, body, right_to_left)
        painter.restore()

    def _write(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        row: PaletteRow,
        body: QRect,
        right_to_left: bool,
    ) -> None:
        """Draw icon, texts and keys from left to right, mirrored in right-to-left languages."""
        entry, palette, metrics = row.match.entry, option.palette, QFontMetrics(option.font)
        line = metrics.height()
        muted = palette.color(QPalette.ColorRole.PlaceholderText)
        ink = muted if entry.trouble else palette.color(QPalette.ColorRole.WindowText)

        def placed(left: float, top: float, width: float, height: float) -> QRectF:
            place = QRectF(body.left() + left, body.top() + top, width, height)
            if right_to_left:
                place.moveLeft(body.left() + body.width() - left - width)
            return place

        side = round(line * 0.95)
        ratio = painter.device().devicePixelRatioF()
        place = placed(_SIDE, 8 + (line - side) / 2, side, side)
        painter.drawPixmap(place.toRect(), pixmap(KINDS[entry.kind].icon, muted.name(), round(side * ratio)))
        left, end = _SIDE + side + 10.0, body.width() - _SIDE
        if entry.keys:
            width = metrics.horizontalAdvance(entry.keys) + 14
            if end - width > left + 60:
                self._chip(
                    painter, option.font, placed(end - width, 6, width, line + 4), entry.keys, muted, palette
                )
                end -= width + 10
        room = end - left
        title_room = room
        second = entry.trouble or entry.detail
        if entry.kind != "message" and second:
            natural = metrics.horizontalAdvance(entry.title)
            small = QFontMetrics(_small(option.font))
            needed = small.horizontalAdvance(second) + 2
            wide = min(needed, max(room - natural - 14, room * 0.3))
            if wide >= min(needed, 50):
                painter.setFont(_small(option.font))
                painter.setPen(muted)
                text = small.elidedText(second, Qt.TextElideMode.ElideRight, round(wide))
                painter.drawText(placed(end - wide, 8, wide, line), _TRAILING, text)
                title_room = room - wide - 14
        _draw_marked(
            painter,
            placed(left, 8, title_room, line),
            entry.title,
            row.match.spans,
            option.font,
            ink,
            palette,
        )
        if entry.kind == "message":
            painter.setFont(_small(option.font))
            painter.setPen(muted)
            text = QFontMetrics(painter.font()).elidedText(second, Qt.TextElideMode.ElideRight, round(room))
            painter.drawText(placed(left, 10 + line, room, line), _LEADING, text)

    def _chip(
        self, painter: QPainter, font: QFont, place: QRectF, keys: str, ink: QColor, palette: QPalette
    ) -> None:
        painter.save()
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)  # Names of keys are not mirrored.
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(palette.color(QPalette.ColorRole.Mid))
        painter.drawRoundedRect(place.adjusted(0.5, 0.5, -0.5, -0.5), 5, 5)
        painter.setPen(ink)
        painter.setFont(_small(font))
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, keys)
        painter.restore()


def _small(font: QFont, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
    small = QFont(font)
    if font.pointSizeF() > 0:
        small.setPointSizeF(font.pointSizeF() * 0.9)
    small.setWeight(weight)
    return small


def _draw_marked(
    painter: QPainter,
    place: QRectF,
    text: str,
    spans: Sequence[tuple[int, int]],
    font: QFont,
    ink: QColor,
    palette: QPalette,
) -> None:
    """One line of elided text, with the letters in `spans` bold, underlined and in the accent colour."""
    shown = QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideRight, max(0, round(place.width())))
    same = len(text) if shown == text else max(0, len(shown) - 1)
    mark = QTextCharFormat()
    mark.setForeground(palette.color(QPalette.ColorRole.Link))
    mark.setFontWeight(QFont.Weight.DemiBold)
    ranges = []
    for start, end in spans:
        if start < same:
            piece = QTextLayout.FormatRange()
            piece.start, piece.length, piece.format = start, min(end, same) - start, mark
            ranges.append(piece)
    layout = QTextLayout(shown, font)
    option = QTextOption(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignAbsolute)
    option.setWrapMode(QTextOption.WrapMode.NoWrap)
    option.setTextDirection(Qt.LayoutDirection.LayoutDirectionAuto)
    layout.setTextOption(option)
    layout.setFormats(ranges)
    layout.beginLayout()
    made = layout.createLine()
    made.setLineWidth(place.width())
    layout.endLayout()
    at_right = painter.layoutDirection() == Qt.LayoutDirection.RightToLeft
    left = place.right() - made.naturalTextWidth() if at_right else place.left()
    painter.save()
    painter.setClipRect(place)
    painter.setPen(ink)
    layout.draw(painter, QPointF(left, place.top() + (place.height() - made.height()) / 2))
    painter.restore()


class PaletteList(QListView):
    """Shows `rows`. A click leaves the focus in the box above; a screen reader may give it to the list."""

    def __init__(self, rows: PaletteRows, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("paletteList")
        self.setAccessibleName(_("Results"))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMouseTracking(True)
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setItemDelegate(_Painter(self))
        self.setModel(rows)

    def preferred_height(self) -> int:
        """The height in pixels that shows all rows."""
        model = self.model()
        option = QStyleOptionViewItem()
        option.font = self.font()
        return (
            sum(
                self.itemDelegate().sizeHint(option, model.index(row, 0)).height()
                for row in range(model.rowCount())
            )
            + 4
        )
