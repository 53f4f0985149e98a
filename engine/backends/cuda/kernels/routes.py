"""Which kernel chooses the experts of a row; SparseMixer's choice (arXiv 2409.12136), and that of a table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    absolute,
    block_x,
    ld_f32,
    ld_i32,
    ld_u32,
    ldg_f32,
    ldg_i32,
    maximum,
    reciprocal,
    registers,
    st_f32,
    st_i32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels import moe
from engine.backends.cuda.kernels.common import warp_max, warp_sum
from engine.backends.cuda.kernels.moe import largest, number_of, sortable, values_for
from engine.backends.cuda.kernels.packed_activations_write import rows_first
from engine.backends.cuda.kernels.pointwise import exponential, sigmoid
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.cuda.lowering.context import Calls, Context, Table
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.moe import Route
from engine.backends.routing import ROOT, SMALLEST_SUM, Routing

VALUES = 1
SIGMOID = True
score_of: Any = sigmoid
"""As in `moe`."""


def _route_near(
    logits: int, stride: int, scales: int, ids: int, weights: int, used_stride: int, experts: int, used: int,
    nearness: float, factor: float,
) -> None:  # fmt: skip
    """The experts of a row by SparseMixer, in the layout of `moe._route`. Grid (row), one warp.

    `nearness` is twice that of the routing; `scales` as in `moe._route_scored`.
    """
    wait_for_others()
    row, lane = int64(block_x()), int32(thread())
    key = registers(uint32(0), VALUES)
    for k in static(range(VALUES)):
        expert = int32(lane + 32 * k)
        if expert < experts:
            key[k] = sortable(ld_u32(logits + row * stride + 4 * int64(expert)))
    for j in range(used):
        best, place = key[0], lane
        for k in static(range(1, VALUES)):
            if key[k] > best:
                best, place = key[k], int32(lane + 32 * k)
        best, place = largest(best, place)
        top, total = number_of(best), float32(0.0)
        for k in static(range(VALUES)):
            if key[k] != uint32(0):
                logit = number_of(key[k])
                if top - logit <= nearness * maximum(absolute(logit), top):
                    total = total + exponential(logit - top)
            if place == int32(lane + 32 * k):
                key[k] = uint32(0)
        total = warp_sum(total)
        if (j & 31) == lane:
            weight = reciprocal(total) * factor
            if scales != 0:
                weight = weight * ldg_f32(scales + 4 * int64(place))
            st_i32(ids + row * used_stride + 4 * int64(j), place)
            st_f32(weights + row * used_stride + 4 * int64(j), weight)


@cache
def route_near_kernel(experts: int) -> Kernel:
    """The kernel `_route_near` for up to `experts` experts, rounded up to 32 times a power of two."""
    values = values_for(experts)
    name, most = f"route_near_{32 * values}", 104 if values > 8 else 64
    return Kernel(name, _route_near, "llllllii" + "ff", 32, most, {"VALUES": values})


def _route_tabled(
    logits: int, stride: int, tokens: int, table: int, scales: int, ids: int, weights: int, used_stride: int,
    experts: int, used: int, normalise: int, factor: float,
) -> None:  # fmt: skip
    """The experts of a row's token, in the layout of `moe._route`. Grid (row), one warp.

    `tokens` int32 (rows,), `table` int32 (V, used); the rest as in `moe._route_scored`.
    """
    wait_for_others()
    row, lane, top = int64(block_x()), int32(thread()), float32(-3e38)
    own, total = table + 4 * int64(used) * int64(ld_i32(tokens + 4 * row)), float32(0.0)
    if not SIGMOID:
        for expert in range(lane, experts, 32):
            top = maximum(top, ld_f32(logits + row * stride + 4 * int64(expert)))
        top = warp_max(top)
    for j in range(lane, used if SIGMOID or normalise != 0 else experts, 32):
        expert = ldg_i32(own + 4 * int64(j)) if SIGMOID or normalise != 0 else int32(j)
        logit = ld_f32(logits + row * stride + 4 * int64(expert))
        total = total + (score_of(logit) if SIGMOID else exponential(logit - top))
    total = warp_sum(total)
    if normalise != 0:
        factor = factor * reciprocal(total + float32(SMALLEST_SUM))
    elif not SIGMOID:
        factor = factor * reciprocal(total)
    for j in range(lane, used, 32):
        expert = int32(ldg_i32(own + 4 * int64(j)))
        logit = ld_f32(logits + row * stride + 4 * int64(expert))
        weight = (score_of(logit) if SIGMOID else exponential(logit - top)) * factor
        if scales != 0:
            weight = weight * ldg_f32(scales + 4 * int64(expert))
        st_i32(ids + row * used_stride + 4 * int64(j), expert)
        st_f32(weights + row * used_stride + 4 * int64(j), weight)


@cache
def route_tabled_kernel(scores: str) -> Kernel:
    """The kernel `_route_tabled`."""
    name = f"route_tabled_{scores}"
    return Kernel(name, _route_tabled, "l" * 8 + "iii" + "f", 32, 56, moe.score_constants(scores))


def tabled_call(
    logits: Buffer, ids: Buffer, weights: Buffer, routing: Routing, table: int, scales: int = 0
) -> Call:
    """The same for experts of a `table` (V, used) int32, by the rows' tokens."""
    assert routing.nearness < 0
    arguments = (
        logits, logits.stride, Runtime.TOKENS, table, scales, ids, weights, ids.stride, routing.experts,
        routing.used, int(routing.normalise), routing.scale,
    )  # fmt: skip
    return Call(route_tabled_kernel(routing.scores), rows_first(), arguments, (logits,), (ids, weights))


def route_call(
    logits: Buffer, ids: Buffer, weights: Buffer, routing: Routing, bias: int = 0, scales: int = 0
) -> Call:
    """The call of `moe.route_call`, for any routing."""
    if routing.nearness < 0:
        return moe.route_call(logits, ids, weights, routing, bias, scales)
    assert not bias
    assert routing.groups == 1
    arguments = (
        logits, logits.stride, scales, ids, weights, ids.stride, routing.experts, routing.used,
        2 * routing.nearness, routing.scale,
    )  # fmt: skip
    kernel = route_near_kernel(routing.experts)
    return Call(kernel, rows_first(), arguments, (logits,), (ids, weights), logits.on_logit_rows)


def _route_calls(context: Context, node: Route) -> Calls:
    routes, device = node.routes, node.device
    bias, scales = (context.vector(each, device) for each in (node.bias, node.scales))
    if node.table is not None:
        table = context.constants.array(node.table, device)
        return (tabled_call(node.x, routes.experts, routes.weights, routes.routing, table, scales),)
    return (route_call(node.x, routes.experts, routes.weights, routes.routing, bias, scales),)


LOWER: Table = {Route: _route_calls}


def variants() -> Iterator[Kernel]:
    """The kernels that the registry lists."""
    yield route_near_kernel(32)
    yield route_tabled_kernel(ROOT)
