"""Attention of large batches in int16 pairs: what is packed, and what a row's bits depend on."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from engine.backends.base import AttentionShape
from engine.backends.cpu.kernels.attention.pairs import (
    LARGEST,
    NORM,
    VALUE,
    WEIGHTS,
    in_pairs,
    pack_keys,
    pack_query,
    pack_values,
    pack_weights,
)
from engine.backends.cpu.runtime.step_block import SMALL_BATCH
from engine.backends.kv_formats import CacheType
from tests.engine.backends.cpu.test_attention import IDS, STEPS, Layers, exact_attention, kept, step

pytestmark = pytest.mark.skipif(
    not in_pairs(CacheType("fp16", "fp16")), reason="products of pairs take no less time on this processor"
)
Array = np.ndarray[Any, Any]


def _keys(keys: int, vectors: int, fours: int, out: int) -> None:
    pack_keys(keys, vectors, fours, out)


def _query(x: int, vectors: int, out: int) -> None:
    pack_query(x, vectors, out)


def _values(values: int, filled: int, vectors: int, factors: int, out: int) -> None:
    pack_values(values, filled, vectors, factors, out)


def _weights(x: int, factors: int, vectors: int, out: int) -> None:
    pack_weights(x, factors, vectors, out)


keys_packed: Any = numba.njit(_keys)
query_packed: Any = numba.njit(_query)
values_packed: Any = numba.njit(_values)
weights_packed: Any = numba.njit(_weights)


def packed_rows(rows: Array) -> tuple[Array, Array]:
    """Each float32 row of `rows` as a query: integers (rows, dim) and factors."""
    count, dim = rows.shape
    out = np.zeros((count, 64 + 2 * dim), np.uint8)
    for row, target in zip(rows, out, strict=True):
        query_packed(row.ctypes.data, dim // 16, target.ctypes.data + 64)
    return out[:, 64:].copy().view(np.int16), out[:, 60:64].copy().view(np.float32)[:, 0]


def of_keys(keys: Array) -> tuple[Array, Array]:
    """fp16 keys (positions, dim), a multiple of 16 positions, as integers and factors."""
    positions, dim = keys.shape
    vectors = positions // 16
    placed = np.ascontiguousarray(keys.reshape(vectors, 16, dim).transpose(0, 2, 1))
    out = np.zeros((vectors, dim // 2 + 1, 16, 2), np.int16)
    keys_packed(placed.ctypes.data, vectors, dim // 4, out.ctypes.data)
    factors = out[:, -1].copy().view(np.float32).reshape(-1)
    return out[:, :-1].transpose(0, 2, 1, 3).reshape(positions, dim), factors


def drawn(seed: int, rows: int, dim: int) -> Array:
    """Rows of very different sizes, with outliers in a few columns."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal((rows, dim)) * 10.0 ** random.uniform(-2, 2, (rows, 1))
    numbers[:, :3] *= 40
    return numbers.astype(np.float32)


@pytest.mark.parametrize("dim", [16, 64, 256])
def test_queries_and_keys_keep_their_directions_and_no_sum_leaves_int32(dim: int) -> None:
    queries, keys = drawn(1, 20, dim), drawn(2, 48, dim).astype(np.float16)
    for numbers, (integers, factors) in (
        (queries, packed_rows(queries)),
        (keys.astype(np.float32), of_keys(keys)),
    ):
        sizes = np.linalg.norm(numbers, axis=1)
        assert (np.abs(integers * factors[:, None] - numbers).max(1) <= 0.51 * sizes / NORM).all()
        norms = np.linalg.norm(integers.astype(np.float64), axis=1)
        assert norms == pytest.approx(NORM, rel=1e-3)
    worst = (NORM + np.sqrt(512) / 2) ** 2
    assert worst < 2**31
    assert (2 * WEIGHTS + 256) / 2 * VALUE < 2**31
    assert LARGEST < 2**15


