"""Reads the key/value cache in each of its formats: eight numbers of a position as fp16, or one as float32.

An *octet* is the dimensions 8 o .. 8 o + 7 of one head at one position: 16 bytes in fp16, 8 in fp8 and q8, 4
in q4 (see `kv_cache`). fp8 numbers come out times 2^-8, q8 and q4 numbers without their group's scale. Levels
of q4 are rounded to fp16.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    add_fp16x2,
    and_or,
    e4m3_float,
    fma_fp16x2,
    half_float,
    ld_f32,
    ld_u8,
    ld_u16,
    ld_u32,
    ld_u32x2,
    ld_u32x4,
    mul_fp16x2,
    permute_bytes,
    to_float,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kv_cache import KEYS, Layout
from engine.backends.kv_formats import GROUP, QUANTISED

OCTET_BYTES = {"fp16": 16, "fp8": 8, "q8": 8, "q4": 4}
"""The formats that the tensor-core kernel reads, and the bytes of an octet."""
FP8_FACTOR = 256.0
"""The inverse of the factor 2^-8 that fp8 numbers get when their bits are moved to those of fp16."""


def octet_fp16(address: int) -> Any:
    """An octet of fp16, four words."""
    return ld_u32x4(address)


def octet_bytes(address: int) -> Any:
    """An octet of bytes, two words."""
    a, b = ld_u32x2(address)
    return a, b, uint32(0), uint32(0)


def octet_q4(address: int) -> Any:
    """An octet of q4, one word."""
    return ld_u32(address), uint32(0), uint32(0), uint32(0)


def fp16x2_of_fp16(a: int, b: int, c: int, d: int) -> Any:
    """The octet's words as pairs of fp16: dimensions 0 and 1, 2 and 3, 4 and 5, 6 and 7."""
    return a, b, c, d


def _shifted(word: int) -> int:
    """Move exponent and fraction of two e4m3, in the upper bytes of 16 bits each, to their place in fp16."""
    return and_or(word, uint32(0x80008000), uint32(uint32(word >> uint32(1)) & uint32(0x3F803F80)))


def fp16x2_of_fp8(a: int, b: int, c: int, d: int) -> Any:
    """As `fp16x2_of_fp16`, times 2^-8."""
    nothing = uint32(0)
    return (
        _shifted(permute_bytes(a, nothing, uint32(0x1404))),
        _shifted(permute_bytes(a, nothing, uint32(0x3424))),
        _shifted(permute_bytes(b, nothing, uint32(0x1404))),
        _shifted(permute_bytes(b, nothing, uint32(0x3424))),
    )


def fp16x2_of_q8(a: int, b: int, c: int, d: int) -> Any:
    """The codes as pairs of fp16. 0x6400 is 1024, where the last bit of fp16 counts 1."""
    x, y = uint32(a ^ uint32(0x80808080)), uint32(b ^ uint32(0x80808080))
    high, less = uint32(0x64646464), uint32(0xE480E480)  # -1152
    return (
        add_fp16x2(permute_bytes(x, high, uint32(0x4140)), less),
        add_fp16x2(permute_bytes(x, high, uint32(0x4342)), less),
        add_fp16x2(permute_bytes(y, high, uint32(0x4140)), less),
        add_fp16x2(permute_bytes(y, high, uint32(0x4342)), less),
    )


def _levels(word: int) -> int:
    """The levels of two codes in the low four bits of each half: c + 3 c^3 / 512 with c = code - 8."""
    c = add_fp16x2(and_or(word, uint32(0x000F000F), uint32(0x64006400)), uint32(0xE408E408))
    return mul_fp16x2(c, fma_fp16x2(mul_fp16x2(c, c), uint32(0x1E001E00), uint32(0x3C003C00)))


def fp16x2_of_q4(a: int, b: int, c: int, d: int) -> Any:
    """The levels of the codes as pairs of fp16."""
    return (
        _levels(a),
        _levels(uint32(a >> uint32(4))),
        _levels(uint32(a >> uint32(8))),
        _levels(uint32(a >> uint32(12))),
    )


def element_fp32(block: int, place: int, dim: int, row: int, scales: int, groups: int) -> float:
    """One number as float32, in the transformed basis if the format is quantised.

    `block` is the page's address, `place` the position in the page or in the sequence, `row` and `scales` are
    those of `kv_cache.Layout`. All `element_` functions take these arguments.
    """
    return ld_f32(block + int64(place & 255) * int64(row) + 4 * int64(dim))


def element_fp16(block: int, place: int, dim: int, row: int, scales: int, groups: int) -> float:
    return half_float(ld_u16(block + int64(place & 255) * int64(row) + 2 * int64(dim)))


def element_fp8(block: int, place: int, dim: int, row: int, scales: int, groups: int) -> float:
    return e4m3_float(ld_u8(block + int64(place & 255) * int64(row) + int64(dim)))


