"""How products are divided among threads."""

from __future__ import annotations

from typing import Any

import pytest

from engine.backends.base import AttentionShape
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.weight import CpuWeight
from tests.engine.backends.kernel_oracles import Matrix


@pytest.mark.parametrize(
    ("kind", "shape", "threads", "tiles"),
    [
        ("Q4_0", (2048, 2048), 1, 16),  # 8 weight tiles of 18 KB at once: 160 KB at most
        ("Q4_0", (2048, 2048), 2, 16),
        ("Q4_0", (2048, 2048), 4, 32),  # at least 8 for each thread
        ("Q4_0", (2048, 2048), 16, 64),  # at least two weight tiles at once
        ("Q4_0", (256, 2048), 2, 8),
        ("F32", (512, 64), 2, 6),  # 4 KB each: at least 24 KB at once
    ],
)
def test_a_thread_reads_long_stretches_and_all_end_together(
    kind: str, shape: tuple[int, int], threads: int, tiles: int
) -> None:
    backend = CpuBackend(threads)
    table, weight = backend.load_weight(Matrix("F32", (16, shape[1]), 0)), CpuWeight(Matrix(kind, shape, 1))

    def net(ops: Any) -> Any:
        return ops.linear(ops.last_rows(ops.embed(table)), weight)

    cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "fp16")
    program = backend.record(net, cache, 8)
    product = program.stages[-1][0]
    program.close()
    assert product.shape == shape
    assert product.tiles[0] == tiles
