"""Matrices of plain numbers, bf16, fp16, float32 and e4m3 with scales: how they lie on the device, and the
kernels that read them.

bf16, fp16 and float32 lie as they do in a file, row after row, only padded with zeros to tiles of 16 rows and
blocks of 64 columns: a warp reads whole 128-byte lines of 16 rows, and long steps multiply the same memory
with torch, with nothing to unpack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    bits_float,
    block_x,
    block_y,
    half_float,
    high_half_float,
    ld_f32,
    ld_f32x4,
    ld_i32_now,
    ld_stream,
    ld_u32,
    ld_u32x2,
    pack_halves,
    st_f32x4,
    st_u32x4,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import int32, int64, uint32
from engine.backends.cuda.kernels.linear.multiply_plain import high_pair, low_pair
from engine.backends.cuda.kernels.linear.plain import experts_kernel, linear_kernel
from engine.backends.cuda.layouts.layout import EMBED, ROWS, UNPACK, Bytes, Form
from engine.errors import BadCheckpoint

_WAVES = 4
"""A block takes two tiles where each multiprocessor still gets so many blocks: half the reads of x."""
_LARGEST = 65504.0
_SIZES = {"bf16": 2, "fp16": 2, "fp32": 4}

KIND = "bf16"
UNIT = 128
THREADS = 256


def _tiles(kind: str, tiles: int, processors: int) -> int:
    return 2 if kind != "fp32" and tiles >= 2 * _WAVES * processors else 1


@dataclass(frozen=True)
class Plain:
    """A `WeightLayout` of plain numbers; `name` is "bf16", "fp16" or "fp32"."""

    name: str
    types: tuple[str, ...]
    record: str

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return _SIZES[self.name]

    def tile_bytes(self, columns: int) -> int:
        """See `WeightLayout`."""
        return ROWS * -(-columns // 64) * 64 * self.size

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """See `WeightLayout`: they are there already."""
        return raw.reshape(-1)

    def linear(self, tiles: int, columns: int, processors: int) -> Form:
        """See `WeightLayout`."""
        count = _tiles(self.name, tiles, processors)
        return Form(linear_kernel(self.name, 0, count), count)

    def experts(self, tiles: int, columns: int, processors: int) -> Form:
        """See `WeightLayout`."""
        return Form(experts_kernel(self.name, 0, 1), 1)

    def embed(self) -> Kernel:
        """See `WeightLayout`."""
        return embed_kernel(self.name, 0)


@dataclass(frozen=True)
class Fp8:
    """A `WeightLayout` of e4m3 numbers with a scale for each `unit` columns of a row, 128 or 32
    (`engine.weights.packed.fp8`).

    A tile is a run of 1024 bytes for each 64 columns, then, for each `unit` columns, the scales of its 16
    rows, float32, times 2^8. Of 32 columns lane (g, t) has 16 bytes: row g, columns 8 t .. 8 t + 7, then row
    g + 8. Of each four columns the second and third change places: two masks then make two words of fp16
    pairs, each number times 2^-8, exactly.
    """

    unit: int

    record = "halves"

    @property
    def name(self) -> str:
        """See `WeightLayout`."""
        return f"fp8u{self.unit}"

    @property
    def types(self) -> tuple[str, ...]:
        """See `WeightLayout`."""
        return (f"FP8_{self.unit}",)

    def tile_bytes(self, columns: int) -> int:
        """See `WeightLayout`."""
        blocks = -(-columns // 64)
        return 1024 * blocks + 4 * ROWS * -(-64 * blocks // self.unit)

    def pack(self, type_name: str, raw: Bytes, rows: int, columns: int) -> Bytes:
        """See `WeightLayout`. Raises `BadCheckpoint` for numbers beyond fp16, which long steps take."""
        units = raw.size // (rows * (self.unit + 4))
        parts = raw.reshape(rows, units, self.unit + 4)
        blocks = -(-columns // 64)
        scales = np.zeros((rows // ROWS, ROWS, -(-64 * blocks // self.unit)), np.float32)
        given = np.ascontiguousarray(parts[:, :, self.unit :]).view(np.float32)[..., 0]
        largest = np.abs(given[np.isfinite(given)]).max(initial=0) * 448
        if largest > _LARGEST:
            raise BadCheckpoint(
                f"An 8-bit matrix has a scale for numbers up to {largest:g}; on a GPU weights may be up to "
                f"{_LARGEST:g}. Download the model again, or take it in another type."
            )
        scales[..., :units] = given.reshape(-1, ROWS, units) * np.float32(256)
        numbers = np.zeros((rows, 64 * blocks), np.uint8)
        numbers[:, : units * self.unit] = parts[:, :, : self.unit].reshape(rows, -1)
        # (tile, half, g, chunk of 32, t, piece of 4, column pair, column) to (tile, chunk, g, t, half, piece,
        # column, pair)
        split = numbers.reshape(rows // ROWS, 2, 8, 2 * blocks, 4, 2, 2, 2).transpose(0, 3, 2, 4, 1, 5, 7, 6)
        out = np.empty((rows // ROWS, self.tile_bytes(columns)), np.uint8)
        out[:, : 1024 * blocks] = split.reshape(rows // ROWS, -1)
        out[:, 1024 * blocks :] = (
            np.ascontiguousarray(scales.transpose(0, 2, 1)).view(np.uint8).reshape(rows // ROWS, -1)
        )
        return out.reshape(-1)

    def linear(self, tiles: int, columns: int, processors: int) -> Form:
        """See `WeightLayout`."""
        count = _tiles(self.name, tiles, processors)
        return Form(linear_kernel("fp8", self.unit, count), count)

    def experts(self, tiles: int, columns: int, processors: int) -> Form:
        """See `WeightLayout`."""
        return Form(experts_kernel("fp8", self.unit, 1), 1)

    def unpack(self) -> Kernel:
        """See `Packed`."""
        return unpack_kernel(self.unit)

    def embed(self) -> Kernel:
        """See `WeightLayout`."""
        return embed_kernel("fp8", self.unit)


def _unpack(weight: int, first: int, target: int, target_stride: int, columns: int) -> None:
    """e4m3 tiles to fp16 rows, 16 for each tile from `first` on. Block (512 columns, tile - first)."""
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
            e0, e1, e2, e3 = ld_stream(tile + 1024 * int64(block) + 512 * c + 16 * int64(lane))
            scale = scales + 64 * ((2 * int64(block) + c) * 32 // UNIT)
            at = row + 128 * int64(block) + 64 * c + 16 * int64(lane & 3)
            _four_pairs(at, e0, e1, ld_f32(scale))
            _four_pairs(at + 8 * target_stride, e2, e3, ld_f32(scale + 32))


def _four_pairs(at: int, first: int, second: int, scale: float) -> None:
    """Eight numbers of two words, times `scale`, to fp16."""
    a, b, c, d = low_pair(first), high_pair(first), low_pair(second), high_pair(second)
    st_u32x4(
        at,
        pack_halves(half_float(a) * scale, high_half_float(a) * scale),
        pack_halves(half_float(b) * scale, high_half_float(b) * scale),
        pack_halves(half_float(c) * scale, high_half_float(c) * scale),
        pack_halves(half_float(d) * scale, high_half_float(d) * scale),
    )


def _embed(weight: int, ids: int, y: int, y_stride: int, scale: float, columns: int) -> None:
    """y = scale * row `ids`[row] of the matrix. Block (1, row); a thread takes four columns at a time."""
    wait_for_others()
    token = ld_i32_now(ids + 4 * int64(block_y()))
    blocks = int64((columns + 63) >> 6)
    column = int32(4 * thread())
    while column < columns:
        at = y + int64(block_y()) * y_stride + 4 * int64(column)
        if KIND == "fp32":
            a, b, c, d = ld_f32x4(weight + (int64(token) * blocks * 64 + int64(column)) * 4)
            st_f32x4(at, a * scale, b * scale, c * scale, d * scale)
        if KIND == "fp16":
            low, high = ld_u32x2(weight + (int64(token) * blocks * 64 + int64(column)) * 2)
            st_f32x4(
                at,
                half_float(low) * scale,
                high_half_float(low) * scale,
                half_float(high) * scale,
                high_half_float(high) * scale,
            )
        if KIND == "bf16":
            low, high = ld_u32x2(weight + (int64(token) * blocks * 64 + int64(column)) * 2)
            a, b = bits_float(uint32(low << 16)), bits_float(uint32(low & uint32(0xFFFF0000)))
            c, d = bits_float(uint32(high << 16)), bits_float(uint32(high & uint32(0xFFFF0000)))
            st_f32x4(at, a * scale, b * scale, c * scale, d * scale)
        if KIND == "fp8":
            tile = weight + int64(token >> 4) * (1024 * blocks + 64 * ((64 * blocks + UNIT - 1) // UNIT))
            lane = 4 * int64(token & 7) + int64((column >> 3) & 3)
            word = ld_u32(
                tile + 512 * int64(column >> 5) + 16 * lane + 8 * int64((token >> 3) & 1) + int64(column & 4)
            )
            s = ld_f32(tile + 1024 * blocks + 64 * (int64(column) // UNIT) + 4 * int64(token & 15)) * scale
            e, f = low_pair(word), high_pair(word)
            st_f32x4(at, half_float(e) * s, high_half_float(e) * s, half_float(f) * s, high_half_float(f) * s)
        column = int32(column + 4 * THREADS)


@cache
def unpack_kernel(unit: int) -> Kernel:
    """See `_unpack`."""
    return Kernel(f"unpack_fp8u{unit}", _unpack, UNPACK, 256, 48, {"UNIT": unit}, 4, model="unpack_fp8")


@cache
def embed_kernel(kind: str, unit: int) -> Kernel:
    """See `_embed`; `kind` as in `plain.linear_kernel`."""
    constants = {"KIND": kind, "UNIT": unit or 128, "THREADS": THREADS}
    return Kernel(f"embed_{kind}{unit or ''}", _embed, EMBED, THREADS, 40, constants, 4, model="embed_plain")


def forms() -> Iterator[Kernel]:
    """The kernels of all weight layouts, in all forms."""
    for kind, unit in (("bf16", 0), ("fp16", 0), ("fp8", 128), ("fp8", 32), ("fp32", 0)):
        for tiles in (1,) if kind == "fp32" else (1, 2):
            yield linear_kernel(kind, unit, tiles)
        yield experts_kernel(kind, unit, 1)
        yield embed_kernel(kind, unit)
        if unit:
            yield unpack_kernel(unit)


BF16, FP16, FP32 = (
    Plain("bf16", ("BF16",), "pairs"),
    Plain("fp16", ("F16",), "halves"),
    Plain("fp32", ("F32",), "floats"),
)
PLAIN_WEIGHT_LAYOUTS = (BF16, FP16, FP32, Fp8(128), Fp8(32))
"""All of them. bf16 needs compute capability 8.0: older devices take such matrices as fp16."""
