"""The page that stands in the place of the transcript while replies are compared."""

from __future__ import annotations

import dataclasses
from functools import partial

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from desktop.blocks import Tag
from desktop.items.models.local_models import model_name
from desktop.services.comparison.columns import MOST, Column, Comparison
from desktop.services.comparison.comparison import ComparisonService
from desktop.services.engine.reply_record import LABEL, footer, notice, spoken
from desktop.services.session.chat_session import ChatSession
from desktop.services.system.debounce import debounce
from desktop.store.attachments.message_format import auto_source
from desktop.store.conversations.records import StoredMessage
from desktop.store.database.database import StoreError
from desktop.views.comparison.column import ComparisonColumn
from desktop.views.layout.fill import fill
from desktop.views.widgets.banner import announce
from desktop.views.widgets.elided_label import ElidedLabel
from desktop.views.widgets.flow_layout import FlowLayout
from desktop.views.widgets.icons import IconButton
from desktop.views.widgets.wrapping_text import WrappingCheckBox
from engine.core import Stats
from engine.units import rate_text
from engine.words import N_, _, dotted, ngettext, translate

__all__ = ["ComparisonPage"]

_PROMPT_CHARACTERS = 120
_MARGIN = 12
_AT_ONCE = 2
"""How many columns are made in one turn of the event loop."""
_STATES = {
    "waiting": N_("Waiting for other replies"), "prefill": N_("Reading the prompt"),
    "answering": N_("Writing"), "stopping": N_("Stopping"),
}  # fmt: skip


