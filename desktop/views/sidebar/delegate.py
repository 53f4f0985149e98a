"""Draws the rows of the sidebar's list: headings, folders, and chats with their state."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex, QPointF, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPalette
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem

from desktop.items.chats.chat_list import (
    COUNT_ROLE,
    DEPTH_ROLE,
    DRAFT_ROLE,
    FOLDER,
    HEADING,
    KIND_ROLE,
    NOTEBOOK_ROLE,
    OPEN_ROLE,
    RUNNING_ROLE,
    UNSEEN_ROLE,
)
from desktop.items.chats.conversations import ID_ROLE
from desktop.views.sidebar.item_painting import HIGH, PAD, background, icon, line, side
from engine.units import number_text

__all__ = ["ChatListDelegate"]

Index = QModelIndex | QPersistentModelIndex
DEEPEST_SHOWN = 6
"""Deeper rows are not indented further: there would be no room for their names."""


class ChatListDelegate(QStyledItemDelegate):
    """All rows are equally high.

    `opened` is the chat that the window shows; `target` is the row that a drag would land on.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.opened = 0
        self.target = -1

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(40, self.height(option.font))

    def height(self, font: QFont) -> int:
        """The height of every row, in pixels."""
        return QFontMetrics(font).height() + HIGH

    def words(self, rect: QRect, index: Index, font: QFont) -> QRect:
        """The horizontal extent of a row's title or name."""
        step = QFontMetrics(font).height()
        depth = min(int(index.data(DEPTH_ROLE) or 0), DEEPEST_SHOWN)
        start = rect.left() + PAD + depth * round(step * 0.9)
        if index.data(KIND_ROLE) == FOLDER:
            start += 2 * step + 2
        elif depth:
            start += round(step * 0.25)
        if index.data(NOTEBOOK_ROLE):
            start += round(step * 1.1)
        return QRect(start, rect.top(), rect.right() - PAD - start, rect.height())

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        kind = index.data(KIND_ROLE)
        if kind == HEADING:
            self._heading(painter, option, index)
        elif kind == FOLDER:
            self._folder(painter, option, index)
        else:
            self._chat(painter, option, index)
        painter.restore()

    def _heading(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        small = QFont(option.font)
        small.setPointSizeF(option.font.pointSizeF() * 0.88)
        small.setWeight(QFont.Weight.DemiBold)
        rect = option.rect.adjusted(PAD, 10, -PAD, 0)
        # It is disabled for the keyboard only.
        muted = option.palette.color(QPalette.ColorGroup.Active, QPalette.ColorRole.PlaceholderText)
        line(painter, option, str(index.data()), rect, muted, small)

    def _folder(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        background(painter, option, target=index.row() == self.target)
        step = QFontMetrics(option.font).height()
        muted, text = _colours(option)
        words = self.words(option.rect, index, option.font)
        middle = option.rect.center().y()
        arrow = round(step * 0.8)
        left = words.left() - 2 * step - 4
        closed = "chevron-left" if option.direction == Qt.LayoutDirection.RightToLeft else "chevron-right"
        shape = "chevron-down" if index.data(OPEN_ROLE) else closed
        icon(painter, option, shape, QRect(left, middle - arrow // 2, arrow, arrow), muted)
        icon(painter, option, "folder", QRect(words.left() - step - 4, middle - step // 2, step, step), muted)
        count = number_text(index.data(COUNT_ROLE))
        wide = QFontMetrics(option.font).horizontalAdvance(count)
        line(painter, option, str(index.data()), words.adjusted(0, 0, -wide - 8, 0), text)
        line(
            painter, option, count, QRect(words.right() - wide, words.top(), wide + 2, words.height()), muted
        )

    def _chat(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        background(
            painter, option, marked=index.data(ID_ROLE) == self.opened, target=index.row() == self.target
        )
        step = QFontMetrics(option.font).height()
        muted, text = _colours(option)
        words = self.words(option.rect, index, option.font)
        right = words.right()
        if index.data(NOTEBOOK_ROLE):
            size = round(step * 0.95)
            place = QRect(words.left() - round(step * 1.1), option.rect.center().y() - size // 2, size, size)
            icon(painter, option, "notebook", place, muted)
        if index.data(RUNNING_ROLE):
            right -= round(step * 0.6)
            painter.setBrush(option.palette.color(QPalette.ColorRole.Accent))
            painter.setPen(Qt.PenStyle.NoPen)
            place = QRect(right, option.rect.center().y(), round(step * 0.5), 1)
            radius = step * 0.24
            painter.drawEllipse(QPointF(side(option, place).center()), radius, radius)
            right -= 4
        if index.data(DRAFT_ROLE):
            size = round(step * 0.85)
            right -= size
            icon(
                painter, option, "edit", QRect(right, option.rect.center().y() - size // 2, size, size), muted
            )
            right -= 4
        font = QFont(option.font)
        if index.data(UNSEEN_ROLE):
            font.setWeight(QFont.Weight.Bold)
        room = QRect(words.left(), words.top(), right - words.left(), words.height())
        line(painter, option, str(index.data() or ""), room, text, font)


def _colours(option: QStyleOptionViewItem) -> tuple[QColor, QColor]:
    return option.palette.color(QPalette.ColorRole.PlaceholderText), option.palette.color(
        QPalette.ColorRole.WindowText
    )
