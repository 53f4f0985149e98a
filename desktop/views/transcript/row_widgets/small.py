"""The small rows: author, rule, head of a thought, waiting for a reply, notice."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton, QStyle, QToolButton

from desktop.items.chats.messages import author_label
from desktop.views.transcript.row_widgets.base import DocumentRow, RowWidget
from desktop.views.transcript.row_widgets.box import paint_box
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style
from desktop.views.widgets.icons import tinted
from desktop.views.widgets.wrapping_text import wrapped_lines
from engine.words import _

__all__ = ["HeaderRow", "MoreRow", "NoticeRow", "RuleRow", "ThoughtRow", "WaitingRow"]


class HeaderRow(RowWidget):
    """The author: at the right for the user, at the left for all others, with the picture of a persona and
    the name of the model. It takes no space where the author is named above already.
    """

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self._avatars = context.avatars
        self._avatars.changed.connect(self._name)

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        self._name()

    def _name(self) -> None:
        if self.row is not None:
            # where no author is shown, above a call or a reply that goes on after it, none is said
            self.setAccessibleName(author_label(self.row.item) if self.row.text else "")
            self.setAccessibleDescription(self.row.item.model if self.row.text else "")
            self.update()

    def fit(self, width: int) -> int:
        if self.row is not None and not self.row.text:
            return self.gap
        return self.gap + QFontMetrics(self._font()).height() if self.row_style else 0

    def _font(self) -> QFont:
        font = QFont(self.row_style.small_font) if self.row_style else QFont()
        font.setWeight(QFont.Weight.DemiBold)
        return font

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.row_style is None or self.row is None or not self.row.text:
            return
        role, painter = self.row.item.role, QPainter(self)
        painter.setFont(self._font())
        painter.setPen(self.row_style.colours.muted)
        right = (role == "user") != self.isRightToLeft()  # above the bubble, or where replies begin
        side = Qt.AlignmentFlag.AlignAbsolute | (
            Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
        )
        room = QRect(0, self.gap, self.width(), self.height() - self.gap)
        large = round(room.height() * 1.5)  # it reaches into the free space above
        picture = self._avatars.picture(self.row.item, large)
        if picture is not None:
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            place = QRect(0, self.height() - large, large, large)
            painter.drawPixmap(QStyle.visualRect(self.layoutDirection(), self.rect(), place), picture)
            left = large + self.row_style.px(0.4)
            room = QStyle.visualRect(
                self.layoutDirection(), self.rect(), QRect(left, place.y(), self.width() - left, large)
            )
            side |= Qt.AlignmentFlag.AlignVCenter
        author, model = author_label(self.row.item), self.row.item.model
        painter.drawText(room, int(side), author)
        if model:
            taken = painter.fontMetrics().horizontalAdvance(author) + self.row_style.px(0.6)
            room.adjust(0 if right else taken, 0, -taken if right else 0, 0)
            painter.setFont(self.row_style.small_font)
            middle = Qt.TextElideMode.ElideMiddle
            painter.drawText(room, int(side), painter.fontMetrics().elidedText(model, middle, room.width()))
        painter.end()


class RuleRow(RowWidget):
    """A thin line."""

    def fit(self, width: int) -> int:
        return self.gap + 1

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.row_style is not None:
            painter = QPainter(self)
            painter.fillRect(0, self.gap, self.width(), 1, self.row_style.colours.line)
            painter.end()


class WaitingRow(RowWidget):
    """Three dots until the first word of a reply arrives."""

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        self.setAccessibleName(_("Waiting for the reply"))

    def fit(self, width: int) -> int:
        return self.gap + self.row_style.px(1.3) if self.row_style else 0

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.row_style is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.row_style.colours.muted)
        size = self.row_style.em * 0.26
        for dot in range(3):
            painter.drawEllipse(QRectF(dot * size * 2, self.gap + self.row_style.em * 0.5, size, size))
        painter.end()


class ThoughtRow(RowWidget):
    """The head of a thought: a button that folds and unfolds it."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self._words = ""
        self.button = QToolButton(self)
        self.button.setAutoRaise(True)
        self.button.setCursor(Qt.CursorShape.PointingHandCursor)
        self.button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.button.clicked.connect(lambda: self.signals.folded.emit(self.row))
        self.watch(self.button)

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        muted = style.colours.muted.name()
        self.button.setFont(style.small_font)
        self.button.setIcon(tinted("chevron-down" if row.open else "chevron-right", muted, muted))
        side = round(style.em * 0.9)
        self.button.setIconSize(QSize(side, side))
        self._words = row.text
        hide, show = _("Hide thoughts"), _("Show thoughts")
        if row.item.call is not None:
            hide, show = _("Hide arguments and result"), _("Show arguments and result")
        self.button.setToolTip(hide if row.open else show)
        self.button.setAccessibleName(
            _("{text} (shown)", text=row.text) if row.open else _("{text} (hidden)", text=row.text)
        )

    def fit(self, width: int) -> int:
        self.button.setText(self._words)
        out = round(self.button.sizeHint().height() * 0.28)
        beside = self.button.sizeHint().width() - self.button.fontMetrics().horizontalAdvance(self._words)
        self.button.setText(wrapped_lines(self._words, self.button.font(), width - beside))
        hint = self.button.sizeHint()
        wide = min(width, hint.width())
        self.button.setGeometry(
            width - wide + out if self.isRightToLeft() else -out, self.gap, wide, hint.height()
        )
        return self.gap + hint.height()


class MoreRow(RowWidget):
    """Below what is shown of a very long message: a button that shows more of it."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self.button = QPushButton(self)
        self.button.clicked.connect(lambda: self.signals.more_requested.emit(self.row))
        self.watch(self.button)

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        self.button.setFont(style.small_font)
        self.button.setText(row.text)

    def fit(self, width: int) -> int:
        hint = self.button.sizeHint()
        self.button.setGeometry(
            (width - min(width, hint.width())) // 2, self.gap, min(width, hint.width()), hint.height()
        )
        return self.gap + hint.height()


class NoticeRow(DocumentRow):
    """A sentence that the reader should see, on a tinted background."""

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        self.document.renew(style.small_font)
        self.document.setPlainText(row.text)
        self.setAccessibleName(_("Notice: {text}", text=row.text))

    def _padding(self) -> int:
        return self.row_style.px(0.5) if self.row_style else 0

    def fit(self, width: int) -> int:
        return super().fit(width - 3 * self._padding()) + 2 * self._padding()

    def origin(self) -> QPointF:
        return QPointF(self._padding() * 1.5, self.gap + self._padding())

    def paint_ground(self, painter: QPainter, exposed: QRect) -> None:
        if self.row_style is None:
            return
        box = QRectF(0, self.gap, self.width(), self.height() - self.gap)
        colours = self.row_style.colours
        paint_box(painter, box, self.row_style.px(0.4), colours.notice, colours.outline)
