"""One of the replies that are compared: how it is written, its text while it grows, its figures."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QEnterEvent, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.services.comparison.columns import Column
from desktop.services.engine.reply_record import spoken
from desktop.views.layout.fill import fill
from desktop.views.transcript import TranscriptView
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.text_label import set_styled, text_label
from desktop.views.widgets.wrapping_text import WrappingButton
from engine.words import _

__all__ = ["ComparisonColumn"]

_OFFERED = frozenset(("copy", "origin"))
_WIDTH = 42
"""The least width, in average characters."""
_LOW, _LINES, _LINES_IF_LOW = 14, 5, 4
"""Lines: a page of less is low; the least height of the text, and in a low page."""


class ComparisonColumn(QFrame):
    """Shows `column`, which is the `place`-th from 1; `messages` is the item model of its reply, and
    `runs` whether it can be stopped.

    Signals:
        keep_requested(), stop_requested(), retry_requested()
        details_requested(int message): what produced the reply is to be shown.
        entered(): the mouse or the keyboard came to it.
    """

    keep_requested = Signal()
    stop_requested = Signal()
    retry_requested = Signal()
    details_requested = Signal(int)
    entered = Signal()

    def __init__(self, column: Column, place: int) -> None:
        super().__init__()
        self.column, self.place, self.runs = column, place, False
        self.setObjectName("comparisonColumn")
        self.messages = MessagesModel(self)
        self.title = text_label(tone="heading", plain=True, wraps=True)
        self.stop = IconButton("stop", _("Stop reply {place}", place=place))
        policy = self.stop.sizePolicy()
        policy.setRetainSizeWhenHidden(True)  # the title stays where it is
        self.stop.setSizePolicy(policy)
        self.stop.clicked.connect(self.stop_requested)
        self.transcript = TranscriptView(self.messages, offered=_OFFERED)
        self.transcript.setAccessibleName(_("Reply {place}", place=place))
        # only then a low window shrinks it, and not what is above and below it
        self.transcript.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
        self.transcript.action.connect(self._act)
        self.words = text_label(tone="muted", plain=True, wraps=True)
        self.keep = WrappingButton(_("Keep this reply"))
        self.keep.setAccessibleName(_("Keep reply {place}", place=place))
        self.keep.setToolTip(_("Use this reply in the chat (Ctrl+{place})", place=place))
        self.keep.clicked.connect(self.keep_requested)
        self.retry = QPushButton(_("Retry"))
        self.retry.setAccessibleName(_("Generate reply {place} again", place=place))
        self.retry.clicked.connect(self.retry_requested)
        self.retry.hide()
        for part in (self.transcript, self.keep, self.retry, self.stop):
            part.installEventFilter(self)
        top = Qt.AlignmentFlag.AlignTop
        head = fill(QHBoxLayout(), (self.title, 1), margins=(12, 8, 8, 4), spacing=6)
        head.addWidget(self.stop, 0, top)
        buttons = fill(QHBoxLayout(), (self.keep, 1), self.retry, spacing=6)
        self._foot = fill(
            QBoxLayout(QBoxLayout.Direction.TopToBottom), (self.words, 1), margins=(12, 6, 12, 8), spacing=6
        )
        self._foot.addLayout(buttons)
        self._parts = fill(
            QVBoxLayout(self), head, (self.transcript, 1), self._foot, margins=(1, 1, 1, 1), spacing=0
        )

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:
            self._fit_height()
        return done

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_height()

    def _fit_height(self) -> None:
        """Be as high as the wrapped texts need; a scroll area asks for no height at a width."""
        self.setMinimumHeight(self._parts.totalMinimumHeightForWidth(self.width()))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The frame shows that the transcript has the focus: it has none of its own."""
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            came = event.type() == QEvent.Type.FocusIn
            if watched is self.transcript:
                set_styled(self, "within", "focused" if came else "")
            if came:
                self.entered.emit()
        return False

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self.entered.emit()

    def emphasise(self, on: bool) -> None:
        """Let its button stand out: that of one column does."""
        set_styled(self.keep, "tone", "primary" if on else "")

    def fit(self, width: int, height: int) -> None:
        """Be wide enough to read, but not wider than this; in a low page the button is beside the words."""
        line = self.fontMetrics().lineSpacing()
        low = height < _LOW * line
        self._foot.setDirection(QBoxLayout.Direction.LeftToRight if low else QBoxLayout.Direction.TopToBottom)
        self.transcript.setMinimumHeight((_LINES_IF_LOW if low else _LINES) * line)
        self.setMinimumWidth(min(width, _WIDTH * self.fontMetrics().averageCharWidth()))

    def show_column(self, name: str) -> None:
        """Show how the reply is written; `name` says it, and by which model or persona."""
        self.title.setText(f"{self.place}. {name}")
        self.setAccessibleName(_("Reply {place}: {name}", place=self.place, name=name))

    def show_item(self, item: MessageItem | None) -> None:
        """Show the reply as it is now; None if it has not been begun."""
        shown = self.messages.items()
        if item is None:
            self.messages.reset(())
        elif not shown:
            self.messages.append(item)
        elif shown[0] != item:
            self.messages.replace(shown[0].id, item)

    def show_state(self, words: str, runs: bool, may_keep: bool, failed: bool = False) -> None:
        """Say what the reply does, or how it ended; `runs`: it can be stopped; `failed`: tried again."""
        if words != self.words.text():
            self.words.setText(words)
            self.words.setAccessibleName(spoken(words))
        self.runs = runs
        self.keep.setEnabled(may_keep)
        if not runs and self.stop.hasFocus():
            self.keep.setFocus()
        if not failed and self.retry.hasFocus():
            self.transcript.setFocus()
        self.retry.setVisible(failed)
        self.stop.setVisible(runs)

    def _act(self, name: str, message: int) -> None:
        if name == "origin":
            self.details_requested.emit(message)
