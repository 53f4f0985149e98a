"""The cache's size and the size of its prefill steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import BadSetting
from engine.models.paged import chosen_context, prefill_rows
from engine.settings import CacheSettings
from tests.engine.generator.fakes import make


def shape(layers: int, width: int, heads: int, kv_heads: int, head_dim: int, ffn_width: int) -> Any:
    return SimpleNamespace(layers=layers, width=width, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn_width=ffn_width)


def test_larger_models_read_in_smaller_steps():
    assert prefill_rows(shape(30, 576, 9, 3, 64, 1536)) == 512  # SmolLM2 135M
    assert prefill_rows(shape(22, 2048, 32, 4, 64, 5632)) == 64  # 1.1B
    assert prefill_rows(shape(32, 4096, 32, 8, 128, 14336)) == 32  # 8B


def test_context_length():
    assert chosen_context(CacheSettings(), 2048) == 2048
    assert chosen_context(CacheSettings(), 131072) == 8192
    assert chosen_context(CacheSettings(context_length=131072), 131072) == 131072
    with pytest.raises(BadSetting, match="16384 tokens, but this model sees at most 8192"):
        chosen_context(CacheSettings(context_length=16384), 8192)


@pytest.mark.parametrize("context", [1, 256, 257, 4096])
def test_steps_are_no_larger_than_the_context(context):
    generator, model = make(context=context)
    assert model.program.max_rows == generator.cache.rows == min(512, context)
