"""The shortest way to complete a text of a grammar, found byte by byte.

A grammar only says what it allows next, so this is a search, cheapest first; a byte costs 1. Two histories
that lead to the same state of a JSON text count as equally good: the later one waits, but is not dropped.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from engine.constraint.closing import JsonPlace, Path
from engine.constraint.grammar_source import GrammarSource
from engine.constraint.llguidance_tokens import ByteWords

if TYPE_CHECKING:
    from llguidance import LLTokenizer

MOST_STEPS = 20_000
"""Places that one search looks at (10 to 50 microseconds each)."""
MIN_STEPS = 500
"""Where another way is known a search that failed halves what the next such one looks at, to no less than
this; a good one adds it.
"""
GIVEN_UP: ContextVar[threading.Event | None] = ContextVar("given up", default=None)
"""Once this is set, the searches of a thread end and find nothing."""
_SHORT = 100
"""Searches that go on from more places than this run one at a time, so that other work has cores."""
_POLL_SECONDS = 0.02
_NEVER = threading.Event()
_one_at_a_time = threading.Lock()
_TURN = 16
"""One way in this many is one that had to wait."""
_MANY = 24
"""Where more bytes than this are allowed, most of them wait."""
_NAMES = 12
"""Where no more bytes than this are allowed in a property's name, each may lead to another property."""
_TRIED_FIRST = b'a1023456789AbTZz.:-_@/ "'
"""These come first, of letters one of which many make a token, and 1 before 0: there is no year, month or
day 0.
"""
_TURN_OF_BYTE = np.array([_TRIED_FIRST.find(byte) % 256 for byte in range(256)])
_BLANKS, _CLOSING = b" \t\r\n", b"]}"
_CONTROLS = bytes(byte for byte in (*range(32), 127) if byte != 0x0A)
_LATE = 8
"""Control characters, which nobody expects in a text, wait for paths that are this many bytes longer."""


@cache
def _byte_tokenizer() -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(cast("TokenizerWrapper", ByteWords()), slices=[])


class _Way(NamedTuple):
    """The end of one path of the search: what may come next, and whether the text is complete. Of equally
    long paths, the one that continues the latest comes first, by the byte tried first (`number`).
    """

    cost: int
    number: tuple[int, int]
    data: bytes
    place: JsonPlace
    allowed: list[int]
    complete: bool


