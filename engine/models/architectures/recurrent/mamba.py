"""Mamba (arXiv 2312.00752) alone, Falcon Mamba (arXiv 2410.05355), and Jamba (arXiv 2403.19887), which has
attention without rope in some layers and experts in others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.recurrent.mamba2 import NO_ATTENTION, without_attention
from engine.models.config import ModelConfig
from engine.models.config.recurrent import SelectiveScan
from engine.models.headers.decoder import (
    gguf_decoder,
    gguf_layers_with,
    hf_decoder,
    hf_shape,
    recurrent_by_heads,
    refuse_other_than_silu,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, SCAN_GGUF, scan_names, with_experts
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, embed="backbone.embeddings", norm="backbone.norm_f", layer="backbone.layers.{}.",
    attention_norm="norm", recurrent=scan_names("mixer"),
)  # fmt: skip
JAMBA_NAMES = replace(
    with_experts(HF, "feed_forward.experts"), norm="model.final_layernorm", mlp_norm="pre_ff_layernorm",
    gate="feed_forward.gate_proj", up="feed_forward.up_proj", down="feed_forward.down_proj",
    router="feed_forward.router", recurrent=scan_names("mamba"),
)  # fmt: skip
GGUF_NAMES = replace(GGUF, recurrent=SCAN_GGUF)
_MOST, _CHANNELS, _CONTEXT = 1 << 14, 1 << 20, 1 << 20


def from_hf(keys: Keys) -> ModelConfig:
    """`MambaForCausalLM` and `FalconMambaForCausalLM`."""
    refuse_other_than_silu(keys)
    falcon = hf_falcon(keys)
    width = keys.integer("hidden_size", 1, 1 << 20)
    # Falcon Mamba's `expand` is not the one that its weights have.
    channels = keys.integer("intermediate_size", 1, _CHANNELS, keys.integer("expand", 1, 64, 2) * width)
    shape = hf_shape(
        Keys({**keys.source, **NO_ATTENTION, "num_key_value_heads": 1}, "config.json"), "layer_norm_epsilon",
        layer_norm_epsilon=1e-5, max_position_embeddings=_CONTEXT, tie_word_embeddings=True,
    )  # fmt: skip
    scan = SelectiveScan(
        channels, keys.integer("state_size", 1, _MOST, 16), keys.integer("conv_kernel", 1, 64, 4),
        _rank(keys, "time_step_rank", width), "bare" if falcon else "",
        keys.number("mixer_rms_eps", 0.0, 1.0, 1e-6),
    )  # fmt: skip
    return _alone(shape, scan)


def hf_falcon(keys: Keys) -> bool:
    """Whether config.json is Falcon Mamba's."""
    return "FalconMambaForCausalLM" in (keys.raw("architectures") or ())


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`mamba`, whose sizes of attention and of feed-forward parts are 0."""
    falcon = keys.flag("ssm.dt_b_c_rms", False)
    shape: dict[str, Any] = gguf_decoder(without_attention(keys), tensors, "mamba")
    return _alone(shape, _gguf_scan(keys, "bare" if falcon else "", shape["norm_eps"]))


def _alone(shape: dict[str, Any], scan: SelectiveScan) -> ModelConfig:
    own: dict[str, Any] = {"rope": None, "one_part": True, "recurrent": scan}
    return ModelConfig(**shape | own, recurrent_layers=frozenset(range(shape["layers"])))


def from_hf_jamba(keys: Keys) -> ModelConfig:
    """`JambaForCausalLM`."""
    refuse_other_than_silu(keys)
    keys = keys.over({"num_experts": 16, "num_experts_per_tok": 2, "num_key_value_heads": 8})
    shape = hf_decoder(keys, bias=False, rotated=False, max_position_embeddings=262_144)
    layers = range(shape["layers"])

    def every(name: str, step: int, first: int) -> frozenset[int]:
        step = keys.integer(f"{name}_layer_period", 1, _MOST, step)
        first = keys.integer(f"{name}_layer_offset", 0, _MOST, first)
        return frozenset(layer for layer in layers if layer % step == first)

    full, sparse = every("attn", 8, 4), every("expert", 2, 1)
    sparse = sparse if keys.integer("num_experts", 0, _MOST) > 1 else frozenset()
    scan = SelectiveScan(
        keys.integer("mamba_expand", 1, 64, 2) * shape["width"], keys.integer("mamba_d_state", 1, _MOST, 16),
        keys.integer("mamba_d_conv", 1, 64, 4), _rank(keys, "mamba_dt_rank", shape["width"]), "weights",
        shape["norm_eps"],
    )  # fmt: skip
    experts = hf_experts(
        keys, sparse, count="num_experts", used="num_experts_per_tok", width=shape["ffn_width"],
        normalise=False,
    )  # fmt: skip
    return _jamba(shape, scan, frozenset(layers) - full, experts)


def from_gguf_jamba(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`jamba`, with a list of key/value heads, 0 where a layer has none."""
    keys, recurrent = recurrent_by_heads(keys)
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "jamba", handled=GGUF_EXPERT_KEYS)
    sparse = gguf_layers_with(tensors, "ffn_gate_inp", shape["layers"])
    experts = gguf_experts(keys, shape, normalise=False, layers=sparse) if sparse else None
    return _jamba(shape, _gguf_scan(keys, "weights", shape["norm_eps"]), recurrent, experts)


def _jamba(
    shape: dict[str, Any], scan: SelectiveScan, recurrent: frozenset[int], experts: Any
) -> ModelConfig:
    return ModelConfig(**shape | {"rope": None}, recurrent=scan, recurrent_layers=recurrent, experts=experts)


def _gguf_scan(keys: Keys, norms: str, eps: float) -> SelectiveScan:
    return SelectiveScan(
        keys.integer("ssm.inner_size", 1, _CHANNELS), keys.integer("ssm.state_size", 1, _MOST),
        keys.integer("ssm.conv_kernel", 1, 64), keys.integer("ssm.time_step_rank", 1, _MOST), norms, eps,
    )  # fmt: skip


def _rank(keys: Keys, name: str, width: int) -> int:
    return -(-width // 16) if keys.raw(name) in (None, "auto") else keys.integer(name, 1, _MOST)


MAMBA = Architecture(
    ("mamba",), ("MambaForCausalLM", "FalconMambaForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF_NAMES
)
JAMBA = Architecture(
    ("jamba",), ("JambaForCausalLM",), from_hf_jamba, from_gguf_jamba, JAMBA_NAMES, GGUF_NAMES
)
