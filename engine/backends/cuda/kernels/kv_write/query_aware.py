"""Rounds one head's vector at one position to q8 or q4 with one warp, entry by entry.

The definition is `engine.backends.kv_rounding.rounded_keys`. Shared memory holds 16 bytes for each entry: the
Hadamard-transformed number r, its gain (the share of the error so far that it compensates), the direction's
entry a, and a r. After them comes one float32 per group, 16 bytes apart: the tail of the direction after the
group. The error e makes the chain serial, so everything else is computed outside it. The number of groups is
an argument because a loop of known length would be unrolled, which takes many more registers.
"""

from __future__ import annotations

from typing import Any

from engine.backends.cuda.codegen.ptx import (
    barrier,
    float_bits,
    fma,
    half_float,
    lds_f32,
    lds_f32x4,
    lds_u32,
    maximum,
    minimum,
    pack_fp16,
    reciprocal,
    registers,
    shfl_f32,
    shfl_i32,
    shfl_u32,
    shfl_xor_f32,
    shfl_xor_i32,
    st_u8,
    st_u16,
    st_u32,
    static,
    sts_f32x4,
    sts_u32,
    thread,
    to_float,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.kv_write.codes import CURVE, INVERSE
from engine.backends.kv_formats import GROUP, Q4_EXTREME, Q4_LEVELS, SCALE_SHARES

MAGIC = 12582912.0
"""1.5 x 2^23: adding it rounds a small float32 to an integer, in two's complement in the lowest bits."""
MAGIC_8 = MAGIC + 8
Q8_AT_ONCE, Q4_AT_ONCE = 16, 8
"""Entries that are read from shared memory before the chain starts."""
ENTRY = 16
"""Bytes of an entry."""
Q4_FIRST = SCALE_SHARES[0] / Q4_LEVELS[0]
Q4_STEP = (SCALE_SHARES[1] - SCALE_SHARES[0]) / Q4_LEVELS[0]
I0, I1, I2, I3, I4 = INVERSE
LOWEST, HIGHEST = -11.0, 9.25
"""Numbers beyond these have the lowest and the highest q4 code."""


def extreme(x: Any) -> Any:
    """The number of largest magnitude among 32 lanes; of two equal ones, the positive one."""
    top, bottom = x, x
    for stage in static(range(5)):
        top, bottom = (
            maximum(top, shfl_xor_f32(top, 16 >> stage)),
            minimum(bottom, shfl_xor_f32(bottom, 16 >> stage)),
        )
    return top if top >= -bottom else bottom


def q8_scale(x: Any) -> Any:
    """The fp16 scale, as bits, that gives the extreme of 32 lanes the code -128."""
    return uint32(pack_fp16(extreme(x) * float32(-1 / 128), float32(0.0)))


def inverse_of(scale: Any) -> Any:
    """1 / scale, or 0 if it is 0."""
    return float32(0.0) if scale == float32(0.0) else reciprocal(scale)


def keep_plain_q8(x: Any, codes: Any, scales: Any) -> None:
    """Round one group to nearest, entry i in lane i, and write its codes and scale to the cache."""
    bits = q8_scale(x)
    scaled = minimum(maximum(x * inverse_of(half_float(bits)), float32(-128.0)), float32(127.0))
    st_u8(codes + int64(thread()), uint32(float_bits(fma(scaled, float32(1.0), float32(MAGIC)))))
    if thread() == 0:
        st_u16(scales, bits)


def keep_query_aware_q8(entries: Any, groups: Any, codes: Any, scales: Any) -> None:
    """Round all groups of a vector and write codes and scales to the cache. Overwrites the entries."""
    lane, error = int32(thread()), float32(0.0)
    for group in range(groups):
        base = int32(entries + group * (GROUP * ENTRY))
        own = int32(base + lane * ENTRY)
        r, gain, a, a_r = lds_f32x4(own)
        bits = q8_scale(r)
        scale = half_float(bits)
        inverse = inverse_of(scale)
        sts_f32x4(own, r * inverse, gain * inverse, a * scale, a_r)
        barrier()
        code = uint32(0)
        for first in range(0, GROUP, Q8_AT_ONCE):
            code, error = _q8_chain(int32(base + first * ENTRY), int32(lane - first), code, error)
        st_u8(codes + int64(group * GROUP + lane), code)
        if lane == 0:
            st_u16(scales + int64(2 * group), bits)


def _q8_chain(base: Any, mine: Any, code: Any, error: Any) -> Any:
    """Q8_AT_ONCE entries in order: this lane's code if it is among them, and the error after them."""
    scaled = registers(float32(0.0), Q8_AT_ONCE)
    gains = registers(float32(0.0), Q8_AT_ONCE)
    directions = registers(float32(0.0), Q8_AT_ONCE)
    parts = registers(float32(0.0), Q8_AT_ONCE)
    for i in static(range(Q8_AT_ONCE)):
        scaled[i], gains[i], directions[i], parts[i] = lds_f32x4(base + i * ENTRY)
    for i in static(range(Q8_AT_ONCE)):
        code, error = _q8_entry(scaled[i], gains[i], directions[i], parts[i], mine == i, code, error)
    return code, error


def _q8_entry(scaled: Any, gain: Any, direction: Any, part: Any, mine: Any, code: Any, error: Any) -> Any:
    """This entry's code if it is `mine` (else unchanged), and the error after it."""
    within = minimum(maximum(fma(-gain, error, scaled), float32(-128.0)), float32(127.0))
    whole = fma(within, float32(1.0), float32(MAGIC))
    return uint32(float_bits(whole)) if mine else uint32(code), fma(
        direction, whole - float32(MAGIC), error - part
    )


def keep_q4(entries: Any, groups: Any, tails: Any, words: Any, codes: Any, scales: Any) -> None:
    """Round all groups of a vector to q4 and write codes and scales to the cache.

    Each of 16 lanes tries one scale; the one of lowest cost is taken, of equal ones the first. `tails` is the
    address of the groups' tails in shared memory, `words` that of four words for each lane's codes.
    """
    lane, before = int32(thread()), float32(0.0)
    trial = int32(lane & 15)
    share = fma(to_float(trial), float32(Q4_STEP), float32(Q4_FIRST))
    for group in range(groups):
        base = int32(entries + group * (GROUP * ENTRY))
        top = extreme(lds_f32(int32(base + lane * ENTRY)))
        bits = uint32(
            pack_fp16(minimum(maximum(top, float32(-Q4_EXTREME)), float32(Q4_EXTREME)) * share, float32(0.0))
        )
        scale = half_float(bits)
        inverse = inverse_of(scale)
        error, cost = before, float32(0.0)
        for word in range(4):
            found, error, cost = _q4_chain(int32(base + word * (8 * ENTRY)), scale, inverse, error, cost)
            sts_u32(int32(words + 16 * lane + 4 * word), found)
        cost = fma(error * error, reciprocal(lds_f32(int32(tails + group * ENTRY))), cost)
        best = trial
        for stage in static(range(4)):
            other_cost, other = shfl_xor_f32(cost, 8 >> stage), shfl_xor_i32(best, 8 >> stage)
            better = other_cost < cost or (other_cost == cost and other < best)
            cost, best = (other_cost if better else cost), (other if better else best)
        best = shfl_i32(best, 0)
        before, chosen = shfl_f32(error, best), shfl_u32(bits, best)
        barrier()
        if lane < 4:
            st_u32(codes + int64(16 * group + 4 * lane), lds_u32(int32(words + 16 * best + 4 * lane)))
        if lane == 0:
            st_u16(scales + int64(2 * group), chosen)
        barrier()


def _q4_chain(base: Any, scale: Any, inverse: Any, error: Any, cost: Any) -> Any:
    """Eight entries in order with this lane's scale: their word of codes, the error, and the cost so far."""
    numbers = registers(float32(0.0), Q4_AT_ONCE)
    gains = registers(float32(0.0), Q4_AT_ONCE)
    directions = registers(float32(0.0), Q4_AT_ONCE)
    parts = registers(float32(0.0), Q4_AT_ONCE)
    word = uint32(0)
    for i in static(range(Q4_AT_ONCE)):
        numbers[i], gains[i], directions[i], parts[i] = lds_f32x4(base + i * ENTRY)
    for i in static(range(Q4_AT_ONCE)):
        code, error, cost = _q4_entry(
            numbers[i], gains[i], directions[i], parts[i], scale, inverse, error, cost
        )
        word = in_word(word, code, 4 * (i // 2) + 16 * (i % 2))
    return word, error, cost


def _q4_entry(
    x: Any, gain: Any, direction: Any, part: Any, scale: Any, inverse: Any, error: Any, cost: Any
) -> Any:
    """One entry's code, the error after it, and the cost so far."""
    scaled = fma(-(gain * inverse), error, x * inverse)
    scaled = minimum(maximum(scaled, float32(LOWEST)), float32(HIGHEST))
    square = scaled * scaled
    fourth = square * square
    high = fma(fourth, float32(I4), fma(square, float32(I3), float32(I2)))
    share = fma(fourth, high, fma(square, float32(I1), float32(I0)))
    whole = fma(scaled, share, float32(MAGIC_8))
    c = whole - float32(MAGIC_8)
    bend = fma(c * c, float32(CURVE), float32(1.0))
    miss = fma(c * bend, scale, -x)
    return (
        uint32(uint32(float_bits(whole)) & uint32(15)),
        fma(c * (direction * scale), bend, error - part),
        fma(miss, miss, cost),
    )


def in_word(word: Any, code: Any, shift: Any) -> Any:
    """The word with a q4 code added at an empty place."""
    return uint32(word | uint32(uint32(code) << uint32(shift)))
