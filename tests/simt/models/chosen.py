from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout
from tests.simt.interpreter import Memory
from tests.simt.models.attention import LOG2_E, page_numbers, transformed
from tests.simt.models.runs import runs_of

NO_MORE = 0x7FFFFFFF


def _numbers(
    memory: Memory, layout: Layout, base: int, table: int, length: int, groups: int = 1, group: int = 0
) -> Any:
    """The first `length` positions of a sequence whose block table is at `table`."""
    parts = []
    for page in range(-(-length // 256)):
        block = int(memory.view(table + 4 * page, np.int32, 1)[0]) * groups + group
        parts.append(
            page_numbers(memory, layout, base + block * layout.block, page, min(256, length - 256 * page))
        )
    return np.concatenate(parts)


def score_keys(
    memory: Memory, blocks: Any, constants: Any, keys: int, q: int, q_stride: int, weights: int,
    weights_stride: int, scores: int, scores_stride: int, list_stride: int, positions: int, pages: int,
    runs: int, heads: int,
) -> None:  # fmt: skip
    k = SimpleNamespace(**constants)
    layout = Layout(KEYS, k.KEYS, k.D)
    for first, count, start, table in runs_of(memory, positions, pages, runs, blocks[1]):
        known = _numbers(memory, layout, keys, table, start + count)
        for row in range(first, first + count):
            own = int(memory.view(positions + 4 * row, np.int32, 1)[0])
            candidates = known[k.STEP - 1 : own + 1 : k.STEP]
            query = np.zeros((heads, known.shape[1]), np.float32)
            query[:, : k.D] = memory.view(q + row * q_stride, np.float32, heads * k.D).reshape(heads, k.D)
            found = (transformed(query) if k.KEYS in ("q8", "q4") else query) @ candidates.T
            if k.LISTS:
                for head in range(heads):
                    at = scores + row * scores_stride + head * list_stride
                    memory.view(at, np.float32, len(candidates))[:] = found[head]
                continue
            factors = memory.view(weights + row * weights_stride, np.float32, heads) if weights else 1.0
            total = (np.maximum(found, 0).T * factors).sum(1)
            memory.view(scores + row * scores_stride, np.float32, len(candidates))[:] = total


def choose(
    memory: Memory, blocks: Any, constants: Any, scores: int, scores_stride: int, list_stride: int, y: int,
    y_stride: int, positions: int, width: int, most: int, local: int,
) -> None:  # fmt: skip
    block, pooled = constants["BLOCK"], constants["POOLED"]
    for row in range(blocks[0]):
        own = int(memory.view(positions + 4 * row, np.int32, 1)[0])
        for number in range(blocks[1]):
            there = (own + 1) // block if pooled else own // block + 1
            at = scores + row * scores_stride + number * list_stride
            known = memory.view(at, np.float32, there if pooled else own + 1)
            best = [known[i] if pooled else known[i * block : (i + 1) * block].max() for i in range(there)]
            for i in range(max(0, own // block - local + 1), there):
                best[i] = np.float32(3e38)
            order = np.argsort(-np.array(best, np.float32), kind="stable")[:most]
            listed = range(block - constants["LISTED"], block)
            chosen = [int(i) * block + j for i in np.sort(order) for j in listed if i * block + j <= own]
            if constants["TAIL"]:
                chosen += range(there * block, own + 1)
            out = memory.view(y + row * y_stride + 4 * number * width, np.int32, width)
            out[:] = NO_MORE
            out[: len(chosen)] = chosen


def attend_chosen(
    memory: Memory, blocks: Any, constants: Any, keys: int, values: int, q: int, q_stride: int, partial: int,
    partial_stride: int, pages: int, runs: int, chosen: int, chosen_stride: int, heads: int, width: int,
    kv_heads: int, scale: float, cap: float,
) -> None:  # fmt: skip
    k, (splits, parts, rows) = SimpleNamespace(**constants), blocks

    def places_of(row: int, number: int) -> Any:
        listed = memory.view(chosen + row * chosen_stride + 4 * number * width, np.int32, width)
        places = listed[listed < NO_MORE]
        assert (np.diff(places) > 0).all()
        assert (listed[len(places) :] == NO_MORE).all()
        return places

    blocks_of = memory.view(heads, np.int32, 4 * parts).reshape(-1, 4).tolist()
    for row in range(rows):
        table = pages + 4 * int(memory.view(runs + 16 * row, np.int32, 3)[2]) if runs else pages
        mine = q + row * q_stride, partial + row * partial_stride
        _attended(
            memory, k, row, places_of, (keys, values), table, mine, blocks_of, splits, kv_heads, scale, cap
        )


def attend_spaced(
    memory: Memory, blocks: Any, constants: Any, keys: int, q: int, q_stride: int, partial: int,
    partial_stride: int, pages: int, runs: int, every: int, positions: int, heads: int, window: int,
    kv_heads: int, scale: float, cap: float,
) -> None:  # fmt: skip
    k, (splits, parts, rows) = SimpleNamespace(**constants), blocks

    def places_of(row: int, _number: int) -> Any:
        end = int(memory.view(positions + 4 * row, np.int32, 1)[0]) + 1
        begin = max(0, end - window) if window else 0
        places = np.arange(begin, end)
        places = places[(places + 1) % k.STEP == 0]
        assert (memory.view(every + 4 * begin, np.int32, len(places)) == places).all()
        return places

    blocks_of = memory.view(heads, np.int32, 4 * parts).reshape(-1, 4).tolist()
    for row in range(rows):
        table = pages + 4 * int(memory.view(runs + 16 * row, np.int32, 3)[2]) if runs else pages
        mine = q + row * q_stride, partial + row * partial_stride
        _attended(
            memory, k, row, places_of, (keys, keys), table, mine, blocks_of, splits, kv_heads, scale, cap
        )


def _attended(
    memory: Memory, k: Any, row: int, places_of: Any, sides: tuple[int, int], table: int,
    mine: tuple[int, int], blocks_of: Any, splits: int, kv_heads: int, scale: float, cap: float,
) -> None:  # fmt: skip
    """One row's heads, over the positions of their lists; `mine` are the row's addresses."""
    layouts = (
        (Layout(KEYS, k.KEYS, k.D), sides[0]),
        (Layout(KEYS if k.LATENT else VALUES, k.VALUES, k.D), sides[1]),
    )
    known: dict[tuple[int, int], Any] = {}
    for first, count, group, number in blocks_of:
        places = places_of(row, number)
        if (group, number) not in known:
            length = int(places.max(initial=0)) + 1
            known[group, number] = [
                _numbers(memory, layout, base, table, length, kv_heads, group)[places]
                for layout, base in layouts
            ]
        found = known[group, number]
        for head in range(first, first + count):
            query = np.zeros(found[0].shape[1], np.float32)
            query[: k.D] = memory.view(mine[0] + 4 * head * k.D, np.float32, k.D)
            query = transformed(query) if k.HADAMARD else query
            score = (found[0] * query).sum(1) * np.float32(scale)
            score = np.float32(cap) * np.tanh(score / np.float32(cap)) if cap else score
            for split in range(splits):
                here = (np.arange(len(places)) // k.CHUNK) % splits == split
                at = mine[1] + 4 * ((head * k.SIDES + k.SIDE) * splits + split) * (k.DP + 4)
                out = memory.view(at, np.float32, k.DP + 4)
                top = (score[here] * LOG2_E).max(initial=np.float32(-1e30))
                weights = np.exp2(score[here] * LOG2_E - top)
                out[:2] = top, weights.sum()
                value = weights @ found[1][here]
                out[4:] = 0
                out[4 : 4 + min(k.DP, len(value))] = value[: k.DP]


MODELS = {
    "key_scores.score_keys": score_keys,
    "indexer.choose": choose,
    "chosen.attend_chosen": attend_chosen,
    "beside.attend_spaced": attend_spaced,
}
