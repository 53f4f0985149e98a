"""Indexers and attention to chosen positions: the bodies in the interpreter as their models say, whatever the
order of warps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape
from engine.backends.cuda.kernels.attention.chosen import chosen_calls, head_blocks, splits_for
from engine.backends.cuda.kernels.attention.indexer import small_calls
from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.graph.attention import Attention, TopKeys
from engine.backends.graph.buffers import Buffer
from engine.backends.indexer import UNUSED, IndexerShape
from engine.backends.kv_formats import CacheType
from tests.simt.attention_cases import fill
from tests.simt.played import TABLES, empty, laid_out, played

PAGES = np.array([2, 0, 1, 1], np.int32)
"""Two pages of a sequence, and two of another one, whose second is the same."""
RUNS = [(300, 2, 0), (3, 1, 2)]
"""Position, rows, and place of the block table of each sequence."""


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def stored(side: str, name: str, dim: int, groups: int = 1) -> Any:
    """Three pages, of which the third is a sequence's first one, and so is the second."""
    layout, rng = Layout(side, name, dim), np.random.default_rng(dim)
    store = np.zeros((3, groups, layout.block), np.uint8)
    for block in store.reshape(-1, layout.block):
        fill(block, layout, 256, rng)
    return store


def placed(runs: list[tuple[int, int, int]]) -> dict[Any, Any]:
    """The runtime arguments of these runs; a single one is of a step over one sequence."""
    rows = sum(count for _, count, _ in runs)
    positions = np.concatenate([np.arange(start, start + count) for start, count, _ in runs]).astype(np.int32)
    table, first = np.zeros((rows, 4), np.int32), 0
    for _, count, at in runs:
        table[first : first + count] = first, first + count, at, 0
        first += count
    return {
        Runtime.POSITIONS: positions, Runtime.PAGES: PAGES, Runtime.RUNS: table if len(runs) > 1 else 0
    }  # fmt: skip


def indexer(
    shape: IndexerShape, weighed: bool, kind: str = "fp32"
) -> tuple[TopKeys, tuple[Call, Call], dict[Any, Any]]:
    """A node, its calls, and its inputs for three rows."""
    q, weights = Buffer(shape.heads * shape.head_dim), Buffer(shape.heads) if weighed else None
    node = TopKeys(layer=0, q=q, weights=weights, shape=shape, y=q.like(shape.lists * shape.width))
    inputs = {q: laid_out(numbers(1, 3, q.width))}
    if weights is not None:
        inputs[weights] = laid_out(numbers(2, 3, weights.width))
    return node, small_calls(node, kind, (TABLES[0], TABLES[0]), 512, 1), inputs


