"""How warps multiply plain weights with up to eight rows; all but float32 use tensor cores.

A block of `WARPS` warps has `TILES` tiles of 16 features. Its warps take steps of 64 columns in
turn and leave their sums in shared memory. Lane (g, t) = (lane / 4, lane % 4) has features g and g
+ 8. A matrix instruction needs 16 columns of a step, in any order that weights and x share: lane t
gives the eight columns 8 t .. 8 t + 7 of each 32, so that a load is 16 bytes. Rows past `rows` are
computed as copies of the last one and dropped.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    and_or,
    bits_float,
    fma,
    ld_f32,
    ld_f32x4,
    ld_u32x4,
    ldg_f32,
    ldg_stream,
    mma_bf16,
    mma_fp16,
    registers,
    shfl_xor_f32,
    static,
    sts_f32,
    thread,
    threads,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32

WARPS = 8
TILES = 1
UNROLL = 1
UNIT = 128

SUMS = 160
"""float32 words of a tile's sums: feature f of row r is at 20 r + f, which avoids bank conflicts."""


def _leave(sums: int, tile: int, d0: float, d1: float, d2: float, d3: float) -> None:
    """Store a warp's sums of one tile, laid out as a matrix instruction's result, to shared memory."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    at = int32(sums + 4 * (SUMS * (warp * TILES + tile) + 40 * (lane & 3) + (lane >> 2)))
    sts_f32(at, d0)
    sts_f32(int32(at + 80), d1)
    sts_f32(int32(at + 32), d2)
    sts_f32(int32(at + 112), d3)


def _ask(a: Any, weight: int, tile_step: int, row_bytes: int, start: int, last: int) -> None:
    """Load one iteration's 2-byte weights into `a`: 16 words for each step and tile.

    These are four words each of two 32-column halves of two features.
    """
    for u in static(range(UNROLL)):
        at = 128 * int64(min(int32(start + u * WARPS), last))
        for i in static(range(TILES)):
            for h in static(range(4)):
                here = weight + i * tile_step + (h // 2) * 8 * row_bytes + at + 64 * (h % 2)
                (
                    a[16 * (u * TILES + i) + 4 * h],
                    a[16 * (u * TILES + i) + 4 * h + 1],
                    a[16 * (u * TILES + i) + 4 * h + 2],
                    a[16 * (u * TILES + i) + 4 * h + 3],
                ) = ldg_stream(here)


def multiply_bf16(
    tile: int, tile_step: int, x: int, x_stride: int, rows: int, columns: int, sums: int
) -> None:
    """Weights bf16 (16, K64) times "bf16x2" rows: both parts of x are multiplied, with float32 sums.

    Arguments: address of the tile, bytes to the next tile (`tile_step`), packed rows x with stride in bytes,
    number of rows and columns, shared memory for the sums. The other `multiply_` functions take the same.
    """
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    steps, last_row = int32((columns + 63) >> 6), int32(rows - 1)
    last = int32(steps - 1)
    row_bytes, lane_bytes = int64(steps) * 128, 16 * int64(lane & 3)
    weight = tile + int64(lane >> 2) * row_bytes + lane_bytes
    first = x + int64(min(int32(lane >> 2), last_row)) * x_stride + lane_bytes
    second = first + row_bytes
    acc = registers(float32(0.0), 4 * TILES)
    a = registers(uint32(0), 16 * TILES * UNROLL)
    start, jump = int32(warp), int32((threads() >> 5) * UNROLL)
    while start - warp < steps:
        _ask(a, weight, tile_step, row_bytes, start, last)
        for u in static(range(UNROLL)):
            step = int32(start + u * WARPS)
            at = 128 * int64(min(step, last))
            f0, f1, f2, f3 = ld_u32x4(first + at)
            f4, f5, f6, f7 = ld_u32x4(first + at + 64)
            s0, s1, s2, s3 = ld_u32x4(second + at)
            s4, s5, s6, s7 = ld_u32x4(second + at + 64)
            for i in static(range(TILES)):
                d0, d1, d2, d3 = acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]
                for part in static(range(2)):
                    for h in static(range(4)):
                        b0 = ((f0, f2, f4, f6) if part == 0 else (s0, s2, s4, s6))[h]
                        b1 = ((f1, f3, f5, f7) if part == 0 else (s1, s3, s5, s7))[h]
                        d0, d1, d2, d3 = mma_bf16(
                            a[16 * (u * TILES + i) + 2 * h],
                            a[16 * (u * TILES + i) + 2 * h + 8],
                            a[16 * (u * TILES + i) + 2 * h + 1],
                            a[16 * (u * TILES + i) + 2 * h + 9],
                            b0,
                            b1,
                            d0,
                            d1,
                            d2,
                            d3,
                        )
                if step < steps:
                    acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3] = d0, d1, d2, d3
        start = int32(start + jump)
    for i in static(range(TILES)):
        _leave(sums, i, acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3])


def multiply_fp16(
    tile: int, tile_step: int, x: int, x_stride: int, rows: int, columns: int, sums: int
) -> None:
    """Weights fp16 (16, K64) times "fp16" rows; the sums of 64 columns get the scales of x."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    steps, last_row = int32((columns + 63) >> 6), int32(rows - 1)
    last = int32(steps - 1)
    row_bytes, lane_bytes = int64(steps) * 128, 16 * int64(lane & 3)
    weight = tile + int64(lane >> 2) * row_bytes + lane_bytes
    row_start = x + int64(min(int32(lane >> 2), last_row)) * x_stride + lane_bytes
    left, right = _scales_of(x, x_stride, rows, row_bytes, lane)
    zero = float32(0.0)
    acc = registers(float32(0.0), 4 * TILES)
    a = registers(uint32(0), 16 * TILES * UNROLL)
    start, jump = int32(warp), int32((threads() >> 5) * UNROLL)
    while start - warp < steps:
        _ask(a, weight, tile_step, row_bytes, start, last)
        for u in static(range(UNROLL)):
            step = int32(start + u * WARPS)
            at = int64(min(step, last))
            x0, x1, x2, x3 = ld_u32x4(row_start + 128 * at)
            x4, x5, x6, x7 = ld_u32x4(row_start + 128 * at + 64)
            even, odd = ld_f32(left + 4 * at), ld_f32(right + 4 * at)
            for i in static(range(TILES)):
                d0, d1, d2, d3 = zero, zero, zero, zero
                for h in static(range(4)):
                    d0, d1, d2, d3 = mma_fp16(
                        a[16 * (u * TILES + i) + 2 * h],
                        a[16 * (u * TILES + i) + 2 * h + 8],
                        a[16 * (u * TILES + i) + 2 * h + 1],
                        a[16 * (u * TILES + i) + 2 * h + 9],
                        (x0, x2, x4, x6)[h],
                        (x1, x3, x5, x7)[h],
                        d0,
                        d1,
                        d2,
                        d3,
                    )
                if step < steps:
                    acc[4 * i] = fma(d0, even, acc[4 * i])
                    acc[4 * i + 1] = fma(d1, odd, acc[4 * i + 1])
                    acc[4 * i + 2] = fma(d2, even, acc[4 * i + 2])
                    acc[4 * i + 3] = fma(d3, odd, acc[4 * i + 3])
        start = int32(start + jump)
    for i in static(range(TILES)):
        _leave(sums, i, acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3])


