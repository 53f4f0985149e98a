"""The figures of drafting: tokens per pass of the model, share of accepted drafts, measured speed-up."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from desktop.views.layout.fill import fill
from desktop.views.widgets.progress_bar import progress_bar
from engine.core import Stats
from engine.words import _

__all__ = ["DraftingStats", "speed_words"]

_SAME = 0.03
"""A speed-up within 3 % of one is noise."""


def speed_words(speedup: float, adaptive: bool) -> str:
    """A speed-up in words; 0 is not known yet."""
    if speedup <= 0:
        return _("Speed-up: measuring…")
    if speedup >= 1 + _SAME:
        return (
            _("{speedup:.1f}× the speed without drafting", speedup=speedup)
            if speedup >= 1.1
            else (_("{speedup:.2f}× the speed without drafting", speedup=speedup))
        )
    if speedup > 1 - _SAME:
        return _("Same speed as without drafting")
    return (
        _("Paused: slower than without drafting ({speedup:.2f}×)", speedup=speedup)
        if adaptive
        else _("Slower than without drafting ({speedup:.2f}×)", speedup=speedup)
    )


class DraftingStats(QWidget):
    """Three lines and a bar, updated while a reply is written."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.per_pass, self.kept, self.speed = QLabel(), QLabel(), QLabel()
        self.bar = progress_bar(_("Accepted drafts"), 6)
        self.bar.setRange(0, 1000)
        fill(
            QVBoxLayout(self), self.per_pass, self.bar, self.kept, self.speed, margins=(0, 2, 0, 2), spacing=4
        )
        for label in (self.per_pass, self.kept, self.speed):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setWordWrap(True)
        for label in (self.kept, self.speed):
            label.setProperty("tone", "muted")
        self.show_stats(None, True)

    def show_stats(self, stats: Stats | None, adaptive: bool) -> None:
        """Show the figures of a reply, also while it is being written."""
        drafted = stats is not None and stats.drafted_tokens > 0
        for widget in (self.bar, self.kept, self.speed):
            widget.setVisible(drafted)
        if stats is None or not drafted:
            known = stats is not None and stats.new_tokens > 1
            self.per_pass.setText(
                _("No tokens were drafted in the last reply.")
                if known
                else (_("Statistics appear after the next reply."))
            )
            return
        self.per_pass.setText(
            _("{tokens_per_pass:.1f} tokens per pass of the model", tokens_per_pass=stats.tokens_per_pass)
        )
        self.bar.setValue(round(1000 * stats.acceptance_rate))
        self.kept.setText(
            _(
                "{acceptance_rate:.0f} % of {drafted_tokens:,} drafted tokens accepted",
                acceptance_rate=100 * stats.acceptance_rate,
                drafted_tokens=stats.drafted_tokens,
            )
        )
        self.speed.setText(speed_words(stats.speedup, adaptive))
