"""Mixture of experts without the products: choosing experts, repeating rows, and summing the results.

Spread row t * used + j is row t for its j-th expert, the most likely first.
Source: Mixtral, arXiv 2401.04088.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    bits_float,
    block_x,
    block_y,
    float_bits,
    fma,
    ld_f32,
    ld_u32,
    ldg_f32,
    maximum,
    reciprocal,
    registers,
    shfl_xor_i32,
    shfl_xor_u32,
    sqrt,
    st_f32,
    st_i32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.common import warp_max, warp_sum
from engine.backends.cuda.kernels.packed_activations_write import load_four, rows_first, store_four
from engine.backends.cuda.kernels.pointwise import exponential, sigmoid, softplus
from engine.backends.cuda.lowering.call import Argument, Call
from engine.backends.cuda.lowering.context import Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.moe import Gather, Spread
from engine.backends.routing import MOST_GPU_EXPERTS, ROOT, SCORES, SMALLEST_SUM, Routing

THREADS = 128
AT_ONCE = 4
"""Spread rows that `_gather` loads at once."""
VALUES = 4
NORMALISE = True
SIGMOID = True
"""Whether an expert's score is a function of its logit alone, which is `score_of`."""
BY_LOGIT = False


def sortable(bits: int) -> Any:
    """A uint32, never 0, that orders like the float32 of these bits. NaN gives 1, below all numbers."""
    if uint32(bits & uint32(0x7FFFFFFF)) > uint32(0x7F800000):
        return uint32(1)
    if bits == uint32(0x80000000):
        return uint32(0x80000000)  # -0 equals 0
    if bits >= uint32(0x80000000):
        return uint32(bits ^ uint32(0xFFFFFFFF))
    return uint32(bits | uint32(0x80000000))


def number_of(key: int) -> Any:
    """The float32 that `sortable` was computed from; NaN for 1."""
    if key >= uint32(0x80000000):
        return bits_float(uint32(key ^ uint32(0x80000000)))
    return bits_float(uint32(key ^ uint32(0xFFFFFFFF)))


def _route(
    logits: int, stride: int, ids: int, weights: int, used_stride: int, experts: int, used: int
) -> None:
    """The `used` most likely experts of a row and their weights. Grid (row), one warp.

    logits: float32 (rows, experts), stride in bytes. ids int32 and weights float32: (rows, used), most likely
    first, of equal ones the lower index, both with `used_stride`. The weights are a softmax over the used
    experts with NORMALISE, otherwise over all experts.
    """
    wait_for_others()
    row, lane = int64(block_x()), int32(thread())
    key = registers(uint32(0), VALUES)
    for k in static(range(VALUES)):
        expert = int32(lane + 32 * k)
        if expert < experts:
            key[k] = sortable(ld_u32(logits + row * stride + 4 * int64(expert)))
    top, total = float32(0.0), float32(0.0)
    for j in range(used):
        best, place = key[0], lane
        for k in static(range(1, VALUES)):
            if key[k] > best:
                best, place = key[k], int32(lane + 32 * k)
        best, place = largest(best, place)
        logit = number_of(best)
        if j == 0:
            top = logit
            if not NORMALISE:
                for k in static(range(VALUES)):
                    if key[k] != uint32(0):
                        total = total + exponential(number_of(key[k]) - top)
                total = warp_sum(total)
        part = exponential(logit - top)
        if NORMALISE:
            total = total + part
        for k in static(range(VALUES)):
            if place == int32(lane + 32 * k):
                key[k] = uint32(0)
        if (j & 31) == lane:
            st_i32(ids + row * used_stride + 4 * int64(j), place)
            st_f32(weights + row * used_stride + 4 * int64(j), part)
    times = reciprocal(total)
    for j in range(lane, used, 32):
        at = weights + row * used_stride + 4 * int64(j)
        st_f32(at, ld_f32(at) * times)


