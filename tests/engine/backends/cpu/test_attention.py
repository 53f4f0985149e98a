"""Windows, soft caps and sinks of the CPU's attention: against exact arithmetic over what lies in the
store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape, Backend, KVCache, Program, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kv_cache import CpuCache
from engine.models.layers.positions.alibi import alibi_slopes, in_bfloat16
from tests.engine.backends.cache_oracle import stored
from tests.engine.backends.kernel_oracles import Matrix

pytestmark = pytest.mark.usefixtures("memory_without_numbers")

Array = np.ndarray[Any, Any]
PAGES = np.array([4, 1, 5, 0], np.int32)
STEPS = (1, 2, 60, 128, 70, 7, 16, 17, 1, 128, 100, 3, 128, 120, 1, 8)
"""Rows of the steps: 774 positions in four pages."""
IDS = np.random.default_rng(11).integers(0, 97, sum(STEPS)).astype(np.int32)


def exact_attention(
    q: Array, k: Array, v: Array, shape: AttentionShape, sinks: Array | None, distances: Array | None = None
) -> Array:
    """(T, H, D), (T, G, D), (T, G, D) to (T, H, D), float64, each score written out by its formula.

    Where attention is bidirectional, a row sees what is in the store once its step of `STEPS` is written.
    """
    rows = len(q)
    out = np.zeros(q.shape, np.float64)
    places = np.arange(rows)
    seen = places[None, :] <= places[:, None]
    if shape.bidirectional:
        ends = np.repeat(np.cumsum(STEPS), STEPS)
        seen = places[None, :] < ends[:, None]
        if shape.chunked:
            seen &= places[None, :] // shape.window == places[:, None] // shape.window
        elif shape.window and shape.backward_window:
            seen &= places[None, :] > places[:, None] - shape.window
        elif shape.window:
            seen &= np.abs(places[None, :] - places[:, None]) < shape.window
    elif shape.chunked:
        seen &= places[None, :] // shape.window == places[:, None] // shape.window
    elif shape.window:
        seen &= places[None, :] > places[:, None] - shape.window
    for h in range(shape.heads):
        g = h // (shape.heads // shape.kv_heads)
        scores = q[:, h].astype(np.float64) @ k[:, g].T * shape.scale
        if shape.soft_cap:
            scores = shape.soft_cap * np.tanh(scores / shape.soft_cap)
        if shape.rounded_slopes:
            scores += shape.rounded_slopes * _bfloat16(shape.slopes[h] * _bfloat16(places))[None, :]
        elif shape.slopes:
            away = places[None, :] - places[:, None]
            scores += shape.slopes[h] * (-np.abs(away) if shape.bidirectional else away)
        if distances is not None:
            most = distances.shape[1] // 2
            scores += distances[h][np.clip(places[None, :] - places[:, None], -most, most) + most]
        scores = np.where(seen, scores, -np.inf)
        top = scores.max(1, keepdims=True) if shape.slopes else 0.0
        weights = np.exp(scores - top)
        total = weights.sum(1, keepdims=True) + (0 if sinks is None else np.exp(float(sinks[h])))
        out[:, h] = weights / total @ v[:, g]
    return out


def _bfloat16(values: Array) -> Array:
    return torch.from_numpy(values.astype(np.float32)).bfloat16().double().numpy()


class Recorded:
    """A pass over a cache, recorded with a backend."""

    backend: Backend
    cache: KVCache
    forward: Callable[[Any], Any]

    @contextmanager
    def program(self) -> Iterator[Program]:
        program = self.backend.record(self.forward, self.cache, 128)
        try:
            yield program
        finally:
            program.close()

    def run(self) -> Array:
        """The results of `STEPS`, one after the other."""
        found, start = [], 0
        with self.program() as program:
            for rows in STEPS:
                found.append(program.run(step(start, rows)).copy())
                start += rows
        return np.concatenate(found)


class Layers(Recorded):
    """As many layers of attention as there are shapes, over tables of queries, keys and values; the
    outputs side by side.
    """

    def __init__(
        self, shapes: list[AttentionShape], sinks: list[Array | None], dtype: str,
        distances: Array | None = None,
    ) -> None:  # fmt: skip
        first = shapes[0]
        heads, groups, dim = first.heads, first.kv_heads, first.head_dim
        self.tables = [Matrix("F32", (97, n * dim), i) for i, n in enumerate((heads, groups, groups))]
        self.tables[0].values *= np.float32(2)
        self.backend = CpuBackend(2)
        packed = [self.backend.load_weight(m) for m in self.tables]
        identity = Matrix("F32", (heads * dim, heads * dim), 5)
        identity.values[:] = np.eye(heads * dim)
        square = self.backend.load_weight(identity)

        def forward(ops: Any) -> Any:
            q, k, v = (ops.embed(w) for w in packed)
            found = [
                ops.attention(i, q, k, v, shape, sink, distances)
                for i, (shape, sink) in enumerate(zip(shapes, sinks, strict=True))
            ]
            # The product shows whether the padding of the rows is zero still.
            total = ops.linear(found[0], square)
            for i, y in enumerate(found[1:]):
                total = ops.add(total, ops.linear(y, square), 100.0 ** (i + 1))
            return ops.last_rows(total)

        self.cache = self.backend.new_cache([first] * len(shapes), 6, dtype)
        self.forward = forward


def step(start: int, rows: int, pages: Array = PAGES) -> Step:
    return Step(IDS[start : start + rows], np.arange(start, start + rows, dtype=np.int32), pages, rows)


def kept(layers: Recorded, layer: int, shape: AttentionShape) -> list[Array]:
    """Keys and values of all positions, from the store: (T, G, D) each."""
    assert isinstance(layers.cache, CpuCache)
    positions = np.arange(len(IDS))
    places = PAGES[positions // 256] * 256 + positions % 256
    return [
        part.reshape(-1, shape.kv_heads, shape.head_dim)[places]
        for part in stored(layers.cache, layer, shape, int(PAGES[0]))
    ]


CASES = [
    ("fp32", 4, 2, 32, 100, 0.0, False), ("fp32", 3, 1, 64, 256, 5.0, True), ("fp16", 5, 1, 24, 1, 0.0, True),
    ("fp32", 8, 8, 16, 257, 0.0, True), ("fp32", 2, 1, 256, 0, 50.0, False),
    ("fp16", 7, 1, 80, 300, 0.0, False), ("fp8", 8, 1, 96, 130, 2.0, True), ("q8", 16, 1, 64, 5, 0.0, True),
    ("q4", 4, 2, 64, 255, 3.0, True), ("q8/q4", 6, 2, 20, 511, 0.0, False),
    ("q4/fp16", 5, 1, 128, 40, 20.0, False), ("fp32", 48, 1, 32, 600, 0.0, True),
    ("fp32", 3, 3, 64, 0, 0.0, True),
]  # fmt: skip


QUICK = ("fp32", "fp16")
"""The other cache types' kernels compile for long."""


