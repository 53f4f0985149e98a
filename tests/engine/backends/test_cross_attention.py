"""Cross-attention: rows attend to what their sequence's part of a second cache holds, and to all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Backend, Program, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cross import CrossKeys
from engine.backends.cuda.backend import CudaBackend
from engine.backends.reference.backend import ReferenceBackend
from engine.core import PAGE_TOKENS
from tests.engine.backends.kernel_oracles import Matrix
from tests.simt.fake import FakeDevice

WIDTH, LAYERS, ROWS, PAGES = 48, 2, 64, 12
SHAPE = AttentionShape(6, 2, 32, 0.004)
SEEN = (CrossKeys(np.array([7, 2, 9], np.int32), 600), CrossKeys(np.array([4], np.int32), 1),
        CrossKeys(np.array([1, 3], np.int32), 256))  # fmt: skip


def _replaced() -> Backend:
    """A GPU whose kernels do not run right, so that torch's operations take their place."""
    backend = CudaBackend([FakeDevice()])
    backend.replace("its kernels are wrong", "")
    return backend


BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference": ReferenceBackend,
    "cpu": lambda: CpuBackend(2),
    "cuda": lambda: CudaBackend([FakeDevice()]),
    "two GPUs": lambda: CudaBackend([FakeDevice(index=index) for index in range(2)], even=True),
    "torch": _replaced,
}


class Model:
    """Cross-attention over two layers of keys and values that are made of given rows."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        inner, groups = SHAPE.heads * SHAPE.head_dim, SHAPE.kv_heads * SHAPE.head_dim
        sizes = [(97, WIDTH), (inner, WIDTH), (WIDTH, inner), (groups, WIDTH), (groups, WIDTH)]
        self.table, self.query, self.output, self.key, self.value = (
            backend.load_weight(Matrix("F32", size, seed)) for seed, size in enumerate(sizes)
        )
        self.given = np.zeros((ROWS, WIDTH), np.float32)
        self.crossed = backend.new_cache([SHAPE] * LAYERS, PAGES, "fp32")
        self.cache = backend.new_cache([SHAPE], 1, "fp32")
        self.cache.cross = self.crossed

    def write(self, ops: Any) -> Any:
        x = ops.given(self.given)
        for layer in range(LAYERS):
            k = ops.kv_write(layer, ops.linear(x, self.key), ops.linear(x, self.value), SHAPE)
        return ops.last_rows(k)

    def read(self, ops: Any) -> Any:
        x = ops.embed(self.table)
        for layer in range(LAYERS):
            x = ops.linear(ops.cross_attention(layer, ops.linear(x, self.query), SHAPE), self.output, None, x)
        return ops.last_rows(x)

    def fill(self) -> None:
        """Write the positions of all that is seen."""
        program = self.backend.record(self.write, self.crossed, ROWS)
        random = np.random.default_rng(3)
        for seen in SEEN:
            for start in range(0, seen.length, ROWS):
                count = min(ROWS, seen.length - start)
                self.given[:count] = random.standard_normal((count, WIDTH))
                places = np.arange(start, start + count, dtype=np.int32)
                program.run(Step(np.zeros(count, np.int32), places, seen.pages))
        program.close()


@pytest.fixture(scope="module", params=BACKENDS)
def read(request: pytest.FixtureRequest) -> Iterator[tuple[Program, Program]]:
    """The pass on a backend, and the same on the reference."""
    found: list[Program] = []
    for backend in (BACKENDS[request.param](), ReferenceBackend()):
        model = Model(backend)
        model.fill()
        found.append(backend.record(model.read, model.cache, ROWS))
    yield found[0], found[1]
    for program in found:
        program.close()


def step(rows: int, cross: tuple[CrossKeys, ...], runs: tuple[int, ...] = ()) -> Step:
    """A step over rows of random tokens."""
    ids = np.random.default_rng(rows).integers(0, 97, rows).astype(np.int32)
    pages = np.zeros(max(1, len(runs)), np.int32)
    return Step(ids, np.arange(rows, dtype=np.int32), pages, rows, [(each, 1) for each in runs], cross=cross)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("number", range(len(SEEN)))
def test_rows_see_all_keys_of_their_sequence(read: tuple[Program, Program], rows: int, number: int) -> None:
    ours, oracle = (program.run(step(rows, (SEEN[number],))).copy() for program in read)
    assert np.abs(ours - oracle).max() < 1e-4 * np.abs(oracle).max()
    other = read[1].run(step(rows, (SEEN[number - 1],)))
    assert np.abs(other - oracle).max() > 0.05 * np.abs(oracle).max()


def test_sequences_in_one_pass_see_their_own_keys(read: tuple[Program, Program]) -> None:
    runs = (2, 1, 3)
    whole = step(6, SEEN, runs)
    together, at = read[0].run(whole).copy(), 0
    for rows, seen in zip(runs, SEEN, strict=True):
        part = slice(at, at + rows)
        alone = Step(whole.token_ids[part], whole.positions[part], whole.pages[:1], rows, cross=(seen,))
        assert np.array_equal(read[0].run(alone), together[part]), seen.length
        at += rows


def test_what_is_seen_may_change_from_step_to_step(read: tuple[Program, Program]) -> None:
    first = read[0].run(step(2, SEEN[:1])).copy()
    read[0].run(step(2, SEEN[2:]))
    assert np.array_equal(read[0].run(step(2, SEEN[:1])), first)
    longer = CrossKeys(SEEN[0].pages, PAGE_TOKENS)
    assert not np.array_equal(read[0].run(step(2, (longer,))), first)
