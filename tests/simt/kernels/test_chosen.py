"""Indexers and attention to chosen positions: the bodies in the interpreter as their models say, whatever the
order of warps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape
from engine.backends.cuda.kernels.attention import beside
from engine.backends.cuda.kernels.attention.chosen import chosen_calls, head_blocks, splits_for
from engine.backends.cuda.kernels.attention.indexer import small_calls
from engine.backends.cuda.kv_cache import KEYS, VALUES, Layout
from engine.backends.cuda.lowering.call import Call, Runtime
from engine.backends.graph.attention import Attention, TopKeys
from engine.backends.graph.buffers import Buffer
from engine.backends.indexer import UNUSED, IndexerShape
from engine.backends.kv_formats import QUANTISED, CacheType
from engine.backends.kv_rounding import inverse_hadamard
from tests.simt.agree import aligned
from tests.simt.attention_cases import fill
from tests.simt.interpreter import Memory
from tests.simt.models.attention import page_numbers
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
    "DeepSeek V4": (IndexerShape(57, 128, 5, block=4, pooled=True), True, "fp16", 30),
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
    step = shape.block if shape.pooled else 1
    assert written.sum() == shape.lists * ((own + 1) // step + 6 // step)
    assert np.abs(found - expected)[written].max() <= 2e-6 * np.abs(expected[written]).max()


CHOSEN = {
    "positions": IndexerShape(7, 24, 9),
    "all": IndexerShape(7, 24, 600),
    "pooled": IndexerShape(3, 24, 5, block=6, pooled=True),
    "ends": IndexerShape(3, 24, 9, block=6, pooled=True, ends=True),
    "all ends": IndexerShape(3, 24, 99, block=4, pooled=True, ends=True),
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


BESIDE = {
    "chosen": (AttentionShape(5, 1, 40, 0.3, window=9, latent=40), 4, 20, CacheType("fp16", "fp16")),
    "all blocks": (AttentionShape(5, 1, 40, 0.3, window=70, latent=40), 3, 0, CacheType("q8", "q8")),
    "long blocks": (AttentionShape(3, 1, 288, 0.1, window=5, latent=288), 128, 0, CacheType("fp32", "fp32")),
    "DeepSeek V4": (AttentionShape(4, 1, 512, 0.04, window=8, latent=512), 4, 9, CacheType("fp16", "fp16")),
    "DeepSeek V4, all blocks": (
        AttentionShape(4, 1, 512, 0.04, window=8, latent=512), 128, 0, CacheType("fp16", "fp16")
    ),
}  # fmt: skip


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", BESIDE)
def test_a_window_beside_blocks(name: str) -> None:
    """Each half's splits, then all together against the softmax over both."""
    shape, block, width, kind = BESIDE[name]
    q, listed = Buffer(shape.heads * shape.head_dim), Buffer(width) if width else None
    node = Attention(
        layer=0, q=q, shape=shape, sinks=None, distances=None, chosen=listed, beside=1, block=block,
        y=Buffer(shape.heads * shape.value_dim),
    )  # fmt: skip
    heads, splits = head_blocks(shape, 1), beside.splits_for(node, 400, 1)
    calls = beside.beside_calls(
        node, kind, (TABLES[0],) * 2, (TABLES[1],) * 2, (TABLES[2], TABLES[3]), TABLES[4], TABLES[5], splits
    )
    partial = calls[0].arguments[3]
    assert isinstance(partial, Buffer)
    near = stored(KEYS, kind.keys, shape.head_dim)
    stores = [near, near[::-1].copy()]
    tables = [beside.every(step, 512) for step in (1, block)]
    sinks = numbers(4, shape.heads)
    arrays: dict[Any, Any] = {
        q: laid_out(numbers(1, 3, q.width)), TABLES[0]: stores[0], TABLES[1]: stores[1],
        TABLES[2]: tables[0], TABLES[3]: tables[1], TABLES[4]: heads, partial: empty(partial, 3),
        **placed(RUNS),
    }  # fmt: skip
    rng = np.random.default_rng(6)
    looked_at = [np.arange(block - 1, own + 1, block) for own in (300, 301, 3)]
    if listed is not None:
        looked_at = [np.sort(rng.choice(all_of, min(len(all_of), width - 1), False)) for all_of in looked_at]
        arrays[listed] = np.full((3, listed.stride // 4), UNUSED, np.int32)
        for row, places in enumerate(looked_at):
            arrays[listed][row, : len(places)] = places
    made = []
    for which in (0, 1):
        found = dict(arrays)
        for call in calls[:2]:
            found[partial] = played(call, found, 3, twice=False)[which][partial]
        assert (found[partial] != -77).sum() == 3 * shape.heads * 2 * splits * (partial_width(shape) + 2)
        found[partial][found[partial] == -77] = 0
        after = {partial: found[partial], node.y: empty(node.y, 3), TABLES[5]: sinks,
                 Runtime.POSITIONS: arrays[Runtime.POSITIONS]}  # fmt: skip
        made.append(played(calls[2], after, 3, twice=False)[which][node.y][:, : node.y.width])
    expected = softmax_over(shape, kind, stores, arrays[q], sinks, looked_at)
    assert max(np.abs(each - expected).max() for each in made) <= 1e-4 * np.abs(expected).max()


def partial_width(shape: AttentionShape) -> int:
    """Numbers of an output."""
    return -(-shape.value_dim // 32) * 32


def softmax_over(
    shape: AttentionShape, kind: CacheType, stores: list[Any], q: Any, sinks: Any, looked_at: list[Any]
) -> Any:
    """Attention of the rows of `RUNS` to their windows over the first store's keys, and over the second's to
    these positions, (rows, H D).
    """
    layout, out, row = Layout(KEYS, kind.keys, shape.head_dim), [], 0
    for start, count, at in RUNS:
        sides = []
        for store in stores:
            memory = Memory(kept := aligned(store))
            pages = [
                page_numbers(memory, layout, kept[page, 0].ctypes.data, number, 256)
                for number, page in enumerate(PAGES[at : at + 2])
            ]
            known = np.concatenate(pages).astype(np.float32)
            if kind.keys in QUANTISED:
                turned = torch.from_numpy(known).reshape(len(known), -1, 32)
                known = inverse_hadamard(turned[:, None], shape.head_dim).numpy()
            sides.append(known.reshape(len(known), -1)[:, : shape.head_dim])
        for own in range(start, start + count):
            window = sides[0][max(0, own - shape.window + 1) : own + 1]
            keys = np.concatenate([window, sides[1][looked_at[row]]]).astype(np.float64)
            query = q[row, : shape.heads * shape.head_dim].reshape(shape.heads, -1)
            scores = np.exp(np.c_[query @ keys.T * shape.scale, sinks])
            out.append((scores[:, :-1] @ keys / scores.sum(1)[:, None]).reshape(-1))
            row += 1
    return np.array(out)


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
