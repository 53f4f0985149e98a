"""The store's kernels in NumPy: the same steps in the same order in float32, all lanes, heads and rows at
once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cuda.kernels.kv_write.codes import CURVE, LARGEST, SHRINK
from engine.backends.cuda.kernels.kv_write.query_aware import (
    HIGHEST,
    INVERSE,
    LOWEST,
    MAGIC,
    Q4_FIRST,
    Q4_STEP,
)
from engine.backends.kv_formats import Q4_EXTREME, QUERY_ERROR_WEIGHT, WHOLE_KEYS
from engine.core import PAGE_TOKENS
from tests.simt.interpreter import Memory
from tests.simt.models.runs import runs_of

F = np.float32
LANES = np.arange(32)
SHIFTS = np.array([4 * (d // 2) + 16 * (d % 2) for d in range(8)], np.uint32)


def fma(a: Any, b: Any, c: Any) -> Any:
    return (np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)).astype(F)


def level(code: Any) -> Any:
    c = code.astype(F) - F(8)
    return c * fma(c * c, F(CURVE), F(1))


def limited(x: Any) -> Any:
    return np.clip(np.where(np.isnan(x), F(0), x), F(-LARGEST), F(LARGEST)).astype(F)


def warp_sum(x: Any) -> Any:
    for mask in (16, 8, 4, 2, 1):
        x = x + x[..., LANES ^ mask]
    return x


def transformed(x: Any) -> Any:
    for bit in (1, 2, 4, 8, 16):
        other = x[..., LANES ^ bit]
        x = np.where(LANES & bit, other - x, other + x)
    return x * F(SHRINK)


def groups_of(x: Any, groups: int) -> Any:
    """(..., D) to (..., n, 32), zeros behind."""
    out = np.zeros((*x.shape[:-1], 32 * groups), F)
    out[..., : x.shape[-1]] = x
    return out.reshape(*x.shape[:-1], groups, 32)


def unit(length: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.where(length > F(1e-30), (1 / np.sqrt(length.astype(np.float64))).astype(F), F(0))


def reciprocal(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return (1 / np.asarray(x, np.float64)).astype(F)


def inverse_of(scale: Any) -> Any:
    return np.where(scale == 0, F(0), reciprocal(scale))


def extreme(x: Any) -> Any:
    top, bottom = x.max(-1), x.min(-1)
    return np.where(top >= -bottom, top, bottom)


def aims_of(q: Any, groups: int) -> Any:
    """q (T, G, R, D): aims (T, G, n, 32) and their gains, and what is left behind each group (T, G, n)."""
    x = groups_of(q, groups)
    directions = np.zeros((*x.shape[:2], groups, 32), F)
    with np.errstate(all="ignore"):
        for h in range(x.shape[2]):
            length = np.zeros(x.shape[:2] + (32,), F)
            for j in range(groups):
                length = fma(x[:, :, h, j], x[:, :, h, j], length)
            factor = unit(warp_sum(length))
            for j in range(groups):
                directions[:, :, j] = fma(x[:, :, h, j], factor, directions[:, :, j])
    directions = transformed(limited(directions))
    whole = np.zeros(directions.shape[:2] + (32,), F)
    for j in range(groups):
        whole = fma(directions[:, :, j], directions[:, :, j], whole)
    directions = directions * unit(warp_sum(whole))[:, :, None]
    gains, rests = np.zeros_like(directions), np.zeros(directions.shape[:3], F)
    rest = np.full(directions.shape[:2] + (1,), 1 / QUERY_ERROR_WEIGHT, F)
    for j in reversed(range(groups)):
        rests[:, :, j] = rest[..., 0]
        square = directions[:, :, j] * directions[:, :, j]
        behind = square
        for stage in range(5):
            behind = behind + above(behind, 1 << stage)
        gains[:, :, j] = directions[:, :, j] * reciprocal(rest + above(behind, 1) + square)
        rest = rest + behind[..., :1]
    return directions, gains, rests


def above(x: Any, distance: int) -> Any:
    out = np.zeros_like(x)
    out[..., : 32 - distance] = x[..., distance:]
    return out


def q8(x: Any, directions: Any, gains: Any) -> tuple[Any, Any]:
    """Codes uint8 (T, G, n 32) and scales float16 (T, G, n); aims None: each entry alone."""
    codes, scales = np.zeros(x.shape, np.uint8), (extreme(x) * F(-1 / 128)).astype(np.float16)
    scale = scales.astype(F)
    inverse = inverse_of(scale)
    if directions is None:
        codes[:] = np.rint(np.clip(x * inverse[..., None], -128, 127)).astype(np.int32).astype(np.uint8)
        return codes.reshape(*x.shape[:-2], -1), scales
    error = np.zeros(x.shape[:2], F)
    for j in range(x.shape[2]):
        for i in range(32):
            at = (slice(None), slice(None), j, i)
            by = inverse[..., j]
            whole = np.rint(np.clip(fma(-(gains[at] * by), error, x[at] * by), F(-128), F(127)))
            error = fma(directions[at] * scale[..., j], whole, error - directions[at] * x[at])
            codes[at] = whole.astype(np.int32).astype(np.uint8)
    return codes.reshape(*x.shape[:-2], -1), scales


def q4(x: Any, directions: Any, gains: Any, rests: Any) -> tuple[Any, Any]:
    """Codes, as bytes of words, uint8 (T, G, n 16), and scales float16 (T, G, n)."""
    shares = fma(np.arange(16), F(Q4_STEP), F(Q4_FIRST))
    words, scales = np.zeros((*x.shape[:3], 4), np.uint32), np.zeros(x.shape[:3], np.float16)
    before = np.zeros((*x.shape[:2], 1), F)
    magic = F(MAGIC + 8)
    for j in range(x.shape[2]):
        tried = (np.clip(extreme(x[:, :, j]), F(-Q4_EXTREME), F(Q4_EXTREME))[..., None] * shares).astype(
            np.float16
        )
        scale = tried.astype(F)
        inverse = inverse_of(scale)
        error, cost, found = (
            np.broadcast_to(before, scale.shape),
            np.zeros_like(scale),
            np.zeros((*scale.shape, 4), np.uint32),
        )
        for i in range(32):
            r, gain, direction = (part[:, :, j, i, None] for part in (x, gains, directions))
            expected = np.clip(fma(-(gain * inverse), error, r * inverse), F(LOWEST), F(HIGHEST))
            s = expected * expected
            high = fma(s * s, F(INVERSE[4]), fma(s, F(INVERSE[3]), F(INVERSE[2])))
            share = fma(s * s, high, fma(s, F(INVERSE[1]), F(INVERSE[0])))
            c = fma(expected, share, magic) - magic
            bend = fma(c * c, F(CURVE), F(1))
            error = fma(c * (direction * scale), bend, error - direction * r)
            miss = fma(c * bend, scale, -r)
            cost = fma(miss, miss, cost)
            found[..., i // 8] |= (c + 8).astype(np.uint32) << SHIFTS[i % 8]
        best = fma(error * error, reciprocal(rests[:, :, j, None]), cost).argmin(-1)[..., None]
        words[:, :, j] = np.take_along_axis(found, best[..., None], 2)[:, :, 0]
        scales[:, :, j] = np.take_along_axis(tried, best, 2)[..., 0]
        before = np.take_along_axis(error, best, 2)
    return words.reshape(*x.shape[:2], -1).view(np.uint8), scales


def mean_of(before: Any, here: Any, page: int, c: Any) -> None:
    """Blocks (G, bytes) uint8: write the mean of page number `page`."""
    n, heads = c["GROUPS"], len(before)
    words = floats_of(before, 0, PAGE_TOKENS * 16 * n, np.uint32).reshape(heads, PAGE_TOKENS, n, 4)
    scales = (
        floats_of(before, c["K_SCALES"], PAGE_TOKENS * 2 * n, np.float16)
        .reshape(heads, PAGE_TOKENS, n)
        .astype(F)
    )
    first, last = int(page <= 1), WHOLE_KEYS if page == 0 else PAGE_TOKENS
    totals = np.zeros((8, heads, n, 4, 8), F)
    for place in range(first, last):
        numbers = level(words[:, place, :, :, None] >> SHIFTS & 15)
        totals[place % 8] = fma(numbers, scales[:, place, :, None, None], totals[place % 8])
    for mask in (1, 2, 4):
        totals = totals + totals[np.arange(8) ^ mask]
    total = totals[0].reshape(heads, 32 * n)
    if page == 0:
        mean = total * F(1 / (WHOLE_KEYS - 1))
    else:
        kept = floats_of(before, c["FIRST"], 128 * n) if page == 1 else F(0)
        share = F((PAGE_TOKENS - WHOLE_KEYS) / PAGE_TOKENS) if page == 1 else F(1)
        mean = fma(total + kept, F(1 / PAGE_TOKENS), share * floats_of(before, c["MEAN"], 128 * n))
    here[:, c["MEAN"] : c["MEAN"] + 128 * n] = np.ascontiguousarray(mean).view(np.uint8)


def floats_of(block: Any, at: int, size: int, kind: Any = F) -> Any:
    return np.ascontiguousarray(block[:, at : at + size]).view(kind)


def page_of(memory: Memory, base: int, pages: int, page: int, heads: int, size: int) -> Any:
    """Blocks (G, size) of the sequence's page number `page`."""
    place = int(memory.view(pages, np.int32, page + 1)[page])
    return memory.view(base + place * heads * size, np.uint8, heads * size).reshape(heads, size)