class Completer:
    """Follows one text of a grammar, `extend` and `cut`, and finds how it can be completed.

    Used by one thread at a time.
    """

    def __init__(self, source: GrammarSource) -> None:
        self._source = source
        self._text = bytearray()
        self._ahead = b""  # what the matcher has been given beyond the text
        self._unused = source.matcher(_byte_tokenizer())
        self._matcher = self._unused.deep_copy()
        self._patience = MOST_STEPS

    def follow(self, length: int, data: bytes) -> None:
        """Set the text to its first `length` bytes, followed by `data`."""
        if length == len(self._text) and not data:
            return
        self._move(b"")
        if length < len(self._text):
            if not self._matcher.rollback(len(self._text) - length):
                self._renew()
            del self._text[length:]
        self._text += data
        if data and not self._matcher.consume_tokens(list(data)):
            self._renew()

    def completes(self, data: bytes) -> bool:
        """Whether the text is complete with `data` after it."""
        return self._valid(data) and self._move(data) and self._matcher.is_accepting()

    def shortest(self, after: bytes, place: JsonPlace, known: bytes | None = None) -> bytes | None:
        """What completes the text once `after` follows it; None if nothing is found. `place` is the state
        after `after`.

        What was `known` to complete the text before is used again if it still does. Otherwise the search
        gives up ever sooner while it keeps failing: with a large grammar, each token would cost a search.
        """
        if not self._valid(after):
            return None
        if known is None:
            return self._searched(after, place, MOST_STEPS)
        if self.completes(after + known):
            return known
        found = self._searched(after, place, self._patience)
        self._patience = (
            max(self._patience // 2, MIN_STEPS)
            if found is None
            else min(self._patience + MIN_STEPS, MOST_STEPS)
        )
        return found

    def _searched(self, after: bytes, place: JsonPlace, most: int) -> bytes | None:
        """What `_search` finds, unless the thread's searches are given up before."""
        given_up = GIVEN_UP.get() or _NEVER
        with ExitStack() as alone:
            for count, found in enumerate(self._search(after, place, most)):
                if found is not None:
                    return found
                if count == _SHORT:
                    while not _one_at_a_time.acquire(timeout=_POLL_SECONDS):
                        if given_up.is_set():
                            return None
                    alone.callback(_one_at_a_time.release)
                if given_up.is_set():
                    return None
        return None

    def _search(self, after: bytes, place: JsonPlace, most: int) -> Iterator[bytes | None]:
        """Search paths by their lengths; now and then one of those that wait. Yields None before each place
        that it looks at, and what it finds at the end.
        """
        first = self._way(after, place, (0, 0))
        ways, waiting, seen, passed = (
            [first] if first is not None else [],
            list[_Way](),
            set[tuple[object, ...]](),
            set[Path](),
        )
        steps = expanded = 0
        while (ways or waiting) and steps < most:
            yield None
            expanded += 1
            turn = not ways or (waiting and expanded % _TURN == 0)
            way = heapq.heappop(waiting if turn else ways)
            if way.complete:
                yield way.data[len(after) :]
                return
            path = way.place.path
            if not turn and passed and any(path[:depth] in passed for depth in range(1, len(path) + 1)):
                heapq.heappush(waiting, way)  # another way has got beyond this value
                continue
            if not self._move(way.data):
                return
            allowed = way.allowed
            if len(allowed) > _MANY and allowed[0] in _TRIED_FIRST:
                heapq.heappush(
                    waiting, way._replace(allowed=[byte for byte in allowed if byte not in _TRIED_FIRST])
                )
                allowed = [byte for byte in allowed if byte in _TRIED_FIRST]
            for i, byte in enumerate(allowed):
                steps += 1
                letter = bytes((byte,))
                place = way.place.after(letter) if self._source.is_json else way.place
                found = self._way(way.data + letter, place, (-expanded, i))
                if found is None:
                    return
                if byte in _CONTROLS and not found.complete:
                    found = found._replace(cost=found.cost + _LATE)
                stands = place.key if len(way.allowed) <= _NAMES else place._replace(name=b"").key
                key = (
                    stands if self._source.is_json else len(found.data),
                    found.complete,
                    bytes(found.allowed),
                )
                new = key not in seen
                heapq.heappush(ways if new else waiting, found)
                if new:
                    seen.add(key)
                    if path and path != place.path and len(place.path) <= len(path) and byte in b",]}":
                        passed.add(path)

    def _way(self, data: bytes, place: JsonPlace, number: tuple[int, int]) -> _Way | None:
        """What follows `data`; None if the grammar is too complex."""
        if not self._move(data):
            return None
        complete = self._matcher.is_accepting()
        allowed = self._allowed()
        if allowed is not None and self._source.is_json:
            allowed = _sensible(allowed, place)
        return None if allowed is None else _Way(len(data), number, data, place, allowed, complete)

    def _allowed(self) -> list[int] | None:
        """The bytes that may follow; None if the grammar is too complex."""
        from llguidance.numpy import fill_next_token_bitmask

        bits = np.zeros((1, 9), np.int32)
        fill_next_token_bitmask(self._matcher, bits)
        if self._matcher.is_error():
            stuck = "NoExtension" in self._matcher.get_error()
            self._renew()
            return [] if stuck else None
        allowed = np.flatnonzero(np.unpackbits(bits[0, :8].view(np.uint8), bitorder="little"))
        return list(allowed[np.argsort(_TURN_OF_BYTE[allowed], kind="stable")].tolist())

    def _valid(self, data: bytes) -> bool:
        """Whether `data` may follow the text."""
        if 0xFF in data:
            return False
        if data.startswith(self._ahead):
            rest = data[len(self._ahead) :]
        else:
            self._move(b"")
            rest = data
        return not rest or self._matcher.validate_tokens(list(rest)) == len(rest)

    def _move(self, ahead: bytes) -> bool:
        """Move the matcher to after the text and `ahead`; False if it cannot."""
        here = self._ahead
        if here == ahead:
            return not self._matcher.is_error()
        same = _common(here, ahead)
        moved = same == len(here) or self._matcher.rollback(len(here) - same)
        moved = moved and (same == len(ahead) or self._matcher.consume_tokens(list(ahead[same:])))
        self._ahead = ahead
        if not moved:
            self._renew()
        return moved

    def _renew(self) -> None:
        """Put a new matcher after the text: a matcher does not recover from an error."""
        self._ahead = b""
        self._matcher = self._unused.deep_copy()
        self._matcher.consume_tokens(list(self._text))


def _sensible(allowed: list[int], place: JsonPlace) -> list[int]:
    """The allowed bytes of a JSON text that make it short: to close what can be closed is shortest."""
    if place.in_string:
        if 0x22 in allowed and not place.escaped:
            return [0x22]
        return [byte for byte in allowed if byte < 0x80 and byte != 0x5C] or allowed
    closing = [byte for byte in allowed if byte in _CLOSING]
    return closing or [byte for byte in allowed if byte not in _BLANKS] or allowed


def _common(one: bytes, other: bytes) -> int:
    """The length of the common prefix."""
    if other.startswith(one) or one.startswith(other):
        return min(len(one), len(other))
    low, high = 0, min(len(one), len(other)) - 1  # equal up to `low`, not up to `high` + 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
