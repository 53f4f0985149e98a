"""The list of search results: chats, and below each chat its matching messages with the words marked."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QKeyEvent, QPainter, QPalette
from PySide6.QtWidgets import QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from desktop.items.chats.conversations import ID_ROLE
from desktop.items.chats.search_hits import HIT_ROLE, SPANS_ROLE, SearchHitsModel
from desktop.views.sidebar.item_painting import HIGH, PAD, background, paragraph
from engine.words import _

__all__ = ["SearchResults"]

Index = QModelIndex | QPersistentModelIndex
LINES = 2


class _Painter(QStyledItemDelegate):
    """Draws a chat as its title in bold, a hit as some lines of its message."""

    def __init__(self, view: QListView) -> None:
        super().__init__(view)
        self._view = view
        self.opened = 0

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        metrics = QFontMetrics(option.font)
        line = metrics.height()
        if index.data(HIT_ROLE) is None:
            return QSize(40, line + HIGH)
        # The answer may arrive later.
        bar = self._view.style().pixelMetric(QStyle.PixelMetric.PM_ScrollBarExtent)
        room = self._view.maximumViewportSize().width() - bar - 2 * PAD - line // 2
        return QSize(40, line * (1 if metrics.horizontalAdvance(str(index.data())) < room else LINES) + 10)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        line, text, spans = (
            QFontMetrics(option.font).height(),
            str(index.data() or ""),
            index.data(SPANS_ROLE) or (),
        )
        if index.data(HIT_ROLE):
            background(painter, option)
            muted = option.palette.color(QPalette.ColorRole.PlaceholderText)
            paragraph(
                painter, option, text, spans, option.rect.adjusted(PAD + line // 2, 5, -PAD, -3), muted, LINES
            )
        else:
            background(painter, option, marked=index.data(ID_ROLE) == self.opened)
            strong = QFont(option.font)
            strong.setWeight(QFont.Weight.DemiBold)
            rect = option.rect.adjusted(PAD, HIGH // 2, -PAD, -HIGH // 2 + 2)
            colour = option.palette.color(QPalette.ColorRole.WindowText)
            if spans and QFontMetrics(strong).horizontalAdvance(text) <= rect.width():
                paragraph(painter, option, text, spans, rect, colour, 1, strong)
            else:
                shown = QFontMetrics(strong).elidedText(text, Qt.TextElideMode.ElideRight, rect.width())
                cut = len(shown) - 1 if shown != text else len(text)
                paragraph(
                    painter,
                    option,
                    shown,
                    [span for span in spans if span[1] <= cut],
                    rect,
                    colour,
                    1,
                    strong,
                )
        painter.restore()


class SearchResults(QListView):
    """Shows a `SearchHitsModel`. `opened(id)` for a chat, `hit_opened(SearchHit)` for a message."""

    opened = Signal(int)
    hit_opened = Signal(object)

    def __init__(self, model: SearchHitsModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("conversations")
        self.setAccessibleName(_("Search results"))
        self.setMouseTracking(True)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self._painter = _Painter(self)
        self.setItemDelegate(self._painter)
        self.setModel(model)
        self.clicked.connect(self._choose)

    def set_open(self, conversation: int) -> None:
        """Mark the conversation that the window shows; 0 is none."""
        self._painter.opened = conversation
        self.viewport().update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose(self.currentIndex())
        else:
            super().keyPressEvent(event)

    def _choose(self, index: QModelIndex) -> None:
        hit = index.data(HIT_ROLE)
        if hit is not None:
            self.hit_opened.emit(hit)
        elif index.isValid():
            self.opened.emit(index.data(ID_ROLE))
