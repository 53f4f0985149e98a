"""Reads the conversations in a JSON file one by one (elements of an array, or values on lines), in bounded
memory.

A general streaming parser stops at the first error. Here each entry is cut out by its brackets and parsed on
its own, so that a damaged one is reported with its place and reading continues at the next. Grammar: RFC
8259, with NaN and Infinity as Python writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator
from typing import Any

from engine.lazy_dataclass import dataclass
from engine.units import size_text
from engine.words import _

__all__ = ["MOST_BYTES", "Entry", "Flaw", "json_entries"]

CHUNK = 1 << 18
MOST_BYTES = 128 << 20
"""A larger entry is refused: it must fit into memory, several times over once it is parsed."""
DEEPEST = 200

# One match covers everything between two brackets; possessive, so it never backtracks and needs no memory.
_BETWEEN = re.compile(
    rb'(?:[\s,:]++|"(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+"|[0-9.eE+\-]++|true|false|null|NaN|Infinity)*+'
)
_STRING = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+')
_SPACE = re.compile(rb"[\s,]*+")
_LINE = re.compile(rb"\n(?=[{\[])")
_FIRST_KEY = re.compile(rb'\{\s*("(?:[^"\\\x00-\x1f]){0,64}")\s*:')
_LONGEST_WORD = 16  # a literal cut off by the end of the buffer is shorter
_OVERLAP = 1024
_OPEN = {0x7D: 0x7B, 0x5D: 0x5B}


@dataclass(frozen=True, slots=True)
class Entry:
    """One value and a description of its place; `end` is the offset of the byte after it."""

    place: str
    value: Any
    end: int


@dataclass(frozen=True, slots=True)
class Flaw:
    """A stretch up to `end` that could not be read."""

    place: str
    reason: str
    end: int


class _Bad(Exception):
    """Invalid JSON: `at` is the index in the buffer where it shows."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


def json_entries(
    read: Callable[[int], bytes], accepts: Callable[[Any], bool], most_bytes: int = MOST_BYTES
) -> Iterator[Entry | Flaw | int]:
    """Entries and flaws in the bytes that `read(count)` returns; an int in between is the number of bytes
    read so far.

    `accepts` says whether a value is a conversation: after a flaw, reading resumes at the next one that is.
    """
    return _Reader(read, accepts, most_bytes).entries()


