"""Products of up to eight rows with plain matrices: kernels for up to three matrices, and for experts.

A block computes `TILES` tiles of 16 features of one matrix: its warps divide the columns among them
(`multiply_plain`), then each feature's sums are added in the order of the warps. So a row's result is
bit-identical whatever other rows and matrices are computed with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    barrier,
    block_x,
    block_y,
    ld_f32,
    ld_i32,
    ldg_f32,
    ldg_i64,
    lds_f32,
    let_others_start,
    prefetch,
    shared,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import int32, int64
from engine.backends.cuda.kernels.linear import multiply_plain
from engine.backends.cuda.kernels.linear.interface import EXPERTS, LINEAR, Variant
from engine.backends.cuda.kernels.linear.multiply_plain import SUMS, WARPS

THREADS = 32 * WARPS
TILES = 1
UNIT = 128
KIND = "bf16"
SUM_BYTES = 4 * SUMS * WARPS
multiply: Any = multiply_plain.multiply_bf16
_WAVES = 4
"""A block takes two tiles, which halves the reads of x, if each multiprocessor gets this many blocks."""


def _tile_bytes(columns: int) -> Any:
    """Bytes of a tile of 16 features."""
    steps = int64((columns + 63) >> 6)
    if KIND == "fp8":
        return 1024 * steps + 64 * ((64 * steps + UNIT - 1) // UNIT)
    return (4096 if KIND == "fp32" else 2048) * steps


def _ask_for(weight: int, columns: int) -> None:
    """Prefetch the lines that this warp reads first, which does not depend on earlier kernels."""
    lane, warp, steps = int32(thread() & 31), int32(thread() >> 5), int32((columns + 63) >> 6)
    if KIND == "fp8":
        step, at = (
            int32(warp + WARPS * (lane >> 3)),
            1024 * int64(warp + WARPS * (lane >> 3)) + 128 * int64(lane & 7),
        )
    elif KIND == "fp32":
        step, at = warp, 256 * (int64(lane >> 1) * steps + warp) + 128 * int64(lane & 1)
    else:
        step, at = (
            int32(warp + WARPS * (lane >> 4)),
            128 * (int64(lane & 15) * steps + int64(warp + WARPS * (lane >> 4))),
        )
    if step < steps:
        prefetch(weight + at)


def _finish(
    sums: int,
    first: int,
    features: int,
    rows: int,
    y: int,
    y_stride: int,
    bias: int,
    residual: int,
    residual_stride: int,
) -> None:
    """Add the warps' sums, bias and residual for features from `first` on of `rows` rows, and store them."""
    index = int32(thread())
    tile, feature, row = (
        int32(index >> 7),
        int32(first + 16 * (index >> 7) + (index & 15)),
        int32((index >> 4) & 7),
    )
    if index < 128 * TILES and feature < features and row < rows:
        at = int32(sums + 4 * (SUMS * tile + 20 * row + (index & 15)))
        total = lds_f32(at)
        for warp in static(range(1, WARPS)):
            total = total + lds_f32(int32(at + 4 * SUMS * TILES * warp))
        if bias != 0:
            total = total + ldg_f32(bias + 4 * int64(feature))
        if residual != 0:
            total = total + ld_f32(residual + int64(row) * residual_stride + 4 * int64(feature))
        st_f32(y + int64(row) * y_stride + 4 * int64(feature), total)


