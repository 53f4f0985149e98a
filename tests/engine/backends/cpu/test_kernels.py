"""Each CPU kernel against exact float64 arithmetic, on odd shapes, for small and large batches."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from engine.backends.base import AttentionShape, RotaryTable, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.program import CpuProgram
from engine.backends.cpu.runtime.contention import ACTIVE
from engine.backends.cpu.runtime.step_block import LOGIT_ROWS, ROWS, TOKENS
from engine.backends.cpu.runtime.work_stealing import BEGUN, CONTENTION, STEP_ROWS, pool_functions
from tests.engine.backends.kernel_oracles import (
    WEIGHT_CASES,
    Matrix,
    causal_attention,
    other_cpu,
    rotate,
    seen,
    unit_of,
)

TINY = AttentionShape(1, 1, 16, 1.0)
Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.usefixtures("memory_without_numbers")


@contextmanager
def recorded(
    backend: CpuBackend,
    forward: Callable[[Any], Any],
    rows: int,
    shape: AttentionShape = TINY,
    dtype: str = "fp16",
) -> Iterator[CpuProgram]:
    program = backend.record(forward, backend.new_cache([shape], 6, dtype), rows)
    assert isinstance(program, CpuProgram)
    try:
        yield program
    finally:
        program.close()


def step(ids: Array, first: int = 0, pages: tuple[int, ...] = (0,), logit_rows: int | None = None) -> Step:
    positions = np.arange(first, first + len(ids), dtype=np.int32)
    return Step(
        ids.astype(np.int32),
        positions,
        np.array(pages, np.int32),
        len(ids) if logit_rows is None else logit_rows,
    )


def assert_near(actual: Array, expected: Array, tolerance: float) -> None:
    """Largest difference relative to the largest expected value; says where it is."""
    error = np.abs(actual - expected) / np.abs(expected).max()
    where = np.unravel_index(int(error.argmax()), error.shape)
    assert error[where] <= tolerance, (
        f"{error[where]:.3g} at {where}: {actual[where]} instead of {expected[where]}"
    )


@pytest.mark.slow_after(5)  # Q8_0 is not slow: other tests compile its kernels, too
@pytest.mark.parametrize("kind", WEIGHT_CASES)
def test_linear_and_embedding(kind: str) -> None:
    columns = 512 if unit_of(kind) == 256 else {"F32": 515, "F16": 37, "BF16": 130}.get(kind, 352)
    table, weight = Matrix(kind, (301, columns), 1), Matrix(kind, (203, columns), 2)
    backend = CpuBackend(2)
    bias = np.random.default_rng(3).standard_normal(203).astype(np.float32)
    packed_table, packed = backend.load_weight(table), backend.load_weight(weight)

    def forward(ops: Any) -> Any:
        return ops.linear(ops.last_rows(ops.embed(packed_table, 0.5)), packed, bias)

    rng = np.random.default_rng(4)
    with recorded(backend, forward, 64) as program:
        for rows in (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 64):
            ids = rng.integers(0, 301, rows)
            expected = (
                seen(np.float32(0.5) * table.values[ids], kind, rows) @ weight.values.T.astype(np.float64)
                + bias
            )
            assert_near(program.run(step(ids)), expected, 3e-6)


def test_residual_and_gate_and_norm() -> None:
    table, gate, up, down = (
        Matrix("F32", s, i) for i, s in enumerate([(50, 100), (2100, 100), (2100, 100), (100, 2100)])
    )
    backend = CpuBackend(2)
    packed = [backend.load_weight(m) for m in (table, gate, up, down)]
    scale = np.random.default_rng(9).uniform(0.5, 2, 100).astype(np.float32)

    def forward(ops: Any) -> Any:
        x = ops.embed(packed[0])
        h = ops.rms_norm(x, scale, 1e-5)
        return ops.last_rows(
            ops.linear(
                ops.gated(ops.linear(h, packed[1]), ops.linear(h, packed[2]), "silu"), packed[3], residual=x
            )
        )

    with recorded(backend, forward, 40) as program:
        for rows in (1, 4, 11, 40):
            ids = np.arange(rows)
            x = table.values[ids].astype(np.float64)
            h = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * scale
            g = h @ gate.values.T
            expected = g / (1 + np.exp(-g)) * (h @ up.values.T) @ down.values.T + x
            assert_near(program.run(step(ids)), expected, 5e-6)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("dtype", "heads", "groups", "dim"),
    [("fp16", 9, 3, 64), ("fp32", 4, 4, 32), ("fp32", 8, 1, 80), ("fp16", 6, 2, 24)],
)
def test_attention_over_pages(dtype: str, heads: int, groups: int, dim: int, interleaved: bool) -> None:
    """Steps of many sizes over scattered pages give what one exact pass over all positions gives."""
    total, width = 700, 40
    shape = AttentionShape(heads, groups, dim, dim**-0.5)
    table = Matrix("F32", (50, width), 1)
    weights = [Matrix("F32", (n * dim, width), 2 + i) for i, n in enumerate((heads, groups, groups))]
    for m in weights:
        m.values = m.values * np.float32(0.1)
        m.data = m.values.reshape(-1).view(np.uint8)
    backend = CpuBackend(2)
    packed = [backend.load_weight(m) for m in (table, *weights)]
    angles = np.arange(1024)[:, None] * 10000.0 ** (-np.arange(dim // 2) / (dim // 2))
    rotary = RotaryTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), interleaved)

    def forward(ops: Any) -> Any:
        x = ops.embed(packed[0])
        q, k, v = (ops.linear(x, w) for w in packed[1:])
        return ops.last_rows(
            ops.attention(0, ops.rope(q, rotary, heads), ops.rope(k, rotary, groups), v, shape)
        )

    ids = np.random.default_rng(7).integers(0, 50, total)
    x = table.values[ids].astype(np.float64)
    q, k, v = ((x @ m.values.T).reshape(total, -1, dim) for m in weights)
    expected = causal_attention(
        rotate(q, angles[:total], interleaved), rotate(k, angles[:total], interleaved), v, shape.scale
    )
    actual = []
    with recorded(backend, forward, 128, shape, dtype) as program:
        start = 0
        for rows in (1, 2, 60, 128, 100, 7, 16, 17, 1, 128, 128, 100, 10, 1, 1):
            actual.append(program.run(step(ids[start : start + rows], start, (4, 1, 5))).copy())
            start += rows
    assert start == total
    # fp16 keeps 11 bits: the error of a weighted mean of values is below half of 2^-10.
    assert_near(np.concatenate(actual), expected.reshape(total, -1), 2e-3 if dtype == "fp16" else 3e-5)


def test_a_copied_page_reads_the_same() -> None:
    shape = AttentionShape(2, 1, 32, 0.2)
    table, weight = Matrix("F32", (20, 16), 1), Matrix("F32", (64, 16), 2)
    backend = CpuBackend(2)
    packed_table, packed, key = (
        backend.load_weight(table),
        backend.load_weight(weight),
        backend.load_weight(Matrix("F32", (32, 16), 3)),
    )
    cache = backend.new_cache([shape], 4, "fp32")

    def forward(ops: Any) -> Any:
        x = ops.embed(packed_table)
        return ops.last_rows(
            ops.attention(0, ops.linear(x, packed), ops.linear(x, key), ops.linear(x, key), shape)
        )

    program = backend.record(forward, cache, 32)
    program.run(step(np.arange(20), pages=(1,)))
    again = program.run(step(np.array([3]), 20, (1,))).copy()
    cache.copy_page(1, 3)
    assert np.array_equal(program.run(step(np.array([3]), 20, (3,))), again)
    program.close()


def test_replays_are_reproducible_for_any_number_of_threads() -> None:
    """No result depends on which thread took which tile."""
    table, weight = Matrix("Q4_1", (64, 256), 1), Matrix("Q4_1", (4096, 256), 2)
    results = []
    for threads in (1, 2, 5):
        backend = CpuBackend(threads)
        packed_table, packed = backend.load_weight(table), backend.load_weight(weight)
        with recorded(
            backend, lambda ops, t=packed_table, w=packed: ops.linear(ops.last_rows(ops.embed(t)), w), 16
        ) as program:  # type: ignore[misc]
            for _ in range(200):
                results.append(program.run(step(np.arange(3))).copy())
    assert all(np.array_equal(r, results[0]) for r in results)


def test_closing_ends_the_helper_threads() -> None:
    before = threading.active_count()
    backend = CpuBackend(3)
    table = backend.load_weight(Matrix("F32", (16, 16), 1))
    with recorded(backend, lambda ops: ops.last_rows(ops.embed(table)), 4) as program:
        assert threading.active_count() == before + 2
        program.run(step(np.arange(2)))
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["generic", "haswell"])
@pytest.mark.parametrize("names", [("kernels", "kv_formats"), ("ops", "attention", "experts", "mixed_ops")])
def test_other_cpus(cpu: str, names: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same tests pass with code made for a plain x86-64 and for an AVX2 machine; `test_weight_types`
    does so with more.
    """
    files = [str(Path(__file__).with_name(f"test_{name}.py")) for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *files]
    environment = other_cpu(cpu, tmp_path_factory)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_tape_keeps_its_weights_alive() -> None:
    backend = CpuBackend(2)
    packed = [backend.load_weight(Matrix("F32", (64, 64), 1))]
    alive = weakref.ref(packed[0])
    program = backend.record(
        lambda ops: ops.last_rows(ops.embed(packed[0])), backend.new_cache([TINY], 1, "fp16"), 4
    )
    packed.clear()
    assert alive() is not None
    program.close()