def test_what_is_nothing_stays_nothing() -> None:
    integers, factors = packed_rows(np.zeros((2, 64), np.float32))
    assert not integers.any()
    assert not factors.any()
    integers, factors = of_keys(np.zeros((16, 64), np.float16))
    assert not integers.any()
    assert not factors.any()


@pytest.mark.parametrize("filled", [1, 7, 16, 33, 256])
def test_weighted_values_are_those_of_their_positions_alone(filled: int) -> None:
    """What lies behind the last position, as in memory that nobody cleared, has no part in it."""
    random = np.random.default_rng(filled)
    values = np.full((257, 32), np.nan, np.float16)
    values[:filled] = drawn(filled, filled, 32)
    weights = np.zeros(256, np.float32)
    weights[:filled] = random.random(filled) ** 9
    expected = weights[:filled].astype(np.float64) @ values[:filled].astype(np.float64)
    largest = (weights[:filled] * np.abs(values[:filled]).max(1)).sum()
    room, factors = np.zeros((128, 32, 2), np.int16), np.zeros(512, np.float32)
    out = np.zeros(64 + 512, np.uint8)
    values_packed(values.ctypes.data, filled, 2, factors.ctypes.data, room.ctypes.data)
    weights_packed(weights.ctypes.data, factors.ctypes.data, -(-filled // 16), out.ctypes.data + 64)
    integers, factor = out[64:].view(np.int16).astype(np.int64), out[60:64].view(np.float32)[0]
    assert integers.sum() <= WEIGHTS + 128
    assert integers.max() <= LARGEST
    assert not integers[filled:].any()
    pairs = -(-filled // 2)
    found = np.einsum("jp,jcp->c", integers[: 2 * pairs].reshape(pairs, 2), room[:pairs].astype(np.int64))
    assert np.abs(found).max() < 2**31
    rounding = 0.51 * largest / VALUE + 0.51 * filled * VALUE * factor
    assert np.abs(found * float(factor) - expected).max() <= rounding


def layers_of(shape: AttentionShape, sinks: Array | None = None) -> Layers:
    """One layer that reads prompts with activations of 8 bits, for which its linear layers have no use."""
    layers = Layers([shape], [sinks], "fp16")
    layers.backend.prompt_bits = 8
    return layers


@pytest.mark.parametrize(
    "shape",
    [
        AttentionShape(6, 2, 64, 0.2),
        AttentionShape(7, 1, 80, 0.1, 300, 30.0),
        AttentionShape(4, 4, 24, 0.2),
        AttentionShape(2, 1, 16, 0.3, bidirectional=True),
    ],
    ids=["whole", "window and cap", "no whole vectors", "both ways"],
)
def test_outputs_are_those_of_exact_arithmetic(shape: AttentionShape) -> None:
    """Within what rounding makes of them in large batches; small ones are as without pairs."""
    sinks = np.linspace(-20, 10, shape.heads).astype(np.float32)
    layers = layers_of(shape, sinks)
    found = layers.run()
    q = layers.tables[0].values[IDS].reshape(-1, shape.heads, shape.head_dim)
    expected = exact_attention(q, *kept(layers, 0, shape), shape, sinks).reshape(len(IDS), -1)
    error = np.abs(found - expected).max(1) / np.abs(expected).max()
    large = np.repeat(STEPS, STEPS) > SMALL_BATCH
    assert error[~large].max() <= 3e-5
    assert error[large].max() <= 3e-4
    assert (error[large].max() > 3e-5) == (
        shape.head_dim % 16 == 0
    )  # or this test would compare another kernel


def test_a_rows_bits_do_not_depend_on_how_a_text_is_cut() -> None:
    """As long as the parts are large batches, without the first rows, which are a batch of their own."""
    layers = layers_of(AttentionShape(6, 2, 32, 0.2, 300))
    with layers.program() as program:
        found = []
        for sizes in ((128,) * 5, (40, 100, 128, 128, 116, 128), (60, 68) * 5):
            start, parts = 0, []
            for rows in sizes:
                parts.append(program.run(step(start, rows)).copy())
                start += rows
            assert start == 640 < len(IDS)
            found.append(np.concatenate(parts))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
