from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout
from engine.backends.kv_formats import Q4_LEVELS, WHOLE_KEYS
from tests.simt.interpreter import Memory
from tests.simt.models.packed_activations import write_packed
from tests.simt.models.runs import runs_of

LOG2_E = np.float32(1.4426950408889634)
E4M3 = np.array(
    [
        (-1) ** (b >> 7)
        * ((b & 7) / 8 * 2.0**-6 if not b >> 3 & 15 else (1 + (b & 7) / 8) * 2.0 ** ((b >> 3 & 15) - 7))
        for b in range(256)
    ],
    np.float32,
)


def transformed(x: Any) -> Any:
    """(..., n 32) float32 through the orthonormal transform of 32."""
    h = np.ones((1, 1), np.float32)
    while len(h) < 32:
        h = np.block([[h, h], [h, -h]]).astype(np.float32)
    return (x.reshape(*x.shape[:-1], -1, 32) @ (h / np.float32(np.sqrt(32)))).reshape(x.shape)


def page_numbers(memory: Memory, layout: Layout, block: int, page: int, count: int) -> Any:
    """The first `count` positions of page number `page` of a sequence: (count, D), or (count, n 32)
    transformed, float32.
    """
    n, name, width = layout.groups, layout.name, layout.head_dim
    if name in ("fp32", "fp16"):
        kind = np.float32 if name == "fp32" else np.float16
        return memory.view(block, kind, count * width).reshape(count, width).astype(np.float32)
    if name == "fp8":
        return E4M3[memory.view(block, np.uint8, count * width)].reshape(count, width)
    scales = memory.view(block + layout.scales, np.float16, count * n).astype(np.float32).reshape(count, n, 1)
    if name == "q8":
        return (memory.view(block, np.int8, count * n * 32).reshape(count, n, 32) * scales).reshape(count, -1)
    words = memory.view(block, np.uint32, count * n * 4).reshape(count, n, 4, 1)
    codes = words >> np.array([0, 16, 4, 20, 8, 24, 12, 28], np.uint32) & np.uint32(15)
    out = (np.array(Q4_LEVELS, np.float32)[codes].reshape(count, n, 32) * scales).reshape(count, -1)
    if layout.side == KEYS:
        mean = memory.view(block + layout.mean, np.float32, 32 * n)
        whole = WHOLE_KEYS if page == 0 else 0
        out[whole:] += mean
    if page == 0:
        out[0] = memory.view(block + layout.first, np.float32, 32 * n)
    return out


