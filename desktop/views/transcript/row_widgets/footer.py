"""The row below a message: its buttons, which version is shown, a few figures, and when it was written."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QRect, Qt
from PySide6.QtGui import QFontMetrics, QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from desktop.services.engine.reply_record import spoken
from desktop.services.system.language import when_text
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.row_widgets.context import RowContext
from desktop.views.transcript.rows import Row
from desktop.views.transcript.style import Style
from desktop.views.widgets.icons import IconButton
from engine.words import N_, _, translate

__all__ = ["FooterRow"]

_ACTIONS = (
    ("previous", "chevron-left", N_("Previous version")),
    ("next", "chevron-right", N_("Next version")),
    ("copy", "copy", N_("Copy message")),
    ("speak", "speak", N_("Read aloud")),
    ("edit", "edit", N_("Edit message")),
    ("regenerate", "regenerate", N_("Regenerate the reply. Hold Shift to generate several.")),
    ("continue", "continue", N_("Continue the reply")),
    ("fork", "fork", N_("Fork from here into a new chat")),
    ("origin", "info", N_("Reply details")),
    ("delete", "trash", N_("Delete message")),
)
_VARIANTS = ("previous", "next")
_REPLY_ONLY = ("regenerate", "continue", "origin")


class _Action(IconButton):
    """A button that the keyboard always reaches, but that is only visible while `shown` or focused."""

    def __init__(self, name: str, icon: str, label: str, parent: QWidget) -> None:
        super().__init__(icon, label, parent)
        self.name, self._label = name, label
        self.shown = False
        self.cost: Callable[[], str] = lambda: ""

    def event(self, event: QEvent) -> bool:
        """Make the tooltip when it is needed: the cost of an edit changes with every reply."""
        if event.type() == QEvent.Type.ToolTip and self.name == "edit":
            self.setToolTip("\n".join(filter(None, (self._label, self.cost()))))
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.shown or self.hasFocus():
            super().paintEvent(event)


class FooterRow(RowWidget):
    """Its buttons emit actions."""

    def __init__(self, context: RowContext) -> None:
        super().__init__(context)
        self._shown = False
        self._written = self._described = ""
        self._top = self._end = self._used = 0  # of the last line of buttons
        self.buttons = {name: _Action(name, icon, translate(label), self) for name, icon, label in _ACTIONS}
        for button in self.buttons.values():
            button.clicked.connect(self._clicked)
            self.watch(button)
        self._offered = context.offered
        words = context.edit_words
        self.buttons["edit"].cost = lambda: words(self.row.item.id) if self.row is not None else ""

    def _clicked(self) -> None:
        button = self.sender()
        if isinstance(button, _Action) and self.row is not None:
            name, shift = button.name, Qt.KeyboardModifier.ShiftModifier
            if name == "regenerate" and QGuiApplication.keyboardModifiers() & shift:
                name = "several"
            self.signals.action.emit(name, self.row.item.id)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.ActivationChange:
            self._say_when()

    def reveal(self, shown: bool) -> None:
        self._say_when()
        if shown != self._shown:
            self._shown = shown
            self._paint_buttons()

    def _paint_buttons(self) -> None:
        for name, button in self.buttons.items():
            button.shown = self._shown or name in _VARIANTS
            button.update()
        self.update()

    def show_row(self, row: Row, style: Style, fresh: bool) -> None:
        item = row.item
        variant = (
            _(
                "Version {variant_index} of {variant_count}",
                variant_index=item.variant_index + 1,
                variant_count=item.variant_count,
            )
            if item.variant_count > 1
            else ""
        )
        figures = spoken(item.footer).replace(" · ", ", ")
        self._described = ", ".join(part for part in (figures, variant) if part) or _("Message actions")
        self._say_when()
        for name, button in self.buttons.items():
            shown = item.variant_count > 1 if name in _VARIANTS else not (item.running and name != "copy")
            if name not in self._offered or (name in _REPLY_ONLY and item.role != "assistant"):
                shown = False
            if not shown:
                self.yield_focus(button)
            button.setVisible(shown)
            button.setFont(style.small_font)
        self.buttons["previous"].setEnabled(item.variant_index > 0 and not item.running)
        self.buttons["next"].setEnabled(item.variant_index < item.variant_count - 1 and not item.running)
        self._paint_buttons()

    def _say_when(self) -> None:
        """What was written today was written yesterday once the window is looked at after midnight."""
        if self.row is None:
            return
        item, before = self.row.item, self._written
        self._written = when_text(item.written_at) if item.written_at > 0 and not item.running else ""
        self.setAccessibleName(", ".join(part for part in (self._described, self._written) if part))
        if self._written != before:
            self.update()

    def _variant(self) -> str:
        item = self.row.item if self.row else None
        return (
            f"{item.variant_index + 1}/{item.variant_count}"
            if item is not None and item.variant_count > 1
            else ""
        )

    def fit(self, width: int) -> int:
        """The buttons in a line, or several where it is too narrow; those of the versions stay together."""
        if self.row_style is None or self.row is None:
            return 0
        side, number = self.row_style.px(1.6), self._number_width()
        lines: list[list[_Action]] = [[]]
        for button in (each for each in self.buttons.values() if not each.isHidden()):
            if lines[-1] and button.name != "next" and self._taken(lines[-1], side) + side > width:
                lines.append([])
            lines[-1].append(button)
        self._top = self.gap
        for line in lines:
            self._used = self._taken(line, side)
            x = self._start(width, self._used, side)
            for button in line:
                if button.name == "next":
                    x += number
                button.setGeometry(x, self._top, side, side)
                x += side
            self._end = x
            self._top += side
        self._top -= side
        return self._top + side

    def _taken(self, line: list[_Action], side: int) -> int:
        """Pixels that a line of buttons takes, with the number of the version between two of them."""
        between = any(button.name in _VARIANTS for button in line)
        return side * len(line) + (self._number_width() if between else 0)

    def _start(self, width: int, taken: int, side: int) -> int:
        """Where a line of buttons begins; the pictures of those at the left are below the text."""
        return width - taken if self._at_right() else -round(side * 0.14)

    def _at_right(self) -> bool:
        """Whether the row is at the right: below the user's messages, or below the others in right-to-left
        layouts.
        """
        return self.row is not None and (self.row.item.role == "user") != self.isRightToLeft()

    def _number_width(self) -> int:
        return (
            QFontMetrics(self.row_style.small_font).horizontalAdvance(self._variant()) + 4
            if self.row_style and self._variant()
            else 0
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.row_style is None or self.row is None:
            return
        painter = QPainter(self)
        painter.setFont(self.row_style.small_font)
        painter.setPen(self.row_style.colours.muted)
        # the coordinates below are for both directions
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        high = self.height() - self._top
        if self._variant():
            before = self.buttons["previous"].geometry()
            painter.drawText(
                QRect(before.right() + 1, before.top(), self._number_width(), before.height()),
                int(Qt.AlignmentFlag.AlignCenter),
                self._variant(),
            )
        words = " · ".join(part for part in (self.row.item.footer, self._written) if part)
        if words and (self._shown or self.row.item.running):
            if self._at_right():
                room = QRect(0, self._top, self.width() - self._used - 6, high)
                side = Qt.AlignmentFlag.AlignRight
            else:
                room = QRect(self._end + 8, self._top, self.width() - self._end - 8, high)
                side = Qt.AlignmentFlag.AlignLeft
            metrics = QFontMetrics(self.row_style.small_font)
            shown = metrics.elidedText(words, Qt.TextElideMode.ElideRight, room.width())
            painter.drawText(room, int(Qt.AlignmentFlag.AlignVCenter | side), shown)
        painter.end()
