"""The first pass of a draw over the whole vocabulary: bias and penalties, group maxima, and sums for softmax.

Block x has the tokens from PART * x on; a thread takes four adjacent ones, twice. The order of sums is fixed,
so results are reproducible bit for bit.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    barrier,
    block_x,
    exp2,
    fma,
    ld_f32,
    ld_f32x4,
    ld_i32,
    ld_u32x4,
    lds_f32,
    maximum,
    minimum,
    reciprocal,
    registers,
    shared,
    shfl_xor_f32,
    st_f32,
    st_f32x4,
    static,
    sts_f32,
    thread,
    to_float,
    wait_for_others,
)
from engine.backends.cuda.codegen.ptx import float_bits as bits_of
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.common import LOG2_E, warp_max, warp_sum
from engine.backends.cuda.kernels.sampling.layout import (
    BAD,
    FADE,
    FREQUENCY,
    INSIDE,
    LOWEST,
    MAX,
    NOTHING,
    PART,
    PARTIAL_WORDS,
    PENALISES,
    PRESENCE,
    RAW_INNER,
    RAW_MAX,
    RAW_SUM,
    REACH,
    REPETITION,
    REPETITION_FIRST,
    SLOTS,
    SUM,
    WHOLE_SCALE,
)

THREADS = 256
GROUP = 64
EDITS = 0


def _penalised(score: float, amount: int, latest: int, place: int, plan: int) -> float:
    """A score after the penalties.

    `amount` is in units of 1 / (fade + 1), `latest` the token's last place, `place` the length of the text.
    """
    if amount > 0 and score > float32(LOWEST):
        reach, fade = ld_i32(plan + 4 * REACH), ld_i32(plan + 4 * FADE)
        share = reciprocal(to_float(int32(fade + 1)))
        strength = float32(1.0)
        if reach >= 0:
            strength = minimum(
                float32(1.0), float32(to_float(int32(fade + 1 - (place - reach - latest))) * share)
            )
        penalty = fma(float32(ld_f32(plan + 4 * REPETITION) - float32(1.0)), strength, float32(1.0))
        less = fma(
            ld_f32(plan + 4 * FREQUENCY),
            float32(to_float(amount) * share),
            float32(ld_f32(plan + 4 * PRESENCE) * strength),
        )
        repetition_first = ld_i32(plan + 4 * REPETITION_FIRST)
        if repetition_first == 0:
            score = float32(score - less)
        score = float32(score * reciprocal(penalty)) if score > float32(0.0) else float32(score * penalty)
        if repetition_first != 0:
            score = float32(score - less)
    return score


def _load(logits: int, row: int, first: int, size: int) -> tuple[float, float, float, float]:
    """Load four logits and copy them to the row of kept ones; past the last token they are NOTHING."""
    at = 4 * int64(first)
    x = registers(float32(NOTHING), 4)
    if first + 4 <= size:
        x[0], x[1], x[2], x[3] = ld_f32x4(logits + at)
        st_f32x4(row + at, x[0], x[1], x[2], x[3])
    else:
        for i in static(range(4)):
            if first + i < size:
                x[i] = ld_f32(logits + at + 4 * i)
                st_f32(row + at + 4 * i, x[i])
    return x[0], x[1], x[2], x[3]


def _edit(
    a: float, b: float, c: float, d: float, bias: int, amounts: int, latest: int, place: int, plan: int
) -> Any:
    """Four scores: logits plus bias, after the penalties. The addresses are those of the first one."""
    x = registers(float32(0.0), 4)
    more = registers(float32(0.0), 4)
    counts = registers(uint32(0), 4)
    lasts = registers(uint32(0), 4)
    x[0], x[1], x[2], x[3] = a, b, c, d
    more[0], more[1], more[2], more[3] = ld_f32x4(bias)
    if ld_i32(plan + 4 * PENALISES) != 0:
        counts[0], counts[1], counts[2], counts[3] = ld_u32x4(amounts)
        lasts[0], lasts[1], lasts[2], lasts[3] = ld_u32x4(latest)
    for i in static(range(4)):
        if more[i] <= float32(LOWEST) or x[i] <= float32(LOWEST):
            x[i] = float32(NOTHING)
        else:
            x[i] = _penalised(float32(x[i] + more[i]), int32(counts[i]), int32(lasts[i]), place, plan)
    return x[0], x[1], x[2], x[3]


def _scan(
    logits: int, kept: int, kept_stride: int, state: int, plan: int, position: int, bias: int, amounts: int,
    latest: int, scores: int, groups: int, raw_groups: int, partials: int, size: int,
) -> None:  # fmt: skip
    """Write the kept logits, with EDITS the scores, the group maxima of both, and a block's partial results.

    Inputs: logits float32 (size,), state, plan, position. With EDITS: bias, amounts and
    latest. Outputs: row state % SLOTS of `kept` (stride in bytes), scores, groups,
    raw_groups, and PARTIAL_WORDS words in partials.
    """
    wait_for_others()
    part = block_x()
    inside, row = ld_i32(plan + 4 * INSIDE), kept + int64(ld_i32(state) & (SLOTS - 1)) * kept_stride
    raw = registers(float32(NOTHING), 8)
    own = registers(float32(NOTHING), 8)
    bad = float32(0.0)
    for half in static(range(2)):
        first = int32(part * PART + half * 1024 + 4 * thread())
        raw[4 * half], raw[4 * half + 1], raw[4 * half + 2], raw[4 * half + 3] = _load(
            logits, row, first, size
        )
        for i in static(range(4)):
            bits = bits_of(raw[4 * half + i])
            if first + i >= inside:
                raw[4 * half + i] = float32(NOTHING)
            elif uint32(bits & uint32(0x7FFFFFFF)) >= uint32(0x7F800000) and bits != uint32(0xFF800000):
                bad = float32(1.0)
            raw[4 * half + i] = maximum(raw[4 * half + i], float32(NOTHING))
            own[4 * half + i] = raw[4 * half + i]
        if EDITS:
            at, place = 4 * int64(first), int32(ld_i32(position) + 1)
            own[4 * half], own[4 * half + 1], own[4 * half + 2], own[4 * half + 3] = _edit(
                own[4 * half],
                own[4 * half + 1],
                own[4 * half + 2],
                own[4 * half + 3],
                bias + at,
                amounts + at,
                latest + at,
                place,
                plan,
            )
            st_f32x4(scores + at, own[4 * half], own[4 * half + 1], own[4 * half + 2], own[4 * half + 3])
            _write_groups(
                raw_groups,
                part,
                raw[4 * half],
                raw[4 * half + 1],
                raw[4 * half + 2],
                raw[4 * half + 3],
                half * 1024,
            )
        _write_groups(
            groups, part, own[4 * half], own[4 * half + 1], own[4 * half + 2], own[4 * half + 3], half * 1024
        )
    raw_max, own_max = raw[0], own[0]
    for i in static(range(1, 8)):
        raw_max, own_max = maximum(raw_max, raw[i]), maximum(own_max, own[i])
    room = shared(256)
    raw_max, own_max = _block_maxima(raw_max, own_max, room)
    turn = float32(float32(LOG2_E) * ld_f32(plan + 4 * WHOLE_SCALE))
    raw_sum, raw_inner, own_sum = float32(0.0), float32(0.0), float32(0.0)
    for i in static(range(8)):
        if raw[i] > float32(LOWEST):
            depth = float32(raw[i] - raw_max)
            weight = exp2(float32(depth * float32(LOG2_E)))
            raw_sum, raw_inner = (
                float32(raw_sum + weight),
                fma(weight, maximum(depth, float32(-87.0)), raw_inner),
            )
        if own[i] > float32(LOWEST):
            own_sum = float32(own_sum + exp2(float32(float32(own[i] - own_max) * turn)))
    out = partials + 4 * PARTIAL_WORDS * int64(part)
    if thread() == 0:
        st_f32(out + 4 * RAW_MAX, raw_max)
        st_f32(out + 4 * MAX, own_max)
    _write_sums(raw_sum, raw_inner, own_sum, bad, room, out)


def _block_maxima(raw_max: float, own_max: float, room: int) -> tuple[float, float]:
    """The maxima over the whole block, in every thread."""
    raw_max, own_max = warp_max(raw_max), warp_max(own_max)
    if (thread() & 31) == 0:
        sts_f32(room + 8 * (thread() >> 5), raw_max)
        sts_f32(room + 8 * (thread() >> 5) + 4, own_max)
    barrier()
    for other in range(THREADS // 32):
        raw_max, own_max = (
            maximum(raw_max, lds_f32(room + 8 * other)),
            maximum(own_max, lds_f32(room + 8 * other + 4)),
        )
    return raw_max, own_max


def _write_sums(raw_sum: float, raw_inner: float, own_sum: float, bad: float, room: int, out: int) -> None:
    """Write the sums over the whole block."""
    raw_sum, raw_inner, own_sum, bad = (
        warp_sum(raw_sum),
        warp_sum(raw_inner),
        warp_sum(own_sum),
        warp_sum(bad),
    )
    if (thread() & 31) == 0:
        mine = int32(room + 64 + 16 * (thread() >> 5))
        sts_f32(mine, raw_sum)
        sts_f32(mine + 4, raw_inner)
        sts_f32(mine + 8, own_sum)
        sts_f32(mine + 12, bad)
    barrier()
    if thread() == 0:
        for other in range(1, THREADS // 32):
            raw_sum, raw_inner = (
                float32(raw_sum + lds_f32(room + 64 + 16 * other)),
                float32(raw_inner + lds_f32(room + 68 + 16 * other)),
            )
            own_sum, bad = (
                float32(own_sum + lds_f32(room + 72 + 16 * other)),
                float32(bad + lds_f32(room + 76 + 16 * other)),
            )
        st_f32(out + 4 * RAW_SUM, raw_sum)
        st_f32(out + 4 * RAW_INNER, raw_inner)
        st_f32(out + 4 * BAD, bad)
        st_f32(out + 4 * SUM, own_sum)


def _write_groups(groups: int, part: int, a: float, b: float, c: float, d: float, start: int) -> None:
    """Write the maximum of each GROUP adjacent tokens, of which each thread has four."""
    best = maximum(maximum(a, b), maximum(c, d))
    if GROUP >= 16:
        best = maximum(best, shfl_xor_f32(best, 1))
        best = maximum(best, shfl_xor_f32(best, 2))
    if GROUP >= 64:
        best = maximum(best, shfl_xor_f32(best, 4))
        best = maximum(best, shfl_xor_f32(best, 8))
    if (thread() & (GROUP // 4 - 1)) == 0:
        index = int32(part * (PART // GROUP) + (start + 4 * thread()) // GROUP)
        st_f32(groups + 4 * int64(index), best)


@cache
def scan_kernel(group: int, edits: bool) -> Kernel:
    """The kernel `_scan`; `group` is 4, 16 or 64."""
    name = f"sample_scan_{group}" + "_edits" * edits
    constants = {"GROUP": group, "EDITS": int(edits), "THREADS": THREADS}
    return Kernel(name, _scan, "llllllllllllli", THREADS, 64 if edits else 40, constants)
