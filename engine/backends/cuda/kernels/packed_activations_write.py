"""Writes packed activations: device functions for kernels that produce rows, and a kernel of its own.

All use the same thread layout. Each thread holds four adjacent columns, the first a multiple of 4, and
adjacent lanes hold adjacent columns; so 16 lanes hold a block of 64 columns. All lanes of a warp call
`write_fp16` and `write_bf16x2` together; lanes past the padded row write nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    absolute,
    bits_float,
    block_x,
    block_y,
    float_bits,
    ld_f32,
    ld_f32x4,
    ldg_f32,
    ldg_f32x4,
    pack_bf16,
    pack_fp16,
    shfl_xor_u32,
    st_f32,
    st_f32x4,
    st_u32x2,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.packed_activations import padded
from engine.backends.cuda.lowering.call import Blocks, Call
from engine.backends.cuda.lowering.context import Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import Pack

THREADS = 128
FORM = "fp16"


def rows_first(chunks: int = 1) -> Blocks:
    """Grid (row, chunk). Rows are in x because there may be more than 65535, the limit in y and z."""
    return lambda rows: (rows, chunks, 1)


# --- four columns a thread ----------------------------------------------------------------------------------


def load_four(row: int, column: int, width: int) -> Any:
    """float32 at columns column .. column + 3 of an activation's row, 0 from `width` on.

    `row` is an address and a multiple of 16.
    """
    at = row + 4 * int64(column)
    if int32(column + 4) <= width:
        return ld_f32x4(at)
    a, b, c = float32(0.0), float32(0.0), float32(0.0)
    if column < width:
        a = ld_f32(at)
    if int32(column + 1) < width:
        b = ld_f32(at + 4)
    if int32(column + 2) < width:
        c = ld_f32(at + 8)
    return a, b, c, float32(0.0)


def load_four_fixed(row: int, column: int, width: int) -> Any:
    """`load_four` for a weight or a table, which no kernel writes."""
    at = row + 4 * int64(column)
    if int32(column + 4) <= width:
        return ldg_f32x4(at)
    a, b, c = float32(0.0), float32(0.0), float32(0.0)
    if column < width:
        a = ldg_f32(at)
    if int32(column + 1) < width:
        b = ldg_f32(at + 4)
    if int32(column + 2) < width:
        c = ldg_f32(at + 8)
    return a, b, c, float32(0.0)


def store_four(row: int, column: int, width: int, a: float, b: float, c: float, d: float) -> None:
    """Write those of the four columns that are below `width`."""
    at = row + 4 * int64(column)
    if int32(column + 4) <= width:
        st_f32x4(at, a, b, c, d)
    else:
        if column < width:
            st_f32(at, a)
        if int32(column + 1) < width:
            st_f32(at + 4, b)
        if int32(column + 2) < width:
            st_f32(at + 8, c)


# --- packed activations -------------------------------------------------------------------------------------


def _larger(a: int, b: int) -> int:
    """The larger of two uint32."""
    return a if a > b else b


def write_fp16(packed: int, width: int, column: int, a: float, b: float, c: float, d: float) -> None:
    """Write this thread's four columns of an "fp16" row (`packed_activations`).

    `packed` is the row's address, `width` its columns before padding. Columns
    past `width` must be given as 0.
    """
    # Compared as bits, magnitudes sort like numbers, and infinities and NaN come last.
    top = _larger(
        _larger(uint32(float_bits(absolute(a))), uint32(float_bits(absolute(b)))),
        _larger(uint32(float_bits(absolute(c))), uint32(float_bits(absolute(d)))),
    )
    top = _larger(top, uint32(shfl_xor_u32(top, int32(8))))
    top = _larger(top, uint32(shfl_xor_u32(top, int32(4))))
    top = _larger(top, uint32(shfl_xor_u32(top, int32(2))))
    top = _larger(top, uint32(shfl_xor_u32(top, int32(1))))
    exponent = uint32(top >> uint32(23))  # biased by 127
    scale, factor = uint32(0x7FC00000), uint32(0)
    if exponent < uint32(27):
        scale = uint32(0)
    elif exponent < uint32(255):
        scale = uint32(uint32(exponent - uint32(14)) << uint32(23))
        factor = uint32(uint32(uint32(268) - exponent) << uint32(23))
    whole = int32(int32(int32(width + 63) >> 6) << 6)
    if column < whole:
        low, high = uint32(0), uint32(0)
        if factor != uint32(0):
            times = bits_float(factor)
            low, high = pack_fp16(a * times, b * times), pack_fp16(c * times, d * times)
        st_u32x2(packed + 2 * int64(column), low, high)
        if (column & 63) == 0:
            st_f32(packed + 2 * int64(whole) + 4 * int64(column >> 6), bits_float(scale))


def _missing(word: int, low: float, high: float) -> Any:
    """As bf16: the part of two float32 that their bf16 rounding in `word` loses."""
    return pack_bf16(
        low - bits_float(uint32(word << uint32(16))), high - bits_float(uint32(word & uint32(0xFFFF0000)))
    )


def write_bf16x2(packed: int, width: int, column: int, a: float, b: float, c: float, d: float) -> None:
    """Write this thread's four columns of a "bf16x2" row, as `write_fp16`; needs compute capability 8.0."""
    whole = int32(int32(int32(width + 63) >> 6) << 6)
    if column < whole:
        low, high = pack_bf16(a, b), pack_bf16(c, d)
        at = packed + 2 * int64(column)
        st_u32x2(at, low, high)
        st_u32x2(at + 2 * int64(whole), _missing(low, a, b), _missing(high, c, d))


