"""The end of a draw, in one block: applies the steps, draws a token, and writes result and state.

Thread i has candidate i. Running sums go over warps, then over their totals, always in the same order.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    add_i32,
    barrier,
    exp2,
    fma,
    ld_f32,
    ld_i32,
    lds_f32,
    lds_i32,
    log2,
    maximum,
    minimum,
    reciprocal,
    shared,
    shfl_f32,
    shfl_up_f32,
    shfl_xor_f32,
    st_f32,
    st_i32,
    static,
    sts_f32,
    sts_i32,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64
from engine.backends.cuda.kernels.common import LOG2_E
from engine.backends.cuda.kernels.sampling.layout import (
    ALTERNATIVES,
    BAD,
    COUNT,
    DEPTH,
    ENTROPY,
    FADE,
    FINAL,
    FLAG,
    GREEDY,
    IDS,
    INSIDE,
    LOWEST,
    MAX,
    MOST,
    NOTHING,
    OTHERS,
    OTHERS_AT,
    PARTIAL_WORDS,
    PENALISES,
    PROGRAM,
    RAW,
    RAW_INNER,
    RAW_MAX,
    RAW_SUM,
    REACH,
    RESULT_WORDS,
    SCORES,
    SLOTS,
    STAMP,
    STEPS,
    SUM,
    TOKEN,
    TOP,
    TOPS,
    TOPS_AT,
    WHOLE,
    WHOLE_SCALE,
)
from engine.sampling.passes import KEEP_NUCLEUS, KEEP_SQUARED, KEEP_TOP, SCALE

THREADS = 1024
LN2 = 0.6931471805599453
AS_THEY_COME, BY_ID, ORDERED = -1, 0, 1
"""The order of candidates in the draw: the whole vocabulary, by ascending id, most likely first."""

# Shared memory: totals of warps, sums over the whole vocabulary, weights and ids in the order of the draw.
ALL_MAX, ALL_SUM, ALL_INNER, ALL_BAD, OWN_SUM = 128, 132, 136, 140, 144
WEIGHTS, DRAWN_IDS = 192, 192 + 4 * MOST
ROOM = DRAWN_IDS + 4 * MOST


def _merge(partials: int, parts: int, scale: float, room: int) -> None:
    """Combine the results of the scan's blocks into shared memory; the first warp does it."""
    if thread() < 32:
        most, own = float32(NOTHING), float32(NOTHING)
        for part in range(thread(), parts, 32):
            at = partials + 4 * PARTIAL_WORDS * int64(part)
            most, own = maximum(most, ld_f32(at + 4 * RAW_MAX)), maximum(own, ld_f32(at + 4 * MAX))
        for step in static(range(5)):
            most, own = (
                maximum(most, shfl_xor_f32(most, 16 >> step)),
                maximum(own, shfl_xor_f32(own, 16 >> step)),
            )
        total, inner, bad, own_total = float32(0.0), float32(0.0), float32(0.0), float32(0.0)
        for part in range(thread(), parts, 32):
            at = partials + 4 * PARTIAL_WORDS * int64(part)
            depth, sums = (
                maximum(float32(ld_f32(at + 4 * RAW_MAX) - most), float32(-1e4)),
                ld_f32(at + 4 * RAW_SUM),
            )
            share = exp2(float32(depth * float32(LOG2_E)))
            total = fma(share, sums, total)
            inner = fma(share, fma(sums, depth, ld_f32(at + 4 * RAW_INNER)), inner)
            bad = float32(bad + ld_f32(at + 4 * BAD))
            depth = maximum(float32(ld_f32(at + 4 * MAX) - own), float32(-1e4))
            own_total = fma(
                exp2(float32(float32(depth * scale) * float32(LOG2_E))), ld_f32(at + 4 * SUM), own_total
            )
        for step in static(range(5)):
            total, inner = (
                float32(total + shfl_xor_f32(total, 16 >> step)),
                float32(inner + shfl_xor_f32(inner, 16 >> step)),
            )
            bad, own_total = (
                float32(bad + shfl_xor_f32(bad, 16 >> step)),
                float32(own_total + shfl_xor_f32(own_total, 16 >> step)),
            )
        if thread() == 0:
            sts_f32(room + ALL_MAX, most)
            sts_f32(room + ALL_SUM, total)
            sts_f32(room + ALL_INNER, inner)
            sts_f32(room + ALL_BAD, bad if most > float32(LOWEST) else float32(1.0))
            sts_f32(room + OWN_SUM, own_total)


def _sums(x: float, room: int) -> tuple[float, float]:
    """The running sum over threads, including this one's, and the total. All threads must call it."""
    lane, warp = int32(thread() & 31), int32(thread() >> 5)
    barrier()
    for step in static(range(5)):
        below = shfl_up_f32(x, 1 << step)
        if lane >= (1 << step):
            x = float32(x + below)
    if lane == 31:
        sts_f32(room + 4 * warp, x)
    barrier()
    totals = lds_f32(room + 4 * lane)
    for step in static(range(5)):
        below = shfl_up_f32(totals, 1 << step)
        if lane >= (1 << step):
            totals = float32(totals + below)
    before = shfl_f32(totals, int32(max(warp - 1, 0)))
    everything = shfl_f32(totals, 31)
    if warp > 0:
        x = float32(x + before)
    return x, everything


