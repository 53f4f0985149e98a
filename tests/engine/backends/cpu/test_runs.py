"""Passes over several sequences: every row has, to the last bit, the logits that it has when its sequence
runs alone, and the same keys and values are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, KVCache, Program, RotaryTable, Step
from engine.backends.cpu.backend import CpuBackend
from engine.core import PAGE_TOKENS
from tests.engine.backends.kernel_oracles import Matrix

TABLE, PAGES_EACH, SEQUENCES = 97, 9, 8
TYPES = ("fp16", "fp8", "q8", "q4", "q6")


@dataclass
class Sequence:
    """Tokens, how many of them are stored, and the block table."""

    ids: np.ndarray[Any, Any]
    length: int
    pages: np.ndarray[Any, Any]

    def rows(self, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Token ids, positions and pages of the next rows."""
        positions = np.arange(self.length, self.length + count, dtype=np.int32)
        return self.ids[positions], positions, self.pages[: (self.length + count - 1) // PAGE_TOKENS + 1]


class Model:
    """Three layers of attention: plain, with a window and sinks, and with a soft cap and a window."""

    def __init__(self, heads: int, groups: int, dim: int) -> None:
        shape = AttentionShape(heads, groups, dim, dim**-0.5)
        self.shapes = [
            shape,
            AttentionShape(heads, groups, dim, 0.5, 300),
            AttentionShape(heads, groups, dim, 1.0, 700, 4.0),
        ]
        self.sinks = [None, np.linspace(-3, 2, heads).astype(np.float32), None]
        self.backend = CpuBackend(2)
        sizes = {
            "table": (TABLE, 64),
            "q": (heads * dim, 64),
            "k": (groups * dim, 64),
            "o": (64, heads * dim),
        }
        self.w = {
            name: self.backend.load_weight(Matrix("F32", size, seed))
            for seed, (name, size) in enumerate(sizes.items())
        }
        angles = np.arange(PAGES_EACH * PAGE_TOKENS)[:, None] * 50.0 ** (-np.arange(dim // 2) / (dim // 2))
        self.rotary = RotaryTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), False)
        self.norm = np.random.default_rng(5).uniform(0.5, 2, 64).astype(np.float32)

    def __call__(self, ops: Any) -> Any:
        x = ops.embed(self.w["table"], 1.0)
        for layer, (shape, sinks) in enumerate(zip(self.shapes, self.sinks, strict=True)):
            h = ops.rms_norm(x, self.norm, 1e-5)
            q, k = ops.linear(h, self.w["q"]), ops.linear(h, self.w["k"])
            v, k = k, ops.rope(k, self.rotary, shape.kv_heads)
            q = ops.rope(q, self.rotary, shape.heads)
            x = ops.linear(ops.attention(layer, q, k, v, shape, sinks), self.w["o"], residual=x)
        return ops.linear(ops.last_rows(x), self.w["table"])

    @contextmanager
    def program(self, dtype: str) -> Iterator[tuple[Program, KVCache]]:
        cache = self.backend.new_cache([self.shapes[0]] * 3, SEQUENCES * PAGES_EACH, dtype)
        program = self.backend.record(self, cache, 256)
        try:
            yield program, cache
        finally:
            program.close()


def sequences(lengths: list[int], seed: int = 0) -> list[Sequence]:
    """Sequences of random tokens that are stored up to these lengths, in pages in no order."""
    random = np.random.default_rng(seed)
    pages = random.permutation(SEQUENCES * PAGES_EACH).astype(np.int32).reshape(SEQUENCES, -1)
    return [
        Sequence(random.integers(0, TABLE, PAGES_EACH * PAGE_TOKENS).astype(np.int32), length, pages[i])
        for i, length in enumerate(lengths)
    ]


def read(program: Program, sequence: Sequence) -> None:
    """Store a sequence up to its length."""
    length, sequence.length = sequence.length, 0
    while sequence.length < length:
        count = min(256, length - sequence.length)
        program.run(Step(*sequence.rows(count)))
        sequence.length += count


def together(parts: list[tuple[Sequence, int]], logit_rows: int = 0) -> Step:
    """One step over the next rows of several sequences."""
    columns = [sequence.rows(count) for sequence, count in parts]
    ids, positions, pages = (np.concatenate(column) for column in zip(*columns, strict=True))
    runs = [(len(column[0]), len(column[2])) for column in columns]
    return Step(ids, positions, pages, logit_rows or len(ids), runs)


def alone(program: Program, parts: list[tuple[Sequence, int]]) -> np.ndarray[Any, Any]:
    """The logits of the same rows, one sequence after the other."""
    found = [program.run(Step(*sequence.rows(count), count)).copy() for sequence, count in parts]
    return np.concatenate(found)


def assert_alike(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], what: Any) -> None:
    assert np.isfinite(expected).all()
    assert np.abs(expected).max() > 0
    assert np.array_equal(found, expected), (what, np.abs(found - expected).max(axis=1))


