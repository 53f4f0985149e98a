"""Unpacks fp8 matrices to fp16 rows, and looks up rows of all plain matrices by token id."""

from __future__ import annotations

from functools import cache

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    bits_float,
    block_x,
    block_y,
    half_float,
    high_half_float,
    ld_i32,
    ldg_f32,
    ldg_f32x4,
    ldg_stream,
    ldg_u32,
    ldg_u32x2,
    pack_fp16,
    st_f32x4,
    st_u32x4,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import int32, int64, uint32
from engine.backends.cuda.kernels.linear.interface import EMBED, UNPACK
from engine.backends.cuda.kernels.linear.multiply_plain import high_pair, low_pair

KIND = "bf16"
UNIT = 128
THREADS = 256


def _unpack(weight: int, first: int, target: int, target_stride: int, columns: int) -> None:
    """The `unpack` kernel of `interface` for e4m3: 16 fp16 rows for each tile from `first` on."""
    warp, lane = int32(thread() >> 5), int32(thread() & 31)
    blocks = int32((columns + 63) >> 6)
    block = int32(8 * block_x() + warp)
    tile_bytes = 1024 * int64(blocks) + 64 * ((64 * int64(blocks) + UNIT - 1) // UNIT)
    tile = weight + (int64(first) + int64(block_y())) * tile_bytes
    wait_for_others()
    if block < blocks:
        scales = tile + 1024 * int64(blocks) + 4 * int64(lane >> 2)
        row = target + (16 * int64(block_y()) + int64(lane >> 2)) * target_stride
        for c in static(range(2)):
            e0, e1, e2, e3 = ldg_stream(tile + 1024 * int64(block) + 512 * c + 16 * int64(lane))
            scale = scales + 64 * ((2 * int64(block) + c) * 32 // UNIT)
            at = row + 128 * int64(block) + 64 * c + 16 * int64(lane & 3)
            _four_pairs(at, e0, e1, ldg_f32(scale))
            _four_pairs(at + 8 * target_stride, e2, e3, ldg_f32(scale + 32))


def _four_pairs(at: int, first: int, second: int, scale: float) -> None:
    """Eight numbers of two words, times `scale`, to fp16."""
    a, b, c, d = low_pair(first), high_pair(first), low_pair(second), high_pair(second)
    st_u32x4(
        at,
        pack_fp16(half_float(a) * scale, high_half_float(a) * scale),
        pack_fp16(half_float(b) * scale, high_half_float(b) * scale),
        pack_fp16(half_float(c) * scale, high_half_float(c) * scale),
        pack_fp16(half_float(d) * scale, high_half_float(d) * scale),
    )


def _embed(weight: int, ids: int, y: int, y_stride: int, scale: float, columns: int) -> None:
    """The `embed` kernel of `interface`: y = scale * row `ids`[row]. A thread takes four columns."""
    wait_for_others()
    token = ld_i32(ids + 4 * int64(block_y()))
    blocks = int64((columns + 63) >> 6)
    column = int32(4 * thread())
    while column < columns:
        at = y + int64(block_y()) * y_stride + 4 * int64(column)
        if KIND == "fp32":
            a, b, c, d = ldg_f32x4(weight + (int64(token) * blocks * 64 + int64(column)) * 4)
            st_f32x4(at, a * scale, b * scale, c * scale, d * scale)
        if KIND == "fp16":
            low, high = ldg_u32x2(weight + (int64(token) * blocks * 64 + int64(column)) * 2)
            st_f32x4(
                at,
                half_float(low) * scale,
                high_half_float(low) * scale,
                half_float(high) * scale,
                high_half_float(high) * scale,
            )
        if KIND == "bf16":
            low, high = ldg_u32x2(weight + (int64(token) * blocks * 64 + int64(column)) * 2)
            a, b = bits_float(uint32(low << 16)), bits_float(uint32(low & uint32(0xFFFF0000)))
            c, d = bits_float(uint32(high << 16)), bits_float(uint32(high & uint32(0xFFFF0000)))
            st_f32x4(at, a * scale, b * scale, c * scale, d * scale)
        if KIND == "fp8":
            tile = weight + int64(token >> 4) * (1024 * blocks + 64 * ((64 * blocks + UNIT - 1) // UNIT))
            lane = 4 * int64(token & 7) + int64((column >> 3) & 3)
            word = ldg_u32(
                tile + 512 * int64(column >> 5) + 16 * lane + 8 * int64((token >> 3) & 1) + int64(column & 4)
            )
            s = ldg_f32(tile + 1024 * blocks + 64 * (int64(column) // UNIT) + 4 * int64(token & 15)) * scale
            e, f = low_pair(word), high_pair(word)
            st_f32x4(at, half_float(e) * s, high_half_float(e) * s, half_float(f) * s, high_half_float(f) * s)
        column = int32(column + 4 * THREADS)


@cache
def unpack_kernel(unit: int) -> Kernel:
    return Kernel(f"unpack_fp8u{unit}", _unpack, UNPACK, 256, 48, {"UNIT": unit}, 4)


@cache
def embed_kernel(kind: str, unit: int) -> Kernel:
    """The kernel `_embed`; arguments as in `plain.linear_kernel`."""
    constants = {"KIND": kind, "UNIT": unit or 128, "THREADS": THREADS}
    return Kernel(f"embed_{kind}{unit or ''}", _embed, EMBED, THREADS, 40, constants, 4)