@pytest.mark.parametrize(
    ("dtype", "heads", "groups", "dim", "window", "cap", "sinking"),
    [pytest.param(*case, marks=[] if case[0] in QUICK else [pytest.mark.slow]) for case in CASES],
)
def test_windows_caps_and_sinks(
    dtype: str, heads: int, groups: int, dim: int, window: int, cap: float, sinking: bool
) -> None:
    shape = AttentionShape(heads, groups, dim, dim**-0.5, window, cap)
    # From far below all scores to far above.
    sinks = np.linspace(-40, 20, heads).astype(np.float32) if sinking else None
    layers = Layers([shape], [sinks], dtype)
    found = layers.run()
    q = layers.tables[0].values[IDS].reshape(-1, heads, dim)
    expected = exact_attention(q, *kept(layers, 0, shape), shape, sinks).reshape(len(IDS), -1)
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("dtype", "heads", "groups", "dim", "window", "factor"),
    [
        ("fp32", 6, 6, 24, 0, 0.0),
        ("fp32", 5, 1, 16, 0, 0.25),
        ("fp16", 4, 2, 32, 300, 0.0),
        ("q8", 6, 3, 32, 0, 0.1),
    ],
)
def test_alibi(dtype: str, heads: int, groups: int, dim: int, window: int, factor: float) -> None:
    """Slopes by the distance of positions, and Falcon's, which are rounded."""
    slopes = alibi_slopes(heads)
    slopes = in_bfloat16(slopes) if factor else slopes
    shape = AttentionShape(heads, groups, dim, dim**-0.5, window, slopes=slopes, rounded_slopes=factor)
    layers = Layers([shape], [None], dtype)
    found = layers.run()
    q = layers.tables[0].values[IDS].reshape(-1, heads, dim)
    keys, values = kept(layers, 0, shape)
    exact = exact_attention(q, keys, values, shape, None)
    error = np.abs(found.reshape(exact.shape) - exact)
    assert error.max() <= 2e-5 * np.abs(exact).max()