class _Reader:
    """The bytes from `_at` to the end of the buffer are still to be read; only `_advance` discards any."""

    def __init__(self, read: Callable[[int], bytes], accepts: Callable[[Any], bool], most_bytes: int) -> None:
        self._read, self._accepts, self._most = read, accepts, most_bytes
        self._buffer = bytearray()
        self._at = 0
        self._before = 0  # bytes discarded so far
        self._line = 1
        self._count = 0
        self._in_array = self._ended = False
        self._first_key = b""

    def entries(self) -> Iterator[Entry | Flaw | int]:
        while len(self._buffer) < 3 and not self._ended:
            yield from self._fill()
        if self._buffer.startswith(b"\xef\xbb\xbf"):
            self._advance(3)
        while (yield from self._skip_space()):
            byte = self._buffer[self._at]
            if byte == (0x5D if self._in_array else 0x5B):
                self._in_array, self._count = not self._in_array, 0
                self._advance(self._at + 1)
            else:
                yield from self._one(byte)
        if self._in_array:
            yield Flaw(
                self._place(self._count + 1),
                _("the file ends in the middle of its list"),
                self._before + self._at,
            )

    def _one(self, byte: int) -> Iterator[Entry | Flaw | int]:
        """The value that begins here, or what is wrong with it; afterwards the reader is at the next one."""
        self._count += 1
        place = self._place(self._count)
        try:
            if byte not in b"{[":
                raise _Bad(_("this is not a JSON object"), self._at)
            end = yield from self._end()
            value = self._value(end)
        except _Bad as bad:
            flaw = Flaw(place, str(bad), self._before + bad.at)
            yield from self._recover()
            yield flaw
            return
        if byte == 0x7B and not self._first_key and (key := _FIRST_KEY.match(self._buffer, self._at)):
            self._first_key = bytes(key.group(1))
        self._advance(end)
        yield Entry(place, value, self._before + self._at)

    def _recover(self) -> Generator[int, None, None]:
        """Continue at the next line that begins a value or, in a list, at the next conversation."""
        if not self._in_array:
            yield from self._find(_LINE, self._at)
            return
        key = re.escape(self._first_key) if self._first_key else rb'"[^"\\\x00-\x1f]{0,64}"'
        pattern = re.compile(rb"\{\s*" + key + rb"\s*:")
        start = self._at + 1
        while (yield from self._find(pattern, start)):
            try:
                end = yield from self._end()
                if self._accepts(self._value(end)):
                    return
                start = end  # a part of what is broken
            except _Bad as other:
                start = max(other.at, self._at + 1)
        self._in_array = False  # the end of the list was passed, or is missing: what is reported covers it

    def _find(self, pattern: re.Pattern[bytes], start: int) -> Generator[int, None, bool]:
        """Advance to the next match at or after `start`, else to the end of the file."""
        while (found := pattern.search(self._buffer, start)) is None:
            self._advance(len(self._buffer) if self._ended else max(start, len(self._buffer) - _OVERLAP))
            if self._ended:
                return False
            yield from self._fill()
            start = self._at
        self._advance(found.end() if pattern is _LINE else found.start())
        return True

    def _end(self) -> Generator[int, None, int]:
        """The index after the object or list at `_at`. Raises `_Bad` as soon as it cannot be JSON."""
        at = place = self._at
        stack = bytearray()
        while True:
            found = _BETWEEN.match(self._buffer, place)
            place = found.end() if found else place
            if place < len(self._buffer):
                byte = self._buffer[place]
                if byte in b"{[":
                    self._check_open(stack, at, place)
                    stack.append(byte)
                    place += 1
                    continue
                if byte in b"}]":
                    if stack.pop() != _OPEN[byte]:
                        raise _Bad(
                            _(
                                "a “{bracket}” does not match the open bracket (byte {before:,})",
                                bracket=chr(byte),
                                before=self._before + place,
                            ),
                            place,
                        )
                    place += 1
                    if not stack:
                        return place
                    continue
                if byte == 0x22:
                    place = yield from self._end_of_string(place + 1)
                    continue
                if self._ended or len(self._buffer) - place > _LONGEST_WORD:
                    raise _Bad(
                        _("this is not valid JSON at byte {before:,}", before=self._before + place), place
                    )
            yield from self._more()

    def _check_open(self, stack: bytearray, at: int, place: int) -> None:
        """In an object a bracket follows a colon, in a list a comma; otherwise a closing one is missing."""
        if not stack:
            return
        before = place - 1
        while before > at and self._buffer[before] in b" \t\r\n":
            before -= 1
        if self._buffer[before] not in (b":" if stack[-1] == 0x7B else b"[,"):
            raise _Bad(_("something is missing before byte {before:,}", before=self._before + place), place)
        if len(stack) >= DEEPEST:
            raise _Bad(_("it is nested more than {deepest} levels deep", deepest=DEEPEST), place)

    def _end_of_string(self, place: int) -> Generator[int, None, int]:
        while True:
            found = _STRING.match(self._buffer, place)
            place = found.end() if found else place
            if place < len(self._buffer) - 1 or (place < len(self._buffer) and self._buffer[place] != 0x5C):
                if self._buffer[place] != 0x22:
                    raise _Bad(
                        _("a string is not closed (byte {before:,})", before=self._before + place), place
                    )
                return place + 1
            yield from self._more()

    def _more(self) -> Generator[int, None, None]:
        if self._ended:
            raise _Bad(_("the file is incomplete"), len(self._buffer))
        if len(self._buffer) - self._at > self._most:
            raise _Bad(_("it is larger than {size}", size=size_text(self._most)), len(self._buffer))
        yield from self._fill()

    def _value(self, end: int) -> Any:
        try:
            return json.loads(str(memoryview(self._buffer)[self._at : end], "utf-8"))
        except UnicodeDecodeError as error:
            raise _Bad(
                _("the text is not UTF-8 at byte {before:,}", before=self._before + self._at + error.start),
                end,
            ) from error
        except json.JSONDecodeError as error:
            why = _(
                "{msg}{msg_2} at character {pos:,} of it",
                msg=error.msg[:1].lower(),
                msg_2=error.msg[1:],
                pos=error.pos + 1,
            )
            raise _Bad(_("this is not valid JSON: {why}", why=why), end) from error
        except (ValueError, RecursionError) as error:  # a number of thousands of digits
            raise _Bad(_("it holds a number that is too long"), end) from error

    def _place(self, count: int) -> str:
        return (
            _("entry {count:,} (byte {before:,})", count=count, before=self._before + self._at)
            if self._in_array
            else _("line {line:,}", line=self._line)
        )

    def _skip_space(self) -> Generator[int, None, bool]:
        """Advance to the next significant byte; False at the end of the file."""
        while True:
            found = _SPACE.match(self._buffer, self._at)
            self._advance(found.end() if found else self._at)
            if self._at < len(self._buffer):
                return True
            if self._ended:
                return False
            yield from self._fill()

    def _fill(self) -> Generator[int, None, None]:
        data = self._read(CHUNK)
        self._ended = not data
        self._buffer += data
        yield self._before + len(self._buffer)

    def _advance(self, to: int) -> None:
        if not self._in_array:
            self._line += self._buffer.count(b"\n", self._at, to)
        self._at = to
        if to >= CHUNK:
            del self._buffer[:to]
            self._before += to
            self._at = 0
