"""What a configuration says of single layers, and configurations that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.backends.base import AttentionShape
from engine.backends.states import ConvolutionShape, LinearAttentionShape, MeanShape, StateShape
from engine.errors import BadCheckpoint
from engine.models.config import ModelConfig
from engine.models.config.recurrent import (
    DeltaNet,
    Lightning,
    Mamba,
    Recurrent,
    Rwkv4,
    Rwkv6,
    Rwkv7,
    SelectiveScan,
    SeparateDelta,
    ShortConvolution,
    state_parts,
)
from engine.models.describe import cpu_only
from engine.models.layers.positions.rope import RopeConfig

ROPE = RopeConfig(10000.0, 4, False, (1.0, 1.0))


def config(**changes: Any) -> ModelConfig:
    fields: dict[str, Any] = {
        "architecture": "llama", "name": "", "layers": 6, "width": 32, "heads": 8, "kv_heads": 2,
        "head_dim": 4, "ffn_width": 64, "vocab_size": 100, "context_length": 512, "norm_eps": 1e-5,
        "rope": ROPE, "tied": True,
    }  # fmt: skip
    return ModelConfig(**{**fields, **changes})


def test_layers_are_alike_where_nothing_else_is_said() -> None:
    plain = config()
    assert plain.shape(3) == AttentionShape(8, 2, 4, 0.5)
    assert (plain.window_of(3), plain.ffn_of(3), plain.has_local_rope(3)) == (0, 64, False)
    assert plain.scales_of(3) == ((1.0, 1.0), (1.0, 1.0))
    assert plain.kv_shapes == ((2, 4),) * 6
    assert plain.kv_bytes_per_token("fp16") == 2 * config(layers=3).kv_bytes_per_token("fp16") > 0
    assert [plain.cache_layer(layer) for layer in range(6)] == [*range(6)]
    assert (plain.advised_context, cpu_only(plain), plain.state_shapes) == (512, "", ())


def test_layers_of_two_kinds() -> None:
    found = config(
        windows=(0, 16) * 3, rope_local=ROPE, layer_heads=((2, 4), (4, 8)) * 3, layer_queries=(8, 4) * 3,
        ffn_widths=(64, 32) * 3, attention_scale=0.25, chunked=True,
    )  # fmt: skip
    even, odd = found.shape(2), found.shape(3)
    assert (even.heads, even.kv_heads, even.head_dim, even.scale, even.window) == (8, 2, 4, 0.25, 0)
    assert (odd.heads, odd.kv_heads, odd.head_dim, odd.scale, odd.window) == (4, 4, 8, 0.25, 16)
    assert (even.chunked, odd.chunked) == (False, True)
    assert [found.has_local_rope(layer) for layer in (2, 3)] == [False, True]
    assert [found.ffn_of(layer) for layer in (2, 3)] == [64, 32]
    named = config(rope_local=ROPE, local_layers=frozenset({0}), windows=(0, 16, 0, 16, 0, 16))
    assert [named.has_local_rope(layer) for layer in (0, 1)] == [True, False]


def test_the_last_layers_read_the_keys_of_the_last_of_their_kind() -> None:
    shared = config(windows=(0, 16, 0, 16, 0, 16), shared_kv=2)
    assert [shared.kv_layer(layer) for layer in range(6)] == [0, 1, 2, 3, 2, 3]
    assert [shared.cache_layer(layer) for layer in range(6)] == [0, 1, 2, 3, 2, 3]
    assert len(shared.kv_shapes) == 4
    with pytest.raises(BadCheckpoint, match="Layer 4 of the model shares an earlier layer's"):
        config(windows=(16, 16, 16, 16, 0, 16), shared_kv=2)
    with pytest.raises(BadCheckpoint, match="none has the same heads"):
        config(layer_heads=((2, 4),) * 5 + ((4, 4),), shared_kv=1)


def test_recurrent_layers_have_states_instead_of_keys() -> None:
    mixed = config(recurrent=Mamba(4, 8, 1, 16, 4), recurrent_layers=frozenset({1, 2, 4}))
    assert mixed.uncached_layers == {1, 2, 4}
    assert [mixed.cache_layer(layer) for layer in (0, 3, 5)] == [0, 1, 2]
    assert [mixed.first_state_part(layer) for layer in (1, 2, 4)] == [0, 2, 4]
    assert len(mixed.state_shapes) == 6
    beside = config(recurrent=ShortConvolution(3), recurrent_layers=frozenset({1, 2}), beside_attention=True)
    assert beside.uncached_layers == frozenset()
    assert [beside.first_state_part(layer) for layer in (1, 2)] == [0, 1]
    scaled = config(recurrent=ShortConvolution(3), recurrent_layers=frozenset({1}),
                    half_scales=((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)))  # fmt: skip
    assert [scaled.scales_of(layer) for layer in (0, 1)] == [
        ((1.0, 2.0), (5.0, 6.0)),
        ((3.0, 4.0), (5.0, 6.0)),
    ]
    assert config(mlp_layers=frozenset({0, 5})).uncached_layers == {0, 5}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 9}, "9 heads and 2 key/value heads; the first must be a multiple"),
        ({"layer_queries": (8, 8, 8, 8, 8, 3)}, "3 heads and 2 key/value heads"),
        ({"layer_heads": ((2, 4),) * 5 + ((3, 4),)}, "8 heads and 3 key/value heads"),
        ({"slopes": (0.5,) * 7}, "8 heads and 7 slopes of ALiBi"),
        ({"windows": (0,) * 5}, "6 layers but states the kind of attention for 5"),
        ({"recurrent_layers": frozenset({2, 6})}, "6 layers, but its layer 6 is said to be recurrent"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadCheckpoint, match=words):
        config(**changes)


def test_the_context_without_loss_of_quality() -> None:
    for length, advised in ((0, 512), (128, 128), (4096, 512)):
        rope = RopeConfig(10000.0, 4, False, (1.0, 1.0), original_length=length)
        assert config(rope=rope).advised_context == advised
    assert config(rope=None).advised_context == 512
    assert cpu_only(config(bidirectional=True)) == "bidirectional attention"
    for size, words in ((512, ""), (513, "recurrent layers with keys of more than 512 numbers")):
        deltas = config(recurrent=Rwkv7(1, size, 6, (1, 1, 1, 1), 1e-6), recurrent_layers=frozenset({0}))
        assert cpu_only(deltas) == words


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (None, ()),
        (ShortConvolution(3), (ConvolutionShape(32, 3),)),
        (DeltaNet(2, 4, 8, 6, 5, tiled=True),
         (ConvolutionShape(2 * 2 * 8 + 4 * 6, 5), LinearAttentionShape(2, 4, 8, 6, True, True))),
        (Mamba(4, 8, 2, 16, 3),
         (ConvolutionShape(4 * 8 + 2 * 2 * 16, 3), LinearAttentionShape(2, 4, 16, 8, False))),
        (SeparateDelta(2, 4, 8, 6, 5, 1e-6, "sigmoid", "key", bound=0.5),
         (ConvolutionShape(16, 5), ConvolutionShape(16, 5), ConvolutionShape(24, 5),
          LinearAttentionShape(2, 4, 8, 6, True, decays="key", bound=0.5))),
        (SelectiveScan(64, 16, 4, 2),
         (ConvolutionShape(64, 4), LinearAttentionShape(1, 1, 16, 64, False, decays="value"))),
        (Lightning(4, 8, 1e-6), (LinearAttentionShape(4, 4, 8, 8, False),)),
        (Rwkv7(4, 8, 6, (1, 1, 1, 1), 1e-6),
         (LinearAttentionShape(4, 4, 8, 6, True, decays="key"), *(ConvolutionShape(32, 2),) * 7)),
        (Rwkv4(40), (MeanShape(40), *(ConvolutionShape(32, 2),) * 5)),
        (Rwkv6(4, 2, 8, 1, 1, 1e-6),
         (LinearAttentionShape(2, 4, 8, 8, False, decays="key"), *(ConvolutionShape(32, 2),) * 4)),
        (Rwkv6(4, 4, 8, 1, 1, 1e-6, gated=True),
         (LinearAttentionShape(4, 4, 8, 8, False, decays="key"), *(ConvolutionShape(32, 2),) * 2)),
        (Rwkv7(4, 8, 6, (1, 1, 1, 0), 1e-6, mixes_channels=False),
         (LinearAttentionShape(4, 4, 8, 6, True, decays="key"), *(ConvolutionShape(32, 2),) * 5)),
    ],
)  # fmt: skip
def test_what_a_recurrent_layer_keeps(kind: Recurrent | None, parts: tuple[StateShape, ...]) -> None:
    assert state_parts(kind, 32) == parts


@pytest.mark.parametrize(
    "make",
    [lambda: DeltaNet(3, 4, 8, 8, 4), lambda: Mamba(4, 8, 3, 16, 4),
     lambda: SeparateDelta(3, 4, 8, 8, 4, 1e-6, "silu"), lambda: Rwkv6(4, 3, 8, 1, 1, 1e-6)],
)  # fmt: skip
def test_heads_that_do_not_divide_are_refused(make: Callable[[], Recurrent]) -> None:
    with pytest.raises(BadCheckpoint, match=r"4 (value )?heads and 3 .*; the first must be a multiple"):
        make()
