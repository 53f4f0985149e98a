"""Mixture of experts: choosing experts, grouping rows by expert, and multiplying by the experts' matrices.

`route` chooses experts for each row; `sort_routes` gives every choice a place, so that an expert's rows are
adjacent, in step order; `spread` copies rows to their places and `gather` adds up the results. The matrix
products are those of `linear.py`. A step of up to eight rows gives no expert more than eight, so a row's
result does not depend on the other rows. In longer steps an expert may get more or fewer than eight: with
integers and pairs of int16 both have the same sums, with others the last bits may differ. Only the chosen
experts are read.
Source: Mixtral, arXiv 2401.04088.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.core import types

from engine.backends.cpu.codegen.memory_ops import ld_f32, ld_f64, ld_i32, ld_i64, st_f32, st_i32, st_i64
from engine.backends.cpu.codegen.specialise import Jit, specialise, words
from engine.backends.cpu.kernels.attention.softmax import exp_scalar, row_add
from engine.backends.cpu.kernels.linear.linear import (
    A_BIAS,
    A_BLOCKS,
    A_FIRST,
    A_GROUP,
    A_TILES,
    A_WEIGHT,
    A_X,
    A_X_STRIDE,
    A_Y,
    A_Y_STRIDE,
    ARGUMENTS,
    LARGE_TILES,
    SCRATCH_PACKED,
    SCRATCH_PANEL,
    product_name,
    row_parts,
)
from engine.backends.cpu.kernels.packed_activations import FEATURES as PACKED_FEATURES
from engine.backends.cpu.kernels.packed_activations import PACKED_BYTES
from engine.backends.cpu.kernels.rows import copy_vectors
from engine.backends.cpu.layouts.layout import WeightLayout
from engine.backends.cpu.lowering.call import TAG_BITS, Argument, Calls, Table
from engine.backends.cpu.runtime.step_block import LOGIT_ROWS, ROWS, SERIAL, SMALL_BATCH, TOKENS
from engine.backends.graph.moe import Gather, Route, Spread
from engine.backends.routing import ROOT, SCORES, SMALLEST_SUM

KINDS = (*SCORES, ROOT)
MOST_EXPERTS = 1024
"""The kernels keep up to three words for each expert in the scratch memory of an unpacked panel."""

(R_LOGITS, R_STRIDE, R_CHOSEN, R_WEIGHTS, R_USED_STRIDE, R_EXPERTS, R_USED, R_NORMALISE) = range(8)
(R_KIND, R_BIAS, R_SCALES, R_GROUPS, R_USED_GROUPS, R_GROUP_BEST, R_SCALE, R_NEARNESS) = range(8, 16)
(R_BY_LOGIT, R_TABLE) = range(16, 18)
"""Further arguments of `route_scored`: as in `Routing` and `Ops.route`; addresses 0 for None. The scores are
1: sigmoids, 2: roots of softplus, 0: the softmax.
"""
(S_CHOSEN, S_STRIDE, S_EXPERTS, S_USED, S_PLACES, S_TABLE, S_LOGITS) = range(7)
(M_X, M_STRIDE, M_PLACES, M_USED_STRIDE, M_USED, M_Y, M_WEIGHTS, M_RESIDUAL) = range(8)
# The products' arguments begin with those of `linear.py`; the weight is the address of a table of addresses,
# 0 for experts of another layout. Then: the table of routes, the number of experts, bytes of an expert's
# bias, the first expert's tag, and tiles for each expert.
(X_TABLE, X_EXPERTS, X_BIAS_STRIDE, X_TAG, X_CHUNKS) = range(ARGUMENTS, ARGUMENTS + 5)


def table_words(experts: int) -> int:
    """int32 words of a table of routes: how many of X experts have rows (1), which ones (X), and where each
    expert's rows begin, with the total at the end (X + 1).
    """
    return 2 * experts + 2


def route(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: the experts with the largest logits (the first of equal ones) and their weights.

    The weight of expert j is exp(l_j) / sum of exp(l_i), over the chosen experts if `R_NORMALISE`, else over
    all. Chosen experts are int32 and weights float32, both (T, used).
    """
    experts, used = ld_i64(args + 8 * R_EXPERTS), ld_i64(args + 8 * R_USED)
    logits = ld_i64(args + 8 * R_LOGITS) + tile * ld_i64(args + 8 * R_STRIDE)
    chosen = ld_i64(args + 8 * R_CHOSEN) + tile * ld_i64(args + 8 * R_USED_STRIDE)
    weights = ld_i64(args + 8 * R_WEIGHTS) + tile * ld_i64(args + 8 * R_USED_STRIDE)
    taken = scratch + SCRATCH_PANEL
    for e in range(experts):
        st_i32(taken + 4 * e, 0)
    for j in range(used):
        best = -1
        for e in range(experts):
            # No comparison with NaN holds: then take any expert that is left.
            if ld_i32(taken + 4 * e) == 0 and (
                best < 0 or ld_f32(logits + 4 * e) > ld_f32(logits + 4 * best)
            ):
                best = e
        st_i32(taken + 4 * best, 1)
        st_i32(chosen + 4 * j, best)
    top = ld_f32(logits + 4 * ld_i32(chosen))
    total = 0.0
    if ld_i64(args + 8 * R_NORMALISE):
        for j in range(used):
            total += exp_scalar(ld_f32(logits + 4 * ld_i32(chosen + 4 * j)) - top)
    else:
        for e in range(experts):
            total += exp_scalar(ld_f32(logits + 4 * e) - top)
    for j in range(used):
        st_f32(weights + 4 * j, exp_scalar(ld_f32(logits + 4 * ld_i32(chosen + 4 * j)) - top) / total)