def write_four(
    y: int, y_stride: int, packed: int, packed_stride: int, row: int, width: int, column: int,
    a: float, b: float, c: float, d: float,
) -> None:  # fmt: skip
    """Write this thread's four columns of a row: as float32 unless y is 0, and packed as FORM says."""
    if y != 0:
        store_four(y + row * y_stride, column, width, a, b, c, d)
    if FORM == "fp16":
        write_fp16(packed + row * packed_stride, width, column, a, b, c, d)
    elif FORM == "bf16x2":
        write_bf16x2(packed + row * packed_stride, width, column, a, b, c, d)


def _pack(x: int, x_stride: int, packed: int, packed_stride: int, width: int) -> None:
    """Pack rows. Grid (row, chunk of 4 THREADS columns)."""
    wait_for_others()
    row = int64(block_x())
    column = int32(4 * int32(block_y() * THREADS + thread()))
    a, b, c, d = load_four(x + row * x_stride, column, width)
    write_four(int64(0), int64(0), packed, packed_stride, row, width, column, a, b, c, d)


@cache
def pack_kernel(kind: str) -> Kernel:
    """The kernel `_pack` for `kind` "fp16" or "bf16x2"."""
    constants = {"THREADS": THREADS, "FORM": kind}
    return Kernel(f"pack_{kind}", _pack, "lllli", THREADS, 24, constants, min_capability=capability_for(kind))


def pack_call(kind: str, x: Buffer, packed: Buffer) -> Call:
    """Pack all rows of x into `packed`, a buffer from `packed_activations.packed_buffer`."""
    arguments = (x, x.stride, packed, packed.stride, x.width)
    return Call(
        pack_kernel(kind), rows_first(chunks(x.width)), arguments, (x,), (packed,), x.on_logit_rows, x.copies
    )


def chunks(width: int, threads: int = THREADS) -> int:
    """Blocks of `threads` threads for a padded row."""
    return -(-padded(width) // (4 * threads))


def capability_for(form: str) -> int:
    """The compute capability, times ten, that writing this form of packed activations needs."""
    return 80 if form == "bf16x2" else 75


def output_arguments(
    kind: str, y: Buffer | None, packed: Buffer | None
) -> tuple[tuple[Buffer | int, ...], tuple[Buffer, ...]]:
    """The arguments y, its stride, packed, its stride of a kernel (0 if unused), and the buffers written."""
    assert (kind == "none") == (packed is None)
    written = tuple(buffer for buffer in (y, packed) if buffer is not None)
    assert written
    arguments: list[Buffer | int] = []
    for buffer in (y, packed):
        arguments += [0, 0] if buffer is None else [buffer, buffer.stride]
    return tuple(arguments), written


LOWER: Table = {Pack: lambda _, node: (pack_call(node.form, node.x, node.y),)}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield pack_kernel("fp16")
    yield pack_kernel("bf16x2")