def key_mean(memory: Memory, blocks: Any, c: Any, keys: int, pages: int, page: int) -> None:
    here = page_of(memory, keys, pages, page, blocks[1], c["K_BLOCK"])
    mean_of(
        here if page == 0 else page_of(memory, keys, pages, page - 1, blocks[1], c["K_BLOCK"]), here, page, c
    )


def plain_bytes(x: Any, size: int) -> Any:
    """(..., D) as bytes (..., D size)."""
    import torch

    with np.errstate(all="ignore"):
        if size == 1:
            x = np.clip(np.where(np.isnan(x), F(0), x), -448, 448)
            return (
                torch.from_numpy(np.ascontiguousarray(x, F)).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
            )
        return np.ascontiguousarray(x.astype(F if size == 4 else np.float16)).view(np.uint8)


def rows_of(memory: Memory, base: int, stride: int, rows: Any, shape: tuple[int, ...]) -> Any:
    return np.stack(
        [memory.view(base + int(row) * stride, F, int(np.prod(shape))).reshape(shape) for row in rows]
    )


def append(
    memory: Memory, blocks: Any, c: Any, q: int, qs: int, k: int, ks: int, v: int, vs: int, keys: int,
    values: int, positions: int, pages: int, runs: int, ratio: int, groups: int, first: int, alone: int,
) -> None:  # fmt: skip
    heads, count, sides = blocks
    assert sides == (2 if v else 1)
    assert groups == c["GROUPS"]
    assert not (runs and first)
    for row, rows, start, table in runs_of(memory, positions + 4 * first, pages, runs, count):
        run = start, first + row, rows
        append_run(memory, heads, c, (q, qs), (k, ks), (v, vs), keys, values, run, table, ratio, alone)


