"""`Step.rope_positions` and rotary tables that are `given`: which angles a row is rotated by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import Backend, RotaryTable, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels import sample
from engine.backends.cuda.backend import CudaBackend
from engine.backends.decode_loop import SamplingPlan
from engine.backends.reference.backend import ReferenceBackend
from engine.core import PAGE_TOKENS
from engine.models import Model
from tests.engine.backends.kernel_oracles import Matrix
from tests.engine.models.oracle import load
from tests.simt.fake import FakeDevice
from tests.tiny import TINY, write_gguf

BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference": ReferenceBackend,
    "cpu": lambda: CpuBackend(threads=2),
    "cuda": lambda: CudaBackend([FakeDevice()]),
}
HEADS, HALF, DIM, ROWS, PLACES = 3, 6, 16, 24, 40
PAGES = np.zeros(1, np.int32)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]()


def angles(rows: int, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(-3, 3, (rows, HALF))


def table_of(values: Any, given: bool = False) -> RotaryTable:
    return RotaryTable(np.cos(values).astype(np.float32), np.sin(values).astype(np.float32), False, given)


class Rotating:
    """A program that rotates the embeddings of its tokens by one table."""

    def __init__(self, backend: Backend, table: RotaryTable) -> None:
        matrix = Matrix("F32", (ROWS, HEADS * DIM), 1)
        weight, self.values = backend.load_weight(matrix), matrix.values
        self.cache = backend.new_cache([], 4, "fp32")
        self.program = backend.record(
            lambda ops: ops.last_rows(ops.rope(ops.embed(weight), table, HEADS)), self.cache, ROWS
        )

    def rotated(self, count: int, positions: Any, ropes: Any = None, runs: Any = ()) -> Any:
        ids = np.arange(count, dtype=np.int32)
        pages = np.arange(max(1, len(runs)), dtype=np.int32)
        return self.program.run(
            Step(ids, positions, pages, count, runs, rope_positions=ropes)
        ).copy()  # fmt: skip

    def expected(self, turns: Any) -> Any:
        """The first rows, rotated by these angles (T, HALF)."""
        x = self.values[: len(turns)].reshape(len(turns), HEADS, DIM)
        a, b, out = x[..., :HALF], x[..., HALF : 2 * HALF], x.copy()
        cos, sin = np.cos(turns)[:, None], np.sin(turns)[:, None]
        out[..., :HALF], out[..., HALF : 2 * HALF] = a * cos - b * sin, b * cos + a * sin
        return out.reshape(len(turns), -1)

    def close(self) -> None:
        self.program.close()
        self.cache.close()


@pytest.mark.parametrize("count", [1, 5, 20])
def test_rows_are_rotated_by_their_rope_positions(backend: Backend, count: int) -> None:
    turns = angles(PLACES, 1)
    rotating = Rotating(backend, table_of(turns))
    positions = np.arange(12, 12 + count, dtype=np.int32)
    ropes = np.random.default_rng(2).integers(0, 12, count).astype(np.int32)
    for given, places in ((None, positions), (ropes, ropes), (None, positions)):
        found = rotating.rotated(count, positions, given)
        np.testing.assert_allclose(found, rotating.expected(turns[places]), rtol=0, atol=2e-6)
    rotating.close()


def test_sequences_have_their_own_rope_positions(backend: Backend) -> None:
    turns = angles(PLACES, 1)
    rotating = Rotating(backend, table_of(turns))
    positions = np.array([30, 31, 32, 7, 20, 21], np.int32)
    ropes = np.array([3, 4, 5, 7, 18, 19], np.int32)
    found = rotating.rotated(6, positions, ropes, ((3, 1), (1, 1), (2, 1)))
    np.testing.assert_allclose(found, rotating.expected(turns[ropes]), rtol=0, atol=2e-6)
    rotating.close()


@pytest.mark.parametrize("count", [4, 20])
def test_given_tables_are_read_as_they_are_when_a_step_runs(backend: Backend, count: int) -> None:
    table = table_of(angles(ROWS, 1), given=True)
    rotating = Rotating(backend, table)
    positions, ropes = (np.arange(first, first + count, dtype=np.int32) for first in (100, 0))
    for seed in (3, 4, 5):
        turns = angles(ROWS, seed)
        table.cos[:], table.sin[:] = np.cos(turns), np.sin(turns)
        found = rotating.rotated(count, positions, ropes)
        np.testing.assert_allclose(found, rotating.expected(turns[:count]), rtol=0, atol=2e-6)
    rotating.close()


def test_no_row_past_the_end_of_a_table_is_read() -> None:
    for make in (BACKENDS["cpu"], BACKENDS["cuda"]):
        rotating = Rotating(make(), table_of(angles(ROWS, 1), given=True))
        positions = np.arange(30, 34, dtype=np.int32)
        for ropes in (None, np.array([0, 1, 2, ROWS], np.int32)):
            with pytest.raises(AssertionError, match="past the end"):
                rotating.rotated(4, positions, ropes)
        rotating.close()


def test_the_beginning_of_a_fast_prompt_has_its_rope_positions() -> None:
    """A program with 8-bit activations runs the first rows of a prompt apart."""
    turns = angles(PLACES, 1)
    rotating = Rotating(CpuBackend(threads=1, prompt_bits=8), table_of(turns))
    ropes = np.random.default_rng(2).integers(0, 12, 20).astype(np.int32)
    found = rotating.rotated(20, np.arange(20, dtype=np.int32), ropes)
    np.testing.assert_allclose(found, rotating.expected(turns[ropes]), rtol=0, atol=2e-6)
    rotating.close()


# -- whole models


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("shift") / "m.gguf", TINY, "F32")


@pytest.fixture(params=["cpu", "cuda"])
def model(path: Path, request: pytest.FixtureRequest) -> Iterator[Model]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "MIN_SCANNED", 1)
        model = load(path, BACKENDS[request.param]())
        yield model
    model.close()


SHIFT = 9


def shifted(ids: list[int], first: int) -> Step:
    """The step of the tokens from `first` on, whose rope positions are `SHIFT` less than positions."""
    places = np.arange(first, len(ids), dtype=np.int32)
    pages = np.arange(1, dtype=np.int32)
    return Step(
        np.array(ids[first:], np.int32), places, pages, len(ids) - first, rope_positions=places - SHIFT
    )


def begun(model: Model) -> Any:
    """A program over its own cache that has read 20 tokens."""
    program = model.record(model.new_cache(PAGE_TOKENS, "fp32"), 32, PAGE_TOKENS)
    program.run(Step(np.arange(3, 23, dtype=np.int32), np.arange(20, dtype=np.int32), PAGES))
    return program


def test_logits_after_a_shift(model: Model, path: Path) -> None:
    ids, exact = list(range(3, 30)), load(path)
    found, expected = (begun(each).run(shifted(ids, 20)) for each in (model, exact))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 * np.abs(expected).max())
    step = shifted(ids, 20)
    plain = begun(exact).run(Step(step.token_ids, step.positions, PAGES, 7))
    assert np.abs(plain - expected).max() > 0.05 * np.abs(expected).max()
    exact.close()


def test_decoding_ahead_after_a_shift(model: Model) -> None:
    """The tokens of a decode loop, and their logits, are those of passes of one token and of several."""
    ahead, alone, drafted = begun(model), begun(model), begun(model)
    ids = list(range(3, 24))
    loop = ahead.decode_loop(SamplingPlan(TINY.vocab_size, greedy=True))
    loop.start(ids, PAGES, lambda place: 0.0, shift=SHIFT)
    expected = []
    for turn in range(24):
        if turn == 14:
            loop.start(ids, PAGES, lambda place: 0.0, shift=SHIFT)
        expected.append(alone.run(shifted(ids, len(ids) - 1))[0].copy())
        sampled = loop.next(min(loop.ahead, 5))
        assert loop.logits(len(ids)).tobytes() == expected[-1].tobytes()
        assert sampled.id == expected[-1].argmax()
        ids.append(sampled.id)
    loop.close()
    for first in range(20, 44, 8):
        found = drafted.run(shifted(ids[: first + 8], first))
        assert found.tobytes() == np.array(expected[first - 20 : first - 12]).tobytes()
