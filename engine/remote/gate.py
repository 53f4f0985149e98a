"""Stop conditions that the server lacks, applied here; what may belong to a stop string is held back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from engine.core import Text, TokenInfo
from engine.generator.token_buffer import TokenBuffer, WrittenToken
from engine.remote.tokens import UNKNOWN_ID
from engine.text.stops.conditions import StopRules
from engine.text.stops.loops import LoopWatch
from engine.text.stops.matcher import StopMatcher

_WORDS = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
"""About a token each, where the server does not tell its tokens."""


class Passed(NamedTuple):
    """What may be shown now; `reason` and `trigger` as in `Done` once a condition is met."""

    shown: Text | None
    reason: str = ""
    trigger: str = ""


class Gate:
    """Follows one reply. Times are seconds since any moment."""

    def __init__(self, rules: StopRules) -> None:
        """`rules`: those that are applied here; its token ids are ignored."""
        self._rules = rules
        self._matcher = StopMatcher(rules.strings, rules.patterns, keep=rules.keep_stop)
        self._held = TokenBuffer()
        self._loops = LoopWatch(rules.loops) if rules.loops else None
        self._ids: list[int] = []
        self._units: list[str] = []
        self._numbers: dict[str, int] = {}
        self._rest = ""
        self._deadline = 0.0

    def feed(self, tokens: Sequence[TokenInfo], now: float) -> Passed:
        """Pass on the next tokens of the reply."""
        if not self._deadline and self._rules.time_limit:
            self._deadline = now + self._rules.time_limit
        for token in tokens:
            self._held.add(WrittenToken(token))
        released = self._matcher.feed("".join(token.text for token in tokens))
        if released.matched is not None:
            return Passed(
                _text(released.text, self._held.cut(released.text)),
                released.matched.reason, released.matched.text,
            )  # fmt: skip
        shown = _text(released.text, self._held.release(released.text))
        if self._loops is not None:
            for token in tokens:
                for unit in self._as_units(token):
                    if (loop := self._in_a_loop(unit)) is not None:
                        return self._ended(shown, "loop", loop)
        return self.at(now, shown)

    def at(self, now: float, shown: Text | None = None) -> Passed:
        """`shown`, and the end if the time is up."""
        if self._deadline and now >= self._deadline:
            return self._ended(shown, "time_limit", "")
        return Passed(shown)

    def finish(self) -> Passed:
        """The reply is over: what was held back."""
        rest = self._matcher.finish()
        matched = self._matcher.matched
        tokens = self._held.cut(rest) if matched is not None else self._held.all()
        shown = _text(rest, tokens)
        return Passed(shown, matched.reason, matched.text) if matched is not None else Passed(shown)

    def _ended(self, shown: Text | None, reason: str, trigger: str) -> Passed:
        last = self.finish()
        parts = [part for part in (shown, last.shown) if part is not None]
        whole = Text("".join(part.text for part in parts), tuple(t for part in parts for t in part.tokens))
        return Passed(whole if parts else None, last.reason or reason, last.trigger or trigger)

    def _as_units(self, token: TokenInfo) -> list[str]:
        """What loops are made of: tokens, or words of text without tokens, however it was cut."""
        if token.id != UNKNOWN_ID:
            return [token.text]
        found = _WORDS.findall(self._rest + token.text)
        self._rest = found.pop() if found else ""
        return found

    def _in_a_loop(self, unit: str) -> str | None:
        """The passage that is repeated, once `unit` has come."""
        self._ids.append(self._numbers.setdefault(unit, len(self._numbers)))
        self._units.append(unit)
        assert self._loops is not None
        found = self._loops.find(self._ids, 0)
        return "".join(self._units[-len(found[1]) :]) if found is not None else None


def _text(text: str, tokens: Sequence[WrittenToken]) -> Text | None:
    return Text(text, tuple(token.info for token in tokens)) if text or tokens else None
