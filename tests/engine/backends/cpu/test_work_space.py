"""A program takes the memory that the estimate says, apart from a few small arrays of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import AttentionShape
from engine.backends.cpu.backend import CpuBackend
from engine.backends.cpu.lowering.estimate import work_space
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import CacheType
from tests.engine.backends.kernel_oracles import Matrix

ROWS = 64
SHAPE = AttentionShape(4, 2, 16, 0.25)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_program_takes_what_was_estimated(threads: int) -> None:
    """With constants, partial results of attention, and logits, which count for one row alone."""
    backend = CpuBackend(threads)
    sizes = [(97, 64), (64, 64), (32, 64), (32, 64), (64, 64), (304, 64)]
    table, query, key, value, back, head = (
        backend.load_weight(Matrix("F32", size, seed)) for seed, size in enumerate(sizes)
    )
    ones, bias = np.ones(64, np.float32), np.ones(304, np.float32)

    def forward(ops: Any) -> Any:
        x = ops.embed(table)
        y = ops.rms_norm(x, ones, 1e-5)
        seen = ops.attention(0, *(ops.linear(y, each) for each in (query, key, value)), SHAPE)
        x = ops.linear(seen, back, residual=x)
        return ops.linear(ops.rms_norm(ops.last_rows(x), ones, 1e-5), head, bias)

    row, fixed = work_space(forward, CacheType("fp16", "fp16"), 16, threads)
    program = backend.record(forward, backend.new_cache([SHAPE], 1, "fp16"), ROWS)
    try:
        written = [each for operation in program._operations for each in operation.writes]
        whole = {each.place for each in written if isinstance(each, Buffer) and not each.on_logit_rows}
        arrays = [memory.nbytes // ROWS for memory in program._arena]
        assert row == sum(size for place, size in enumerate(arrays) if place in whole) >= 64 * 4 * 3
        logits = sum(size for place, size in enumerate(arrays) if place not in whole)
        assert logits >= 304 * 4
        kept = sum(each.nbytes for each in program._constants if isinstance(each, np.ndarray))
        scratch = sum(each.nbytes for each in program._pool._scratch)
        assert len(program._pool._scratch) == threads
        assert fixed == logits + kept + program._calls.nbytes + scratch
    finally:
        program.close()