SCORED = {
    "pooled keys, equal weights": (IndexerShape(3, 24, 5, block=6, pooled=True), False, "q8", 300),
    "one piece": (IndexerShape(7, 24, 5), True, "fp32", 64),
    "two pieces": (IndexerShape(3, 100, 5), True, "fp16", 40),
    "lists": (IndexerShape(2, 40, 5, block=7, each=True, local=1), False, "q4", 300),
    "DeepSeek": (IndexerShape(57, 128, 5), True, "fp16", 9),
    "MiniMax-M3": (IndexerShape(4, 128, 5, block=128, each=True, local=1), False, "fp16", 9),
    "two turns of heads": (IndexerShape(66, 20, 5), True, "fp8", 9),
}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", SCORED)
def test_scores(name: str) -> None:
    shape, weighed, kind, own = SCORED[name]
    _, (call, _), inputs = indexer(shape, weighed, kind)
    scores = call.arguments[5]
    assert isinstance(scores, Buffer)
    arrays = {
        **{buffer: rows[:2] for buffer, rows in inputs.items()}, scores: empty(scores, 2),
        TABLES[0]: stored(KEYS, kind, shape.head_dim), **placed([(own, 1, 0), (5, 1, 2)]),
    }  # fmt: skip
    found, expected = (each[scores] for each in played(call, arrays, 2, twice=name == "one piece"))
    written = expected != -77
    assert ((found != -77) == written).all()
    step = 6 if shape.pooled else 1
    assert written.sum() == shape.lists * ((own + 1) // step + 6 // step)
    assert np.abs(found - expected)[written].max() <= 2e-6 * np.abs(expected[written]).max()


CHOSEN = {
    "positions": IndexerShape(7, 24, 9),
    "all": IndexerShape(7, 24, 600),
    "pooled": IndexerShape(3, 24, 5, block=6, pooled=True),
    "lists": IndexerShape(2, 24, 4, block=7, each=True, local=2),
    "wide blocks": IndexerShape(1, 24, 2, block=128, each=True, local=1),
}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", CHOSEN)
def test_choice(name: str) -> None:
    """Exactly, with scores of both signs of which many are equal."""
    node, (_, call), _ = indexer(CHOSEN[name], False)
    scores = call.arguments[0]
    assert isinstance(scores, Buffer)
    drawn = np.round(2 * numbers(3, 3, scores.stride // 4)) / 2
    drawn[:, ::5] = numbers(4, 3, len(drawn[0, ::5]))
    arrays = {scores: drawn + 0, node.y: np.zeros((3, node.y.stride // 4), np.int32), **placed(RUNS)}
    found, expected = (each[node.y] for each in played(call, arrays, 3, twice=name == "lists"))
    np.testing.assert_array_equal(found, expected)
    assert (found[0, : node.y.width] < UNUSED).any()


LATENT, GROUPED = AttentionShape(5, 1, 40, 0.3, latent=24), AttentionShape(6, 2, 24, 0.4, soft_cap=3.0)
ATTENDED = {
    "latent": (LATENT, 1, CacheType("fp16", "fp16"), 40),
    "groups": (GROUPED, 1, CacheType("q8", "q4"), 70),
    "lists across groups": (GROUPED, 3, CacheType("fp32", "fp32"), 33),
    "wide, latent": (AttentionShape(3, 1, 288, 0.1, latent=260), 1, CacheType("q4", "q4"), 9),
    "DeepSeek": (AttentionShape(2, 1, 576, 0.05, latent=512), 1, CacheType("fp16", "fp16"), 9),
    "MiniMax-M3": (AttentionShape(4, 1, 128, 0.1), 1, CacheType("fp16", "fp16"), 9),
    "fp8": (AttentionShape(4, 4, 36, 0.3), 4, CacheType("fp8", "fp8"), 9),
}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", ATTENDED)
def test_attention(name: str) -> None:
    shape, lists, kind, width = ATTENDED[name]
    q, chosen = Buffer(shape.heads * shape.head_dim), Buffer(lists * width)
    node = Attention(
        layer=0, q=q, shape=shape, sinks=None, distances=None, chosen=chosen, lists=lists,
        y=Buffer(shape.heads * shape.value_dim),
    )  # fmt: skip
    blocks, rng = head_blocks(shape, lists), np.random.default_rng(5)
    splits = splits_for(len(blocks), width, 1)
    assert splits > 1 or width == 9
    attend, combine = chosen_calls(node, kind, (TABLES[0], TABLES[1]), TABLES[2], 0, splits)
    partial = attend.arguments[4]
    assert isinstance(partial, Buffer)
    listed = np.full((3, chosen.stride // 4), UNUSED, np.int32)
    for row, own in enumerate((300, 301, 3)):
        for number in range(lists):
            some = rng.choice(own + 1, min(own + 1, width - 2 * number), replace=False)
            listed[row, number * width : number * width + len(some)] = np.sort(some)
    sides = ((KEYS, kind.keys), (KEYS if shape.latent else VALUES, kind.values))
    stores = [stored(side, of, shape.head_dim, shape.kv_heads) for side, of in sides]
    arrays: dict[Any, Any] = {
        q: laid_out(numbers(1, 3, q.width)), chosen: listed, TABLES[0]: stores[0],
        TABLES[1]: stores[0] if shape.latent else stores[1], TABLES[2]: blocks,
        partial: empty(partial, 3), **placed(RUNS),
    }  # fmt: skip
    found, expected = (each[partial] for each in played(attend, arrays, 3, twice=name == "latent"))
    assert (found != -77).sum() == 3 * shape.heads * splits * (-(-shape.value_dim // 32) * 32 + 2)
    out = []
    for rows in (found, expected):
        rows[rows == -77] = 0
        after = {partial: rows, node.y: empty(node.y, 3), Runtime.POSITIONS: arrays[Runtime.POSITIONS]}
        out += [each[node.y][:, : node.y.width] for each in played(combine, after, 3, twice=False)]
    assert max(np.abs(each - out[-1]).max() for each in out) <= 1e-5 * np.abs(out[-1]).max()


def test_blocks_of_heads() -> None:
    """Each head once, with its list and its key/value head."""
    for shape, lists in ((GROUPED, 3), (LATENT, 1), (AttentionShape(64, 4, 128, 1.0), 4)):
        blocks = head_blocks(shape, lists).tolist()
        heads = [(first + i, group, number) for first, count, group, number in blocks for i in range(count)]
        expected = [
            (h, h * shape.kv_heads // shape.heads, h * lists // shape.heads) for h in range(shape.heads)
        ]
        assert heads == expected
        assert all(count <= 4 for _, count, _, _ in blocks)