def _route_scored(
    logits: int, stride: int, bias: int, scales: int, ids: int, weights: int, used_stride: int,
    experts: int, used: int, size: int, used_groups: int, group_best: int, normalise: int, factor: float,
) -> None:  # fmt: skip
    """The experts of a row by any `Routing`, in the layout of `_route`. Grid (row), one warp.

    bias and scales: float32 (experts,), or address 0. Groups have `size` experts each; there are at most 32.
    Without bias and groups logits are compared: they order experts as their scores do.
    """
    wait_for_others()
    row, lane = int64(block_x()), int32(thread())
    key = registers(uint32(0), VALUES)
    score = registers(float32(0.0), VALUES)
    top, total = float32(-3e38), float32(0.0)
    for k in static(range(VALUES)):
        expert = int32(lane + 32 * k)
        if expert < experts:
            score[k] = ld_f32(logits + row * stride + 4 * int64(expert))
            key[k] = sortable(float_bits(score[k]))
            top = maximum(top, score[k])
    top = warp_max(top)
    for k in static(range(VALUES)):
        if key[k] != uint32(0):
            score[k] = score_of(score[k]) if SIGMOID else exponential(score[k] - top)
            total = total + score[k]
    times = reciprocal(warp_sum(total))
    for k in static(range(VALUES)):
        if not SIGMOID:
            score[k] = score[k] * times
        if key[k] != uint32(0) and bias != 0:
            compared = number_of(key[k]) if BY_LOGIT else score[k]
            key[k] = sortable(float_bits(compared + ldg_f32(bias + 4 * int64(int32(lane + 32 * k)))))
        elif key[k] != uint32(0) and size < experts and not BY_LOGIT:
            key[k] = sortable(float_bits(score[k]))
    if size < experts:
        mine = uint32(0)
        for g in range(32):
            low = int32(g * size)
            if low < experts:
                first, second = uint32(0), uint32(0)
                for k in static(range(VALUES)):
                    expert = int32(lane + 32 * k)
                    if expert >= low and expert < int32(low + size):
                        if key[k] > first:
                            first, second = key[k], first
                        elif key[k] > second:
                            second = key[k]
                best = _group_key(first, second, group_best)
                if int32(g) == lane:
                    mine = best
        open_groups = uint32(0)
        for _ in range(used_groups):
            best, place = largest(mine, lane)
            if place == lane:
                mine = uint32(0)
            open_groups = uint32(open_groups | uint32(uint32(1) << place))
        for g in range(32):
            if uint32(uint32(open_groups >> g) & uint32(1)) == uint32(0):
                for k in static(range(VALUES)):
                    expert = int32(lane + 32 * k)
                    if expert >= int32(g * size) and expert < int32(int32(g * size) + size):
                        key[k] = uint32(0)
    rank = registers(int32(-1), VALUES)
    total = float32(0.0)
    for j in range(used):
        best, place = key[0], lane
        for k in static(range(1, VALUES)):
            if key[k] > best:
                best, place = key[k], int32(lane + 32 * k)
        best, place = largest(best, place)
        for k in static(range(VALUES)):
            if place == int32(lane + 32 * k):
                key[k] = uint32(0)
                rank[k] = int32(j)
                total = total + score[k]
    if normalise != 0:
        factor = factor * reciprocal(warp_sum(total) + float32(SMALLEST_SUM))
    for k in static(range(VALUES)):
        if rank[k] >= 0:
            expert = int32(lane + 32 * k)
            weight = score[k] * factor
            if scales != 0:
                weight = weight * ldg_f32(scales + 4 * int64(expert))
            st_i32(ids + row * used_stride + 4 * int64(rank[k]), expert)
            st_f32(weights + row * used_stride + 4 * int64(rank[k]), weight)


def largest(best: int, place: int) -> Any:
    """The largest key of the lanes, and its place, the lowest of equal ones."""
    for step in static(range(5)):
        other, there = (
            uint32(shfl_xor_u32(best, int32(1 << step))),
            int32(shfl_xor_i32(place, int32(1 << step))),
        )
        if other > best or (other == best and there < place):
            best, place = other, there
    return best, place


