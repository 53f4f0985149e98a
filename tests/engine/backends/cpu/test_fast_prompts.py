"""Prompts with activations in 8 bits: products of every layout are exact for them, and short steps know
nothing of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Program, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels.linear import integer_gemm, panel_format
from engine.backends.cpu.kernels.linear.panels import panel_format_of
from engine.backends.cpu.layouts.table import weight_layout_for
from engine.backends.states import ConvolutionShape, States
from engine.tensors import RawTensor
from tests.engine.backends.cpu.test_grouped import one_width
from tests.engine.backends.cpu.test_weight_types import compiled
from tests.engine.backends.kernel_oracles import INTEGER, Matrix, eight_bits, seen, unit_of

Array = np.ndarray[Any, Any]
MOST_ROWS = 60
QUICK = ("Q4_1",)
CASES = [pytest.param(kind, marks=[] if kind in QUICK else [pytest.mark.slow]) for kind in sorted(INTEGER)]


@contextmanager
def product(matrix: Any, x: Array, prompt_bits: int) -> Iterator[Program]:
    """The rows of x (T, K) times the matrix."""
    table = Matrix("F32", x.shape, 6)
    table.values, table.data = x, x.reshape(-1).view(np.uint8)
    backend = CpuBackend(2, prompt_bits)
    packed, rows = backend.load_weight(matrix), backend.load_weight(table)
    cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16")
    program = backend.record(lambda ops: ops.linear(ops.last_rows(ops.embed(rows)), packed), cache, len(x))
    try:
        yield program
    finally:
        program.close()


def run(program: Program, rows: int, start: int = 1) -> Array:
    """The first rows of x, at positions from `start` on."""
    ids = np.arange(rows, dtype=np.int32)
    return program.run(Step(ids, ids + start, np.zeros(1, np.int32), rows)).copy()


def activations(width: int) -> Array:
    """Rows with outliers, one of zeros only, and one too small to count."""
    rng = np.random.default_rng(8)
    x = (rng.standard_normal((MOST_ROWS, width)) * rng.choice([1e-3, 1, 30], width)).astype(np.float32)
    x[3], x[12] = 0, 1e-38
    return x


@pytest.mark.parametrize("blocks", [1, 5])
def test_records_of_bytes(blocks: int) -> None:
    x = activations(32 * blocks)
    packed = np.zeros((MOST_ROWS, blocks, panel_format.INT8_ACTIVATIONS.activation_bytes), np.uint8)
    for row, record in zip(x, packed, strict=True):
        compiled(integer_gemm.pack_int8_row, 3)(row.ctypes.data, blocks, record.ctypes.data)
    whole = packed[..., :32].view(np.int8).astype(np.float64)
    numbers = np.ascontiguousarray(packed[..., 32:48]).view(np.float32)
    assert np.array_equal((whole * numbers[..., :1]).reshape(MOST_ROWS, -1), eight_bits(x))
    assert np.abs(whole).max() == 127
    sums = np.stack([whole[..., :16].sum(-1), whole[..., 16:].sum(-1), whole.sum(-1)], -1)
    np.testing.assert_allclose(numbers[..., 1:], sums * numbers[..., :1], rtol=1e-6)


@pytest.mark.parametrize("kind", CASES)
def test_products(kind: str) -> None:
    """Within float32's rounding of each output's own terms; up to sixteen rows they are those of 16 bits to
    the last bit.
    """
    unit = unit_of(kind)
    matrix = Matrix(kind, (37, unit * (3 if unit >= 256 else 9)), 5)
    x = activations(matrix.shape[1])
    bound = np.abs(x).sum(1)[:, None] * np.abs(matrix.values).max(1) + 1e-30
    with product(matrix, x, 8) as fast, product(matrix, x, 16) as plain:
        for rows in (17, 22, MOST_ROWS):
            exact = seen(x[:rows], kind, rows, 8) @ matrix.values.T.astype(np.float64)
            assert (np.abs(run(fast, rows) - exact) / bound[:rows]).max() < 1e-6, rows
            assert np.abs(run(plain, rows) - exact).max() > 1e-4 * np.abs(exact).max()
        for rows in (1, 16):
            assert np.array_equal(run(fast, rows), run(plain, rows))


def test_a_sequence_s_first_rows_take_sixteen_bits() -> None:
    matrix = Matrix("Q4_1", (37, 96), 5)
    x = activations(96)
    with product(matrix, x, 8) as fast, product(matrix, x, 16) as plain:
        found, alone = run(fast, MOST_ROWS, 0), run(plain, 16)
        assert np.array_equal(found[:16], alone)
        assert np.array_equal(found[16:], run(fast, MOST_ROWS)[16:])
        ids = np.arange(MOST_ROWS, dtype=np.int32)
        for expected in (20, MOST_ROWS - 16, MOST_ROWS - 3):
            assert np.array_equal(
                fast.run(Step(ids, ids, np.zeros(1, np.int32), expected)), found[-expected:]
            )
        turned = fast.run(Step(ids[::-1], ids, np.zeros(1, np.int32), MOST_ROWS))
        assert np.array_equal(turned[16 : MOST_ROWS - 16], found[16 : MOST_ROWS - 16][::-1])


def test_what_a_prompt_s_head_leaves_is_what_its_tail_begins_with() -> None:
    """The state of a convolution, and places in the text."""
    rng = np.random.default_rng(3)
    table, taps = Matrix("F32", (MOST_ROWS, 32), 4), rng.standard_normal((4, 32)).astype(np.float32)
    places = rng.standard_normal((MOST_ROWS, 32)).astype(np.float32)
    states = States((ConvolutionShape(32, 4),), 3)
    ids = np.arange(MOST_ROWS, dtype=np.int32)
    results = []
    for bits in (8, 16):
        backend = CpuBackend(2, bits)
        rows = backend.load_weight(table)
        program = backend.record(
            lambda ops, rows=rows: ops.last_rows(
                ops.convolve(0, ops.add_positions(ops.embed(rows), places), taps, None)
            ),
            backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16", states),
            MOST_ROWS,
        )
        with closing(program):
            pages = np.zeros(1, np.int32)
            first = Step(ids[:40], ids[:40], pages, 40, states=((0, 1),))
            second = Step(ids[40:], ids[40:], pages, 20, states=((1, 2),))
            results.append([program.run(first).copy(), program.run(second).copy()])
    fast, plain = results
    assert all(map(np.array_equal, fast, plain))


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "unit"), [(bits, 64 if bits == 4 else 32) for bits in (2, 3, 4, 5, 6, 8)])
def test_products_of_grouped_codes(bits: int, unit: int) -> None:
    """Whose zeros are numbers of their own."""
    drawn = one_width(37, 5 * unit, bits, unit, True, bits)
    x = activations(5 * unit)
    bound = np.abs(x).sum(1)[:, None] * np.abs(drawn.values).max(1) + 1e-30
    with product(drawn.tensor, x, 8) as fast:
        exact = eight_bits(x) @ drawn.values.T.astype(np.float64)
        assert (np.abs(run(fast, MOST_ROWS) - exact) / bound).max() < 2e-6


@pytest.mark.parametrize(
    "kind", ["F32", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("F16", "NVFP4"))]
)
def test_weights_that_are_no_whole_numbers_keep_their_products(kind: str) -> None:
    matrix: RawTensor = Matrix(kind, (37, 2 * unit_of(kind) if kind == "NVFP4" else 96), 5)
    x = activations(matrix.shape[1])
    assert panel_format_of(weight_layout_for(kind), 8) is None
    with product(matrix, x, 8) as fast, product(matrix, x, 16) as plain:
        assert np.array_equal(run(fast, MOST_ROWS), run(plain, MOST_ROWS))


@pytest.mark.slow
@pytest.mark.parametrize(("cpu", "features"), [("generic", ""), ("haswell", "+avx,+avx2,+fma,+f16c,+ssse3")])
def test_other_cpus(cpu: str, features: str, tmp_path: Path) -> None:
    """A layout with minimums, one of signed bytes and one with a zero, by other instructions."""
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": cpu,
        "NUMBA_CPU_FEATURES": features,
        "INGLENOOK_CACHE": str(tmp_path),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "slow or not slow",
        "-p",
        "no:cacheprovider",
        __file__,
    ]
    command += ["-k", "test_products and (Q4_1 or Q8_0 or Q6_K or 4-64) or records or first_rows"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "7 passed" in done.stdout, done.stdout[-300:]
