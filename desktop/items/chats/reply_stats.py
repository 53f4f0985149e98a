"""The figures of a chat's replies in order, for a plot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from desktop.store.conversations.records import StoredMessage

__all__ = ["ReplyStats", "figures"]


class ReplyStats(NamedTuple):
    """One reply: tokens per second, seconds to the first token, and the share of accepted draft tokens (None:
    nothing was drafted).
    """

    message: int
    speed: float
    first: float
    kept: float | None = None


def figures(path: Iterable[StoredMessage]) -> tuple[ReplyStats, ...]:
    """The figures of all replies on a path that have any."""
    found = []
    for message in path:
        stats = message.stats.get("stats") if message.role == "assistant" else None
        if not isinstance(stats, dict):
            continue
        new, seconds, drafted = (
            _number(stats.get(name)) for name in ("new_tokens", "decode_seconds", "drafted_tokens")
        )
        if new > 0:
            speed = (new - 1) / seconds if seconds > 0 else 0.0
            kept = _number(stats.get("accepted_tokens")) / drafted if drafted else None
            found.append(ReplyStats(message.id, speed, _number(stats.get("first_token_seconds")), kept))
    return tuple(found)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