def _group_key(first: int, second: int, group_best: int) -> Any:
    """The key of a group from each lane's two largest keys (0: none): the largest, or the sum of two."""
    for step in static(range(5)):
        other, next_one = (
            uint32(shfl_xor_u32(first, int32(1 << step))),
            uint32(shfl_xor_u32(second, int32(1 << step))),
        )
        if other > first:
            first, second, other = other, first, next_one
        if other > second:
            second = other
    if group_best > 1 and second != uint32(0):
        return sortable(float_bits(number_of(first) + number_of(second)))
    return first


def _spread(x: int, stride: int, y: int, width: int, used: int) -> None:
    """Write `used` copies of each row, one after the other. Grid (row, chunk of 4 THREADS columns)."""
    wait_for_others()
    row = int64(block_x())
    column = int32(4 * int32(block_y() * THREADS + thread()))
    if column < width:
        a, b, c, d = load_four(x + row * stride, column, width)
        for j in range(used):
            store_four(y + (row * int64(used) + int64(j)) * stride, column, width, a, b, c, d)


def _gather(
    x: int, stride: int, weights: int, used_stride: int, residual: int, y: int, width: int, used: int
) -> None:
    """y = residual (address 0: none) + the sum over j of weights[j] times spread row j, added in order.

    x, residual, y: float32 with rows of `stride` bytes. weights: float32 (rows, used).
    Grid (row, chunk of 4 THREADS columns).
    """
    wait_for_others()
    row = int64(block_x())
    column = int32(4 * int32(block_y() * THREADS + thread()))
    if column < width:
        a, b, c, d = float32(0.0), float32(0.0), float32(0.0), float32(0.0)
        if residual != 0:
            a, b, c, d = load_four(residual + row * stride, column, width)
        source, factors = x + row * int64(used) * stride, weights + row * used_stride
        for first in range(0, used, AT_ONCE):
            value = registers(float32(0.0), 4 * AT_ONCE)
            times = registers(float32(0.0), AT_ONCE)
            for i in static(range(AT_ONCE)):
                if int32(first + i) < used:
                    value[4 * i], value[4 * i + 1], value[4 * i + 2], value[4 * i + 3] = load_four(
                        source + int64(first + i) * stride, column, width
                    )
                    times[i] = ld_f32(factors + 4 * int64(first + i))
            for i in static(range(AT_ONCE)):
                if int32(first + i) < used:
                    a, b = fma(times[i], value[4 * i], a), fma(times[i], value[4 * i + 1], b)
                    c, d = fma(times[i], value[4 * i + 2], c), fma(times[i], value[4 * i + 3], d)
        store_four(y + row * stride, column, width, a, b, c, d)


def root_softplus(x: float) -> Any:
    """sqrt(log(1 + e^x))."""
    return sqrt(softplus(x))


score_of: Any = sigmoid


def score_constants(scores: str) -> dict[str, Any]:
    """The constants of what makes scores of logits."""
    return {"SIGMOID": scores != "softmax", "score_of": root_softplus if scores == ROOT else sigmoid}


