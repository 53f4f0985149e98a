"""Zamba (arXiv 2405.16712) and Zamba 2 (arXiv 2411.15242): Mamba, and blocks of attention that several layers
share, which read the embeddings, too.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.recurrent import HeadedScan, Mamba, SharedBlocks
from engine.models.headers.decoder import hf_activation, hf_layer_types, hf_shape, refuse_other_than_silu
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import uneven
from engine.models.headers.rope import rope_from_hf
from engine.models.layers.whole import Stack
from engine.models.names import HF, TensorNames, mamba_names, scan_names

_MOST = 1 << 14
_KINDS = ("linear_attention", "mamba", "hybrid")
_COMMON = {
    "vocab_size": 32_000, "max_position_embeddings": 4096, "mamba_d_conv": 4, "mamba_expand": 2,
    "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
}  # fmt: skip


def _names(shared: str) -> TensorNames:
    at, mlp = shared + ".self_attn.", shared + ".feed_forward."
    return replace(
        HF, norm="model.final_layernorm", attention_norm="input_layernorm",
        embed_norm=shared + ".input_layernorm", mlp_norm=shared + ".pre_ff_layernorm",
        query=at + "q_proj", key=at + "k_proj", value=at + "v_proj", output=at + "o_proj",
        gate=mlp + "gate_proj", up=mlp + "up_proj", gate_up=mlp + "gate_up_proj", down=mlp + "down_proj",
    )  # fmt: skip


_SCAN = replace(
    scan_names("mamba"), mixed="mamba.x_proj_weight", step="mamba.dt_proj_weight", shift="mamba.dt_proj_bias"
)
NAMES = replace(_names("shared_transf"), recurrent=_SCAN)
NAMES_2 = replace(_names("shared_transformer"), recurrent=mamba_names("mamba"))


def from_hf(keys: Keys) -> ModelConfig:
    """`ZambaForCausalLM`."""
    own = {
        "hidden_size": 3712, "intermediate_size": 14_848, "num_hidden_layers": 76, "num_attention_heads": 16,
        "num_key_value_heads": 16,
    }  # fmt: skip
    keys = keys.over(own | _COMMON)
    refuse_other_than_silu(keys, "hidden_mamba_act")
    shape = _shape(keys, keys.integer("attention_head_dim", 0, _MOST, 0))
    layers, width = shape["layers"], shape["width"]
    step, first = (
        keys.integer(f"attn_layer_{name}", 0, _MOST, at) for name, at in (("period", 6), ("offset", 4))
    )
    plain = tuple(
        "hybrid" if layer == 2 or (layer > 2 and (layer - 3) % max(1, step) == first) else "linear_attention"
        for layer in range(layers)
    )
    inner, heads = keys.integer("mamba_expand", 1, 64) * width, keys.integer("n_mamba_heads", 1, _MOST, 2)
    if inner % heads:
        raise uneven(heads, inner)
    rank = (
        -(-width // 16)
        if keys.raw("mamba_dt_rank") in (None, "auto")
        else keys.integer("mamba_dt_rank", 1, _MOST)
    )
    scan = HeadedScan(
        heads, inner // heads, keys.integer("mamba_d_state", 1, _MOST, 16),
        keys.integer("mamba_d_conv", 1, 64), rank,
    )  # fmt: skip
    return ModelConfig(
        **shape, rope=None, attention_bias=False, output_bias=False, mlp_bias=False, recurrent=scan,
        shared=SharedBlocks(1), **_layers(keys, layers, plain),
    )  # fmt: skip


def from_hf_2(keys: Keys) -> ModelConfig:
    """`Zamba2ForCausalLM`."""
    own = {"hidden_size": 2560, "num_hidden_layers": 54, "num_attention_heads": 32}
    keys = keys.over(own | _COMMON)
    if keys.raw("intermediate_size") is None:
        keys = keys.replaced("intermediate_size", 4 * keys.integer("hidden_size", 1, 1 << 20))
    if keys.flag("use_long_context", False):
        keys = keys.replaced("max_position_embeddings", 16_384)
    shape = _shape(keys)
    layers, inner = shape["layers"], keys.integer("mamba_expand", 1, 64) * shape["width"]
    heads, groups = keys.integer("n_mamba_heads", 1, _MOST, 8), keys.integer("mamba_ngroups", 1, _MOST, 1)
    if inner % heads:
        raise uneven(heads, inner)
    bias, rank = keys.flag("add_bias_linear", False), keys.integer("adapter_rank", 1, _MOST, 128)
    plain = tuple("hybrid" if layer in _HYBRID else "linear_attention" for layer in range(layers))
    return ModelConfig(
        **shape,
        rope=rope_from_hf(keys, shape["head_dim"]) if keys.flag("use_mem_rope", False) else None,
        attention_bias=False, output_bias=False, mlp_bias=bias,
        recurrent=Mamba(
            heads, inner // heads, groups, keys.integer("mamba_d_state", 1, _MOST, 64),
            keys.integer("mamba_d_conv", 1, 64), norm_groups=groups,
            least_step=keys.number("time_step_min", 0.0, 1.0, 1e-3),
        ),
        shared=SharedBlocks(
            keys.integer("num_mem_blocks", 1, _MOST, 1), rank,
            rank if keys.flag("use_shared_attention_adapter", False) else 0,
        ),
        **_layers(keys, layers, plain),
    )  # fmt: skip


_HYBRID = (*range(6, 43, 6), 47, 51)


def _shape(keys: Keys, own: int = 0) -> dict[str, Any]:
    """Heads are as wide as the layers' features and the embeddings together allow, or of a width of their
    `own`, which Zamba 2 does not read.
    """
    width, heads = keys.integer("hidden_size", 1, 1 << 20), keys.integer("num_attention_heads", 1, _MOST)
    if 2 * width % heads and not own:
        raise uneven(heads, 2 * width)
    shape = hf_shape(keys.replaced("head_dim", own or 2 * width // heads))
    scale = (shape["head_dim"] / 2) ** -0.5
    return shape | {"activation": hf_activation(keys, default="gelu"), "attention_scale": scale}


def _layers(keys: Keys, layers: int, plain: tuple[str, ...]) -> dict[str, Any]:
    """Which layers have a shared block; `plain` are the class's own kinds."""
    name = "layers_block_type" if keys.raw("layers_block_type") is not None else "layer_types"
    kinds = hf_layer_types(keys, layers, _KINDS, name) or plain
    every = frozenset(range(layers))
    alone = frozenset(layer for layer in every if kinds[layer] != "hybrid")
    return {
        "recurrent_layers": every, "beside_attention": True, "mlp_layers": alone, "one_part": True,
    }  # fmt: skip


def _stack(builder: Builder) -> Generator[int, None, Stack]:
    from engine.models.layers.recurrent.shared import sharing_blocks

    return sharing_blocks(builder)


ZAMBA = Architecture((), ("ZambaForCausalLM",), from_hf, None, NAMES, None, layers=_stack)
ZAMBA_2 = Architecture((), ("Zamba2ForCausalLM",), from_hf_2, None, NAMES_2, None, layers=_stack)