def assert_same_pages(first: KVCache, second: KVCache, used: list[Sequence]) -> None:
    for sequence in used:
        for page in sequence.pages[: (sequence.length - 1) // PAGE_TOKENS + 1]:
            assert np.array_equal(first.read_page(int(page)), second.read_page(int(page)))


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("dtype", TYPES)
def test_many_random_passes_of_one_to_eight_rows(dtype: str) -> None:
    """Lengths from 0 to five pages, near borders of pages and of the first sixteen keys; 60 passes."""
    lengths, random = [0, 2, 13, 250, 300, 511, 700, 1270], np.random.default_rng(7)
    model = Model(6, 2, 32)
    with model.program(dtype) as (batch, ours), model.program(dtype) as (single, theirs):
        running = sequences(lengths)
        for sequence in running:
            read(batch, sequence)
            read(single, sequence)
        for number in range(60):
            counts, left = [], 8
            order = random.permutation(len(running))
            while left and len(counts) < len(running):
                counts.append(int(random.integers(1, left + 1)) if number % 2 else 1)
                left -= counts[-1]
            parts = [(running[i], count) for i, count in zip(order, counts, strict=False)]
            expected = alone(single, parts)
            assert_alike(batch.run(together(parts)), expected, (number, counts))
            for sequence, count in parts:
                sequence.length += count
        assert_same_pages(ours, theirs, running)


@pytest.mark.slow_after(6)
@pytest.mark.parametrize(("heads", "groups", "dim"), [(3, 3, 24), (7, 1, 80), (9, 3, 64)])
@pytest.mark.parametrize("counts", [[1, 4, 3], [4, 4], [8], [1] * 8, [1, 7], [2, 2, 2]])
def test_runs_of_unequal_rows_and_depths(heads: int, groups: int, dim: int, counts: list[int]) -> None:
    """Three tokens beside two thousand; some of the rows without logits."""
    model = Model(heads, groups, dim)
    with model.program("fp16") as (program, cache):
        running = sequences([3, 2000, 254, 1, 511, 600, 0, 30][: len(counts)])
        for sequence in running:
            read(program, sequence)
        parts = list(zip(running, counts, strict=True))
        before = [cache.read_page(page) for page in range(cache.page_count)]
        expected = alone(program, parts)
        for logit_rows in (sum(counts), 1):
            for page, stored in enumerate(before):
                cache.write_page(page, stored)
            found = program.run(together(parts, logit_rows))
            assert_alike(found, expected[len(expected) - logit_rows :], logit_rows)


@pytest.mark.parametrize("dtype", TYPES)
def test_sequences_share_pages_that_none_writes_to(dtype: str) -> None:
    """Two whole pages in common; then the first rows of pages of their own, also one row at a time."""
    model = Model(4, 2, 32)
    with model.program(dtype) as (program, cache):
        running = sequences([512] * 4)
        first = running[0]
        read(program, first)
        for sequence in running[1:]:
            sequence.pages = np.concatenate([first.pages[:2], sequence.pages[2:]])
        shared = [cache.read_page(int(page)) for page in first.pages[:2]]
        own = [int(sequence.pages[2]) for sequence in running]
        parts = [(sequence, 2) for sequence in running]
        expected = alone(program, parts)
        kept = [cache.read_page(page) for page in own]
        for page in own:
            cache.write_page(page, np.zeros_like(kept[0]))
        assert_alike(program.run(together(parts)), expected, "pairs")
        assert all(np.array_equal(cache.read_page(page), each) for page, each in zip(own, kept, strict=True))
        assert all(
            np.array_equal(cache.read_page(int(page)), each)
            for page, each in zip(first.pages[:2], shared, strict=True)
        )
        for row in range(2):
            step = together([(sequence, 1) for sequence in running])
            assert_alike(program.run(step), expected[row::2], row)
            for sequence in running:
                sequence.length += 1


def test_a_step_of_one_sequence_after_one_of_several_is_of_its_own() -> None:
    """Long and short, and with a block table that the room of the earlier ones did not hold."""
    model = Model(4, 2, 32)
    with model.program("fp16") as (batch, _), model.program("fp16") as (single, _):
        running = sequences([0, 0, 2200])
        for program in (batch, single):
            read(program, running[2])
        parts = [(running[0], 3), (running[1], 5)]
        assert_alike(batch.run(together(parts)), alone(single, parts), "several")
        for rows in (1, 8, 9, 16, 17, 60):
            step = Step(*running[2].rows(rows), rows)
            assert_alike(batch.run(step).copy(), single.run(step), rows)
        wide = np.concatenate([running[2].pages, np.zeros(100, np.int32)])
        step = Step(*running[2].rows(2)[:2], wide, 2)
        assert_alike(batch.run(step).copy(), single.run(step), "wide")
        assert_alike(batch.run(together(parts)), alone(single, parts), "several again")


def test_a_position_past_the_tables_is_refused_in_every_run() -> None:
    model = Model(4, 2, 32)
    with model.program("fp16") as (program, _):
        running = sequences([0, PAGES_EACH * PAGE_TOKENS - 1, 0])
        late = running[1]
        positions = np.array([0, PAGES_EACH * PAGE_TOKENS, 0], np.int32)
        pages = np.concatenate(
            [running[0].pages[:1], late.pages, np.zeros(1, np.int32), running[2].pages[:1]]
        )
        runs = [(1, 1), (1, len(late.pages) + 1), (1, 1)]
        with pytest.raises(AssertionError, match="past the end of a table"):
            program.run(Step(np.zeros(3, np.int32), positions, pages, 3, runs))
