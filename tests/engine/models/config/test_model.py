"""What a configuration says of each layer, and what cannot be one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.backends.base import AttentionShape
from engine.backends.indexer import IndexerShape
from engine.backends.states import ConvolutionShape, PoolShape
from engine.errors import BadCheckpoint
from engine.models.config import ModelConfig
from engine.models.config.compressed import CompressedAttention
from engine.models.config.experts import Experts
from engine.models.config.indexer import Indexer
from engine.models.config.latent import LatentAttention
from engine.models.layers.positions.rope import RopeConfig

ROPE = RopeConfig(10_000.0, 8, False, (1.0,) * 4)


def config(**changes: Any) -> ModelConfig:
    sizes: dict[str, Any] = {
        "architecture": "X", "name": "", "layers": 6, "width": 48, "heads": 6, "kv_heads": 2, "head_dim": 16,
        "ffn_width": 100, "vocab_size": 50, "context_length": 512, "norm_eps": 1e-6, "rope": ROPE,
        "tied": False,
    }  # fmt: skip
    return ModelConfig(**{**sizes, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_heads": 4}, "has 6 heads and 4 key/value heads"),
        ({"layer_queries": (6, 6, 6, 6, 6, 5)}, "has 5 heads and 2 key/value heads"),
        ({"slopes": (0.5,) * 5}, "has 6 heads and 5 slopes of ALiBi"),
        ({"windows": (4,) * 5}, "has 6 layers but states the kind of attention for 5"),
        ({"recurrent_layers": frozenset({1, 6})}, "has 6 layers, but its layer 6 is said to be recurrent"),
        ({"shared_kv": 6}, "Layer 0 of the model shares an earlier layer's keys and values"),
        ({"shared_kv": 1, "windows": (4,) * 5 + (0,)}, "Layer 5 of the model shares"),
        ({"shared_kv": 1, "layer_heads": ((2, 16),) * 5 + ((3, 16),)}, "Layer 5 of the model shares"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_model(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadCheckpoint, match=words):
        config(**changes)


def test_the_shape_of_attention() -> None:
    assert config().shape(0) == AttentionShape(6, 2, 16, 0.25)
    one = config(
        attention_scale=0.5, scaled_by_layer=True, attention_cap=3.0, windows=(0, 7) * 3, chunked=True,
        layer_heads=((2, 16),) * 5 + ((3, 9),), layer_queries=(6,) * 5 + (9,),
    )  # fmt: skip
    assert one.shape(0) == AttentionShape(6, 2, 16, 0.5, 0, 3.0)
    assert one.shape(1) == AttentionShape(6, 2, 16, 0.25, 7, 3.0, chunked=True)
    assert one.shape(5) == AttentionShape(9, 3, 9, 0.5 / 6, 7, 3.0, chunked=True)
    assert [one.window_of(layer) for layer in (0, 1)] == [0, 7]
    kind = LatentAttention(12, 6, 4, 5, score_scale=2.0)
    latent = config(latent=kind, kv_heads=1, head_dim=16, attention_scale=0.3)
    assert latent.shape(0) == AttentionShape(6, 1, 16, 0.3, latent=12)
    each = config(layer_latents=(kind,) * 6, kv_heads=1, attention_scale=0.3)
    assert each.shape(3).scale == pytest.approx(2 / math.sqrt(10))


def test_the_rope_of_layers_with_a_window() -> None:
    windows = {"windows": (4, 0, 4, 0, 4, 0)}
    assert not any(config(**windows).has_local_rope(layer) for layer in range(6))
    local = config(**windows, rope_local=ROPE)
    assert [local.has_local_rope(layer) for layer in range(6)] == [True, False] * 3
    named = config(**windows, rope_local=ROPE, local_layers=frozenset({1}))
    assert [named.has_local_rope(layer) for layer in range(3)] == [False, True, False]


def test_sizes_and_factors_of_layers() -> None:
    assert (config().ffn_of(3), config(ffn_widths=(1, 2, 3, 4, 5, 6)).ffn_of(3)) == (100, 4)
    assert config(residual_scale=0.5).scales_of(0) == ((1.0, 0.5), (1.0, 0.5))
    halves = ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0))
    mixed = config(half_scales=halves, recurrent_layers=frozenset({1}))
    assert mixed.scales_of(0) == (halves[0], halves[2])
    assert mixed.scales_of(1) == (halves[1], halves[2])


def test_layers_that_share_keys_and_values() -> None:
    shared = config(shared_kv=2, windows=(4, 4, 0, 4, 4, 0))
    assert [shared.kv_layer(layer) for layer in range(6)] == [0, 1, 2, 3, 3, 2]
    assert shared.cached_layers == (0, 1, 2, 3)
    assert [shared.cache_layer(layer) for layer in range(6)] == [0, 1, 2, 3, 3, 2]
    sources = config(kv_sources=(0, 0, 2, 2, 4, 4), mlp_layers=frozenset({2}))
    assert sources.uncached_layers == {1, 2, 3, 5}
    assert [sources.cache_layer(layer) for layer in (0, 1, 4, 5)] == [0, 0, 1, 1]
    recurrent = config(recurrent_layers=frozenset({0, 3}))
    assert (recurrent.cached_layers, recurrent.cache_layer(4)) == ((1, 2, 4, 5), 2)
    beside = config(recurrent_layers=frozenset({0, 3}), beside_attention=True)
    assert beside.cached_layers == (0, 1, 2, 3, 4, 5)
    assert recurrent.kv_shapes == ((2, 16),) * 4


def test_the_context_that_is_advised_and_the_bytes_of_a_token() -> None:
    assert config().advised_context == config(rope=None).advised_context == 512
    scaled = RopeConfig(10_000.0, 8, False, (1.0,) * 4, original_length=128)
    assert config(rope=scaled).advised_context == 128
    assert config(rope=scaled, context_length=64).advised_context == 64
    assert config().kv_bytes_per_token("fp16") == 6 * 2 * 2 * 16 * 2
    assert config().kv_bytes_per_token("fp32") == 6 * 2 * 2 * 16 * 4
    assert config(shared_kv=2).kv_bytes_per_token("fp16") == 4 * 2 * 2 * 16 * 2


@pytest.mark.parametrize(
    ("pooling", "block", "part"),
    [
        ("", 4, None), ("mean", 1, None), ("mean", 4, ConvolutionShape(8, 4)),
        ("gates", 1, PoolShape(8, 1, False)), ("gates", 4, PoolShape(8, 4, False)),
        ("overlapping", 4, PoolShape(8, 4, True)),
    ],
)  # fmt: skip
def test_what_indexers_keep_of_a_sequence(pooling: str, block: int, part: Any) -> None:
    indexer = Indexer(IndexerShape(2, 8, 3, block), frozenset({1, 4}), frozenset({2}), pooling=pooling)
    made = config(indexer=indexer)
    expected = () if part is None else ((1, part), (4, part))
    assert tuple(sorted(indexer.parts, key=lambda own: own[0])) == made.further_parts == expected
    assert [len(made.cache_shapes), len(made.state_shapes)] == [8, len(expected)]
    if part is not None:
        assert [made.further_part(layer) for layer in (1, 4)] == [0, 1]


def test_keys_of_blocks_stand_behind_those_of_positions() -> None:
    kind = CompressedAttention(8, 4, 2, 8, (0, 4, 0, 8, 4, 0))
    assert kind.layers == (1, 3, 4)
    parts = kind.parts(16, {3})
    assert parts == ((1, PoolShape(16, 4, False)), (3, PoolShape(16, 8, True)), (4, PoolShape(16, 4, False)))
    made = config(compressed=kind, kv_heads=1)
    assert (made.block_layers, len(made.cache_shapes)) == ((1, 3, 4), 9)
    assert [shape.latent for shape in made.cache_shapes] == [16] * 9
    assert [layer for layer, _part in made.further_parts] == [1, 3, 4]
    assert [made.further_part(layer) for layer in (1, 3, 4)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"used": 13}, "uses 13 experts for each token but has 12"),
        ({"groups": 5}, "chooses 3 of 12 experts from 1 of 5 groups"),
        ({"groups": 4, "used_groups": 5}, "from 5 of 4 groups"),
        ({"groups": 6, "used_groups": 1}, "chooses 3 of 12 experts from 1 of 6 groups"),
    ],
)
def test_experts_that_cannot_be_chosen(changes: dict[str, Any], words: str) -> None:
    sizes: dict[str, Any] = {"count": 12, "used": 3, "width": 8, "normalise": True, "layers": frozenset({0})}
    with pytest.raises(BadCheckpoint, match=words):
        Experts(**{**sizes, **changes})
    for good in ({"used": 12}, {"groups": 4, "used_groups": 1}, {"groups": 4, "used_groups": 4}):
        assert Experts(**{**sizes, **good}).routing.experts == 12


def test_how_experts_are_chosen() -> None:
    experts = Experts(
        12, 3, 8, False, frozenset({0}), "sigmoid", 2.5, 4, 2, 2, 0.1, by_logit=True, idle=2,
    )  # fmt: skip
    routing = experts.routing
    assert (routing.experts, routing.used, routing.normalise, routing.scores) == (12, 3, False, "sigmoid")
    assert (routing.scale, routing.groups, routing.used_groups, routing.group_best) == (2.5, 4, 2, 2)
    assert (routing.nearness, routing.by_logit, experts.active) == (0.1, True, 10)
    usual = Experts(12, 3, 8, True, frozenset({0})).routing
    assert usual.is_plain
    assert (usual.used_groups, usual.group_best, usual.by_logit) == (1, 1, False)
