"""Rows of a table that n-grams of several lengths share: the CPU's kernels and the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape, Step
from engine.backends.cpu.backend import CpuBackend
from engine.backends.ngrams import NGrams
from engine.backends.reference.backend import ReferenceBackend
from engine.backends.reference.ngrams import hashed_rows
from engine.backends.states import ConvolutionShape, States
from tests.engine.backends.kernel_oracles import Matrix


@pytest.mark.parametrize("base", [0, 307])
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_a_table_of_several_heads(name: str, base: int) -> None:
    """Also after a token from which on none before it counts."""
    ngrams = NGrams((7, 11, 13), (2, 3, 2), (50, 51, 52), (0, 50, 101), reset=1, outside=2, base=base)
    backend: Any = CpuBackend(2) if name == "cpu" else ReferenceBackend()
    table = Matrix("F32", (153, 5), 3)
    states = States((ConvolutionShape(ngrams.size, ngrams.size),), 1)
    cache = backend.new_cache([AttentionShape(1, 1, 16, 1.0)], 1, "auto", states)
    weight = backend.load_weight(table)
    program = backend.record(lambda ops: ops.last_rows(*ops.embed_ngrams(0, [weight], ngrams)), cache, 16)
    ids = np.array([5, 9, 1, 4, 3, 8], np.int32)
    places = np.arange(len(ids), dtype=np.int32)
    found = program.run(Step(ids, places, np.zeros(1, np.int32), len(ids), [], [(-1, 0)]))
    padded = np.concatenate([[-1, -1], ids])
    last = np.stack([padded[2 - back : len(padded) - back] for back in range(3)], 1)
    rows = hashed_rows(torch.from_numpy(last), ngrams).numpy()
    assert np.array_equal(found, table.dequantise()[rows].reshape(len(ids), -1))
    program.close()
    cache.close()