def _linear(
    weight0: int, y0: int, y_stride0: int, bias0: int, residual0: int, residual_stride0: int, features0: int,
    weight1: int, y1: int, y_stride1: int, bias1: int, residual1: int, residual_stride1: int, features1: int,
    weight2: int, y2: int, y_stride2: int, bias2: int, residual2: int, residual_stride2: int, features2: int,
    x: int, x_stride: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """y = x W^T + bias + residual for up to three matrices with the same number of columns.

    Arguments as in `interface`. Grid (tiles of all matrices, one after the other).
    """
    sums = shared(SUM_BYTES)
    block, per_block = int32(block_x()), int32(16 * TILES)
    end0 = int32((features0 + per_block - 1) // per_block)
    end1 = int32(end0 + (features1 + per_block - 1) // per_block)
    weight, features = weight0, features0
    if block >= end1:
        block, weight, features = int32(block - end1), weight2, features2
    elif block >= end0:
        block, weight, features = int32(block - end0), weight1, features1
    first, tile_bytes = int32(per_block * block), _tile_bytes(columns)
    # The last block of a matrix may have no second tile: it computes the first twice.
    step = tile_bytes if first + 16 < features else int64(0)
    weight = weight + int64(TILES * block) * tile_bytes
    _ask_for(weight, columns)
    wait_for_others()
    multiply(weight, step, x, x_stride, rows, columns, sums)
    let_others_start()
    barrier()
    # Determined again, because keeping it would take registers from the loop.
    if block_x() >= end1:
        _finish(sums, first, features2, rows, y2, y_stride2, bias2, residual2, residual_stride2)
    elif block_x() >= end0:
        _finish(sums, first, features1, rows, y1, y_stride1, bias1, residual1, residual_stride1)
    else:
        _finish(sums, first, features0, rows, y0, y_stride0, bias0, residual0, residual_stride0)


def _experts(
    table: int, features: int, y: int, y_stride: int, biases: int, bias_stride: int,
    ids: int, ids_stride: int, used: int, x: int, x_stride: int, columns: int,
) -> None:  # fmt: skip
    """Row r of y = row r of x times the matrix of expert `ids`[r / used, r % used]. Grid (tiles, r).

    Arguments as in `interface`. `table` holds the experts' addresses, 0 for
    those that another kernel computes.
    """
    sums = shared(SUM_BYTES)
    row = int32(block_y())
    token = int32(row // used)
    wait_for_others()
    expert = int64(ld_i32(ids + int64(token) * ids_stride + 4 * int64(row - token * used)))
    weight = ldg_i64(table + 8 * expert)
    if weight != 0:
        first, tile_bytes = int32(16 * TILES * block_x()), _tile_bytes(columns)
        step = tile_bytes if first + 16 < features else int64(0)
        weight = weight + int64(TILES * block_x()) * tile_bytes
        multiply(weight, step, x + int64(row) * x_stride, x_stride, int32(1), columns, sums)
        let_others_start()
        barrier()
        bias = biases + expert * bias_stride if biases != 0 else int64(0)
        _finish(
            sums, first, features, int32(1), y + int64(row) * y_stride, y_stride, bias, int64(0), int64(0)
        )


_MULTIPLY: dict[str, Callable[..., None]] = {
    "bf16": multiply_plain.multiply_bf16,
    "fp16": multiply_plain.multiply_fp16,
    "fp8": multiply_plain.multiply_fp8,
    "fp32": multiply_plain.multiply_fp32,
}


def constants(kind: str, unit: int, tiles: int) -> dict[str, Any]:
    """The constants of both kernels; their model uses KIND, UNIT and TILES."""
    return {
        "KIND": kind, "UNIT": unit, "TILES": tiles, "UNROLL": 2 // tiles, "WARPS": WARPS,
        "SUM_BYTES": 4 * SUMS * WARPS * tiles, "multiply": _MULTIPLY[kind],
    }  # fmt: skip


REGISTERS = {"bf16": 112, "fp16": 96, "fp8": 96, "fp32": 128}
"""Registers of a thread. Two blocks on a multiprocessor have at least 64 bytes per lane in flight."""


def linear_variant(kind: str, unit: int, tiles: int, sm_count: int) -> Variant:
    """The kernel for matrices of `tiles` tiles in all; other arguments as in `linear_kernel`."""
    count = 2 if kind != "fp32" and tiles >= 2 * _WAVES * sm_count else 1
    return Variant(linear_kernel(kind, unit, count), count)


@cache
def linear_kernel(kind: str, unit: int, tiles: int) -> Kernel:
    """The kernel `_linear`; `kind`: "bf16", "fp16", "fp8" (`unit` columns a scale), "fp32" (1 tile only)."""
    return _kernel("linear", _linear, LINEAR, kind, unit, tiles)


@cache
def experts_kernel(kind: str, unit: int, tiles: int) -> Kernel:
    """The kernel `_experts`; arguments as in `linear_kernel`."""
    return _kernel("experts", _experts, EXPERTS, kind, unit, tiles)


def _kernel(
    operation: str, body: Callable[..., None], parameters: str, kind: str, unit: int, tiles: int
) -> Kernel:
    name = f"{operation}_{kind}{unit if kind == 'fp8' else ''}_{tiles}"
    min_capability = 80 if kind == "bf16" else 75
    return Kernel(
        name, body, parameters, THREADS, REGISTERS[kind], constants(kind, unit, tiles), 2, min_capability
    )
