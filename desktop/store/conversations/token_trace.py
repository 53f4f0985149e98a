"""The tokens of a reply in columns: they grow while it is written, and are small enough to keep for every
reply.

A packed trace is one byte of version and a zlib stream (RFC 1950) of sections, each a little-endian uint32
length and its bytes: the model, the text (UTF-8), the columns of the tokens, the columns of their
alternatives, and the text of each alternative once. Numbers are little-endian and 4 bytes wide, flags and
counts 1 byte: about 60 packed bytes for a token with five alternatives.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate

from desktop.store.provenance.provenance import common_length
from engine.core import Alternative, TokenInfo

__all__ = ["UNKNOWN", "TokenTrace"]

UNKNOWN = -1
"""The id of text whose tokens are not known: it was typed, or written before tokens were kept."""
_VERSION = 1
_DRAFTED, _HEALED = 1, 2
_MOST_ALTERNATIVES = 255


class TokenTrace:
    """Every token of a reply's text, in order.

    `model` is the key of the model that wrote them, empty if there were several. Columns have one entry for
    each token: `ids`; `starts`, the character of the text it begins at; `probabilities` after all sampler
    steps; `raw`, the model's own; `entropies` in nats; `seconds` from the request; `flags`.
    """

    def __init__(self, model: str = "") -> None:
        self.model = model
        self.ids, self.starts = array("i"), array("I")
        self.probabilities, self.raw, self.entropies, self.seconds = (array("f") for _ in range(4))
        self.flags = bytearray()
        self._counts = bytearray()
        self._firsts = array("I")
        self._other_ids, self._other_raw, self._other_final = array("i"), array("f"), array("f")
        self._pieces: dict[int, str] = {}
        self._parts: list[str] = []
        self.length = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def text(self) -> str:
        """The text of all tokens; `length` is its number of characters."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def append(self, token: TokenInfo) -> None:
        """Add one token, with its 255 likeliest alternatives at most."""
        self.extend((token,))

    def extend(self, tokens: Iterable[TokenInfo]) -> None:
        """Add tokens, each with its 255 likeliest alternatives at most."""
        tokens = tuple(tokens)
        self.ids.extend([token.id for token in tokens])
        self.probabilities.extend([token.probability for token in tokens])
        self.raw.extend([token.raw_probability for token in tokens])
        self.entropies.extend([token.entropy for token in tokens])
        self.seconds.extend([token.seconds for token in tokens])
        self.flags.extend([_DRAFTED * token.drafted | _HEALED * token.healed for token in tokens])
        others = [token.alternatives[:_MOST_ALTERNATIVES] for token in tokens]
        counts = [len(found) for found in others]
        self._counts.extend(counts)
        self._firsts.extend(list(accumulate(counts, initial=len(self._other_ids)))[:-1])
        flat = [other for found in others for other in found]
        self._other_ids.extend([other.id for other in flat])
        self._other_raw.extend([other.raw_probability for other in flat])
        self._other_final.extend([other.probability for other in flat])
        for other in flat:
            self._pieces.setdefault(other.id, other.text)
        ends = list(accumulate((len(token.text) for token in tokens), initial=self.length))
        self.starts.extend(ends[:-1])
        self._parts.extend([token.text for token in tokens])
        self.length = ends[-1]

    def token(self, index: int) -> TokenInfo:
        """One token with its alternatives (`top` is not kept). Raises IndexError."""
        first = self._firsts[index]
        others = tuple(
            Alternative(
                self._other_ids[i], self._pieces[self._other_ids[i]], self._other_raw[i], self._other_final[i]
            )
            for i in range(first, first + self._counts[index])
        )
        return TokenInfo(
            self.ids[index], self.text[self.starts[index] : self.end(index)], self.probabilities[index],
            self.raw[index], alternatives=others, entropy=self.entropies[index], drafted=self.drafted(index),
            healed=self.healed(index), seconds=self.seconds[index],
        )  # fmt: skip

    def end(self, index: int) -> int:
        """The character just after a token."""
        return self.starts[index + 1] if index + 1 < len(self.starts) else self.length

    def at(self, character: int) -> int:
        """The token that a character of the text belongs to; -1 outside the text."""
        return bisect_right(self.starts, character) - 1 if 0 <= character < self.length else -1

    def drafted(self, index: int) -> bool:
        """Whether a drafter proposed the token."""
        return bool(self.flags[index] & _DRAFTED)

    def healed(self, index: int) -> bool:
        """Whether the token replaced the last one of the prompt."""
        return bool(self.flags[index] & _HEALED)

    def piece(self, id: int) -> str | None:
        """A token's text for display, where known; bytes that are not a whole character appear as \\xNN."""
        return self._pieces.get(id)

    def ids_before(self, index: int) -> tuple[int, ...] | None:
        """The exact ids of the text before a token; None if they are not known."""
        ids = tuple(self.ids[:index])
        return None if UNKNOWN in ids or any(flags & _HEALED for flags in self.flags[:index]) else ids

    def until(self, count: int) -> TokenTrace:
        return self.part(0, count)

    def part(self, first: int, last: int) -> TokenTrace:
        """A new trace of the tokens from `first` up to, but not including, `last`."""
        copy = TokenTrace(self.model)
        begin, stop = self._start(first), self._start(last)
        copy.ids = self.ids[first:last]
        copy.starts = (
            array("I", (start - begin for start in self.starts[first:last]))
            if begin
            else self.starts[first:last]
        )
        copy.probabilities, copy.raw = self.probabilities[first:last], self.raw[first:last]
        copy.entropies, copy.seconds = self.entropies[first:last], self.seconds[first:last]
        copy.flags, copy._counts = self.flags[first:last], self._counts[first:last]
        others = [
            self._firsts[place] if place < len(self) else len(self._other_ids) for place in (first, last)
        ]
        low, high = others
        copy._firsts = (
            array("I", (place - low for place in self._firsts[first:last]))
            if low
            else self._firsts[first:last]
        )
        copy._other_ids, copy._other_raw = self._other_ids[low:high], self._other_raw[low:high]
        copy._other_final = self._other_final[low:high]
        copy._pieces = dict(self._pieces)
        copy._parts, copy.length = [self.text[begin:stop]], stop - begin
        return copy

    def join(self, other: TokenTrace) -> None:
        """Append all tokens of another trace."""
        count = len(self._other_ids)
        self.ids += other.ids
        self.starts.extend(start + self.length for start in other.starts)
        self.probabilities += other.probabilities
        self.raw += other.raw
        self.entropies += other.entropies
        self.seconds += other.seconds
        self.flags += other.flags
        self._counts += other._counts
        self._firsts.extend(place + count for place in other._firsts)
        self._other_ids += other._other_ids
        self._other_raw += other._other_raw
        self._other_final += other._other_final
        self._pieces = {**other._pieces, **self._pieces}
        self._parts.append(other.text)
        self.length += other.length

    def edited(self, text: str) -> TokenTrace:
        """The trace of `text`, an edit of this one's text; this trace itself if nothing changed.

        Tokens before the first and after the last changed character are kept; what lies between is unknown.
        """
        old = self.text
        if text == old:
            return self
        low = common_length(old, text)
        first = max(0, bisect_right(self.starts, low) - 1) if low < self.length else len(self)
        while 0 < first < len(self) and self.starts[first - 1] == self.starts[first]:
            first -= 1  # parts of a character whose last part is dropped
        while first and self.ids[first - 1] == UNKNOWN:
            first -= 1  # one piece of unknown text, however often it is edited
        same = _same_end(old, text, min(len(old), len(text)) - low)
        last = max(first, bisect_left(self.starts, self.length - same)) if same else len(self)
        while last < len(self) and self.ids[last] == UNKNOWN:
            last += 1
        made, rest = self.part(0, first), self.part(last, len(self))
        between = text[made.length : len(text) - rest.length]
        if between:
            made.append(TokenInfo(UNKNOWN, between, 0.0, 0.0))
        made.join(rest)
        return made

    def chosen(self, index: int, other: Alternative, text: str) -> TokenTrace:
        """A new trace of `text`: this one's up to a token, which one of its alternatives replaces."""
        old, made = self.token(index), self.part(0, index)
        visible, final, raw = text[made.length :], other.probability, other.raw_probability
        made.append(
            TokenInfo(other.id, visible, final, raw, alternatives=old.alternatives, entropy=old.entropy)
        )
        return made

    def _start(self, index: int) -> int:
        return self.starts[index] if index < len(self) else self.length

    def covering(self, text: str) -> TokenTrace:
        """A new trace of all of `text`: this one if the text begins with it, then the rest (or everything) as
        unknown.
        """
        fits = text.startswith(self.text)
        copy = self.until(len(self)) if fits else TokenTrace(self.model)
        rest = text[copy.length :]
        if rest:
            copy.append(TokenInfo(UNKNOWN, rest, 0.0, 0.0))
        return copy

    def branched(self, text: str, ids: tuple[int, ...]) -> TokenTrace:
        """A new trace of `text`, which follows this one and ends with an alternative of the next token.

        `ids` are the exact ids of `text`; where they are empty (not known) or do not fit, what differs is
        unknown.
        """
        count = len(ids) - 1
        if (
            0 <= count < len(self)
            and tuple(self.ids[:count]) == ids[:-1]
            and text.startswith(self.text[: self.starts[count]])
        ):
            old = self.token(count)
            chosen = next((other for other in old.alternatives if other.id == ids[-1]), None)
            if chosen is not None:
                return self.chosen(count, chosen, text)
        same = next(
            (place for place, (a, b) in enumerate(zip(text, self.text, strict=False)) if a != b),
            min(len(text), self.length),
        )
        return self.until(sum(self.end(index) <= same for index in range(len(self)))).covering(text)

    # -- packed

    def pack(self) -> bytes:
        known = list(self._pieces)
        texts = [self._pieces[id].encode("utf-8", "surrogatepass") for id in known]
        sections = [
            self.model.encode(), self.text.encode("utf-8", "surrogatepass"),
            *map(_bytes, self._columns()), bytes(self.flags), bytes(self._counts),
            _bytes(array("i", known)), _bytes(array("I", map(len, texts))), b"".join(texts),
        ]  # fmt: skip
        data = b"".join(struct.pack("<I", len(section)) + section for section in sections)
        return bytes([_VERSION]) + zlib.compress(data, 1)

    @classmethod
    def unpack(cls, data: bytes) -> TokenTrace | None:
        """The trace that `pack` wrote; None if it is damaged or of a newer version."""
        if data[:1] != bytes([_VERSION]):
            return None
        try:
            return cls._filled(_sections(zlib.decompress(data[1:])))
        except (zlib.error, struct.error, ValueError, IndexError):
            return None

    @classmethod
    def _filled(cls, sections: list[bytes]) -> TokenTrace:
        trace = cls(sections[0].decode())
        trace._parts = [sections[1].decode("utf-8", "surrogatepass")]
        trace.length = len(trace._parts[0])
        columns = trace._columns()
        for column, section in zip(columns, sections[2:], strict=False):
            column.frombytes(section)
            _swap(column)
        at = 2 + len(columns)
        trace.flags, trace._counts = bytearray(sections[at]), bytearray(sections[at + 1])
        known, lengths, texts = array("i"), array("I"), sections[at + 4]
        for column, section in ((known, sections[at + 2]), (lengths, sections[at + 3])):
            column.frombytes(section)
            _swap(column)
        place = 0
        for id, length in zip(known, lengths, strict=True):
            trace._pieces[id] = texts[place : place + length].decode("utf-8", "surrogatepass")
            place += length
        whole = {len(column) for column in (*columns[:6], trace.flags, trace._counts)} == {len(trace.ids)}
        if not whole or sum(trace._counts) != len(trace._other_ids):
            raise ValueError("columns of different lengths")
        trace._firsts.extend(list(accumulate(trace._counts, initial=0))[:-1])
        return trace

    def _columns(self) -> tuple[array[int] | array[float], ...]:
        return (
            self.ids, self.starts, self.probabilities, self.raw, self.entropies, self.seconds,
            self._other_ids, self._other_raw, self._other_final,
        )  # fmt: skip


def _same_end(first: str, second: str, most: int) -> int:
    """How many characters two texts share at the end, at most `most`, as `common_length` has it."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        same = (
            first[len(first) - middle : len(first) - low] == second[len(second) - middle : len(second) - low]
        )
        low, high = (middle, high) if same else (low, middle - 1)
    return low


def _swap(column: array[int] | array[float]) -> None:
    if sys.byteorder == "big":
        column.byteswap()


def _bytes(column: array[int] | array[float]) -> bytes:
    copy = column[:]
    _swap(copy)
    return copy.tobytes()


def _sections(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    place = 0
    while place < len(data):
        (length,) = struct.unpack_from("<I", data, place)
        found.append(data[place + 4 : place + 4 + length])
        place += 4 + length
    return found
