"""The pass without the head: its results are those that transformers calls the last hidden states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CpuBackend
from engine.models.paged import PagedCache
from engine.settings import CacheSettings
from tests.engine.models.architectures import ids, transformers_model, write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load

QUICK = ("Qwen 3", "GPT-2")
OTHERS = ("Llama", "Gemma 3", "Cohere 2", "LFM2", "Qwen 3.5", "GPT-OSS", "MiniCPM", "Granite 4")
LENGTH = 40
TOLERANCE = 2e-4
"""As a share of the largest number: the CPU rounds activations to 16 bits."""


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_last_hidden_states(name: str, tmp_path: Path) -> None:
    import torch

    case = BY_NAME[name]
    text = ids(LENGTH)
    with torch.no_grad():
        found = transformers_model(case)(torch.tensor([text]), output_hidden_states=True)
    expected = found.hidden_states[-1][0].float().numpy()
    model = load(write_checkpoint(case, tmp_path / "m"), CpuBackend(threads=2))
    cache = PagedCache(model, CacheSettings(context_length=64, dtype="fp32"))
    try:
        with cache.open(text) as lease:
            parts = [cache.hidden_states(lease, text[at : at + 16]).copy() for at in range(0, LENGTH, 16)]
            assert lease.ids == text
        with cache.table.open(()) as lease:
            logits = cache.run(lease, text, logit_rows=LENGTH)
            assert logits.shape == (LENGTH, model.config.vocab_size)
        cache.record_again("x")
        with cache.open(text) as lease:
            again = cache.hidden_states(lease, text).copy()
    finally:
        cache.close()
        model.close()
    states = np.concatenate(parts)
    assert states.shape == (LENGTH, model.config.width)
    tolerance = TOLERANCE * np.abs(expected).max()
    np.testing.assert_allclose(states, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(again, expected, rtol=0, atol=tolerance)
