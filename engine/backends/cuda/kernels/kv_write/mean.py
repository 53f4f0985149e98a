"""The mean that is subtracted from a page's q4 keys.

In the first page, keys from position 16 on use the mean of positions 1 .. 15; each later page uses the mean
of the whole page before it. One warp for each group of 32 Hadamard-transformed dimensions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.ptx import (
    block_x,
    block_y,
    blocks_y,
    fma,
    half_float,
    ld_f32,
    ld_i32,
    ld_u16,
    ld_u32,
    registers,
    shfl_xor_f32,
    st_f32,
    static,
    thread,
    wait_for_others,
)
from engine.backends.cuda.codegen.words import float32, int32, int64, uint32
from engine.backends.cuda.kernels.kv_write.codes import level
from engine.backends.cuda.kv_cache import KEYS, Layout, touched
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.kv_formats import WHOLE_KEYS
from engine.core import PAGE_TOKENS

GROUPS = K_BLOCK = K_SCALES = MEAN = FIRST = 0
AT_ONCE = 4
"""Positions per lane whose codes are loaded before the first is used."""
LATER_SHARE = (PAGE_TOKENS - WHOLE_KEYS) / PAGE_TOKENS


def mean_of_group(before: Any, here: Any, group: Any, page: Any) -> None:
    """Write the mean of one group of the keys in the block at `before` into the block at `here`.

    `page` is the page's number in the sequence; for page 0 both blocks are the same. Each lane sums one word
    (eight dimensions) of every eighth position.
    """
    lane = int32(thread())
    part, word = int32(lane >> 2), int32(lane & 3)
    totals = registers(float32(0.0), 8)
    words = registers(uint32(0), AT_ONCE)
    scales = registers(float32(0.0), AT_ONCE)
    first = int32(1) if page <= 1 else int32(0)
    last = int32(WHOLE_KEYS) if page == 0 else int32(PAGE_TOKENS)
    for start in range(0, last, 8 * AT_ONCE):
        for i in static(range(AT_ONCE)):
            place = int32(start + 8 * i + part)
            words[i], scales[i] = _codes(before, int32(place * GROUPS + group), word, first <= place < last)
        for i in static(range(AT_ONCE)):
            for d in static(range(8)):
                totals[d] = _with_code(totals[d], words[i], 4 * (d // 2) + 16 * (d % 2), scales[i])
    mine = float32(0.0)
    for d in static(range(8)):
        mine = _sum_if(part == d, totals[d], mine)
    at = int64(4 * (32 * group + 8 * word + part))
    if page == 0:
        mean = mine * float32(1 / (WHOLE_KEYS - 1))
    else:
        # In the first page, the first 16 keys are stored without a mean, and the very first as float32.
        kept = ld_f32(before + int64(FIRST) + at) if page == 1 else float32(0.0)
        share = float32(LATER_SHARE) if page == 1 else float32(1.0)
        mean = fma(mine + kept, float32(1 / PAGE_TOKENS), share * ld_f32(before + int64(MEAN) + at))
    st_f32(here + int64(MEAN) + at, mean)


def _codes(before: Any, row: Any, word: Any, counted: Any) -> Any:
    """A word of codes, and its scale or 0 if the position is not counted."""
    codes = ld_u32(before + int64(16 * row + 4 * word))
    scale = half_float(ld_u16(before + int64(K_SCALES + 2 * row)))
    return codes, scale if counted else float32(0.0)


def _with_code(total: Any, word: Any, shift: Any, scale: Any) -> Any:
    """total + the level of one code of a word, times its scale."""
    return fma(level(uint32(uint32(word >> uint32(shift)) & uint32(15))), scale, total)


def _sum_if(counted: Any, total: Any, other: Any) -> Any:
    """The sum over the lanes of the same word, or `other`."""
    for stage in static(range(3)):
        total = total + shfl_xor_f32(total, 4 << stage)
    return total if counted else other


def _key_mean(keys: int, pages: int, page: int) -> None:
    """Grid (group, head), one warp each: `mean_of_group` for page number `page` of the block table."""
    wait_for_others()
    heads, head = int32(blocks_y()), int32(block_y())
    here = int64(ld_i32(pages + int64(4 * page)))
    before = int64(ld_i32(pages + int64(4 * (page - 1)))) if page > 0 else here
    mean_of_group(
        keys + (before * heads + head) * int64(K_BLOCK),
        keys + (here * heads + head) * int64(K_BLOCK),
        int32(block_x()),
        page,
    )


def mean_constants(head_dim: int) -> dict[str, Any]:
    """The offsets that `mean_of_group` uses."""
    layout = Layout(KEYS, "q4", head_dim)
    return {
        "GROUPS": layout.groups,
        "K_BLOCK": layout.block,
        "K_SCALES": layout.scales,
        "MEAN": layout.mean,
        "FIRST": layout.first,
    }


@cache
def key_mean_kernel(head_dim: int) -> Kernel:
    return Kernel(f"key_mean_{head_dim}", _key_mean, "lli", 32, 64, mean_constants(head_dim))


def key_mean_call(addresses: tuple[int, int], kv_heads: int, head_dim: int, page: int) -> Call:
    """Compute the mean for page number `page` of the sequence; the keys it depends on must be written."""
    kernel = key_mean_kernel(head_dim)
    groups = Layout(KEYS, "q4", head_dim).groups
    own = touched(addresses)[:1]
    return Call(kernel, lambda _: (groups, kv_heads, 1), (addresses[0], Runtime.PAGES, page), own, own)