@pytest.mark.slow
def test_a_late_thread_takes_no_tile_of_a_finished_replay() -> None:
    """A thread that lost its core wakes up while the next step is being written: it must not run with half
    of it.
    """
    backend = CpuBackend(2)
    table = backend.load_weight(Matrix("F32", (16, 16), 1))
    with recorded(backend, lambda ops: ops.last_rows(ops.embed(table)), 8) as program:
        program.run(step(np.arange(2)))
        recording, control = program._captured, program._pool._control
        words, counters = program._step, recording.counters.copy()
        words[ROWS], words[LOGIT_ROWS], words[TOKENS] = 8, 8, 0
        scratch = np.zeros(1 << 20, np.uint8)
        # It is in the middle of the program, with the state from when its epoch began ...
        program._pool._words[CONTENTION + ACTIVE] = 2
        whole = pool_functions(*[lambda function, signature: numba.njit(signature)(function)] * 2)
        whole["work"](
            control.ctypes.data,
            1,
            1,
            *recording.addresses[:4],
            2,
            1,
            recording.addresses[4],
            2,
            0,
            scratch.ctypes.data,
        )
        assert np.array_equal(recording.counters, counters)
        # ... or it is just reading what the step is, while that is written anew.
        program._pool._words[[BEGUN, STEP_ROWS]] = 2, 8
        whole["join"](control.ctypes.data, 1, 1, 0, scratch.ctypes.data)
        assert np.array_equal(recording.counters, counters)