@pytest.mark.parametrize(("dtype", "chunk"), [("fp32", 100), ("fp16", 7), ("fp32", 300), ("fp16", 512)])
def test_chunks(dtype: str, chunk: int) -> None:
    """Each token sees its own chunk alone, across pages, splits and steps."""
    shape = AttentionShape(4, 2, 32, 0.2, chunk, chunked=True)
    layers = Layers([shape], [None], dtype)
    found = layers.run()
    q = layers.tables[0].values[IDS].reshape(-1, 4, 32)
    expected = exact_attention(q, *kept(layers, 0, shape), shape, None).reshape(len(IDS), -1)
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("dtype", "heads", "groups", "dim", "window", "alibi"),
    [
        ("fp32", 4, 2, 32, 0, False),
        ("fp16", 3, 3, 24, 65, False),
        ("fp32", 6, 6, 16, 0, True),
        ("q8", 4, 1, 32, 300, False),
        ("fp32", 2, 2, 16, 5, True),
        ("fp16", 2, 1, 64, 1, False),
    ],
)
def test_bidirectional(dtype: str, heads: int, groups: int, dim: int, window: int, alibi: bool) -> None:
    """Each token sees the later ones of its step, too, across pages, tiles and splits."""
    slopes = alibi_slopes(heads) if alibi else ()
    shape = AttentionShape(heads, groups, dim, dim**-0.5, window, slopes=slopes, bidirectional=True)
    layers = Layers([shape], [None], dtype)
    found = layers.run()
    q = layers.tables[0].values[IDS].reshape(-1, heads, dim)
    expected = exact_attention(q, *kept(layers, 0, shape), shape, None).reshape(len(IDS), -1)
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("dtype", "window"), [("fp32", 65), ("q8", 300), ("fp16", 1), ("fp32", 0)])
def test_bidirectional_with_a_window_of_earlier_tokens(dtype: str, window: int) -> None:
    """Each token sees all later ones of its step, but only the latest of those before it."""
    shape = AttentionShape(4, 2, 32, 0.2, window, bidirectional=True, backward_window=True)
    layers = Layers([shape], [None], dtype)
    found = layers.run()
    q = layers.tables[0].values[IDS].reshape(-1, 4, 32)
    expected = exact_attention(q, *kept(layers, 0, shape), shape, None).reshape(len(IDS), -1)
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("dtype", "chunk"), [("fp32", 64), ("fp16", 17), ("q8", 300), ("fp32", 1)])
def test_bidirectional_in_chunks(dtype: str, chunk: int) -> None:
    """Each token sees the later ones of its step up to the end of its chunk, across pages and tiles."""
    shape = AttentionShape(4, 2, 24, 0.2, chunk, chunked=True, bidirectional=True)
    layers = Layers([shape], [None], dtype)
    found = layers.run()
    q = layers.tables[0].values[IDS].reshape(-1, 4, 24)
    expected = exact_attention(q, *kept(layers, 0, shape), shape, None).reshape(len(IDS), -1)
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("furthest", "both", "dtype"), [(128, True, "fp32"), (5, False, "fp16"), (0, True, "fp32")]
)
def test_numbers_by_distance(furthest: int, both: bool, dtype: str) -> None:
    """Keys beyond the furthest have its number, on either side, across pages, tiles and splits."""
    shape = AttentionShape(3, 3, 24, 0.2, 400, bidirectional=both)
    random = np.random.default_rng(4)
    distances = 2 * random.standard_normal((3, 2 * furthest + 1)).astype(np.float32)
    layers = Layers([shape], [None], dtype, distances)
    found = layers.run()
    q = layers.tables[0].values[IDS].reshape(-1, 3, 24)
    expected = exact_attention(q, *kept(layers, 0, shape), shape, None, distances).reshape(len(IDS), -1)
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