def scale_word(block: int, place: int, group: int, scales: int, groups: int) -> int:
    """The fp16 scale of a group, in the low bits."""
    return ld_u16(block + int64(scales) + 2 * int64(int32(int32(place & 255) * groups) + group))


def no_scale(block: int, place: int, group: int, scales: int, groups: int) -> int:
    """An fp16 1, for formats without scales."""
    return uint32(0x3C00)


def times_scale(a: int, b: int, c: int, d: int, scale: int) -> Any:
    """An octet times the scale in the low bits."""
    scale = permute_bytes(scale, scale, uint32(0x1010))
    return (mul_fp16x2(a, scale), mul_fp16x2(b, scale), mul_fp16x2(c, scale), mul_fp16x2(d, scale))


def same(a: int, b: int, c: int, d: int, scale: int) -> Any:
    """The octet itself, for formats without scales."""
    return a, b, c, d


def element_q8(block: int, place: int, dim: int, row: int, scales: int, groups: int) -> float:
    code = int32(uint32(ld_u8(block + int64(place & 255) * int64(row) + int64(dim)) ^ uint32(0x80)))
    return to_float(int32(code - 128)) * half_float(scale_word(block, place, int32(dim >> 5), scales, groups))


def element_q4(block: int, place: int, dim: int, row: int, scales: int, groups: int) -> float:
    """A number without its page's mean."""
    word = ld_u32(block + int64(place & 255) * int64(row) + 4 * int64(dim >> 3))
    shift = uint32(int32(int32(dim & 6) << 1) + int32(int32(dim & 1) << 4))
    c = to_float(int32(int32(uint32(uint32(word >> shift) & uint32(15))) - 8))
    level = c + c * c * c * float32(3.0 / 512.0)
    return level * half_float(scale_word(block, place, int32(dim >> 5), scales, groups))


def kept_key(block: int, place: int, dim: int, row: int, scales: int, groups: int) -> float:
    """The number of the first key, which q4 stores whole."""
    return ld_f32(block + int64(scales) + int64(640 * groups) + 4 * int64(dim))


def kept_value(block: int, place: int, dim: int, row: int, scales: int, groups: int) -> float:
    """The number of the first value, which q4 stores whole."""
    return ld_f32(block + int64(scales) + int64(512 * groups) + 4 * int64(dim))


def number_q4_key(block: int, position: int, dim: int, row: int, scales: int, groups: int) -> float:
    """A number of a q4 key in the transformed basis; from position 16 on its page's mean is added."""
    if position == 0:
        return kept_key(block, position, dim, row, scales, groups)
    x = element_q4(block, position, dim, row, scales, groups)
    if position > 15:
        x = x + ld_f32(block + int64(scales) + int64(512 * groups) + 4 * int64(dim))
    return x


def number_q4_value(block: int, position: int, dim: int, row: int, scales: int, groups: int) -> float:
    """A number of a q4 value in the transformed basis."""
    if position == 0:
        return kept_value(block, position, dim, row, scales, groups)
    return element_q4(block, position, dim, row, scales, groups)


_OCTETS = {"fp16": octet_fp16, "fp8": octet_bytes, "q8": octet_bytes, "q4": octet_q4}
_FP16X2 = {"fp16": fp16x2_of_fp16, "fp8": fp16x2_of_fp8, "q8": fp16x2_of_q8, "q4": fp16x2_of_q4}
_ELEMENTS = {
    "fp32": element_fp32,
    "fp16": element_fp16,
    "fp8": element_fp8,
    "q8": element_q8,
    "q4": element_q4,
}


def reading(layout: Layout, prefix: str) -> dict[str, Any]:
    """Constants for a kernel that reads this side of the cache; names begin with `prefix`, "K_" or "V_"."""
    constants: dict[str, Any] = {
        "BLOCK": layout.block,
        "ROW": layout.row,
        "SCALES": layout.scales,
        "MEAN": layout.mean,
        "scale": scale_word if layout.name in QUANTISED else no_scale,
        "times": times_scale if layout.name in QUANTISED else same,
        "Q4": int(layout.name == "q4"),
        "FACTOR": FP8_FACTOR if layout.name == "fp8" else 1.0,
        "OCTET": OCTET_BYTES.get(layout.name, 0),
        "OCTETS": 4 * layout.groups if layout.name in QUANTISED else -(-layout.head_dim // 8),
        "LIMIT": GROUP * layout.groups if layout.name in QUANTISED else layout.head_dim,
        "element": _ELEMENTS[layout.name],
        "first": (kept_key if layout.side == KEYS else kept_value)
        if layout.name == "q4"
        else _ELEMENTS[layout.name],
    }
    if layout.name in OCTET_BYTES:
        constants |= {"octet": _OCTETS[layout.name], "fp16x2": _FP16X2[layout.name]}
    number = number_q4_key if layout.side == KEYS else number_q4_value
    constants["number"] = number if layout.name == "q4" else _ELEMENTS[layout.name]
    return {f"{prefix}{name}": value for name, value in constants.items()}
