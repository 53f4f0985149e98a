"""What a reply was made from: its exact prompt and all circumstances, packed relative to the previous reply.

Packed, it is one byte of version and a zlib stream (RFC 1950), whose preset dictionary is the circumstances
of the base, of sections, each a little-endian uint32 length and its bytes: the circumstances (JSON), the
prompt's ids after the common prefix, its passes, the negative prompt's ids, its passes (all int32), and the
tokens that the base does not have.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from engine.core import Rendered
from engine.lazy_dataclass import dataclass

__all__ = ["Provenance", "common_length", "pack", "unpack"]

_VERSION = 1
_TOKEN = struct.Struct("<iB?")
_LONGEST = 255


@dataclass(frozen=True)
class Provenance:
    """`prompt` is what the model read; None if the source did not report it.

    `facts` is plain JSON: model, settings, versions, and the number of tokens that the reply already had.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    prompt: Rendered | None = None


def common_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How many elements two tuples, or characters two texts, share at the beginning, by bisection: slices
    compare much faster than elements.
    """
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle - 1)
    return low


def pack(provenance: Provenance, base: Provenance | None = None) -> bytes:
    """The provenance in bytes, which `unpack` reads with the same base."""
    prompt = provenance.prompt or Rendered(())
    known = base.prompt if base is not None and base.prompt is not None else Rendered(())
    common = common_length(prompt.ids, known.ids)
    passes = [*prompt.passes, (), ()][:2]
    head = {
        **provenance.facts,
        "": [provenance.prompt is not None, common, prompt.given, prompt.heal, len(prompt.passes)],
    }
    words = {id: (data, special) for id, data, special in known.vocabulary}
    fresh = [token for token in prompt.vocabulary if words.get(token[0]) != token[1:]]
    sections = (
        _json(head), _numbers(prompt.ids[common:]), _passes(passes[0]), _numbers(prompt.negative_ids),
        _passes(passes[1]),
        b"".join(_TOKEN.pack(id, len(data), special) + data for id, data,
        special in fresh if len(data) <= _LONGEST),
    )  # fmt: skip
    squeezed = _squeezer(base)
    body = b"".join(struct.pack("<I", len(section)) + section for section in sections)
    data: bytes = squeezed.compress(body) + squeezed.flush()
    return bytes([_VERSION]) + data


def unpack(data: bytes, base: Provenance | None = None) -> Provenance | None:
    """The provenance that `pack` wrote; None if it is damaged, of a newer version, or packed against another
    base.
    """
    if data[:1] != bytes([_VERSION]):
        return None
    known = base.prompt if base is not None and base.prompt is not None else Rendered(())
    try:
        opened = zlib.decompressobj(zdict=_json(base.facts)) if base is not None else zlib.decompressobj()
        body = opened.decompress(data[1:])
        head, ids, first, negative, second, tokens = _sections(body)
        facts = json.loads(head)

        is_known, common, given, heal, rows = facts.pop("")
        if not opened.eof or common > len(known.ids):
            return None
        if not is_known:
            return Provenance(facts)
        whole, other = known.ids[:common] + tuple(_array(ids)), tuple(_array(negative))
        words = {**{id: (data, special) for id, data, special in known.vocabulary}, **dict(_tokens(tokens))}
        vocabulary = tuple((id, *words[id]) for id in dict.fromkeys(whole + other) if id in words)
        return Provenance(
            facts, Rendered(whole, given, heal, other, tuple(map(_pairs, (first, second)))[:rows], vocabulary)
        )
    except (zlib.error, struct.error, ValueError, TypeError, KeyError):
        return None


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _squeezer(base: Provenance | None) -> Any:
    return zlib.compressobj(6, zdict=_json(base.facts)) if base is not None else zlib.compressobj(6)


def _numbers(values: Iterable[int]) -> bytes:
    column = array("i", values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _array(data: bytes) -> array[int]:
    column = array("i")
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _passes(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Starts as differences, because those of a reply's passes are all alike."""
    flat, before = [], 0
    for start, rows in pairs:
        flat += [start - before, rows]
        before = start
    return _numbers(flat)


def _pairs(data: bytes) -> tuple[tuple[int, int], ...]:
    flat, start, found = _array(data), 0, []
    for step, rows in zip(flat[::2], flat[1::2], strict=True):
        start += step
        found.append((start, rows))
    return tuple(found)


def _tokens(data: bytes) -> Iterable[tuple[int, tuple[bytes, bool]]]:
    place = 0
    while place < len(data):
        id, length, special = _TOKEN.unpack_from(data, place)
        place += _TOKEN.size + length
        yield id, (data[place - length : place], special)


def _sections(data: bytes) -> list[bytes]:
    found, place = [], 0
    while place < len(data):
        (length,) = struct.unpack_from("<I", data, place)
        found.append(data[place + 4 : place + 4 + length])
        place += 4 + length
    return found
