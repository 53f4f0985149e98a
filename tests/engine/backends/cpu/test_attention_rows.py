"""The parts of attention's softmax, and how queries share tiles."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba import types

from engine.backends.cpu.kernels.attention.arguments import A_K, A_KEY_PAGE, A_KV_HEADS, A_WINDOW
from engine.backends.cpu.kernels.attention.attention import NO_WINDOW, attention_kernel, split_of
from engine.backends.cpu.kernels.attention.combine import SPLITS
from engine.backends.cpu.kernels.attention.products import attention_products
from engine.backends.cpu.kernels.attention.softmax import row_exp, row_mask, row_max, row_times
from engine.backends.cpu.kernels.attention.tiles import (
    MOST_SUMS,
    ROW_STEPS,
    STRIP_FROM,
    STRIP_ROWS,
    VECTORS,
    parts,
    rows_at_once,
)
from engine.backends.cpu.runtime.step_block import (
    POSITIONS,
    ROWS,
    RUN_FIRST,
    RUN_PAGES,
    RUN_ROWS,
    RUN_TABLE,
    RUN_WORDS,
    RUNS,
    WORDS,
)
from engine.backends.kv_formats import CacheType

pytestmark = pytest.mark.usefixtures("memory_without_numbers")


def _weights(row: int, fours: int, top: float) -> Any:
    return row_exp(row, fours, top)


def _greatest_between(row: int, fours: int, low: int, high: int) -> Any:
    row_mask(row, 4 * fours, low, high)
    return row_max(row, fours)


def _times(x: int, count: int, factor: float, y: int) -> None:
    row_times(x, count, factor, y)


weights: Any = numba.njit(types.float32(types.int64, types.int64, types.float32))(_weights)
greatest_between: Any = numba.njit(types.float32(*[types.int64] * 4))(_greatest_between)
times: Any = numba.njit(types.void(types.int64, types.int64, types.float32, types.int64))(_times)


def test_weights_are_exact_to_the_last_bits_and_masked_ones_are_nothing() -> None:
    drawn = np.random.default_rng(4).random(248) * 85
    row = np.concatenate(
        [[0, -np.inf, -200, -1e30, -1e-6], -drawn, [-0.5 * np.log(2), -1000, -np.inf]]
    ).astype(np.float32)
    expected = np.exp(row.astype(np.float64))
    total = weights(row.ctypes.data, 4, 0.0)
    normal = expected > 1e-37
    assert np.abs(row[normal] / expected[normal] - 1).max() < 2e-7
    assert row[0] == 1.0
    assert (row[[1, 3, -2, -1]] == 0).all()
    assert total == pytest.approx(expected.sum(), rel=1e-6)
    assert np.isnan(weights(np.full(256, np.nan, np.float32).ctypes.data, 4, 0.0))


@pytest.mark.parametrize(
    ("low", "high"), [(0, 256), (0, 1), (17, 18), (-(1 << 40), 100), (255, 256), (16, 240), (3, 130)]
)
def test_positions_outside_the_window_do_not_count(low: int, high: int) -> None:
    row = np.random.default_rng(high).standard_normal(256).astype(np.float32)
    expected = row.copy()
    first = max(low, 0)
    expected[:first] = expected[high:] = -np.inf
    assert greatest_between(row.ctypes.data, 4, first, high) == expected.max()
    np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize("count", [1, 15, 16, 20, 64, 80, 257])
def test_no_number_past_the_count_is_written(count: int) -> None:
    x, y = (
        np.random.default_rng(count).standard_normal(count + 32).astype(np.float32),
        np.full(count + 32, 7, np.float32),
    )
    times(x.ctypes.data, count, 0.3, y.ctypes.data)
    np.testing.assert_array_equal(y[:count], x[:count] * np.float32(0.3))
    assert (y[count:] == 7).all()


def test_tiles_take_all_queries() -> None:
    for queries in range(1, 100):
        left = queries
        while left:
            taken = rows_at_once(left)
            assert taken in ROW_STEPS
            assert 0 < taken <= left
            left -= taken


def test_a_tiles_sums_fit_into_the_registers() -> None:
    """Code that keeps sums in memory within its loop takes half as long again."""
    for rows in ROW_STEPS:
        found = parts(VECTORS, rows)
        assert [m for part in found for m in part] == list(range(VECTORS))
        assert all(rows * len(part) <= MOST_SUMS for part in found)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("name", "dim"), [("fp16", 64), ("fp8", 200), ("fp16", 72)])
def test_many_queries_get_the_bits_of_one(name: Any, dim: int) -> None:
    """From `STRIP_FROM` on most of them multiply numbers that became float32 before, in strips."""
    made = attention_products(CacheType(name, name), lambda part, signature: numba.njit(signature)(part))
    rng, width, vectors = np.random.default_rng(dim), -(-dim // 16) * 16, 13
    kind = np.float16 if name == "fp16" else np.uint8
    keys, values = (
        rng.standard_normal(n).astype(kind) if name == "fp16" else rng.integers(0, 120, n).astype(kind)
        for n in (256 * dim, 256 * width)
    )
    most = STRIP_FROM + 5
    queries, weights = (rng.standard_normal((most, n)).astype(np.float32) for n in (dim, 256))

    room = np.full(16 * VECTORS * STRIP_ROWS + 16, 7, np.float32)

    def products(first: int, count: int) -> tuple[bytes, bytes]:
        scores, out = np.full((count, 256), 7, np.float32), np.ones((count, width), np.float32)
        q, w = queries[first:], weights[first:]
        made["scores_of"](
            keys.ctypes.data, 0, vectors, q.ctypes.data, dim, count, dim, scores.ctypes.data, 0,
            room.ctypes.data,
        )  # fmt: skip
        made["mix"](
            values.ctypes.data, 0, 16 * vectors - 3, w.ctypes.data, count, width, 0, out.ctypes.data, 0,
            room.ctypes.data,
        )  # fmt: skip
        return scores.tobytes(), out.tobytes()

    alone = [products(i, 1) for i in range(most)]
    for count in (STRIP_FROM - 1, STRIP_FROM, STRIP_FROM + 5):
        assert products(0, count) == tuple(b"".join(parts) for parts in zip(*alone[:count], strict=True))
        assert (room[:-16] == 7).all() == (count < STRIP_FROM)
    assert (room[-16:] == 7).all()


def _share(part: int, threads: int) -> int:
    """The thread that begins with a tile: neighbouring tiles are together."""
    return part * threads // SPLITS


def test_the_first_pages_of_eight_sequences_go_to_all_tiles_evenly() -> None:
    """Threads begin with neighbouring tiles: two or four of them find equally many first pages."""
    tiles = [next(part for part in range(SPLITS) if split_of(part, r) == 0) for r in range(8)]
    for threads in (2, 4):
        shares = [sum(_share(tile, threads) == thread for tile in tiles) for thread in range(threads)]
        assert shares == [8 // threads] * threads
    assert len(set(tiles)) == 8


@pytest.mark.parametrize("run", [0, 3])
def test_a_sequences_pages_go_to_all_threads_evenly(run: int) -> None:
    parts = [next(part for part in range(SPLITS) if split_of(part, run) == j % SPLITS) for j in range(40)]
    assert set(parts) == set(range(SPLITS))
    for pages in range(1, 41):
        for threads in (2, 4, 8):
            shares = [sum(_share(part, threads) == t for part in parts[:pages]) for t in range(threads)]
            assert max(shares) - min(shares) <= 1


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("window", [600, NO_WINDOW, -512])
def test_each_run_prefetches_the_keys_that_are_read_next(window: int) -> None:
    """Three runs of 1, 2 and 1 rows with two heads: `upcoming` names the next run's or tile's first page."""
    kept: dict[str, Any] = {}

    def jit(function: Any, signature: Any) -> Any:
        made = kept[function.__name__] = numba.njit(function)  # compiled when it is called
        return made

    attention_kernel(CacheType("fp16", "fp16"), jit)
    groups, page_bytes, keys = 2, 4096, 1 << 20
    positions, rows = np.array([700, 5119, 5120, 3], np.int32), [(0, 1), (1, 2), (3, 1)]
    tables = [np.arange(100 * r, 100 * r + 21, dtype=np.int32) for r in range(3)]
    step, args = np.zeros(WORDS, np.int64), np.zeros(32, np.int64)
    step[[ROWS, RUNS, POSITIONS]] = 4, 3, positions.ctypes.data
    args[[A_KV_HEADS, A_KEY_PAGE, A_K, A_WINDOW]] = groups, page_bytes, keys, window
    for r, (first, count) in enumerate(rows):
        words = step[RUN_TABLE + RUN_WORDS * r :]
        words[[RUN_FIRST, RUN_ROWS, RUN_PAGES]] = first, count, tables[r].ctypes.data

    def first_keys(tile: int, r: int) -> int:
        own = int(positions[rows[r][0]])
        begun = own - own % -window if window < 0 else max(0, own - window + 1)
        last = int(positions[sum(rows[r]) - 1]) // 256
        mine = (j for j in range(begun // 256, last + 1) if j % SPLITS == split_of(tile // groups, r))
        page = next(mine, None)
        return 0 if page is None else keys + page_bytes * (int(tables[r][page]) * groups + tile % groups)

    order = [(tile, r) for tile in range(groups * SPLITS) for r in range(3)]
    found = [kept["upcoming"](args.ctypes.data, step.ctypes.data, *each) for each in order]
    assert found == [*(first_keys(*each) for each in order[1:]), 0]
    assert len(set(found)) > 8
