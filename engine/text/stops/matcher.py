"""Stop strings and stop expressions over a stream of text chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from engine.lazy_dataclass import dataclass
from engine.text.stops.regex import LONGEST_MATCH, Expression


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A match: `reason` is "stop_string" or "stop_regex", `text` the match, `pattern` what matched."""

    reason: str
    text: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Released:
    """Text that is final, and the stop found at its end or right after it (None if there is none)."""

    text: str
    matched: StopMatch | None


@dataclass(frozen=True, slots=True)
class _Found:
    """A match text[start:end]; the earliest wins, ties go to the longest."""

    start: int
    end: int
    reason: str
    pattern: str


class _Finder(Protocol):
    """One kind of search.

    It is stateless: the caller keeps the first index at which a match may still begin.
    """

    def advance(self, text: str, start: int) -> tuple[int, _Found | None]:
        """Search from `start`: the first index at which a match may still begin, and the match if certain."""
        ...

    def last(self, text: str, start: int) -> _Found | None:
        """The first match from `start` in a complete text."""
        ...


def _earliest(found: Iterable[_Found | None]) -> _Found | None:
    return min(
        (match for match in found if match is not None),
        key=lambda match: (match.start, -match.end),
        default=None,
    )


class _Strings:
    """Stop strings, all in one search."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = tuple(strings)
        self._sorted = sorted(self._strings)
        self._first = frozenset(string[0] for string in self._strings)
        self._longest = max(map(len, self._strings))

    def advance(self, text: str, start: int) -> tuple[int, _Found | None]:
        match = self.last(text, start)
        # An unfinished candidate that begins no later than the match could still win by its start or length.
        first = max(start, len(text) - self._longest + 1)
        for at in range(first, match.start + 1 if match is not None else len(text)):
            if text[at] in self._first and self._goes_on(text[at:]):
                return at, None
        return (match.start, match) if match is not None else (len(text), None)

    def last(self, text: str, start: int) -> _Found | None:
        found = [
            (at, -len(string), string) for string in self._strings if (at := text.find(string, start)) >= 0
        ]
        if not found:
            return None
        at, size, string = min(found)
        return _Found(at, at - size, "stop_string", string)

    def _goes_on(self, tail: str) -> bool:
        """Whether `tail` begins a longer stop string; in sorted order those come right after it."""
        i = bisect_right(self._sorted, tail)
        return i < len(self._sorted) and self._sorted[i].startswith(tail)


class _Regex:
    """One stop expression."""

    def __init__(self, pattern: str) -> None:
        self._expression = Expression(pattern)

    def advance(self, text: str, start: int) -> tuple[int, _Found | None]:
        at, span = self._expression.advance(text, start)
        return at, self._found(span)

    def last(self, text: str, start: int) -> _Found | None:
        return self._found(self._expression.last(text, start))

    def _found(self, span: tuple[int, int] | None) -> _Found | None:
        return None if span is None else _Found(*span, "stop_regex", self._expression.pattern)


@dataclass(frozen=True, slots=True)
class _State:
    """`text` from somewhat before the first held character; the first `shown` characters of it are released.

    For each finder, the first index at which a match may still begin, and its match.
    """

    text: str
    shown: int
    starts: tuple[int, ...]
    found: tuple[_Found | None, ...]
    matched: StopMatch | None


class StopMatcher:
    """Finds the earliest match of `strings` and `patterns` in chunks of text; ties go to the longest.

    The result equals that of a search of the whole text: the matcher waits while a longer string with the
    same beginning or a longer match of an expression is possible. Matches of an expression are nonempty and
    at most `LONGEST_MATCH` characters long: a longer attempt is decided as if the text ended there, so no
    more than that is held back. Otherwise only the end of the text that could still become, or belong to, a
    match is held. A chunk costs its length plus the held text, for each string and expression. After a match
    nothing more is released; `matched` is the match, even if only the end of the text decided it. With `keep`
    the match itself is released.

    Raises `BadSetting` for an invalid expression, and while matching for one that takes more than a second.
    """

    def __init__(self, strings: Iterable[str], patterns: Iterable[str] = (), *, keep: bool = False) -> None:
        texts = dict.fromkeys(string for string in strings if string)
        expressions = dict.fromkeys(pattern for pattern in patterns if pattern)
        self._finders: tuple[_Finder, ...] = (
            *((_Strings(texts),) if texts else ()),
            *map(_Regex, expressions),
        )
        self._keep = keep
        count = len(self._finders)
        self._state = _State("", 0, (0,) * count, (None,) * count, None)

    @property
    def matched(self) -> StopMatch | None:
        """What ended the text; None so far."""
        return self._state.matched

    @property
    def held(self) -> str:
        """The text that is not yet released."""
        return self._state.text[self._state.shown :]

    def feed(self, text: str) -> Released:
        """Feed a chunk; returns the text that is now final, without what follows the stop."""
        state = self._state
        if state.matched is not None:
            return Released("", None)
        if not self._finders:
            return Released(text, None)
        whole = state.text + text
        starts, found = list(state.starts), list(state.found)
        for i, finder in enumerate(self._finders):
            if found[i] is None:
                starts[i], found[i] = finder.advance(whole, starts[i])
        first = _earliest(found)
        # A finder that may still match at or before the start of this match could win.
        open_at = min(
            (start for start, match in zip(starts, found, strict=True) if match is None), default=len(whole)
        )
        if first is not None and open_at > first.start:
            return self._fire(whole, state.shown, first)
        self._keep_state(whole, open_at, starts, found)
        return Released(whole[state.shown : open_at], None)

    def finish(self) -> str:
        """End the text: returns what was held, up to a stop that was waiting for a longer match."""
        state = self._state
        if state.matched is not None or not self._finders:
            return ""
        known = zip(self._finders, state.starts, state.found, strict=True)
        found = [match or finder.last(state.text, start) for finder, start, match in known]
        first = _earliest(found)
        if first is not None:
            return self._fire(state.text, state.shown, first).text
        self._state = _State("", 0, (0,) * len(found), tuple(found), None)
        return state.text[state.shown :]

    def snapshot(self) -> object:
        """The current state for `restore`; immutable and cheap to keep."""
        return self._state

    def restore(self, snapshot: object) -> None:
        """Return to a `snapshot` of this matcher."""
        assert isinstance(snapshot, _State)
        self._state = snapshot

    def _fire(self, text: str, shown: int, match: _Found) -> Released:
        matched = StopMatch(match.reason, text[match.start : match.end], match.pattern)
        self._state = _State("", 0, (), (), matched)
        return Released(text[shown : match.end if self._keep else match.start], matched)

    def _keep_state(self, text: str, cut: int, starts: list[int], found: list[_Found | None]) -> None:
        """Keep the held text and enough before it for look-behind in expressions."""
        drop = max(0, cut - LONGEST_MATCH)
        moved = tuple(
            None if m is None else replace(m, start=m.start - drop, end=m.end - drop) for m in found
        )
        self._state = _State(text[drop:], cut - drop, tuple(start - drop for start in starts), moved, None)