def route_scored(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: experts by any `Routing`, in the layout of `route`.

    In scratch memory lie the scores, then what is compared for the choice, then whether an expert is out.
    """
    experts, used = ld_i64(args + 8 * R_EXPERTS), ld_i64(args + 8 * R_USED)
    logits = ld_i64(args + 8 * R_LOGITS) + tile * ld_i64(args + 8 * R_STRIDE)
    chosen = ld_i64(args + 8 * R_CHOSEN) + tile * ld_i64(args + 8 * R_USED_STRIDE)
    weights = ld_i64(args + 8 * R_WEIGHTS) + tile * ld_i64(args + 8 * R_USED_STRIDE)
    scales, table = ld_i64(args + 8 * R_SCALES), ld_i64(args + 8 * R_TABLE)
    score, total = scratch + SCRATCH_PANEL, 0.0
    scores(logits, score, experts, ld_i64(args + 8 * R_KIND))
    if table:
        token = ld_i32(ld_i64(step + 8 * TOKENS) + 4 * tile)
        for j in range(used):
            st_i32(chosen + 4 * j, ld_i32(table + 4 * (used * token + j)))
    else:
        choose(args, logits, score, chosen)
    for j in range(used):
        total += ld_f32(score + 4 * ld_i32(chosen + 4 * j))
    factor = ld_f64(args + 8 * R_SCALE)
    if ld_i64(args + 8 * R_NORMALISE) and ld_f64(args + 8 * R_NEARNESS) < 0.0:
        factor /= total + SMALLEST_SUM
    for j in range(used):
        e = ld_i32(chosen + 4 * j)
        own = ld_f32(scales + 4 * e) if scales else 1.0
        st_f32(weights + 4 * j, ld_f32(score + 4 * e) * factor * own)


def _choose_template(args: int, logits: int, score: int, chosen: int) -> None:
    """Choose experts by their scores; with nearness, their scores become their shares."""
    experts, used = ld_i64(args + 8 * R_EXPERTS), ld_i64(args + 8 * R_USED)
    bias, groups = ld_i64(args + 8 * R_BIAS), ld_i64(args + 8 * R_GROUPS)
    choice, out, by_logit = score + 4 * experts, score + 8 * experts, ld_i64(args + 8 * R_BY_LOGIT) != 0
    for e in range(experts):
        added = ld_f32((logits if by_logit else score) + 4 * e)
        added = added + ld_f32(bias + 4 * e) if bias else added
        # Logits order experts as their scores do, but are less often equal.
        st_f32(choice + 4 * e, added if bias or groups > 1 else ld_f32(logits + 4 * e))
        st_i32(out + 4 * e, 1 if groups > 1 else 0)
    if groups > 1:
        size = experts // groups
        for _ in range(ld_i64(args + 8 * R_USED_GROUPS)):
            group = best_group(choice, out, groups, size, ld_i64(args + 8 * R_GROUP_BEST))
            for e in range(group * size, (group + 1) * size):
                st_i32(out + 4 * e, 0)
    nearness = ld_f64(args + 8 * R_NEARNESS)
    for j in range(used):
        best = -1
        for e in range(experts):
            # No comparison with NaN holds: then take any expert that is left.
            if ld_i32(out + 4 * e) == 0 and (best < 0 or ld_f32(choice + 4 * e) > ld_f32(choice + 4 * best)):
                best = e
        if nearness >= 0.0:
            st_f32(score + 4 * best, near_share(logits, out, experts, best, nearness))
        st_i32(out + 4 * best, 1)
        st_i32(chosen + 4 * j, best)


def _scores(logits: int, score: int, experts: int, kind: int) -> None:
    """Write the scores of logits; `kind` is one of `KINDS`."""
    top, total = ld_f32(logits), 0.0
    for e in range(1, experts):
        top = max(top, ld_f32(logits + 4 * e))
    for e in range(experts):
        logit = ld_f32(logits + 4 * e)
        if kind:
            small = exp_scalar(-abs(logit))
            if kind == 1:
                st_f32(score + 4 * e, (1.0 if logit >= 0 else small) / (1.0 + small))
            else:
                st_f32(score + 4 * e, math.sqrt(max(logit, 0.0) + math.log1p(small)))
        else:
            share = exp_scalar(logit - top)
            total += share
            st_f32(score + 4 * e, share)
    if not kind:
        for e in range(experts):
            st_f32(score + 4 * e, ld_f32(score + 4 * e) / total)


def _near_share(logits: int, out: int, experts: int, best: int, nearness: float) -> float:
    """The part of expert `best` in the softmax over the near ones that are not out; see `Routing`."""
    top, total = ld_f32(logits + 4 * best), 0.0
    for e in range(experts):
        logit = ld_f32(logits + 4 * e)
        if ld_i32(out + 4 * e) == 0 and not top - logit > 2.0 * nearness * max(abs(logit), top):
            total += exp_scalar(logit - top)
    return 1.0 / total


def _best_group(choice: int, out: int, groups: int, size: int, group_best: int) -> int:
    """The best group whose experts are out, the first of equal ones."""
    best, best_sum = -1, 0.0
    for g in range(groups):
        if ld_i32(out + 4 * g * size) == 0:
            continue
        first, second = -math.inf, -math.inf
        for e in range(g * size, (g + 1) * size):
            value = ld_f32(choice + 4 * e)
            if value > first:
                first, second = value, first
            elif value > second:
                second = value
        total = first + second if group_best > 1 and size > 1 else first
        if best < 0 or total > best_sum:
            best, best_sum = g, total
    return best


# Filled in by `route_kernel`.
scores: Any = None
choose: Any = None
near_share: Any = None
best_group: Any = None


def route_kernel(jit: Jit) -> Any:
    """The kernel `route_scored`; `jit(function, signature)` compiles its parts."""
    parts = {
        "near_share": jit(_near_share, types.float64(*[types.int64] * 4, types.float64)),
        "best_group": jit(_best_group, types.int64(*[types.int64] * 5)),
    }
    choice = jit(specialise(_choose_template, "choose_experts", **parts), words(4))
    return specialise(route_scored, "route_scored", scores=jit(_scores, words(4)), choose=choice)


def sort_routes(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile: a stable counting sort of all choices by expert. Writes the place of each choice, int32
    (T, used), and the table that `table_words` describes.
    """
    rows = ld_i64(step + 8 * (LOGIT_ROWS if ld_i64(args + 8 * S_LOGITS) else ROWS))
    experts, used, stride = (
        ld_i64(args + 8 * S_EXPERTS),
        ld_i64(args + 8 * S_USED),
        ld_i64(args + 8 * S_STRIDE),
    )
    chosen, places, table = (
        ld_i64(args + 8 * S_CHOSEN),
        ld_i64(args + 8 * S_PLACES),
        ld_i64(args + 8 * S_TABLE),
    )
    active, starts, next_place = table + 4, table + 4 * (1 + experts), scratch + SCRATCH_PANEL
    for e in range(experts):
        st_i32(next_place + 4 * e, 0)
    for t in range(rows):
        for j in range(used):
            count = next_place + 4 * ld_i32(chosen + t * stride + 4 * j)
            st_i32(count, ld_i32(count) + 1)
    total, busy = 0, 0
    for e in range(experts):
        count = ld_i32(next_place + 4 * e)
        st_i32(starts + 4 * e, total)
        st_i32(next_place + 4 * e, total)
        if count > 0:
            st_i32(active + 4 * busy, e)
            busy += 1
        total += count
    st_i32(starts + 4 * experts, total)
    st_i32(table, busy)
    for t in range(rows):
        for j in range(used):
            place = next_place + 4 * ld_i32(chosen + t * stride + 4 * j)
            st_i32(places + t * stride + 4 * j, ld_i32(place))
            st_i32(place, ld_i32(place) + 1)


def spread(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: copy the row to each of its places."""
    stride, y = ld_i64(args + 8 * M_STRIDE), ld_i64(args + 8 * M_Y)
    x = ld_i64(args + 8 * M_X) + tile * stride
    places = ld_i64(args + 8 * M_PLACES) + tile * ld_i64(args + 8 * M_USED_STRIDE)
    for j in range(ld_i64(args + 8 * M_USED)):
        copy_vectors(x, y + stride * ld_i32(places + 4 * j), stride // 64)


def gather(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile for each row: y = residual + sum of weight_j * result_j, in the order of the choices."""
    stride, x = ld_i64(args + 8 * M_STRIDE), ld_i64(args + 8 * M_X)
    y = ld_i64(args + 8 * M_Y) + tile * stride
    jump = tile * ld_i64(args + 8 * M_USED_STRIDE)
    places, weights = ld_i64(args + 8 * M_PLACES) + jump, ld_i64(args + 8 * M_WEIGHTS) + jump
    if ld_i64(args + 8 * M_RESIDUAL):
        copy_vectors(ld_i64(args + 8 * M_RESIDUAL) + tile * stride, y, stride // 64)
    else:
        for i in range(stride // 4):
            st_f32(y + 4 * i, 0.0)
    for j in range(ld_i64(args + 8 * M_USED)):
        row_add(y, x + stride * ld_i32(places + 4 * j), stride // 64, ld_f32(weights + 4 * j))


# Filled in for each weight layout by `experts_kernel`.
small_batch: Any = None
large_batch: Any = None
UNIT = 0


def _experts_template(args: int, step: int, tile: int, scratch: int) -> None:
    """One tile: an expert that has rows, and a group of its weight tiles. Surplus tiles do nothing."""
    table, chunks = ld_i64(args + 8 * X_TABLE), ld_i64(args + 8 * X_CHUNKS)
    slot = tile // chunks
    if slot >= ld_i32(table):
        return
    expert = ld_i32(table + 4 + 4 * slot)
    weight = ld_i64(ld_i64(args + 8 * A_WEIGHT) + 8 * expert)
    if weight == 0:
        return
    starts = table + 4 * (1 + ld_i64(args + 8 * X_EXPERTS) + expert)
    start = ld_i32(starts)
    rows = ld_i32(starts + 4) - start
    first = (tile % chunks) * ld_i64(args + 8 * A_GROUP)
    last = min(first + ld_i64(args + 8 * A_GROUP), ld_i64(args + 8 * A_TILES))
    # After the packed rows, see `linear.scratch_bytes`.
    block = (
        scratch
        + SCRATCH_PACKED
        + SMALL_BATCH * PACKED_BYTES * (ld_i64(args + 8 * A_BLOCKS) * UNIT // PACKED_FEATURES + 1)
    )
    for i in range(ARGUMENTS):
        st_i64(block + 8 * i, ld_i64(args + 8 * i))
    st_i64(block + 8 * A_WEIGHT, weight)
    st_i64(block + 8 * A_X, ld_i64(args + 8 * A_X) + start * ld_i64(args + 8 * A_X_STRIDE))
    st_i64(block + 8 * A_Y, ld_i64(args + 8 * A_Y) + start * ld_i64(args + 8 * A_Y_STRIDE))
    st_i64(block + 8 * A_FIRST, start)
    if ld_i64(args + 8 * A_BIAS):
        st_i64(block + 8 * A_BIAS, ld_i64(args + 8 * A_BIAS) + expert * ld_i64(args + 8 * X_BIAS_STRIDE))
    if rows <= SMALL_BATCH:
        # All experts pack their input to the same place; the number says whose is there.
        number = (ld_i64(step + 8 * SERIAL) << TAG_BITS) + ld_i64(args + 8 * X_TAG) + expert
        small_batch(block, number, rows, first, last, scratch)
    else:
        while first < last:
            large_batch(block, 0, rows, first, min(first + LARGE_TILES, last), scratch)
            first += LARGE_TILES


def experts_kernel(weight_layout: WeightLayout, bits: int, jit: Jit) -> Any:
    """The kernel for experts with this weight layout; `jit(function, signature)` compiles its parts."""
    name, parts = product_name("experts", weight_layout, bits), row_parts(weight_layout, jit, bits)
    return specialise(_experts_template, name, UNIT=weight_layout.unit, **parts)


# --- lowering -----------------------------------------------------------------------------------------------


def _route(calls: Calls, node: Route) -> None:
    """Choose experts, then sort the rows by expert."""
    x, routing, chosen, weights = node.x, node.routes.routing, node.routes.experts, node.routes.weights
    count, used = routing.experts, routing.used
    assert count <= MOST_EXPERTS
    table, places = calls.constants.room(4 * table_words(count)), chosen.like()
    calls.sorted_routes[node.routes] = places, table
    arguments: list[Argument] = [x, x.stride, chosen, weights, chosen.stride, count, used]
    arguments.append(int(routing.normalise))
    kernel = "route"
    if not routing.is_plain or any(each is not None for each in (node.bias, node.scales, node.table)):
        kernel = "route_scored"
        vectors = (0 if each is None else calls.constants.vector(each) for each in (node.bias, node.scales))
        arguments += [KINDS.index(routing.scores), *vectors, routing.groups, routing.used_groups]
        arguments += [routing.group_best, routing.scale, float(routing.nearness), int(routing.by_logit)]
        table_of = None if node.table is None else np.ascontiguousarray(node.table, np.int32)
        arguments.append(0 if table_of is None else calls.constants.integers(table_of))
    calls.add(kernel, arguments, [x], [chosen, weights], on_logit_rows=x.on_logit_rows)
    arguments = [chosen, chosen.stride, count, used, places, table, int(x.on_logit_rows)]
    once = (1, 1 << 40, 1, 1 << 40)
    calls.add("sort_routes", arguments, [chosen], [places, ("routes", table)], tiles=once)


def _spread(calls: Calls, node: Spread) -> None:
    x, y = node.x, node.y
    places, _ = calls.sorted_routes[node.routes]
    arguments: list[Argument] = [x, x.stride, places, places.stride, node.routes.routing.used, y]
    calls.add("spread", arguments, [x, places], [y], on_logit_rows=x.on_logit_rows)


def _gather(calls: Calls, node: Gather) -> None:
    x, y, used = node.x, node.y, node.routes.routing.used
    places, _ = calls.sorted_routes[node.routes]
    residual: list[Argument] = [] if node.residual is None else [node.residual]
    arguments: list[Argument] = [x, x.stride, places, places.stride, used, y, node.weights]
    arguments += residual or [0]
    calls.each_row("gather", arguments, [x, places, node.weights, *residual], y)


LOWER: Table = {Route: _route, Spread: _spread, Gather: _gather}
