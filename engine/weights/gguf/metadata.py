"""The metadata of a GGUF header: typed values, read with bounded time and memory.

Layout, little endian: key as string, value type u32, value. A string is a u64 length and UTF-8 bytes; an
array is the element type u32, a u64 count and the elements. Source: the ggml project's `docs/gguf.md`,
versions 2 and 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint
from engine.weights.file import ModelFile
from engine.weights.gguf.ollama import known_name
from engine.words import _

_SCALARS = {
    0: struct.Struct("<B"), 1: struct.Struct("<b"), 2: struct.Struct("<H"), 3: struct.Struct("<h"),
    4: struct.Struct("<I"), 5: struct.Struct("<i"), 6: struct.Struct("<f"), 7: struct.Struct("<?"),
    10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d"),
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_U32, _U64 = _SCALARS[4], _SCALARS[10]

_MAX_KEY_BYTES = (1 << 16) - 1
_MAX_KEYS = 1 << 16
_MAX_STRINGS = 1 << 23
"""Strings in all arrays together; the largest vocabularies with merges have less than a million."""
_MAX_NUMBERS = 1 << 24
"""Numbers in all arrays together."""
_MAX_DEPTH = 4
_MAX_SENTENCE = 400


_FIRST_BYTES = 1 << 18
_MAX_HEADER_BYTES = 1 << 28
"""Real headers, vocabularies included, have about 20 MB."""


class Cursor:
    """Reads forward through the header of one file; every read is checked against the file's end.

    `buffer` holds what was read so far; `end` is the file's size.
    """

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.file_name = known_name(file.path)
        self.end = file.size
        self.buffer = b""
        self.at = 0
        self.strings_left, self.numbers_left = _MAX_STRINGS, _MAX_NUMBERS
        self.need(1)

    def need(self, upto: int) -> None:
        """Read until the buffer holds the file's first `upto` bytes; `upto` is at most `end`."""
        have = len(self.buffer)
        if upto <= have:
            return
        if upto > _MAX_HEADER_BYTES:
            raise self.fail(
                _("the header needs more than {max_header_bytes} bytes", max_header_bytes=_MAX_HEADER_BYTES)
            )
        target = min(max(upto, 2 * have, _FIRST_BYTES), self.end)
        self.buffer += self.file.read(have, target - have, _("its header")).tobytes()

    def fail(self, text: str) -> BadCheckpoint:
        """The error to raise, with the file's name, what was found, and advice."""
        if len(text) > _MAX_SENTENCE:  # a hostile name may be long
            text = text[: _MAX_SENTENCE // 2] + " ... " + text[-_MAX_SENTENCE // 2 :]
        return BadCheckpoint(
            _(
                "{file_name}: {text}; the file is truncated or damaged. Download it again.",
                file_name=self.file_name,
                text=text,
            )
        )

    def skip(self, count: int, what: str) -> int:
        """Skip `count` bytes; returns where they begin."""
        start = self.at
        if count > self.end - start:
            raise self.fail(
                _(
                    "{what} needs {count} bytes at byte {start}, but the file has {end} bytes",
                    what=what,
                    count=count,
                    start=start,
                    end=self.end,
                )
            )
        self.need(start + count)
        self.at = start + count
        return start

    def scalar(self, kind: int, what: str) -> Any:
        """A number or bool of value type `kind`."""
        layout = _SCALARS[kind]
        start = self.skip(layout.size, what)
        return layout.unpack_from(self.buffer, start)[0]

    def u32(self, what: str) -> int:
        return int(self.scalar(4, what))

    def u64(self, what: str) -> int:
        return int(self.scalar(10, what))

    def text(self, what: str, most: int | None = None, *, lenient: bool = False) -> str:
        """A string of at most `most` bytes. `lenient`: U+FFFD stands for what is not UTF-8."""
        size = self.u64(what)
        if most is not None and size > most:
            raise self.fail(
                _(
                    "{what} is {size} bytes long at byte {at}, at most {most} were expected",
                    what=what,
                    size=size,
                    at=self.at,
                    most=most,
                )
            )
        start = self.skip(size, what)
        try:
            return self.buffer[start : start + size].decode("utf-8", "replace" if lenient else "strict")
        except UnicodeDecodeError as error:
            raise self.fail(_("{what} at byte {start} is not UTF-8 text", what=what, start=start)) from error


class _Later:
    """An array that is not decoded yet: where its elements begin, their number and their type."""

    __slots__ = ("at", "count", "kind")

    def __init__(self, at: int, count: int, kind: int) -> None:
        self.at, self.count, self.kind = at, count, kind


class GgufMetadata(Mapping[str, Any]):
    """The keys of a GGUF file as Python values; an array is decoded into a list on first access.

    The constructor moves `cursor` past the last value. Raises `BadCheckpoint`.
    """

    def __init__(self, cursor: Cursor, count: int) -> None:
        if count > min(_MAX_KEYS, (cursor.end - cursor.at) // 13):  # an entry has at least 13 bytes
            raise cursor.fail(
                _("the header claims {count} metadata entries, more than can be in it", count=count)
            )
        self._cursor = cursor
        self._values: dict[str, Any] = {}
        for index in range(count):
            key = cursor.text(_("the name of metadata entry {index}", index=index), _MAX_KEY_BYTES)
            if key in self._values:
                raise cursor.fail(_("the metadata key {key!r} occurs twice", key=key))
            self._values[key] = _read_value(cursor, key)

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, _Later):
            value = self._values[key] = self._read_array(key, value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _read_array(self, key: str, later: _Later) -> list[Any]:
        self._cursor.at = later.at
        return _decode_array(self._cursor, key, later.kind, later.count)


def _read_value(cursor: Cursor, key: str) -> Any:
    kind = cursor.u32(_("the type of metadata key {key!r}", key=key))
    what = _("the value of metadata key {key!r}", key=key)
    if kind == _STRING:
        return cursor.text(what, lenient=True)  # a description may be cut within a letter
    if kind == _ARRAY:
        return _skip_array(cursor, key, 1)
    if kind not in _SCALARS:
        raise cursor.fail(
            _(
                "metadata key {key!r} has the value type {kind}, a type from 0 to 12 was expected",
                key=key,
                kind=kind,
            )
        )
    return cursor.scalar(kind, what)


def _array_head(cursor: Cursor, key: str) -> tuple[int, int]:
    kind, count = (
        cursor.u32(_("the array type of metadata key {key!r}", key=key)),
        cursor.u64(_("the array length of metadata key {key!r}", key=key)),
    )
    if kind not in _SCALARS and kind not in (_STRING, _ARRAY):
        raise cursor.fail(
            _(
                "metadata key {key!r} is an array of the value type {kind}, a type from 0 to 12 was expected",
                key=key,
                kind=kind,
            )
        )
    return kind, count


def _skip_array(cursor: Cursor, key: str, depth: int) -> _Later:
    """Check an array's bounds and skip it without decoding its elements."""
    kind, count = _array_head(cursor, key)
    later = _Later(cursor.at, count, kind)
    if kind in _SCALARS:
        if count > cursor.numbers_left and count * _SCALARS[kind].size <= cursor.end - cursor.at:
            raise cursor.fail(
                _(
                    "the arrays up to metadata key {key!r} hold more than {max_numbers} numbers",
                    key=key,
                    max_numbers=_MAX_NUMBERS,
                )
            )
        cursor.skip(count * _SCALARS[kind].size, _("the array of metadata key {key!r}", key=key))
        cursor.numbers_left -= count
        return later
    least = 8 if kind == _STRING else 12
    if count > min(cursor.strings_left, (cursor.end - cursor.at) // least):
        raise cursor.fail(
            _(
                "metadata key {key!r} claims an array of {count} entries, more than can be in the file",
                key=key,
                count=count,
            )
        )
    cursor.strings_left -= count
    if kind == _STRING:
        _skip_strings(cursor, key, count)
    elif depth == _MAX_DEPTH:
        raise cursor.fail(
            _(
                "metadata key {key!r} holds arrays within arrays more than {max_depth} deep",
                key=key,
                max_depth=_MAX_DEPTH,
            )
        )
    else:
        for _unused in range(count):
            _skip_array(cursor, key, depth + 1)
    return later


def _skip_strings(cursor: Cursor, key: str, count: int) -> None:
    unpack, at, end = _U64.unpack_from, cursor.at, cursor.end
    buffer, have = cursor.buffer, len(cursor.buffer)
    for _unused in range(count):
        if at + 8 > have:
            if at + 8 > end:
                break
            cursor.need(at + 8)
            buffer, have = cursor.buffer, len(cursor.buffer)
        at += 8 + unpack(buffer, at)[0]
    else:
        if at <= end:
            cursor.need(at)
            cursor.at = at
            return
    raise cursor.fail(
        _("the texts of metadata key {key!r} go past the end of the file at byte {end}", key=key, end=end)
    )


def _decode_array(cursor: Cursor, key: str, kind: int, count: int) -> list[Any]:
    """The elements at the cursor, whose bounds `_skip_array` has checked."""
    if kind == _STRING:
        return _texts(cursor, count)
    if kind == _ARRAY:
        nested = []
        for _unused in range(count):
            inner_kind, inner_count = _array_head(cursor, key)
            nested.append(_decode_array(cursor, key, inner_kind, inner_count))
        return nested
    layout = _SCALARS[kind]
    start = cursor.skip(count * layout.size, _("the array of metadata key {key!r}", key=key))
    return list(np.frombuffer(cursor.buffer, np.dtype(layout.format), count, start).tolist())


def _texts(cursor: Cursor, count: int) -> list[str]:
    """The strings at the cursor, whose bounds `_skip_strings` has checked. U+FFFD stands for what is not
    UTF-8: a vocabulary may hold a few such tokens, and llama.cpp reads it too.
    """
    unpack, at, buffer = _U64.unpack_from, cursor.at, cursor.buffer
    texts = []
    for _unused in range(count):
        start = at + 8
        at = start + unpack(buffer, at)[0]
        texts.append(buffer[start:at].decode("utf-8", "replace"))
    cursor.at = at
    return texts
