"""RWKV's "World" tokenizer: at each byte of a text the longest token that fits, without merges or words.

Sources: the authors' `rwkv_vocab_v20230424.txt`, a line with id, Python literal and number of bytes for each
token from id 1 on; for GGUF files llama.cpp's converter (`convert_hf_to_gguf.py`), which writes the bytes of
each as Python shows them, and "<s>" as token 0, which ends texts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint
from engine.text.tokenizer.definition import byte_level_parts, tokenizer_json, unreachable
from engine.text.tokenizer.definition_check import MOST_IDS
from engine.text.tokenizer.own_kinds.base import OwnKind
from engine.text.tokenizer.rank_files import read_bytes
from engine.text.tokenizer.vocabulary import byte_level_alphabet
from engine.words import _

KIND = "LongestMatch"
TURN_END = b"\n\n"
"""The token after which the other side speaks."""
_MOST_BYTES = 4096
"""Of one token; the longest known has 128."""
_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r"}
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})|\\(.)|([^\\]+)", re.DOTALL)
_BYTE_OF = byte_level_alphabet()
_CHAR_OF = {byte: char for char, byte in _BYTE_OF.items()}


def longest_match_json(tokens: Mapping[int, bytes]) -> dict[str, Any]:
    """A definition whose tokens have these bytes; empty ones and repetitions cannot be written.

    Raises `BadCheckpoint` if a byte has no token of its own.
    """
    vocab: dict[str, int] = {}
    for i, data in tokens.items():
        text = "".join(_CHAR_OF[byte] for byte in data)
        vocab[text if text and text not in vocab else unreachable(i)] = i
    if not all(char in vocab for char in _BYTE_OF):
        raise BadCheckpoint(
            _("The tokenizer lacks a token for some bytes, which it needs; download the model again.")
        )
    parts = byte_level_parts({"type": "ByteLevel"}, False)
    return tokenizer_json({"type": KIND, "vocab": vocab}, **parts)


def unescaped(text: str) -> bytes:
    """The bytes of a token as a GGUF file writes it: as Python shows them between quotes."""
    parts = []
    for match in _ESCAPED.finditer(text):
        byte, escape, plain = match.groups()
        parts.append(
            bytes([int(byte, 16)]) if byte else _ESCAPES.get(escape, escape.encode()) if escape else
            plain.encode()
        )  # fmt: skip
    return b"".join(parts)


def world_tokens(path: Path) -> dict[int, bytes]:
    """The tokens of the original list. Raises `BadCheckpoint`."""
    tokens: dict[int, bytes] = {}
    for line in read_bytes(path).decode("utf-8", "replace").split("\n"):
        if not line.strip():
            continue
        number, _unused, rest = line.partition(" ")
        literal, _unused, size = rest.rstrip().rpartition(" ")
        try:
            value = ast.literal_eval(literal) if len(literal) <= 4 * _MOST_BYTES else None
            data = value.encode() if isinstance(value, str) else value
            if not isinstance(data, bytes) or len(data) != int(size) or not 0 <= int(number) < MOST_IDS:
                raise ValueError("no token")
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise BadCheckpoint(
                _(
                    "{path} has a line that is not a token and its rank; download the file again.",
                    path=path.name,
                )
            ) from error
        tokens[int(number)] = data
    return tokens


class LongestMatch(OwnKind):
    """Encodes with a definition of this kind."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        super().__init__(definition)
        self._ids: dict[bytes, int] = {}
        lengths: dict[bytes, set[int]] = {}
        for text, i in definition["model"]["vocab"].items():
            if all(char in _BYTE_OF for char in text):
                data = bytes(map(_BYTE_OF.__getitem__, text))
                self._ids[data] = i
                lengths.setdefault(data[:2], set()).add(len(data))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
        """The lengths of the tokens that begin with these two bytes, longest first."""

    def _append(self, ids: list[int], text: str) -> None:
        data = text.encode()
        known, lengths, at, end = self._ids, self._lengths, 0, len(data)
        while at < end:
            for length in lengths.get(data[at : at + 2], ()):
                found = known.get(data[at : at + length])
                if found is not None:
                    break
            else:
                found, length = known[data[at : at + 1]], 1
            ids.append(found)
            at += length
