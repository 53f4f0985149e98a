"""The token inspector of a transcript: which messages are shown as tokens, and the popup of the token under
the pointer or cursor.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QPoint, QRect, Qt, Signal

from desktop.items.text.token_words import beginning, visible
from desktop.services.system.debounce import debounce
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript.parts import TranscriptParts
from desktop.views.transcript.row_widgets.base import RowWidget
from desktop.views.transcript.row_widgets.context import RowSignals
from desktop.views.transcript.rows import Row
from desktop.views.transcript.scrolling import Scrolling
from desktop.views.transcript.tokens.colours import TokenView
from desktop.views.transcript.tokens.popup import TokenPopup
from desktop.views.transcript.tokens.row import TokenRow
from desktop.views.widgets.banner import announce
from engine.core import Alternative
from engine.words import _

__all__ = ["TokenInspector"]

_OPEN_MS, _CLOSE_MS = 140, 260


class TokenInspector(QObject):
    """`why_not(trace)` returns why a reply cannot be continued from its middle, and the ids that would end
    it.

    Signals:
        branch(int message, str text, object ids): continue from this beginning as a new version.
    """

    branch = Signal(int, str, object)

    def __init__(
        self,
        parts: TranscriptParts,
        scrolling: Scrolling,
        signals: RowSignals,
        shared: TokenView,
        why_not: Callable[[TokenTrace], tuple[str, frozenset[int]]],
    ) -> None:
        super().__init__(parts.area)
        signals.token_moved.connect(self._cursor_moved)
        signals.token_left.connect(self._cursor_left)
        signals.token_chosen.connect(self._chosen)
        self._parts, self._scrolling, self.shared = parts, scrolling, shared
        self.on = False
        self.popup = TokenPopup(parts.area)
        self.popup.chosen.connect(self._choose)
        self.popup.closed.connect(self._closed)
        self._why_not = why_not
        self._shown: tuple[Row, int] | None = None
        self._target: tuple[Row, int] | None = None
        self._timer = debounce(self, self._change)

    def set_mode(self, mode: str) -> None:
        """Tint by "probability" or "entropy"; "" shows replies as usual. The place on the screen stays."""
        self.close()
        if mode:
            self.shared.mode = mode
        if bool(mode) != self.on:
            self.on = bool(mode)
            place = self._scrolling.place()
            for position, message in enumerate(self._parts.messages.all):
                had = message.trace is not None
                message.inspect(None, inspected=False)
                if had:
                    self._parts.messages.sync(position)
            self._scrolling.stay(place)
            self._parts.view.flush()
        for widget in self._parts.pool.widgets():
            widget.update()
        self._parts.area.viewport().update()

    def load(self, value: int) -> bool:
        """Get the tokens of the messages on the screen that were not asked for yet; returns whether rows
        changed.

        The view is scrolled to `value`, and what is there stays there.
        """
        if not self.on:
            return False
        parts, changed, kept = self._parts, False, self._scrolling.place(value)
        for number in dict.fromkeys(row.item.id for row in parts.pool.live):
            if not parts.messages.rows_of(number):
                continue
            message = parts.messages.message(number)
            if not message.inspected:
                before = message.trace
                message.inspect(parts.view.trace(number) if message.item.role == "assistant" else None)
                if message.trace is not before:
                    parts.messages.sync_message(number)
                    changed = True
        if changed:
            self._scrolling.stay(kept)
        return changed

    # -- the pointer

    def hover(self, row: Row | None, widget: RowWidget | None, point: QPoint) -> None:
        """The pointer is at `point` of a row's widget, or over no row."""
        if not self.on:
            return
        token = widget.token_at(point) if isinstance(widget, TokenRow) else -1
        target = (row, token) if row is not None and token >= 0 else None
        if target == self._target and (self._timer.isActive() or target == self._shown):
            return
        self._target = target
        self._mark(target or self._shown)
        self._timer.start(_OPEN_MS if target is not None and not self.popup.busy() else _CLOSE_MS)

    def press(self, row: Row, widget: RowWidget, point: QPoint) -> None:
        """Show the token that was clicked at once; close the popup for a click anywhere else."""
        token = widget.token_at(point) if self.on and isinstance(widget, TokenRow) else -1
        if token < 0:
            self.close()
        elif self._shown != (row, token) or not self.popup.isVisible():
            self.open(row, token)

    def leave(self) -> None:
        """The pointer has left the transcript."""
        self.hover(None, None, QPoint())

    def _change(self) -> None:
        """Show what the pointer rests on, unless it is in the popup."""
        if self.popup.busy():
            self._timer.start(_CLOSE_MS)
        elif self._target is not None:
            self.open(*self._target)
        else:
            self.close()

    # -- the popup

    def open(self, row: Row, token: int, focus: bool = False) -> None:
        """Show the popup of a token; `focus` gives it the keyboard."""
        widget = self._parts.pool.widget(row)
        if row.trace is None or not isinstance(widget, TokenRow) or not 0 <= token < len(row.trace):
            self.close()
            return
        self._shown = self._target = (row, token)
        self._mark(self._shown)
        why_not, stops = self._why_not(row.trace)
        if not why_not and row.trace.healed(token):
            why_not = _(
                "This token was healed: it replaced the last token of the prompt, so it has no alternatives."
            )
        self.popup.show_token(row.trace.token(token), why_not, stops, self._parts.messages.style)
        self.popup.place(self._area(widget, token), self._parts.area.rect(), self._parts.messages.style)
        if focus:
            self.popup.take_focus()

    def close(self) -> None:
        """Close the popup."""
        self._timer.stop()
        self._shown = self._target = None
        self._mark(None)
        if self.popup.isVisible():
            if self.popup.busy():
                self._parts.area.setFocus(Qt.FocusReason.OtherFocusReason)
            self.popup.hide()

    def follow(self) -> None:
        """Move the popup with its token, and close it when the token is off the screen."""
        if self._shown is None or not self.popup.isVisible():
            return
        row, token = self._shown
        widget = self._parts.pool.widget(row)
        area = (
            self._area(widget, token)
            if isinstance(widget, TokenRow) and self._parts.messages.layout.holds(row)
            else QRect()
        )
        if row.trace is None or area.isEmpty() or not self._parts.area.viewport().geometry().intersects(area):
            self.close()
        else:
            self.popup.place(area, self._parts.area.rect(), self._parts.messages.style)

    def _area(self, widget: TokenRow, token: int) -> QRect:
        """The place of a token in the view."""
        return widget.token_area(token).translated(widget.pos()).translated(self._parts.area.viewport().pos())

    def refresh(self) -> None:
        """Update the open popup after what can be continued may have changed."""
        if self._shown is not None and self.popup.isVisible():
            self.open(*self._shown, focus=self.popup.busy() and not self.popup.underMouse())

    def _closed(self) -> None:
        """Esc in the popup returns the keyboard to the token."""
        shown = self._shown
        self.close()
        widget = self._parts.pool.widget(shown[0]) if shown is not None else None
        if shown is not None and isinstance(widget, TokenRow):
            widget.setFocus(Qt.FocusReason.OtherFocusReason)
            widget.put_cursor(shown[1])

    def _choose(self, other: Alternative) -> None:
        shown = self._shown
        self.close()
        if shown is not None and shown[0].trace is not None:
            self.branch.emit(shown[0].item.id, *beginning(shown[0].trace, shown[1], other))

    def _mark(self, token: tuple[Row, int] | None) -> None:
        marked = (token[0].item.id, token[1]) if token is not None else (0, -1)
        if marked != self.shared.marked:
            self.shared.marked = marked
            for row, widget in self._parts.pool.live.items():
                if row.trace is not None:
                    widget.update()

    # -- the keyboard

    def _cursor_moved(self, row: Row, token: int) -> None:
        """Scroll to the token of the keyboard's cursor and announce it."""
        widget = self._parts.pool.widget(row)
        if token < 0 or row.trace is None or not isinstance(widget, TokenRow):
            return
        if self.popup.isVisible():
            self.close()
        area: QRect = widget.token_area(token).translated(widget.pos())
        bar, high = self._parts.area.verticalScrollBar(), self._parts.area.viewport().height()
        if area.top() < 0:
            bar.setValue(bar.value() + area.top() - 8)
        elif area.bottom() > high:
            bar.setValue(bar.value() + area.bottom() - high + 8)
        announce(
            widget,
            _(
                "{visible}, {raw:.0f} percent",
                visible=visible(row.trace.token(token).text),
                raw=100 * row.trace.raw[token],
            ),
        )

    def _cursor_left(self, row: Row, step: int) -> None:
        """Move the cursor to the next row of the same message, if there is one."""
        rows = self._parts.messages.layout.rows
        beside = row.index + step
        if not 0 <= beside < len(rows) or rows[beside].trace is not row.trace:
            return
        self._scrolling.show_row(rows[beside])
        widget = self._parts.pool.widget(rows[beside])
        if isinstance(widget, TokenRow) and widget.tokens():
            widget.setFocus(Qt.FocusReason.OtherFocusReason)
            widget.put_cursor(widget.tokens()[0] if step > 0 else widget.tokens()[-1])

    def _chosen(self, row: Row, token: int) -> None:
        """Open the popup of a token on which Enter was pressed."""
        self.open(row, token, focus=True)
