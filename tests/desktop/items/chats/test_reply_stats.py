"""The figures of replies for a plot."""

from __future__ import annotations

from desktop.items.chats.reply_stats import ReplyStats, figures
from desktop.store.conversations.records import StoredMessage


def message(number: int, role: str = "assistant", **stats: object) -> StoredMessage:
    return StoredMessage(number, 1, None, role, "", "complete", 0.0, {"stats": stats} if stats else {})


def test_the_first_token_is_no_part_of_the_speed() -> None:
    path = (
        message(1, "user", new_tokens=9),
        message(2, new_tokens=11, decode_seconds=2.0, first_token_seconds=0.5),
        message(3, new_tokens=1, decode_seconds=2.0),
        message(4, new_tokens=5, decode_seconds=0.0, drafted_tokens=8, accepted_tokens=6),
        message(5, new_tokens=0, decode_seconds=1.0),
        message(6),
        message(7, new_tokens="many"),
    )
    assert figures(path) == (ReplyStats(2, 5.0, 0.5), ReplyStats(3, 0.0, 0.0), ReplyStats(4, 0.0, 0.0, 0.75))