def _weight(score: float, top: float, scale: float, count: int) -> Any:
    if thread() < count:
        return exp2(float32(float32(float32(score - top) * scale) * float32(LOG2_E)))
    return float32(0.0)


def _counted(condition: bool, room: int) -> Any:
    """The number of threads for which the condition holds."""
    _, number = _sums(float32(1.0) if condition else float32(0.0), room)
    return int32(number)


def _kept(plan: int, room: int, score: float, top: float, count: int, known: float, beyond: int) -> Any:
    """Apply all steps to `count` candidates, of which the most likely scores `top`.

    `beyond` is 1 if there are more tokens, all more than `known` below the top. Returns the number of
    candidates kept, their order, the scale of their scores, and 1 if tokens beyond might have been kept, too.
    """
    me, flag = thread(), int32(0)
    standing, scale = int32(AS_THEY_COME), float32(1.0)
    for step in range(ld_i32(plan + 4 * STEPS)):
        code, value = (
            ld_i32(plan + 4 * int64(PROGRAM + 2 * step)),
            ld_f32(plan + 4 * int64(PROGRAM + 2 * step + 1)),
        )
        if code == SCALE:
            scale = float32(scale * value)
        elif code == KEEP_TOP:
            limit = int32(minimum(value, float32(1e9)))
            present = ld_i32(plan + 4 * INSIDE) if standing == AS_THEY_COME else count
            if limit < present:
                if beyond != 0 and limit > count:
                    flag = int32(1)
                standing, beyond, count = int32(ORDERED), int32(0), int32(min(count, limit))
        else:
            sums, mass = _sums(_weight(score, top, scale, count), room)
            held = mass
            if standing == AS_THEY_COME and beyond != 0:
                mass = lds_f32(room + OWN_SUM)
            if code == KEEP_NUCLEUS:
                target = float32(value * mass)
                if beyond != 0 and target > held:
                    flag = int32(1)
                count = int32(min(count, _counted(me < count and sums < target, room) + 1))
                standing = int32(ORDERED)
            else:
                if code == KEEP_SQUARED:
                    value = float32(log2(float32(value * reciprocal(mass))) * float32(LN2))
                value = minimum(value, float32(0.0))
                if beyond != 0 and value <= float32(-known * scale):
                    flag = int32(1)
                count = _counted(me < count and float32(float32(score - top) * scale) >= value, room)
                if standing != ORDERED:
                    standing = int32(BY_ID)
            beyond = int32(0)
    return count, standing, scale, int32(flag | beyond)


def _draw(
    ordered: int, raw_ordered: int, logits: int, plan: int, state: int, partials: int, parts: int,
    uniforms: int, results: int, tokens: int, position: int, rope_position: int, amounts: int, latest: int,
    history: int,
) -> None:  # fmt: skip
    """Draw a token and write its result. One block; `layout` describes the words.

    Inputs: the sorted lists of scores and raw logits, logits float32 (V,), plan, the scan's `parts` partials,
    uniforms float32 (SLOTS,). Updated: state, token, position and rope position of the next step. Output:
    `results`. amounts, latest and history are used only with penalties.
    """
    wait_for_others()
    room, me = shared(ROOM), thread()
    serial = ld_i32(state)
    slot = int32(serial & (SLOTS - 1))
    result = results + 4 * RESULT_WORDS * int64(slot)
    _merge(partials, parts, ld_f32(plan + 4 * WHOLE_SCALE), room)
    found = ld_i32(ordered + 4 * COUNT)
    count = int32(max(found, 0))
    top, score, token = float32(NOTHING), float32(NOTHING), int32(0)
    if count > 0:
        top = ld_f32(ordered + 4 * SCORES)
    if me < count:
        score, token = ld_f32(ordered + 4 * int64(SCORES + me)), ld_i32(ordered + 4 * int64(IDS + me))
    beyond = int32(1) if ld_i32(ordered + 4 * WHOLE) == 0 else int32(0)
    if ld_i32(plan + 4 * GREEDY) != 0:
        count, beyond = int32(min(count, 1)), int32(0)
    count, standing, scale, flag = _kept(plan, room, score, top, count, ld_f32(ordered + 4 * DEPTH), beyond)
    weight = _weight(score, top, scale, count)
    _, mass = _sums(weight, room)
    if mass > float32(0.0):
        weight = float32(weight * reciprocal(mass))
    if found <= 0 or lds_f32(room + ALL_BAD) > float32(0.0) or ld_i32(raw_ordered + 4 * COUNT) < 0:
        flag = int32(1)
    chosen = _place(weight, token, count, standing, ld_f32(uniforms + 4 * int64(slot)), room)
    raw_max, raw_share = lds_f32(room + ALL_MAX), reciprocal(lds_f32(room + ALL_SUM))
    _write_alternatives(result, raw_ordered, plan, room, count, raw_max, raw_share)
    asked = int32(min(count, ld_i32(plan + 4 * TOP)))
    if me < asked:
        st_i32(result + 4 * int64(TOPS_AT + 2 * me), token)
        st_f32(result + 4 * int64(TOPS_AT + 2 * me + 1), weight)
    tops = _counted(me < asked and weight > float32(0.0), room)
    drawn, share = int32(0), float32(0.0)
    if count > 0:
        drawn, share = lds_i32(room + DRAWN_IDS + 4 * chosen), lds_f32(room + WEIGHTS + 4 * chosen)
    if me == 0:
        own = float32(
            exp2(float32(float32(ld_f32(logits + 4 * int64(drawn)) - raw_max) * float32(LOG2_E))) * raw_share
        )
        st_i32(result + 4 * STAMP, int32(serial + 1))
        st_i32(result + 4 * FLAG, flag)
        st_i32(result + 4 * TOKEN, drawn)
        st_f32(result + 4 * FINAL, share)
        st_f32(result + 4 * RAW, own)
        st_i32(result + 4 * TOPS, tops)
        st_i32(tokens, drawn)
        st_i32(state, int32(serial + 1))
    place = int32(ld_i32(position) + 1)
    if ld_i32(plan + 4 * PENALISES) != 0:
        _remember(drawn, place, plan, amounts, latest, history)
    barrier()
    if me == 0:
        st_i32(position, place)
        st_i32(rope_position, int32(ld_i32(rope_position) + 1))


