"""Hunyuan (of 2025): Llama with qk norm after rope, whose base is raised by a factor of its own; dense, or
with experts and a shared one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, head_dimension, hf_decoder
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, with_experts, with_shared
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(HF, query_norm="self_attn.query_layernorm", key_norm="self_attn.key_layernorm")
MIXTURE_NAMES = replace(
    with_shared(with_experts(HF_NAMES, "mlp.experts"), "mlp.shared_mlp"), router="mlp.gate.wg"
)
_MOST_ALPHA = 1e9
_KINDS = "dynamic", "xdrope"


def from_hf(keys: Keys) -> ModelConfig:
    """`HunYuanDenseV1ForCausalLM`."""
    keys = keys.over({"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32})
    keys = keys.over({"intermediate_size": 11008, "vocab_size": 290943})
    shape = hf_decoder(
        _raised(keys),
        bias=keys.flag("attention_bias", False),
        rms_norm_eps=1e-5,
        max_position_embeddings=2048,
    )
    return ModelConfig(**shape, qk_norm="head", qk_norm_last=True)


def from_hf_mixture(keys: Keys) -> ModelConfig:
    """`HunYuanMoEV1ForCausalLM`, which may list one number for each layer."""
    names = ("num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size")
    for name in names:
        keys = _single(keys, name)
    keys = keys.over({"num_experts": 1, "moe_topk": 1})
    config = from_hf(keys)
    width = keys.integer("moe_intermediate_size", 1, 1 << 22, config.ffn_width)
    experts = hf_experts(
        keys,
        range(config.layers),
        count="num_experts",
        used="moe_topk",
        width=width,
        normalise=True,
        shared_width=config.ffn_width * keys.integer("num_shared_expert", 0, 1 << 10, 1),
    )
    return replace(config, experts=experts)


def _single(keys: Keys, name: str) -> Keys:
    """The number that a list repeats in the list's place."""
    values = keys.raw(name)
    if not isinstance(values, list):
        return keys
    if len(set(keys.integers(name, 0, 1 << 22))) != 1:
        raise BadCheckpoint(
            _(
                "config.json: {name} differs between layers, which is not possible in a Hunyuan "
                "model; the file is damaged.",
                name=name,
            )
        )
    return keys.replaced(name, values[0])


def _raised(keys: Keys) -> Keys:
    """The "dynamic" scaling with an `alpha` multiplies the base by alpha^(dim / (dim - 2)), and no more; the
    authors of Hunyuan VL call it "xdrope".
    """
    for name in ("rope_parameters", "rope_scaling"):
        scaling = keys.table(name)
        if scaling is None or (scaling.raw("rope_type") not in _KINDS and scaling.raw("type") not in _KINDS):
            continue
        alpha = scaling.optional("alpha", 0.0, _MOST_ALPHA)
        width, heads = (
            keys.integer("hidden_size", 1, 1 << 20),
            keys.integer("num_attention_heads", 1, 1 << 14),
        )
        dim = head_dimension(keys, "head_dim", width, heads)
        if alpha and dim > 2:
            base = scaling.number("rope_theta", 1.0, 1e12, keys.number("rope_theta", 1.0, 1e12, 10000.0))
            return keys.replaced(name, {"rope_type": "default", "rope_theta": _by_alpha(base, alpha, dim)})
    return keys


def _by_alpha(base: float, alpha: float, dim: int) -> float:
    """The base of NTK-aware scaling."""
    return min(base * float(alpha ** (dim / (dim - 2))), 1e12)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`hunyuan-dense`, whose base is raised in the file, and the text model of `hunyuan_vl`, whose file may
    have the alpha.
    """
    alpha = keys.number("rope.scaling.alpha", 0.0, _MOST_ALPHA, 0.0)
    shape = gguf_decoder(keys, tensors, keys.source["general.architecture"])
    if alpha and shape["head_dim"] > 2:
        base = _by_alpha(keys.number("rope.freq_base", 1.0, 1e12, 10000.0), alpha, shape["head_dim"])
        shape = gguf_decoder(keys.replaced("rope.freq_base", base), tensors, shape["architecture"])
    return ModelConfig(**shape, qk_norm="head", qk_norm_last=True)


def from_gguf_mixture(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`hunyuan-moe`."""
    shape = gguf_decoder(keys, tensors, "hunyuan-moe", handled=GGUF_EXPERT_KEYS)
    experts = gguf_experts(keys, shape)
    return ModelConfig(**shape, qk_norm="head", qk_norm_last=True, experts=experts)


HUNYUAN_MIXTURE = Architecture(
    ("hunyuan-moe",), ("HunYuanMoEV1ForCausalLM",), from_hf_mixture, from_gguf_mixture, MIXTURE_NAMES, GGUF
)
HUNYUAN = Architecture(
    ("hunyuan-dense", "hunyuan_vl"), ("HunYuanDenseV1ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF
)
