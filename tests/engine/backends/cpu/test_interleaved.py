"""Interleaved tiles give the same products as tiles one after another, to the last bit where a sum is one
chain, and their bytes lie in the order in which a decode product reads them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.kernels.linear.linear import LARGE_ROWS
from engine.backends.cpu.layouts import interleave
from engine.backends.cpu.layouts.interleave import interleaved_tiles, places
from engine.backends.cpu.layouts.layout import CHAINS
from engine.backends.cpu.lowering import linear as lowering
from engine.backends.cpu.weight import CpuWeight
from engine.backends.routing import Routing
from tests.engine.backends.kernel_oracles import Matrix, unit_of

Array = np.ndarray[Any, Any]
ROWS = (1, 2, 3, 5, 8, 9, 16, 17, 20, 60, 143)
assert ROWS[-1] > LARGE_ROWS


def test_only_wide_matrices_are_interleaved() -> None:
    assert [interleaved_tiles(columns) for columns in (32, 2560, 2561, 14336)] == [1, 1, 4, 4]


def written(tiles: int, together: int, pieces: list[int]) -> list[str]:
    """The panels "tile.panel" in the order of memory, of tiles that have two panels and a part of one."""
    size, panel, out = 5, 2, np.full(5 * tiles, 255, np.uint8)
    first = 0
    for count in pieces:
        packed = np.array([[10 * (first + t) + i for i in range(size)] for t in range(count)], np.uint8)
        for start, rows, apart in places(packed, first, tiles, together, panel):
            for i, row in enumerate(rows):
                out[start + i * apart : start + i * apart + len(row)] = row
        first += count
    return [f"{int(byte) // 10}.{int(byte) % 10}" for byte in out]


def test_panels_of_interleaved_tiles_follow_each_other() -> None:
    for pieces in ([5], [2, 3], [3, 2], [1, 1, 1, 1, 1]):
        assert written(5, 2, pieces) == [
            *("0.0", "0.1", "1.0", "1.1", "0.2", "0.3", "1.2", "1.3", "0.4", "1.4"),
            *("2.0", "2.1", "3.0", "3.1", "2.2", "2.3", "3.2", "3.3", "2.4", "3.4"),
            *("4.0", "4.1", "4.2", "4.3", "4.4"),
        ], pieces
        assert written(5, 1, pieces) == [f"{t}.{i}" for t in range(5) for i in range(5)], pieces


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    "kind",
    [
        "Q8_0",
        "Q4_K",
        "F32",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("Q4_0", "Q6_K", "F16", "BF16")),
    ],
)
def test_products_are_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "_LEAST_READ", 1)  # work is divided as in a large matrix
    plain = products(kind, 1)
    monkeypatch.setattr(interleave, "_WIDE", 0)
    mixed = products(kind, interleave.MOST_INTERLEAVED)
    one_chain = CHAINS == 1 or kind not in ("F32", "F16", "BF16")
    for rows, there, here in zip(ROWS, plain, mixed, strict=True):
        assert np.abs(there).max() > 0
        if one_chain:
            assert np.array_equal(there, here), rows
        else:
            assert np.abs(there - here).max() <= 1e-6 * np.abs(there).max(), rows
            if rows <= 8:
                assert np.array_equal(here, mixed[ROWS.index(8)][:rows]), rows


def products(kind: str, interleaved: int) -> list[Array]:
    """Rows of a table times a matrix, times experts and head by head, for each number of rows."""
    backend = CpuBackend(2)
    # Two panels and a part of one (K-quants: three); the last tiles are fewer than those interleaved.
    width = 768 if unit_of(kind) == 256 else 608
    table = backend.load_weight(Matrix(kind, (ROWS[-1], width), 1))
    weight = backend.load_weight(Matrix(kind, (16 * 6 + 5, width), 2))
    assert isinstance(weight, CpuWeight)
    assert weight.interleaved == interleaved
    experts = [backend.load_weight(Matrix(kind, (16 * 6 + 5, width), 3 + e)) for e in range(3)]
    router = backend.load_weight(Matrix(kind, (3, width), 9))
    routing = Routing(3, 2)

    def forward(ops: Any) -> Any:
        x = ops.embed(table)
        chosen = ops.route(ops.linear(x, router), routing)
        mixed = ops.gather(ops.expert_linear(ops.spread(x, chosen), experts, chosen), chosen)
        by_head = ops.head_linear(ops.join(x, x, 1), experts[:2])
        return ops.last_rows(ops.join(ops.linear(x, weight, residual=mixed), by_head, 1))

    program = backend.record(forward, backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16"), ROWS[-1])
    tokens = np.random.default_rng(3).permutation(ROWS[-1]).astype(np.int32)
    try:
        return [
            program.run(Step(tokens[:n], np.arange(n, dtype=np.int32), np.zeros(1, np.int32), n)).copy()
            for n in ROWS
        ]
    finally:
        program.close()
