"""A row of a large batch has the same product, to the last bit, however many rows are beside it: with few
rows, which need no packed panel, with many, and in the tiles that repeat the last row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels.linear.direct import FEW_ROWS
from engine.backends.cpu.kernels.linear.linear import LARGE_ROWS
from engine.backends.cpu.kernels.linear.panel_format import PAIRS
from tests.engine.backends.kernel_oracles import INTEGER, WEIGHT_CASES, Matrix, unit_of

MANY = LARGE_ROWS + 11
"""Rows of the largest batch: the last 11 of them are a tile of their own."""


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("kind", WEIGHT_CASES)
def test_16_bit_activations(kind: str) -> None:
    assert_rows_are_the_same(kind, 16)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q8_0"])
def test_8_bit_activations(kind: str) -> None:
    assert_rows_are_the_same(kind, 8)


def assert_rows_are_the_same(kind: str, prompt_bits: int) -> None:
    """The first rows of batches of several sizes, compared with those of the largest."""
    backend = CpuBackend(2, prompt_bits)
    # Two panels and a part of one; more weight tiles than a large batch's tile has, the last one not full.
    width = 768 if unit_of(kind) == 256 else 608
    table = backend.load_weight(Matrix("F32", (MANY, width), 1))
    weight = backend.load_weight(Matrix(kind, (16 * 6 + 5, width), 2))
    bias = np.random.default_rng(5).normal(size=weight.shape[0]).astype(np.float32)

    def forward(ops: Any) -> Any:
        x = ops.embed(table)
        return ops.last_rows(ops.linear(x, weight, bias, residual=ops.linear(x, weight)))

    program = backend.record(forward, backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16"), MANY)
    tokens = np.random.default_rng(3).permutation(MANY).astype(np.int32)

    def run(count: int) -> np.ndarray[Any, Any]:
        # Not position 0, where 8-bit prompts begin with a step of 16 bits.
        places = np.arange(1, count + 1, dtype=np.int32)
        return program.run(Step(tokens[:count], places, np.zeros(1, np.int32), count)).copy()

    try:
        whole = run(MANY)
        assert np.isfinite(whole).all()
        for count in (
            17,
            18,
            19,
            20,
            21,
            23,
            24,
            25,
            29,
            32,
            FEW_ROWS - 1,
            FEW_ROWS,
            FEW_ROWS + 1,
            59,
            LARGE_ROWS,
        ):
            assert np.array_equal(run(count), whole[:count]), count
        if kind in INTEGER and PAIRS and prompt_bits == 16:
            for count in (1, 3, 8, 16):  # the sums of small batches
                assert np.array_equal(run(count), whole[:count]), count
    finally:
        program.close()