def _scales_of(x: int, x_stride: int, rows: int, half_bytes: int, lane: int) -> tuple[int, int]:
    """Addresses of the scales of the two rows whose sums a lane holds."""
    even = int32(2 * (lane & 3))
    return (
        x + int64(min(even, int32(rows - 1))) * x_stride + half_bytes,
        x + int64(min(int32(even + 1), int32(rows - 1))) * x_stride + half_bytes,
    )


def low_pair(word: int) -> Any:
    """e4m3 bytes 0 and 2 as fp16, times 2^-8: exponent and fraction move one bit down."""
    return and_or(uint32(word << 8), uint32(0x80008000), uint32(uint32(word << 7) & uint32(0x3F803F80)))


def high_pair(word: int) -> Any:
    """e4m3 bytes 1 and 3 as fp16, times 2^-8."""
    return and_or(word, uint32(0x80008000), uint32(uint32(word >> 1) & uint32(0x3F803F80)))


def multiply_fp8(
    tile: int, tile_step: int, x: int, x_stride: int, rows: int, columns: int, sums: int
) -> None:
    """Weights e4m3 (`layouts.plain.Fp8`) times "fp16" rows; the sums of 32 columns get the scales of both."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    steps, last_row = int32((columns + 63) >> 6), int32(rows - 1)
    last = int32(steps - 1)
    weight = tile + 16 * int64(lane)
    scale = tile + 1024 * int64(steps) + 4 * int64(lane >> 2)
    row_start = x + int64(min(int32(lane >> 2), last_row)) * x_stride + 16 * int64(lane & 3)
    left, right = _scales_of(x, x_stride, rows, 128 * int64(steps), lane)
    zero = float32(0.0)
    acc = registers(float32(0.0), 4 * TILES)
    a = registers(uint32(0), 8 * TILES * UNROLL)
    start, jump = int32(warp), int32((threads() >> 5) * UNROLL)
    while start - warp < steps:
        for u in static(range(UNROLL)):
            at = 1024 * int64(min(int32(start + u * WARPS), last))
            for i in static(range(TILES)):
                for c in static(range(2)):
                    (
                        a[8 * (u * TILES + i) + 4 * c],
                        a[8 * (u * TILES + i) + 4 * c + 1],
                        a[8 * (u * TILES + i) + 4 * c + 2],
                        a[8 * (u * TILES + i) + 4 * c + 3],
                    ) = ldg_stream(weight + i * tile_step + at + 512 * c)
        for u in static(range(UNROLL)):
            step = int32(start + u * WARPS)
            at = int64(min(step, last))
            even, odd = ld_f32(left + 4 * at), ld_f32(right + 4 * at)
            for c in static(range(2)):
                x0, x1, x2, x3 = ld_u32x4(row_start + 128 * at + 64 * c)
                for i in static(range(TILES)):
                    e0, e1 = a[8 * (u * TILES + i) + 4 * c], a[8 * (u * TILES + i) + 4 * c + 1]
                    e2, e3 = a[8 * (u * TILES + i) + 4 * c + 2], a[8 * (u * TILES + i) + 4 * c + 3]
                    d0, d1, d2, d3 = mma_fp16(
                        low_pair(e0),
                        low_pair(e2),
                        high_pair(e0),
                        high_pair(e2),
                        x0,
                        x1,
                        zero,
                        zero,
                        zero,
                        zero,
                    )
                    d0, d1, d2, d3 = mma_fp16(
                        low_pair(e1), low_pair(e3), high_pair(e1), high_pair(e3), x2, x3, d0, d1, d2, d3
                    )
                    block = scale + i * tile_step + 64 * ((2 * at + c) * 32 // UNIT)
                    if step < steps:
                        upper, lower = ldg_f32(block), ldg_f32(block + 32)
                        acc[4 * i] = fma(d0, upper * even, acc[4 * i])
                        acc[4 * i + 1] = fma(d1, upper * odd, acc[4 * i + 1])
                        acc[4 * i + 2] = fma(d2, lower * even, acc[4 * i + 2])
                        acc[4 * i + 3] = fma(d3, lower * odd, acc[4 * i + 3])
        start = int32(start + jump)
    for i in static(range(TILES)):
        _leave(sums, i, acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3])


def multiply_fp32(
    tile: int, tile_step: int, x: int, x_stride: int, rows: int, columns: int, sums: int
) -> None:
    """Weights float32 (16, K64) times float32 rows: lane t has columns 4 t .. 4 t + 3 of each 16.

    Nothing of x past K is read.
    """
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    t, whole = int32(lane & 3), int32(columns >> 5)
    row_bytes = int64((columns + 63) >> 6) * 256
    weight = tile + int64(lane >> 2) * row_bytes
    acc = registers(float32(0.0), 16)
    a = registers(uint32(0), 16)
    row = registers(int32(0), 8)
    for r in static(range(8)):
        row[r] = int32(min(int32(r), int32(rows - 1)) * int32(x_stride))
    step, jump = int32(warp), int32(threads() >> 5)
    while step < whole:
        at = 128 * int64(step) + 16 * int64(t)
        for h in static(range(4)):
            a[4 * h], a[4 * h + 1], a[4 * h + 2], a[4 * h + 3] = ldg_stream(
                weight + (h // 2) * 8 * row_bytes + at + 64 * (h % 2)
            )
        for c in static(range(2)):
            u0, u1, u2, u3 = (
                bits_float(a[4 * c]),
                bits_float(a[4 * c + 1]),
                bits_float(a[4 * c + 2]),
                bits_float(a[4 * c + 3]),
            )
            l0, l1, l2, l3 = (
                bits_float(a[4 * c + 8]),
                bits_float(a[4 * c + 9]),
                bits_float(a[4 * c + 10]),
                bits_float(a[4 * c + 11]),
            )
            for r in static(range(8)):
                x0, x1, x2, x3 = ld_f32x4(x + at + 64 * c + int64(row[r]))
                acc[2 * r] = fma(u3, x3, fma(u2, x2, fma(u1, x1, fma(u0, x0, acc[2 * r]))))
                acc[2 * r + 1] = fma(l3, x3, fma(l2, x2, fma(l1, x1, fma(l0, x0, acc[2 * r + 1]))))
        step = int32(step + jump)
    column = int32(32 * whole + 4 * warp + t)
    if column < columns:
        at = 4 * int64(column)
        upper, lower = ldg_f32(weight + at), ldg_f32(weight + 8 * row_bytes + at)
        for r in static(range(8)):
            x0 = ld_f32(x + at + int64(row[r]))
            acc[2 * r], acc[2 * r + 1] = fma(upper, x0, acc[2 * r]), fma(lower, x0, acc[2 * r + 1])
    for i in static(range(16)):
        acc[i] = acc[i] + shfl_xor_f32(acc[i], 1)
        acc[i] = acc[i] + shfl_xor_f32(acc[i], 2)
    _leave(
        sums,
        0,
        acc[0] if t == 0 else acc[4] if t == 1 else acc[8] if t == 2 else acc[12],
        acc[2] if t == 0 else acc[6] if t == 1 else acc[10] if t == 2 else acc[14],
        acc[1] if t == 0 else acc[5] if t == 1 else acc[9] if t == 2 else acc[13],
        acc[3] if t == 0 else acc[7] if t == 1 else acc[11] if t == 2 else acc[15],
    )
