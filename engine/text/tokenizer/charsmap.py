"""SentencePiece's character normalisation: a compiled table of replacements, longest match first.

Layout (sentencepiece, src/normalizer.cc): a little-endian uint32 with the size of the trie in bytes, the trie
as a double array of uint32 units (darts-clone), then the replacements as zero-terminated UTF-8 strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from engine.errors import BadCheckpoint
from engine.words import _

_LONGEST = 1024
"""The largest replacement in bytes; NFKC expands a character to at most 33."""


class Charsmap:
    """Replaces characters with `normalize(text)`; `kept` are texts (user-defined tokens) left unchanged.

    Raises `BadCheckpoint`.
    """

    def __init__(self, data: bytes, kept: Iterable[str] = ()) -> None:
        size = int.from_bytes(data[:4], "little")
        if len(data) < 4 or size % 4 or not 1024 <= size <= len(data) - 4:
            raise _broken()
        self._units: list[int] = np.frombuffer(data, "<u4", size // 4, 4).tolist()
        self._texts = data[4 + size :]
        if max(map(len, self._texts.split(b"\0"))) > _LONGEST:
            raise _broken()
        self._kept = re.compile(
            "|".join(map(re.escape, sorted(filter(None, kept), key=len, reverse=True))) or "(?!)"
        )
        root = self._offset(self._units[0])
        # Characters whose first byte begins no entry are skipped in runs, which end at character boundaries.
        begins = {
            byte
            for byte in range(1, 256)
            if root ^ byte < len(self._units) and self._units[root ^ byte] & 0x800000FF == byte
        }
        self._root = root
        self._plain = re.compile(
            b"[" + b"".join(b"\\x%02x" % byte for byte in range(256) if byte not in begins) + b"]+"
        )

    def check(self) -> None:
        """Validate every unit, used or not, for a reader that follows offsets unchecked.

        Raises `BadCheckpoint`.
        """
        try:
            self._texts.decode()
        except UnicodeDecodeError:
            raise _broken() from None
        units = np.array(self._units, np.int64)
        nodes = np.flatnonzero(units >> 31 == 0)
        bases = nodes ^ ((units[nodes] >> 10) << ((units[nodes] & 0x200) >> 6))
        leaves = bases[units[nodes] >> 8 & 1 == 1]
        inside = bool(((bases | 0xFF) < len(units)).all()) and bool((units[leaves] >> 31 == 1).all())
        starts = units[leaves] & 0x7FFFFFFF if inside else np.zeros(0, np.int64)
        whole = inside and bool((starts < len(self._texts)).all()) and self._texts.endswith(b"\0")
        if whole:
            first = np.frombuffer(self._texts, np.uint8)[starts]
            whole = bool((first & 0xC0 != 0x80).all())  # a replacement begins at a character boundary
        if not whole:
            raise _broken()

    @classmethod
    def maybe(cls, data: bytes, kept: Iterable[str] = ()) -> Self | None:
        """The table, or None if `data` is empty."""
        return cls(data, kept) if data else None

    def normalize(self, text: str) -> str:
        """`text` with every match replaced."""
        parts, at = [], 0
        for match in self._kept.finditer(text):
            parts += [self._replaced(text[at : match.start()]), match[0]]
            at = match.end()
        return "".join([*parts, self._replaced(text[at:])])

    def _replaced(self, text: str) -> str:
        data, out, at = text.encode(), bytearray(), 0
        while at < len(data):
            plain = self._plain.match(data, at)
            if plain:
                out += plain[0]
                at = plain.end()
                continue
            length, value = self._longest(data, at)
            if length:
                end = self._texts.find(b"\0", value)
                out += self._texts[value : end if end >= 0 else None]
            else:
                length = _character(data[at])
                out += data[at : at + length]
            at += length
        return out.decode("utf-8", "replace")

    def _longest(self, data: bytes, at: int) -> tuple[int, int]:
        """Bytes of the longest entry that begins at `at` (0 if none does), and its replacement's offset."""
        node, found = self._root, (0, 0)
        for i in range(at, len(data)):
            node ^= data[i]
            if node >= len(self._units) or self._units[node] & 0x800000FF != data[i]:
                break
            unit = self._units[node]
            node ^= self._offset(unit)
            if unit >> 8 & 1 and node < len(self._units):
                found = (i + 1 - at, self._units[node] & 0x7FFFFFFF)
        return found

    @staticmethod
    def _offset(unit: int) -> int:
        return (unit >> 10) << ((unit & 0x200) >> 6)


def _broken() -> BadCheckpoint:
    return BadCheckpoint(
        _(
            "The tokenizer's table of character replacements (precompiled_charsmap) is broken; download "
            "the model again."
        )
    )


def _character(first: int) -> int:
    """The length in bytes of a UTF-8 character with this first byte."""
    return 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


def stored_charsmap(value: Any) -> bytes:
    """The table as GGUF files store it: a list of signed or unsigned bytes, or nothing."""
    try:
        return b"" if value is None else bytes(int(byte) & 0xFF for byte in value)
    except (TypeError, ValueError) as error:
        raise BadCheckpoint(
            _("tokenizer.ggml.precompiled_charsmap is not a list of bytes; download the file again.")
        ) from error