def test_layers_with_windows_and_without() -> None:
    """A model's layers differ, and all share their partial results' memory."""
    shapes = [AttentionShape(4, 2, 32, 0.2, window) for window in (0, 70, 0, 300)]
    layers = Layers(shapes, [None, np.zeros(4, np.float32), None, None], "fp32")
    found = layers.run()
    q = layers.tables[0].values[IDS].reshape(-1, 4, 32)
    parts = [
        exact_attention(q, *kept(layers, i, s), s, np.zeros(4) if i == 1 else None).reshape(len(IDS), -1)
        for i, s in enumerate(shapes)
    ]
    expected = parts[0] + 100 * parts[1] + 1e4 * parts[2] + 1e6 * parts[3]
    assert np.abs(found - expected).max() <= 3e-5 * np.abs(expected).max()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("dtype", ["fp32", "q8", "q4"])
def test_rows_of_a_short_step_are_those_of_steps_of_one(dtype: str) -> None:
    shape = AttentionShape(5, 1, 40, 0.2, 250, 30.0)
    layers = Layers([shape], [np.linspace(-3, 3, 5).astype(np.float32)], dtype)
    with layers.program() as program:
        for begin in range(0, 640, 128):
            program.run(step(begin, 128))
        for start in (3, 245, 249, 251, 257, 498, 506, 511, 630):
            alone = np.concatenate([program.run(step(p, 1)).copy() for p in range(start, start + 16)])
            assert np.abs(alone).max() > 0
            for rows in (2, 3, 4, 5, 7, 8, 9, 14, 16):
                assert np.array_equal(program.run(step(start, rows)), alone[:rows]), (start, rows)


@pytest.mark.parametrize("rows", [1, 8, 40])
def test_pages_before_the_window_are_never_read(rows: int) -> None:
    """Neither short nor long steps touch them: they may hold anything, or be somebody else's."""
    shape = AttentionShape(4, 2, 32, 0.2, 200)
    layers = Layers([shape], [None], "fp32")
    with layers.program() as program:
        for begin in range(0, 640, 128):
            program.run(step(begin, 128))
        expected = program.run(step(640 + 70, rows)).copy()  # sees positions 511 and later: pages 1 and on
        layers.cache.write_page(4, np.full(layers.cache.page_bytes, 255, np.uint8))
        assert np.array_equal(program.run(step(640 + 70, rows)), expected)
        expected = program.run(step(640 + 72, rows)).copy()
        layers.cache.write_page(1, np.full(layers.cache.page_bytes, 255, np.uint8))
        again = program.run(step(640 + 72, rows, np.array([1 << 20, -5, 5, 0], np.int32)))
        assert np.array_equal(again, expected)
        assert np.isfinite(expected).all()


@pytest.mark.parametrize("window", [0, 600, 4100])
def test_more_pages_than_splits(window: int) -> None:
    """Over 16 pages, so that a split has several, and the splits of a window begin anywhere among them."""
    shape = AttentionShape(2, 1, 16, 0.3, window)
    backend, total = CpuBackend(2), 4700
    tables = [Matrix("F32", (97, n * 16), n) for n in (2, 1)]
    packed = [backend.load_weight(m) for m in tables]
    ids = np.random.default_rng(2).integers(0, 97, total).astype(np.int32)
    pages = np.random.default_rng(3).permutation(19).astype(np.int32)

    def forward(ops: Any) -> Any:
        q, k = (ops.embed(w) for w in packed)
        return ops.last_rows(ops.attention(0, q, k, k, shape))

    program = backend.record(forward, backend.new_cache([shape], 19, "fp32"), 470)
    try:
        for start in range(0, total - 8, 470):
            rows = min(470, total - 8 - start)
            program.run(
                Step(ids[start : start + rows], np.arange(start, start + rows, dtype=np.int32), pages, 1)
            )
        places = np.arange(total - 8, total, dtype=np.int32)
        found = [
            program.run(Step(ids[p : p + 1], places[i : i + 1], pages, 1)).copy()
            for i, p in enumerate(places)
        ]
        together = program.run(Step(ids[-8:], places, pages, 8)).copy()
    finally:
        program.close()
    assert np.array_equal(np.concatenate(found), together)
    q, k = tables[0].values[ids[-8:]].reshape(8, 2, 16), tables[1].values[ids].astype(np.float64)
    scores = np.einsum("thd,sd->ths", q, k) * shape.scale
    seen = np.arange(total)[None] <= places[:, None]
    if window:
        seen &= np.arange(total)[None] > places[:, None] - window
    weights = np.where(seen[:, None], np.exp(scores), 0)
    expected = (weights / weights.sum(-1, keepdims=True) @ k).reshape(8, 32)
    assert np.abs(together - expected).max() <= 3e-5 * np.abs(expected).max()
