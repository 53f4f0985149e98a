"""The line at the bottom: the current activity, and the figures of the last reply."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLabel, QProgressBar, QSizePolicy, QWidget

from desktop.services.engine.reply_record import spoken
from desktop.services.system.debounce import debounce
from desktop.views.widgets.text_label import text_label
from engine.core import Stats
from engine.units import rate_text
from engine.words import _

__all__ = ["StatusBar"]

_SHORT_MS = 150
"""What ends sooner shows no bar: a flashing bar is distracting, and its layout delays the first tokens of a
reply.
"""
_SLACK = 12
"""How many pixels wider than its text a figure may stay."""
_MARGIN, _GAP = 18, 16
_WRAPPED = int(Qt.TextFlag.TextWordWrap)


class StatusBar(QWidget):
    """State and progress on the left, figures and tools on the right. In a narrow window the least important
    figures go first, then the tools move below the state, then the destination does, and at last the state
    takes several lines.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("statusLine")
        self._tools: list[QWidget] = []
        self.state = self._figure(_("State"))
        self.destination = self._figure(_("Where messages go"))
        self.bar = QProgressBar()
        self.bar.setAccessibleName(_("Progress"))
        self.bar.setTextVisible(False)
        self.bar.setFixedSize(120, 6)
        self.bar.hide()
        self._lasts = debounce(self, self._show_bar, _SHORT_MS)
        self.reason = self._figure(_("Why the reply ended"))
        self.prompt = self._figure(_("Speed of reading the prompt"))
        self.reply = self._figure(_("Speed of writing the reply"))
        self.drafting = self._figure(
            _("Tokens per pass of the model, and the share of drafted tokens that were accepted")
        )
        self.context = self._figure(_("Tokens in the context"))
        self._by_importance = (self.context, self.reply, self.drafting, self.reason, self.prompt)
        self._below, self._stacked, self._high = False, False, 0
        self._lines = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._lines.setContentsMargins(_MARGIN, 0, _MARGIN, 4)
        self._lines.setSpacing(_GAP)
        self._left, self._right = QBoxLayout(QBoxLayout.Direction.LeftToRight), QHBoxLayout()
        for part in (self._left, self._right):
            part.setSpacing(_GAP)
            self._lines.addLayout(part, int(part is self._right))
        for shown in (self.state, self.destination, self.bar):
            self._left.addWidget(shown, 0, Qt.AlignmentFlag.AlignLeading | Qt.AlignmentFlag.AlignVCenter)
        self._left.addStretch(0)
        self._right.addStretch(1)
        for label in (self.reason, self.prompt, self.reply, self.drafting, self.context):
            self._right.addWidget(label, 0, Qt.AlignmentFlag.AlignVCenter)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def add_tool(self, widget: QWidget) -> None:
        """Add a widget at the end of the line that is visible however narrow the window."""
        self._tools.append(widget)
        self._right.addWidget(widget, 0, Qt.AlignmentFlag.AlignVCenter)
        self._fit()

    def show_tool(self, widget: QWidget, shown: bool) -> None:
        """Show or hide one of these widgets."""
        widget.setVisible(shown)
        self._fit()

    def _figure(self, name: str) -> QLabel:
        label = text_label(tone="muted", plain=True)
        label.setObjectName(name)
        label.setToolTip(name)
        label.hide()
        return label

    def show_state(self, text: str) -> None:
        """Show a state without measurable progress; "" shows nothing."""
        self._lasts.stop()
        self.bar.hide()
        self._write(self.state, text)
        self._fit()

    def show_destination(self, text: str) -> None:
        """Show which server messages go to; "" for none."""
        self._write(self.destination, text)
        self._fit()

    def show_progress(self, text: str, done: int, total: int) -> None:
        """Show a state with `done` of `total`, with a bar if it lasts; for a `total` of 0 or 1 the bar only
        moves.
        """
        self._write(self.state, text)
        # otherwise a new value is painted at once, together with all pending layout
        self.bar.setUpdatesEnabled(False)
        self.bar.setRange(0, 1000 if total > 1 else 0)
        if total > 1:
            self.bar.setValue(min(1000, done * 1000 // total))
        self.bar.setUpdatesEnabled(True)
        if self.bar.isHidden() and not self._lasts.isActive():
            self._lasts.start()
        self._fit()

    @Slot()
    def _show_bar(self) -> None:
        self.bar.show()
        self._fit()

    def show_stats(self, stats: Stats | None, reason: str) -> None:
        """Show the figures of a reply, also while it is written; `reason` is why it ended."""
        prompt = stats.prefill_tokens_per_second if stats else 0
        reply = stats.decode_tokens_per_second if stats else 0
        drafts = stats if stats and stats.drafted_tokens else None
        self._write(self.reason, reason)
        self._write(self.prompt, _("prompt {prompt:,.0f} tok/s", prompt=prompt) if prompt else "")
        self._write(self.reply, _("reply {reply} tok/s", reply=rate_text(reply)) if reply else "")
        self._write(
            self.drafting,
            _(
                "{tokens_per_pass:.1f} per pass, {acceptance_rate:.0f} % accepted",
                tokens_per_pass=drafts.tokens_per_pass,
                acceptance_rate=100 * drafts.acceptance_rate,
            )
            if drafts
            else "",
        )
        self._write(
            self.context,
            _(
                "{context_tokens:,} / {context_length:,} tokens",
                context_tokens=stats.context_tokens,
                context_length=stats.context_length,
            )
            if stats and stats.context_length
            else "",
        )

    def _write(self, label: QLabel, text: str) -> None:
        if text == label.text():
            return
        came_or_went = not text or not label.text()
        label.setText(text)
        label.setAccessibleName(f"{label.objectName()}: {spoken(text)}" if text else label.objectName())
        # A label of fixed size does not report new text to its layout; otherwise each figure would lay out
        # the whole window.
        needed, wide = self._size(label), label.width()
        if came_or_went or not wide - _SLACK <= needed.width() <= wide:
            label.setFixedSize(needed)
            self._fit()

    def _fit(self) -> None:
        """Show each figure that has a text and fits, and the tools beside the state or below it."""
        self.state.setVisible(bool(self.state.text()))
        self.destination.setVisible(bool(self.destination.text()))
        tools = [tool for tool in self._tools if not tool.isHidden()]
        room = self.width() - 2 * _MARGIN
        first = sum(each.width() + _GAP for each in (self.state, self.destination) if each.text())
        if not self.bar.isHidden():
            first += self.bar.width() + _GAP
        self._place(
            first - _GAP > room, first + sum(tool.minimumSizeHint().width() + _GAP for tool in tools) > room
        )
        room -= sum(tool.sizeHint().width() + _GAP for tool in tools) + (0 if self._below else first)
        for label in self._by_importance:
            needed = label.width() + _GAP
            fits = bool(label.text()) and needed <= room
            label.setVisible(fits)
            if fits:
                room -= needed

    def _place(self, stacked: bool, below: bool) -> None:
        """Put the destination below the state (`stacked`) and the tools below both, or beside them."""
        if (stacked, below) != (self._stacked, self._below):
            self._stacked, self._below = stacked, below
            down, right = QBoxLayout.Direction.TopToBottom, QBoxLayout.Direction.LeftToRight
            for lines, parted in ((self._left, stacked), (self._lines, below)):
                lines.setDirection(down if parted else right)
                lines.setSpacing(0 if parted else _GAP)
        high = self.minimumSizeHint().height()
        if high != self._high:  # otherwise each figure would lay out the whole window
            self._high = high
            self.updateGeometry()

    def minimumSizeHint(self) -> QSize:
        """As many lines as there are, and as narrow as the window needs."""
        figures = [each.height() for each in self._by_importance if each.text()]
        line = max([self.fontMetrics().height(), *figures])
        shown = [each.height() for each in (self.state, self.destination) if each.text()] or [line]
        if not self.bar.isHidden():
            shown.append(self.bar.height())
        high = (sum if self._stacked else max)(shown)
        return QSize(0, high + line + 20 if self._below else max(high, line) + 10)

    def sizeHint(self) -> QSize:
        return self.minimumSizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for label in (self.state, self.destination):
            if label.text() and label.size() != self._size(label):
                label.setFixedSize(self._size(label))
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and hasattr(
            self, "_by_importance"
        ):
            for label in (self.state, self.destination, *self._by_importance):
                label.setFixedSize(self._size(label))
            self._fit()

    def _size(self, label: QLabel) -> QSize:
        """The size of the text, in several lines if it is a state that is wider than the window; a label of
        fixed size keeps the size hint of its last text. A line with characters that the font lacks is as
        high as the font that has them.
        """
        label.ensurePolished()
        metrics = label.fontMetrics()
        needed, most = metrics.horizontalAdvance(label.text()) + 2, self.width() - 2 * _MARGIN
        wraps = label in (self.state, self.destination) and 0 < most < needed
        if label.wordWrap() != wraps:
            label.setWordWrap(wraps)
        wide, flags = (most, _WRAPPED) if wraps else (needed, 0)
        return QSize(wide, metrics.boundingRect(0, 0, wide, 1 << 16, flags, label.text()).height())