def _place(weight: float, token: int, count: int, standing: int, uniform: float, room: int) -> Any:
    """The index of the candidate that the random number selects, in the order of the draw.

    Puts weights and ids in that order in shared memory.
    """
    me = thread()
    sts_f32(room + WEIGHTS + 4 * me, weight)
    sts_i32(room + DRAWN_IDS + 4 * me, token)
    barrier()
    if standing != ORDERED:
        rank = int32(0)
        for other in range(count):
            if lds_i32(room + DRAWN_IDS + 4 * other) < token:
                rank = int32(rank + 1)
        barrier()
        if me < count:
            sts_f32(room + WEIGHTS + 4 * rank, weight)
            sts_i32(room + DRAWN_IDS + 4 * rank, token)
        barrier()
        weight = lds_f32(room + WEIGHTS + 4 * me)
    sums, total = _sums(weight, room)
    target = float32(uniform * total)
    passed = _counted(me < count and sums <= target, room)
    last = _counted(me < count and sums < total, room)
    chosen = int32(max(min(min(passed, last), count - 1), 0))
    # If rounding selects a token of zero probability, step back to one that has some.
    while chosen > 0 and lds_f32(room + WEIGHTS + 4 * chosen) <= float32(0.0):
        chosen = int32(chosen - 1)
    return chosen


def _write_alternatives(
    result: int, raw_ordered: int, plan: int, room: int, count: int, raw_max: float, raw_share: float
) -> None:
    """Write the most likely tokens of the raw logits with both probabilities, and the entropy."""
    me, asked = thread(), ld_i32(plan + 4 * ALTERNATIVES)
    listed = int32(max(min(asked, ld_i32(raw_ordered + 4 * COUNT)), 0))
    if me < listed:
        token, raw = (ld_i32(raw_ordered + 4 * int64(IDS + me)), ld_f32(raw_ordered + 4 * int64(SCORES + me)))
        final = float32(0.0)
        for other in range(count):
            if lds_i32(room + DRAWN_IDS + 4 * other) == token:
                final = lds_f32(room + WEIGHTS + 4 * other)
        at = result + 4 * int64(OTHERS_AT + 3 * me)
        st_i32(at, token)
        st_f32(at + 4, float32(exp2(float32(float32(raw - raw_max) * float32(LOG2_E))) * raw_share))
        st_f32(at + 8, final)
    if me == 0:
        entropy = float32(0.0)
        if asked > 0:
            entropy = float32(log2(lds_f32(room + ALL_SUM)) * float32(LN2)) - float32(
                lds_f32(room + ALL_INNER) * raw_share
            )
            entropy = maximum(float32(entropy), float32(0.0))
        st_f32(result + 4 * ENTROPY, float32(entropy))
        st_i32(result + 4 * OTHERS, listed)


def _remember(token: int, place: int, plan: int, amounts: int, latest: int, history: int) -> None:
    """Count the token at `place`; occurrences beyond `reach` lose 1 of fade + 1 parts at each step."""
    reach, fade = ld_i32(plan + 4 * REACH), ld_i32(plan + 4 * FADE)
    if thread() == 0:
        add_i32(amounts + 4 * int64(token), int32(fade + 1))
        st_i32(latest + 4 * int64(token), place)
    if reach > 0:
        if thread() == 0:
            st_i32(history + 4 * int64(place), token)
        for back in range(int32(place - reach - fade + thread()), int32(place - reach + 1), THREADS):
            if back >= 0:
                add_i32(amounts + 4 * int64(ld_i32(history + 4 * int64(back))), int32(-1))


@cache
def draw_kernel() -> Kernel:
    return Kernel("sample_draw", _draw, "lllllli" + 8 * "l", THREADS, 60, {})
