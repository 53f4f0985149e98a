"""Products with packed codes, in NumPy: the layout of `engine.backends.cuda.layouts.codes`, read number by
number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cuda.kernels.linear.interface import PARTS
from engine.backends.gguf_blocks.quants import FP4_LEVELS
from tests.simt.interpreter import Memory

_INDEX = np.array([0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15])
"""The place in a table of each code of "int8", and the code of each place."""


def _levels(c: dict[str, Any]) -> Any:
    """The numbers of the codes of "int8": the second eight bytes of a table are inverted where the top bit of
    the first eight is set.
    """
    entries = np.array([c[f"TABLE_{i}"] for i in range(4)], "<u4").view(np.uint8)
    entries[8:] ^= 255 * (entries[:8] >> 7)
    return entries[_INDEX] - 128.0


def _columns(paired: int, lane: Any, slot: Any) -> Any:
    t = lane % 4
    return 32 * (slot // 4) + 8 * t + 2 * (slot % 4) if paired else 16 * (slot // 2) + 4 * t + 2 * (slot % 2)


def _codes(words: Any, c: dict[str, Any]) -> Any:
    """Words (blocks, 32 lanes, 16) to codes (16, blocks, 64)."""
    out = np.zeros((16, len(words), 64), np.int64)
    lanes = np.arange(32)
    for slot in range(8):
        word, more = (words[:, :, c[name][slot]].astype(np.int64) for name in ("C_WORD", "C_MORE"))
        right, left = c["C_RIGHT"][slot], c["C_MORE_RIGHT"][slot]
        for row in range(2):
            for e in range(2):
                if c["TABLE"] == "fp4":
                    bits, sign = ((9, 15), (6, 12), (0, 14), (3, 13))[slot % 2 * 2 + row]
                    code = (word >> (bits + 16 * e) & 7) + 8 * (word >> (sign + 16 * e) & 1)
                elif c["TABLE"]:
                    index = word >> (right + 4 * row + 8 * e) & 15
                    code = _INDEX[index]
                elif c["BITS"] == 8:
                    code = word >> (8 * row + 16 * e) & 255
                else:
                    code = (word >> right >> (16 * e + 4 * row)) & (c["MASK"] & 0xFFFF)
                    if c["SECOND"]:
                        moved = more >> left if left >= 0 else more << -left
                        code = code | (moved >> (16 * e + 4 * row)) & (c["SECOND"] & 0xFFFF)
                out[lanes // 4 + 8 * row, :, _columns(c["PAIRED"], lanes, slot) + e] = code.T
    return out


def _half(words: Any, place: int) -> Any:
    return (words >> np.uint32(16 * place)).astype(np.uint16).view(np.float16).astype(np.float32)


def _number(kind: str, words: Any, place: int) -> Any:
    """The number of a kind that a group has of its own."""
    if kind == "float":
        return words.view(np.float32)
    if kind == "bfloat":
        return (words >> np.uint32(16 * place) << np.uint32(16)).view(np.float32)
    return _half(words, place)


def _byte(words: Any, place: int) -> Any:
    return (words >> np.uint32(8 * place) & np.uint32(255)).astype(np.float32)


def _scale(c: dict[str, Any], word: Any, place: int, d: Any, row: int) -> Any:
    kind = c["SCALES"]
    if kind in ("half", "one", "bfloat", "float"):
        return _number(kind, word, place)
    if kind == "power":
        return np.ldexp(np.float64(1), _byte(word, place).astype(np.int64) - 127)
    byte = _byte(word, place)
    if kind == "signed":
        if c["MOVED"]:
            byte = byte - byte % 2 + np.float32(c["LOWEST"])
        byte = (byte - np.float32(128)) * np.float32(c["UNIT"])
    if c["D_WIDE"]:
        return d.view(np.float32) * byte
    return _half(d, row) * (byte % 16 if kind == "nibbles" else byte)


def values(raw: Any, c: dict[str, Any], columns: int) -> Any:
    """A tile's bytes to numbers (16, K padded), float64."""
    blocks = (columns + 63) // 64
    words = np.zeros((blocks, 32, 16), np.uint32)
    lanes = np.arange(32)
    for words_each, at, first, header, each_lane in zip(
        *(c[f"R_{n}"] for n in ("WORDS", "AT", "FIRST", "HEADER", "LANE")), strict=True
    ):
        for block in range(blocks):
            span = block // c["SPAN"] * c["SPAN_BYTES"]
            start = span + at + (0 if header else c["HEADER_BYTES"] + block % c["SPAN"] * c["BLOCK_BYTES"])
            count = (32 if each_lane else 8) * words_each
            found = (
                np.ascontiguousarray(raw[start : start + 4 * count]).view(np.uint32).reshape(-1, words_each)
            )
            words[block, :, first : first + words_each] = found[lanes if each_lane else lanes // 4]
    codes = _codes(words, c)
    if c["TABLE"]:
        meaning = np.array(FP4_LEVELS) / 2 if c["TABLE"] == "fp4" else _levels(c)
        numbers = meaning[codes]
    else:
        numbers = (codes - c["ZERO"]).astype(np.float64)
    out = np.empty_like(numbers)
    groups = c["GROUPS"]
    mine = words[:, ::4]  # (blocks, g, words)
    with np.errstate(all="ignore"):
        for row in range(2):
            for group in range(groups):
                at, own = groups * row + group, slice(64 // groups * group, 64 // groups * (group + 1))
                n = numbers[8 * row : 8 * row + 8, :, own]
                d = np.ascontiguousarray(mine[:, :, c["D_WORD"] + row * c["D_WIDE"]])
                scale = _scale(c, mine[:, :, c["S_WORD"][at]], c["S_PLACE"][at], d, row)
                if c["MOVED"]:
                    odd = _byte(mine[:, :, c["S_WORD"][at]], c["S_PLACE"][at]) % 2
                    n = n + c["MOVED"] * odd.T[..., None]
                scale = scale.T[..., None].astype(np.float64)
                if c["MINS"]:
                    word, place = mine[:, :, c["L_WORD"][at]], c["L_PLACE"][at]
                    if c["MINS"] == "sub":
                        byte = _byte(word, place)
                        less = -(
                            _half(mine[:, :, c["M_WORD"]], row)
                            * (byte // 16 if c["SCALES"] == "nibbles" else byte)
                        )
                    else:
                        less = _number(c["MINS"], word, place)
                    less = less.T[..., None].astype(np.float64)
                    result = (n - less) * scale if c["MINS"] == "zero" else n * scale + less
                else:
                    result = n * scale
                out[8 * row : 8 * row + 8, :, own] = result
    return out.reshape(16, -1)


def matrix(memory: Memory, c: dict[str, Any], weight: int, first: int, tiles: int, columns: int) -> Any:
    """Tiles as numbers, float64 (16 tiles, K padded)."""
    kept, key = getattr(memory, "kept", None), (weight, first, tiles, columns)
    if kept is not None and key in kept:
        return kept[key]
    size = -(-((columns + 63) // 64) // c["SPAN"]) * c["SPAN_BYTES"]
    raw = memory.view(weight + first * size, np.uint8, tiles * size).reshape(tiles, size)
    found = np.concatenate([values(tile, c, columns) for tile in raw])
    if kept is not None:
        kept[key] = found
    return found


def x_row(memory: Memory, x: int, columns: int) -> Any:
    """Packed activations of fp16 as numbers, float64 (K padded,)."""
    blocks = (columns + 63) // 64
    fp16 = memory.view(x, np.float16, 64 * blocks).reshape(blocks, 64).astype(np.float64)
    return (fp16 * memory.view(x + 128 * blocks, np.float32, blocks).astype(np.float64)[:, None]).reshape(-1)


def _store(memory: Memory, total: Any, y: int, bias: int, residual: int) -> None:
    with np.errstate(all="ignore"):
        out = total.astype(np.float32)
        if bias:
            out = out + memory.view(bias, np.float32, len(out))
        if residual:
            out = out + memory.view(residual, np.float32, len(out))
    memory.view(y, np.float32, len(out))[:] = out


def linear_codes(memory: Memory, blocks: Any, c: dict[str, Any], *arguments: int) -> None:
    x, x_stride, rows, columns = arguments[7 * PARTS :]
    for part in range(PARTS):
        weight, y, y_stride, bias, residual, residual_stride, outputs = arguments[7 * part : 7 * part + 7]
        if not outputs:
            continue
        numbers = matrix(memory, c, weight, 0, -(-outputs // 16), columns)[:outputs]
        for row in range(rows):
            with np.errstate(all="ignore"):
                total = numbers @ x_row(memory, x + row * x_stride, columns)
            _store(
                memory, total, y + row * y_stride, bias, residual + row * residual_stride if residual else 0
            )


def experts_codes(
    memory: Memory, blocks: Any, c: dict[str, Any], table: int, outputs: int, y: int, y_stride: int,
    bias: int, bias_stride: int, ids: int, ids_stride: int, used: int, x: int, x_stride: int, columns: int,
) -> None:  # fmt: skip
    for row in range(blocks[1]):
        expert = int(memory.view(ids + row // used * ids_stride + row % used * 4, np.int32, 1)[0])
        weight = int(memory.view(table + 8 * expert, np.int64, 1)[0])
        if weight:
            numbers = matrix(memory, c, weight, 0, -(-outputs // 16), columns)[:outputs]
            with np.errstate(all="ignore"):
                total = numbers @ x_row(memory, x + row * x_stride, columns)
            _store(memory, total, y + row * y_stride, bias + expert * bias_stride if bias else 0, 0)


def unpack_codes(
    memory: Memory,
    blocks: Any,
    c: dict[str, Any],
    weight: int,
    first: int,
    target: int,
    stride: int,
    columns: int,
) -> None:
    numbers = matrix(memory, c, weight, first, blocks[1], columns)
    with np.errstate(all="ignore"):
        fp16 = numbers.astype(np.float32).astype(np.float16)
    for row, line in enumerate(fp16):
        memory.view(target + row * stride, np.float16, len(line))[:] = line


def embed_codes(
    memory: Memory,
    blocks: Any,
    c: dict[str, Any],
    weight: int,
    tokens: int,
    y: int,
    y_stride: int,
    factor: float,
    columns: int,
) -> None:
    for row in range(blocks[1]):
        token = int(memory.view(tokens + 4 * row, np.int32, 1)[0])
        line = matrix(memory, c, weight, token // 16, 1, columns)[token % 16, :columns]
        with np.errstate(all="ignore"):
            memory.view(y + row * y_stride, np.float32, columns)[:] = line.astype(np.float32) * np.float32(
                factor
            )


MODELS = {
    "multiply_codes.linear": linear_codes,
    "multiply_codes.experts": experts_codes,
    "unpack_codes.unpack": unpack_codes,
    "unpack_codes.embed": embed_codes,
}
