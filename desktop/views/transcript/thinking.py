"""How long a model thought: measured meanwhile, or read from the times of the reply's tokens."""

from __future__ import annotations

from time import perf_counter

from desktop.store.conversations.token_trace import UNKNOWN, TokenTrace
from engine.words import _, ngettext

__all__ = ["ThoughtTimes", "duration", "seconds_of"]


def duration(seconds: float) -> str:
    """In words: "less than a second", "1 second", "48 seconds", "2 min 5 s"."""
    whole = round(seconds)
    if whole < 1:
        return _("less than a second")
    if whole < 60:
        return ngettext("{n} second", "{n} seconds", whole)
    minutes, rest = divmod(whole, 60)
    return (
        _("{minutes} min {rest} s", minutes=minutes, rest=rest)
        if rest
        else _("{minutes} min", minutes=minutes)
    )


def seconds_of(trace: TokenTrace, start: int, until: int) -> float | None:
    """Seconds between the first and the last token of the thought from character `start` to `until` (0 while
    it grows); None where their times are not known.
    """
    first, last = trace.at(start), trace.at(until or trace.length - 1)
    if first < 0 or last < 0 or UNKNOWN in (trace.ids[first], trace.ids[last]):
        return None
    passed = trace.seconds[last] - trace.seconds[first]
    return passed if passed >= 0 else None  # written in two requests, each with its own clock


class ThoughtTimes:
    """The seconds of the thoughts of one message by their numbers.

    `asked` holds the thoughts whose tokens were asked for, and whether they were over.
    """

    def __init__(self) -> None:
        self.asked: set[tuple[int, bool]] = set()
        self._known: dict[int, float] = {}
        self._since: dict[int, float] = {}

    def see(self, ordinal: int, over: bool) -> None:
        """The thought grows, or is `over`; it is timed if it was seen to grow."""
        now = perf_counter()
        if not over:
            self._since.setdefault(ordinal, now)
        elif ordinal in self._since:
            self._known[ordinal] = now - self._since.pop(ordinal)

    def put(self, ordinal: int, seconds: float) -> None:
        """Set the exact time of a thought, up to now if it still grows."""
        if ordinal in self._since:
            self._since[ordinal] = perf_counter() - seconds
        else:
            self._known[ordinal] = seconds

    def label(self, ordinal: int, running: bool) -> str:
        """The text of the thought's head."""
        if running:
            passed = perf_counter() - self._since.get(ordinal, perf_counter())
            return (
                _("Thinking for {duration}", duration=duration(passed)) if passed >= 1.5 else _("Thinking…")
            )
        known = self._known.get(ordinal)
        return _("Thought for {duration}", duration=duration(known)) if known is not None else _("Thoughts")