def values_for(experts: int) -> int:
    """Experts of a lane, a power of two."""
    assert 0 < experts <= MOST_GPU_EXPERTS
    return 1 << (-(-experts // 32) - 1).bit_length()


@cache
def route_kernel(experts: int, normalise: bool) -> Kernel:
    """The kernel `_route` for up to `experts` experts, rounded up to 32 times a power of two."""
    values = values_for(experts)
    constants = {"VALUES": values, "NORMALISE": normalise}
    name = f"route_{32 * values}{'' if normalise else '_plain'}"
    return Kernel(name, _route, "lllllii", 32, 104 if values > 8 else 64, constants)


@cache
def route_scored_kernel(experts: int, scores: str, by_logit: bool = False) -> Kernel:
    """The kernel `_route_scored` for up to `experts` experts, rounded up to 32 times a power of two."""
    values = values_for(experts)
    constants = {"VALUES": values, **score_constants(scores), "BY_LOGIT": by_logit}
    return Kernel(
        f"route_{scores}_{'by_logit_' if by_logit else ''}{32 * values}",
        _route_scored,
        "llllllliiiiiif",
        32,
        168 if values > 8 else 96,
        constants,
    )


@cache
def spread_kernel() -> Kernel:
    return Kernel("spread", _spread, "lllii", THREADS, 36, {"THREADS": THREADS})


@cache
def gather_kernel() -> Kernel:
    return Kernel("gather", _gather, "llllllii", THREADS, 52, {"THREADS": THREADS, "AT_ONCE": AT_ONCE})


def route_call(
    logits: Buffer, ids: Buffer, weights: Buffer, routing: Routing, bias: int = 0, scales: int = 0
) -> Call:
    """ids (rows, used) int32 and weights (rows, used) float32 from the router's logits (rows, experts).

    `bias` and `scales` are the addresses of those of `Ops.route`, or 0.
    """
    assert logits.width == routing.experts <= MOST_GPU_EXPERTS
    assert 0 < routing.used <= routing.experts
    assert 0 < routing.groups <= 32
    assert ids.width == weights.width == routing.used
    assert logits.copies == ids.copies == weights.copies == 1
    if routing.is_plain and not bias and not scales:
        kernel = route_kernel(routing.experts, routing.normalise)
        arguments: tuple[Argument, ...] = (
            logits, logits.stride, ids, weights, ids.stride, routing.experts, routing.used,
        )  # fmt: skip
    else:
        kernel = route_scored_kernel(routing.experts, routing.scores, routing.by_logit)
        arguments = (
            logits, logits.stride, bias, scales, ids, weights, ids.stride, routing.experts, routing.used,
            routing.experts // routing.groups, routing.used_groups, routing.group_best,
            int(routing.normalise), routing.scale,
        )  # fmt: skip
    return Call(kernel, rows_first(), arguments, (logits,), (ids, weights), logits.on_logit_rows)


def spread_call(x: Buffer, y: Buffer) -> Call:
    """Copy each row of x into the y.copies rows of y that belong to it."""
    assert (x.width, x.copies, x.on_logit_rows) == (y.width, 1, y.on_logit_rows)
    arguments = (x, x.stride, y, x.width, y.copies)
    return Call(
        spread_kernel(), rows_first(-(-x.width // (4 * THREADS))), arguments, (x,), (y,), x.on_logit_rows
    )


def gather_call(x: Buffer, weights: Buffer, residual: Buffer | None, y: Buffer) -> Call:
    """y = residual (None: 0) + sum over j of weights[t, j] times spread row t * used + j of x."""
    assert x.copies == weights.width
    assert x.width == y.width
    assert residual is None or (residual.width, residual.copies) == (x.width, 1)
    assert weights.copies == y.copies == 1
    base: Argument = 0 if residual is None else residual
    arguments = (x, x.stride, weights, weights.stride, base, y, x.width, x.copies)
    blocks = rows_first(-(-x.width // (4 * THREADS)))
    reads = (x, weights) if residual is None else (x, weights, residual)
    return Call(gather_kernel(), blocks, arguments, reads, (y,), x.on_logit_rows)


LOWER: Table = {
    Spread: lambda _, node: (spread_call(node.x, node.y),),
    Gather: lambda _, node: (gather_call(node.x, node.weights, node.residual, node.y),),
}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    for experts in (32, 64, 128, 256, 512):
        yield route_kernel(experts, True)
        for scores in SCORES:
            yield route_scored_kernel(experts, scores)
    for experts in (32, 512):
        yield route_scored_kernel(experts, "sigmoid", by_logit=True)
    yield route_scored_kernel(256, ROOT)
    yield route_kernel(64, False)
    yield route_kernel(128, False)
    yield spread_kernel()
    yield gather_kernel()