class ComparisonPage(QWidget):
    """Shows one comparison of the open chat at a time.

    Signals:
        details_requested(int message): what produced a reply is to be shown.
        kept(object column, bool discarded): this one is shown in the chat now; the others may be discarded.
    """

    details_requested = Signal(int)
    kept = Signal(object, bool)

    def __init__(self, session: ChatSession, comparisons: ComparisonService) -> None:
        super().__init__()
        self._session, self._comparisons = session, comparisons
        self._comparison: Comparison | None = None
        self._stats: dict[int, Stats] = {}
        self._ends: dict[int, str] = {}
        self.columns: list[ComparisonColumn] = []
        self._missing: list[Column] = []
        self._soon = debounce(self, self._make_next)
        self._thinking, self._unfolds = tuple[Tag, ...](), True
        self.setObjectName("comparisonPage")
        self.title = ElidedLabel(bold=True)
        self.discard = WrappingCheckBox(_("Delete the other replies"))
        self.discard.setToolTip(
            _("When you keep a reply, delete the others instead of keeping them as versions")
        )
        self.stop = QPushButton(_("Stop all"))
        self.stop.clicked.connect(self.stop_all)
        self.close_button = IconButton("close", _("Close the comparison"), self)
        self.close_button.clicked.connect(self.leave)
        self._body = QWidget()
        self._body.setObjectName("comparisonColumns")
        self._row = fill(QHBoxLayout(self._body), margins=(_MARGIN, 0, _MARGIN, 8), spacing=8)
        self.area = QScrollArea()
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setWidgetResizable(True)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setWidget(self._body)
        head = fill(
            FlowLayout(), (self.title, 1), self.discard, self.stop, self.close_button,
            margins=(14, 6, 10, 6), spacing=10,
        )  # fmt: skip
        fill(QVBoxLayout(self), head, (self.area, 1), margins=(0, 0, 0, 0), spacing=0)
        for place in range(1, MOST + 1):
            key = QShortcut(QKeySequence(f"Ctrl+{place}"), self)
            key.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            key.activated.connect(partial(self.keep, place))
        comparisons.changed.connect(self._on_changed)
        session.engine_changed.connect(self._show_states)
        session.replies.engine.progress.connect(self._on_progress)
        session.replies.ran.connect(self._on_ran)
        session.replies.changed.connect(self._on_reply_changed)
        session.reply_ended.connect(self._on_ended)

    # -- what it shows

    @property
    def comparison(self) -> Comparison | None:
        """The one that is shown."""
        return self._comparison

    def set_look(self, thinking: tuple[Tag, ...], unfolds: bool) -> None:
        """Find thoughts between these tags, and show them as they come if it `unfolds`."""
        self._thinking, self._unfolds = thinking, unfolds
        for column in self.columns:
            column.transcript.unfold_thoughts(unfolds)
            column.transcript.set_thinking(thinking)

    def show_comparison(self, comparison: Comparison | None) -> None:
        """Show another comparison; None is none."""
        models = self._session.replies.models
        for old in self.columns:
            models.remove(old.messages)
            self._row.removeWidget(old)
            old.hide()
            old.deleteLater()
        self._stats.clear()
        self._ends.clear()
        self._comparison, self.columns = comparison, []
        self._missing = list(comparison.columns) if comparison is not None else []
        self._soon.stop()
        if comparison is None:
            return
        self.title.show_words(self._words(comparison))
        self.setAccessibleName(self.title.words)
        for _unused in range(_AT_ONCE):
            self._make_next()
        self.area.horizontalScrollBar().setValue(0)

    def _make_next(self) -> None:
        """Make the next column; those that follow come in later turns of the event loop, because each takes
        a few milliseconds.
        """
        if not self._missing:
            return
        column, place = self._missing.pop(0), len(self.columns) + 1
        shown = ComparisonColumn(column, place)
        shown.messages.trace = self._session.tokens
        shown.keep_requested.connect(partial(self.keep, place))
        shown.stop_requested.connect(partial(self._stop, column))
        shown.retry_requested.connect(partial(self._try_again, column))
        shown.details_requested.connect(self.details_requested)
        shown.entered.connect(partial(self._emphasise, place))
        self._row.addWidget(shown, 1)
        self._session.replies.models.append(shown.messages)
        self.columns.append(shown)
        shown.emphasise(place == 1)
        self.set_look(self._thinking, self._unfolds)
        self._fit()
        self._show(shown)
        self._show_states()
        if self._missing:
            self._soon.start(0)

    def _emphasise(self, place: int) -> None:
        """Let the button of this column stand out, and of no other."""
        for column in self.columns:
            column.emphasise(column.place == place)

    def focus_target(self) -> QWidget:
        """What gets the keyboard at first."""
        return self.columns[0].transcript if self.columns else self.close_button

    def open_find(self) -> None:
        """Search the reply that has the keyboard, else the first one."""
        focused = QApplication.focusWidget()
        inside = [each for each in self.columns if focused is not None and each.isAncestorOf(focused)]
        for column in (inside or self.columns)[:1]:
            column.transcript.finding.open()

    def _words(self, comparison: Comparison) -> str:
        message = self._read(comparison.answered)
        text = " ".join(auto_source(message.text).split()) if message is not None else ""
        text = text if len(text) <= _PROMPT_CHARACTERS else text[: _PROMPT_CHARACTERS - 1].rstrip() + "…"
        count = len(comparison.columns)
        return (
            ngettext("{n} reply to “{text}”", "{n} replies to “{text}”", count, text=text)
            if text
            else _("Compare replies")
        )

    def _show_all(self) -> None:
        for column in self.columns:
            self._show(column)
        self._show_states()

    def _show(self, shown: ComparisonColumn) -> None:
        """Show a reply as it is in the store, or as far as it has grown."""
        message = self._read(shown.column.message)
        shown.show_column(self._name(shown.column, message))
        if message is None:
            shown.show_item(None)
            return
        unsaved = self._session.replies.unsaved.find(message.id)
        stats = unsaved.stats if unsaved is not None else message.stats
        self._ends[message.id] = footer({**stats, LABEL: ""}) or notice(message) or _("Ended")
        item = self._session.replies.item(message)
        # its figures stand below it, and its other versions beside it
        shown.show_item(dataclasses.replace(item, footer="", variant_index=0, variant_count=1))

    def _name(self, column: Column, message: StoredMessage | None) -> str:
        models = {each.settings.model for each in self._comparison.columns} if self._comparison else set()
        name = model_name(column.settings.model) if len(models) > 1 and column.settings.model else ""
        author = message.author.name if message is not None else ""
        parts = [part for part in (column.label, name, author) if part]
        return dotted(*dict.fromkeys(parts)) or _("Reply")

    def _read(self, message: int) -> StoredMessage | None:
        try:
            return self._session.stores.of(message).message(message) if message else None
        except StoreError:  # of a file that has gone; the session reports it
            return None

    @Slot()
    def _show_states(self) -> None:
        for shown in self.columns:
            self._show_state(shown)
        runs = any(shown.runs for shown in self.columns)
        if not runs and self.stop.hasFocus():
            self.close_button.setFocus()
        self.stop.setVisible(runs)

    def _show_state(self, shown: ComparisonColumn) -> None:
        column, state = shown.column, self._session.replies.engine.state_of(shown.column.message)
        growing = self._session.replies.growing(column.message) is not None
        if growing:
            parts = (translate(_STATES.get(state, N_("Writing"))), self._speed(column.message))
            words = dotted(*parts)
        else:
            words = self._ends.get(column.message, column.words)
        runs = (growing and state != "stopping") or column.waits
        failed = not growing and self._comparisons.has_failed(column)
        shown.show_state(words, runs, bool(column.message), failed)

    def _speed(self, message: int) -> str:
        stats = self._stats.get(message)
        if stats is None or not stats.new_tokens:
            return ""
        tokens = ngettext("{n} token", "{n} tokens", stats.new_tokens)
        speed = stats.decode_tokens_per_second
        return _("{tokens} · {speed} tok/s", tokens=tokens, speed=rate_text(speed)) if speed > 0 else tokens

    def _shown(self, message: int) -> ComparisonColumn | None:
        return next((each for each in self.columns if message and each.column.message == message), None)

    @Slot(int)
    def _on_changed(self, conversation: int) -> None:
        if self._comparison is not None and conversation == self._comparison.conversation:
            self._show_all()

    @Slot(int, str, int, int)
    def _on_progress(self, message: int, stage: str, done: int, total: int) -> None:
        shown = self._shown(message)
        if shown is not None and self._session.replies.engine.state_of(message) == "prefill":
            words = (
                _("{stage}, {done:,} of {total:,}", stage=stage, done=done, total=total) if total else stage
            )
            shown.show_state(words, runs=True, may_keep=True)

    @Slot(int, object)
    def _on_ran(self, message: int, stats: Stats) -> None:
        if (shown := self._shown(message)) is not None:
            self._stats[message] = stats
            self._show_state(shown)

    @Slot(int)
    def _on_reply_changed(self, message: int) -> None:
        if (shown := self._shown(message)) is not None:
            self._show(shown)

    @Slot(int, int)
    def _on_ended(self, _conversation: int, message: int) -> None:
        if (shown := self._shown(message)) is not None:
            self._show(shown)
            self._show_states()
            announce(self, _("Reply {place}: {text}", place=shown.place, text=spoken(shown.words.text())))

    # -- what the user does

    def keep(self, place: int) -> None:
        """Show the `place`-th reply, from 1, in the chat."""
        if self._comparison is None or not 1 <= place <= len(self.columns):
            return
        discard, column = self.discard.isChecked(), self.columns[place - 1].column
        if self._comparisons.keep(self._comparison.conversation, column, discard):
            self.kept.emit(column, discard)

    def stop_all(self) -> None:
        """Stop all replies of the comparison."""
        if self._comparison is not None:
            self._comparisons.stop_all(self._comparison.conversation)

    def leave(self) -> None:
        """Close the comparison: what is written stays as versions of the reply."""
        if self._comparison is not None:
            self._comparisons.close_comparison(self._comparison.conversation)

    def _stop(self, column: Column) -> None:
        if self._comparison is not None:
            self._comparisons.stop(self._comparison.conversation, column)

    def _try_again(self, column: Column) -> None:
        if self._comparison is not None:
            self._comparisons.try_again(self._comparison.conversation, column)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a window that is narrower than a column, show one column at a time."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        for column in self.columns:
            column.fit(self.width() - 2 * _MARGIN, self.height())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc, while nothing runs that it would stop: close the comparison."""
        if event.key() == Qt.Key.Key_Escape:
            self.leave()
        else:
            super().keyPressEvent(event)