def attend(
    memory: Memory, blocks: Any, constants: Any, keys: int, values: int, q: int, q_stride: int, partial: int,
    partial_stride: int, positions: int, pages: int, runs: int, slopes: int, rows: int, ratio: int,
    scale: float, cap: float, window: int, row_shift: int,
) -> None:  # fmt: skip
    k = SimpleNamespace(**constants)
    k.EXTENT = constants.get("EXTENT", 0)
    pairs = memory.view(slopes, np.float32, 2 * blocks[1] * ratio).reshape(-1, 2) if k.ALIBI else None
    stride = 64 * -(-blocks[1] * ratio * k.EXTENT // 16)
    needed = -(-rows * ratio // k.COLUMNS)
    assert blocks[2] == (rows << row_shift if runs else needed) >= needed
    assert bool(runs) == k.SEVERAL
    for first, count, start, table in runs_of(memory, positions, pages, runs, rows):
        attend_run(
            memory, blocks, k, (keys, values), q + first * q_stride, q_stride,
            partial + first * partial_stride, partial_stride, start, table, count, ratio, scale, cap, window,
            pairs, (slopes + first * stride, stride),
        )  # fmt: skip


def first_seen(k: Any, own: int, window: int) -> int:
    """The first position that the row at this one sees."""
    if k.CHUNKED:
        return own - own % window
    return max(0, own - window + 1) if window else 0


def in_bf16(x: Any) -> Any:
    """The nearest of these numbers, the even one of two."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def lean(k: Any, pair: Any, seen: Any, own: int) -> Any:
    """ALiBi's part of the scores of the positions `seen`."""
    if k.ALIBI == 1:
        return pair[0] * (seen - own).astype(np.float32)
    return pair[1] * in_bf16(pair[0] * in_bf16(seen.astype(np.float32)))


def biased(memory: Memory, k: Any, biases: int, away: Any) -> Any:
    """What a head's biases add to scores in base 2, by the distances `away`, which fall to 0."""
    out, reached = np.zeros(len(away), np.float32), away < k.EXTENT
    near = away[reached]
    out[reached] = memory.view(biases, np.float32, near.max(initial=-1) + 1)[near]
    return out


def attend_run(
    memory: Memory, blocks: Any, k: Any, sides_at: tuple[int, int], q: int, q_stride: int, partial: int,
    partial_stride: int, start: int, pages: int, rows: int, ratio: int, scale: float, cap: float, window: int,
    pairs: Any, biases: tuple[int, int],
) -> None:  # fmt: skip
    """The rows of one sequence; `biases` are the address and the stride of theirs."""
    splits, groups, _ = blocks
    keys, values = sides_at
    width = getattr(k, "VDP", k.DP)
    layouts = [
        (Layout(side, name, k.D), base)
        for side, name, base in ((KEYS, k.KEYS, keys), (KEYS if k.LATENT else VALUES, k.VALUES, values))
    ]
    first = first_seen(k, start, window) // 256
    for g in range(groups):
        sides = []
        for layout, base in layouts:
            parts = []
            for page in range(first, (start + rows - 1) // 256 + 1):
                block = (
                    base + (int(memory.view(pages + 4 * page, np.int32, 1)[0]) * groups + g) * layout.block
                )
                parts.append(page_numbers(memory, layout, block, page, min(256, start + rows - 256 * page)))
            sides.append(np.concatenate(parts))
        for row in range(rows):
            own = start + row
            low = first_seen(k, own, window) - 1
            for r in range(ratio):
                head = g * ratio + r
                query = np.zeros(sides[0].shape[1], np.float32)
                query[: k.D] = memory.view(q + row * q_stride + 4 * head * k.D, np.float32, k.D)
                query = transformed(query) if k.HADAMARD else query
                seen = np.arange(low + 1, own + 1)
                at = slice(low + 1 - 256 * first, own + 1 - 256 * first)
                score = (sides[0][at] * query).sum(1) * np.float32(scale)
                score = np.float32(cap) * np.tanh(score / np.float32(cap)) if cap else score
                score = score + lean(k, pairs[head], seen, own) if k.ALIBI else score
                score = score * LOG2_E
                if k.EXTENT:
                    mine = biases[0] + row * biases[1] + 4 * head * k.EXTENT
                    score = score + biased(memory, k, mine, own - seen)
                for split in range(splits):
                    here = (seen // 64) % splits == split
                    if not here.any():
                        continue
                    out = memory.view(
                        partial + row * partial_stride + 4 * (head * splits + split) * (width + 4),
                        np.float32,
                        width + 4,
                    )
                    top = score[here].max()
                    weights = np.exp2(score[here] - top)
                    out[:2] = top, weights.sum()
                    found = weights @ sides[1][at][here]
                    out[4 : 4 + min(width, len(found))] = found[:width]


def relative_biases(
    memory: Memory, blocks: Any, constants: Any, weights: int, weights_stride: int, profiles: int, y: int,
    y_stride: int, positions: int, heads: int, count: int, extent: int,
) -> None:  # fmt: skip
    table = memory.view(profiles, np.float32, count * extent).reshape(count, extent) * LOG2_E
    for row in range(blocks[0]):
        reached = min(extent, int(memory.view(positions + 4 * row, np.int32, 1)[0]) + 1)
        mine = memory.view(weights + row * weights_stride, np.float32, heads * count).reshape(heads, count)
        made = memory.view(y + row * y_stride, np.float32, heads * extent).reshape(heads, extent)
        made[:, :reached] = mine @ table[:, :reached]


def combine(
    memory: Memory, blocks: Any, constants: Any, partial: int, partial_stride: int, y: int, y_stride: int,
    packed: int, packed_stride: int, sinks: int, positions: int, heads: int, splits: int, window: int,
) -> None:  # fmt: skip
    k = SimpleNamespace(**constants)
    for row in range(blocks[1]):
        own = int(memory.view(positions + 4 * row, np.int32, 1)[0])
        begin = first_seen(k, own, window) // 64
        used = [(begin + i) % splits for i in range(min(splits, own // 64 - begin + 1))]
        used = list(range(splits)) if k.WHOLE else used
        parts = memory.view(partial + row * partial_stride, np.float32, heads * splits * (k.DP + 4)).reshape(
            heads, splits, -1
        )[:, used]
        top = parts[..., 0].max(1)
        total = np.zeros(heads, np.float32)
        if sinks:
            mine = sinks + row * 64 * -(-heads // 16) * k.ROW_SINKS
            sink = memory.view(mine, np.float32, heads) * LOG2_E
            top = np.maximum(top, sink)
            total = np.exp2(sink - top)
        shares = np.exp2(parts[..., 0] - top[:, None])
        total = total + (shares * parts[..., 1]).sum(1)
        out = (shares[..., None] * parts[..., 4:]).sum(1)
        out = (transformed(out) if k.HADAMARD else out)[:, : k.D] / total[:, None]
        flat = out.reshape(-1).astype(np.float32)
        if k.FLOATS:
            memory.view(y + row * y_stride, np.float32, len(flat))[:] = flat
        if k.FORM:
            write_packed(memory, packed + row * packed_stride, k.FORM, flat)


MODELS = {
    "mma.attend": attend,
    "wide.attend_wide": attend,
    "plain.attend_plain": attend,
    "combine.combine": combine,
    "relative.biases": relative_biases,
}