def append_run(
    memory: Memory, heads: int, c: Any, qs: tuple[int, int], ks: tuple[int, int], vs: tuple[int, int],
    keys: int, values: int, rows_at: tuple[int, int, int], pages: int, ratio: int, alone: int,
) -> None:  # fmt: skip
    """The rows of one sequence: the position of the first, its number in the step, and how many they are."""
    (start, first, count), dim = rows_at, c["DIM"]
    at = 0
    while at < count:
        place = start + at
        page, slot = divmod(place, PAGE_TOKENS)
        run = min(count - at, (WHOLE_KEYS if place < WHOLE_KEYS else PAGE_TOKENS) - slot)
        rows, slots = np.arange(first + at, first + at + run), np.arange(slot, slot + run)
        block = page_of(memory, keys, pages, page, heads, c["K_BLOCK"])
        if alone and c["KEYS_Q4"] and (place == WHOLE_KEYS or (slot == 0 and page)):
            mean_of(
                page_of(memory, keys, pages, page - 1, heads, c["K_BLOCK"]) if page else block, block, page, c
            )
        x = rows_of(memory, *ks, rows, (heads, dim))
        if c["KEY_FORMAT"] in ("q8", "q4"):
            keep_keys(block, place, slots, x, rows_of(memory, *qs, rows, (heads, ratio, dim)), c)
        else:
            put(block, slots, c["K_ROW"], plain_bytes(x, c["K_ROW"] // dim))
        if vs[0]:
            block = page_of(memory, values, pages, page, heads, c["V_BLOCK"])
            keep_values(block, place, slots, rows_of(memory, *vs, rows, (heads, dim)), c)
        at += run


def keep_keys(block: Any, place: int, slots: Any, x: Any, q: Any, c: Any) -> None:
    n = c["GROUPS"]
    r = transformed(limited(groups_of(x, n)))
    if c["KEYS_Q4"] and place == 0:
        block[:, c["FIRST"] : c["FIRST"] + 128 * n] = np.ascontiguousarray(r[0].reshape(len(block), -1)).view(
            np.uint8
        )
    if c["KEYS_Q4"] and place >= WHOLE_KEYS:
        r = r - floats_of(block, c["MEAN"], 128 * n).reshape(len(block), n, 32)
    directions, gains, rests = aims_of(q, n)
    codes, scales = q4(r, directions, gains, rests) if c["KEYS_Q4"] else q8(r, directions, gains)
    put(block, slots, c["K_ROW"], codes)
    put(block, slots, 2 * n, scales.view(np.uint8), c["K_SCALES"])


def keep_values(block: Any, place: int, slots: Any, x: Any, c: Any) -> None:
    n = c["GROUPS"]
    if c["VALUE_FORMAT"] not in ("q8", "q4"):
        put(block, slots, c["V_ROW"], plain_bytes(x, c["V_ROW"] // c["DIM"]))
        return
    r = transformed(limited(groups_of(x, n)))
    if c["VALUE_FORMAT"] == "q4":
        if place == 0:
            block[:, c["V_FIRST"] : c["V_FIRST"] + 128 * n] = np.ascontiguousarray(
                r[0].reshape(len(block), -1)
            ).view(np.uint8)
        none = np.zeros_like(r)
        codes, scales = q4(r, none, none, np.ones(r.shape[:3], F))
    else:
        codes, scales = q8(r, None, None)
    put(block, slots, c["V_ROW"], codes)
    put(block, slots, 2 * n, scales.view(np.uint8), c["V_SCALES"])


def gather_kv(
    memory: Memory, blocks: Any, c: Any, store: int, pages: int, target: int, first: int, count: int
) -> None:
    heads, dim, n = blocks[1], c["DIM"], c["GROUPS"]
    out = memory.view(target, np.float16 if c["FP16"] else F, count * heads * dim).reshape(count, heads, dim)
    for page in range(first // PAGE_TOKENS, (first + count - 1) // PAGE_TOKENS + 1):
        block = page_of(memory, store, pages, page, heads, c["BLOCK"])
        x = plain_of(block, page, c) if c["NUMBER"] else transformed_of(block, page, n, c)[..., :dim]
        start, stop = max(first, page * PAGE_TOKENS), min(first + count, (page + 1) * PAGE_TOKENS)
        with np.errstate(over="ignore"):
            out[start - first : stop - first] = x.transpose(1, 0, 2)[
                start - page * PAGE_TOKENS : stop - page * PAGE_TOKENS
            ]


def plain_of(block: Any, page: int, c: Any) -> Any:
    """(G, 256, D) float32."""
    import torch

    data = np.ascontiguousarray(block[:, : PAGE_TOKENS * c["ROW"]])
    if c["FORMAT"] == "fp8":
        return (
            torch.from_numpy(data)
            .view(torch.float8_e4m3fn)
            .float()
            .numpy()
            .reshape(len(block), PAGE_TOKENS, -1)
        )
    return (
        data.view(np.float16 if c["FORMAT"] == "fp16" else F).reshape(len(block), PAGE_TOKENS, -1).astype(F)
    )


def transformed_of(block: Any, page: int, n: int, c: Any) -> Any:
    """(G, 256, n 32) float32."""
    heads = len(block)
    if c["FORMAT"] == "q8":
        x = floats_of(block, 0, PAGE_TOKENS * 32 * n, np.int8).reshape(heads, PAGE_TOKENS, n, 32).astype(F)
    else:
        words = floats_of(block, 0, PAGE_TOKENS * 16 * n, np.uint32).reshape(heads, PAGE_TOKENS, n, 4, 1)
        x = level(words >> SHIFTS & 15).reshape(heads, PAGE_TOKENS, n, 32)
    x = x * floats_of(block, c["SCALES"], PAGE_TOKENS * 2 * n, np.float16).reshape(
        heads, PAGE_TOKENS, n, 1
    ).astype(F)
    if c["FORMAT"] == "q4" and c["ADDS_MEAN"]:
        whole = WHOLE_KEYS if page == 0 else 0
        x[:, whole:] = x[:, whole:] + floats_of(block, c["MEAN"], 128 * n).reshape(heads, 1, n, 32)
    if c["FORMAT"] == "q4" and page == 0:
        x[:, 0] = floats_of(block, c["FIRST"], 128 * n).reshape(heads, n, 32)
    with np.errstate(all="ignore"):
        return transformed(x).reshape(heads, PAGE_TOKENS, -1)


def put(block: Any, slots: Any, row: int, data: Any, at: int = 0) -> None:
    """data (T, G, row) into blocks (G, bytes) at rows `slots`."""
    block[:, at : at + PAGE_TOKENS * row].reshape(len(block), PAGE_TOKENS, row)[:, slots] = data.transpose(
        1, 0, 2
    )


MODELS = {"kv_write.kv_write": append, "mean.key_mean": key_mean, "gather.gather": gather_kv}
