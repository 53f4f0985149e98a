"""The heads of thoughts on the screen get their exact times from the tokens of their messages."""

from __future__ import annotations

from collections.abc import Callable

from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript.message_list import Conversation
from desktop.views.transcript.row_pool import Stage
from desktop.views.transcript.rows import RowKind
from desktop.views.transcript.thinking import seconds_of

__all__ = ["fill_times"]


def fill_times(conversation: Conversation, stage: Stage, trace: Callable[[int], TokenTrace | None]) -> bool:
    """Ask once for each head, and once more when its thought is over; tells whether rows have changed."""
    changed = False
    for row in [row for row in stage.live if row.kind is RowKind.THOUGHT]:
        message = conversation.message_of(row)
        state = (row.ordinal, row.until > 0)
        if state in message.thoughts.asked:
            continue
        message.thoughts.asked.add(state)
        found = trace(row.item.id)
        seconds = seconds_of(row, found) if found is not None else None
        if seconds is not None:
            message.thoughts.put(row.ordinal, seconds)
            conversation.sync(conversation.position(row.item.id))
            changed = True
    return changed
