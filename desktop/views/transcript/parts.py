"""What the parts of the transcript share, in the place of the view itself."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from PySide6.QtWidgets import QAbstractScrollArea

from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript.message_list import MessageList
from desktop.views.transcript.row_pool import RowPool
from desktop.views.transcript.rows import Row
from desktop.views.transcript.selection import Selection

__all__ = ["TranscriptParts", "Viewport"]


class Viewport(Protocol):
    """What the parts ask of the transcript that shows them; `offered` are the actions for messages."""

    offered: frozenset[str]

    def schedule(self) -> None:
        """Show what has changed with the next frame."""

    def flush(self) -> None:
        """Show what has changed now."""

    def arrange(self) -> None:
        """Place the rows for the present scroll position."""

    def put_off(self) -> None:
        """Put off what can wait, because the reader scrolls."""

    def pinned(self) -> set[Row]:
        """The rows whose widgets must live on when they are scrolled away."""

    def trace(self, message_id: int) -> TokenTrace | None:
        """The tokens of a message, where they are known."""

    def act(self, name: str, message_id: int) -> None:
        """Copy a message, or ask for another action on it."""


class TranscriptParts(NamedTuple):
    """`area` is the Qt side of `view`: scroll bar, geometry and focus."""

    view: Viewport
    area: QAbstractScrollArea
    messages: MessageList
    pool: RowPool
    selection: Selection
