"""A file in the user's message as a chip; a click shows its text."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QLabel, QToolButton

from desktop.store.attachments.message_format import kind_of, split
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style
from desktop.views.widgets.icons import tinted
from engine.words import _

__all__ = ["ATTACHMENT_ACTION", "AttachmentRow"]

ATTACHMENT_ACTION = "attachment:"
"""The action that shows a file; the file's number in the message follows."""
_SHORT = 50
_BELOW = 4


class AttachmentRow(RowWidget):
    """A click emits the action `ATTACHMENT_ACTION` with the file's number."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self.button = QToolButton(self)
        self.button.setObjectName("chip")
        self.button.setCursor(Qt.CursorShape.PointingHandCursor)
        self.button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.button.setToolTip(_("Show the text of this file"))
        self.button.clicked.connect(self._clicked)
        self.watch(self.button)
        self.peek = QLabel(self)
        self.peek.setObjectName("peek")
        self.peek.setTextFormat(Qt.TextFormat.PlainText)
        self.peek.setWordWrap(True)
        self.peek.hide()

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        colour = style.colours.text.name()
        self.button.setFont(style.small_font)
        self.button.setIcon(tinted(kind_of(self._name(row)), colour, colour))
        side = round(style.em * 0.8)
        self.button.setIconSize(QSize(side, side))
        self.button.setAccessibleName(_("Attached file {text}", text=row.text))
        self.peek.setFont(style.small_font)
        self.peek.setStyleSheet(
            f"background: {style.colours.notice.name()}; color: {style.colours.text.name()}; border-radius: "
            "6px; padding: 4px 8px;"
        )
        self.peek.setText(row.peek)
        self.peek.setAccessibleName(
            _("Found in {text}: {peek}", text=row.text, peek=row.peek) if row.peek else ""
        )
        self.peek.setVisible(bool(row.peek))
        self.setAccessibleName(_("Attached file {text}", text=row.text))

    @staticmethod
    def _name(row: Row) -> str:
        files, _unused = split(row.source)
        return files[0][1].name if files else row.text

    def fit(self, width: int) -> int:
        if self.row_style is None or self.row is None:
            return 0
        room = round(width * 0.86)
        words = self.button.fontMetrics().elidedText(
            self.row.text, Qt.TextElideMode.ElideMiddle, room - 4 * self.row_style.em
        )
        self.button.setText(words.replace("&", "&&"))
        hint = self.button.sizeHint()
        wide = min(room, hint.width())
        self.button.setGeometry(self._begin(width, wide), self.gap, wide, hint.height())
        high = self.gap + hint.height()
        if not self.row.peek:
            return high
        wide = min(room, self.peek.sizeHint().width() if len(self.row.peek) < _SHORT else room)
        tall = self.peek.heightForWidth(wide)
        self.peek.setGeometry(self._begin(width, wide), high + _BELOW, wide, tall)
        return high + _BELOW + tall

    def _begin(self, width: int, wide: int) -> int:
        """Where something of this width begins, on the side of the user's bubbles."""
        return 0 if self.isRightToLeft() else width - wide

    def _clicked(self) -> None:
        if self.row is not None:
            self.signals.action.emit(f"{ATTACHMENT_ACTION}{self.row.ordinal}", self.row.item.id)
