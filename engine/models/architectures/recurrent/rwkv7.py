"""RWKV-7 (arXiv 2503.14456), as flash-linear-attention saves it and as GGUF, and the models whose attention
was converted to it (`arwkv7`, arXiv 2501.15570).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Rwkv7
from engine.models.headers.decoder import HF_ACTIVATIONS, gguf_decoder, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported_activation
from engine.models.names import GGUF, HF, RwkvNames, TensorNames
from engine.tensors import RawTensor
from engine.words import _

_SHARES = ("r", "w", "k", "v", "a", "g")
HF_NAMES = replace(
    HF, embed="model.embeddings", embed_norm="model.layers.0.pre_norm", attention_norm="attn_norm",
    mlp_norm="ffn_norm", query="attn.r_proj", key="attn.k_proj", value="attn.v_proj", output="attn.o_proj",
    gate="", up="ffn.key", down="ffn.value",
    rwkv=RwkvNames(
        tuple(f"attn.x_{part}" for part in _SHARES), "ffn.x_k", "attn.k_k", "attn.k_a", "attn.r_k",
        ("attn.w_lora.lora.0", "attn.w_lora.lora.2"), ("attn.a_lora.lora.0", "attn.a_lora.lora.2"),
        ("attn.v_lora.lora.0", "attn.v_lora.lora.2"), ("attn.g_lora.lora.0", "attn.g_lora.lora.2"),
        "attn.g_norm",
    ),
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF, mlp_norm="attn_norm_2", query="time_mix_receptance", key="time_mix_key", value="time_mix_value",
    output="time_mix_output", up="channel_mix_key", down="channel_mix_value",
    rwkv=RwkvNames(
        ("time_mix_lerp_fused.weight",), "channel_mix_lerp_k.weight", "time_mix_k_k.weight",
        "time_mix_k_a.weight", "time_mix_r_k.weight", ("time_mix_w1", "time_mix_w2"),
        ("time_mix_a1", "time_mix_a2"), ("time_mix_v1", "time_mix_v2"), ("time_mix_g1", "time_mix_g2"),
        "time_mix_ln", ("time_mix_w0.weight", "time_mix_a0.weight", "time_mix_v0.weight"),
    ),
)  # fmt: skip
ARWKV_GGUF_NAMES = replace(GGUF_NAMES, mlp_norm="ffn_norm", up="ffn_up", down="ffn_down")
_MOST, NORM_EPS = 1 << 14, 64e-5
"""The epsilon is that of every GGUF file: 64 times the first files' `norm_eps`."""


def from_hf(keys: Keys) -> ModelConfig:
    """`RWKV7ForCausalLM` of flash-linear-attention."""
    if keys.raw("attn") is not None:
        raise UnsupportedModel(
            _(
                "The model has attention in some layers beside RWKV-7, which is not supported. "
                "Choose another model."
            )
        )
    width = keys.integer("hidden_size", 1, 1 << 20, 2048)
    dim = keys.integer("head_dim", 2, 1 << 12, 64)
    if keys.raw("head_dim") is None and keys.has("num_heads"):
        dim = max(1, width // keys.integer("num_heads", 1, _MOST))
    heads = heads_of(width, dim)
    inner = keys.raw("intermediate_size")
    ratio = keys.number("hidden_ratio", 0.01, 1e4, 4.0)
    keys = keys.over({
        "hidden_size": width, "num_hidden_layers": 24, "vocab_size": 32000, "norm_eps": 1e-5,
        "intermediate_size": inner or -(-int(width * ratio) // 32) * 32,
    })  # fmt: skip
    shape = hf_shape(
        Keys({**keys.source, "num_attention_heads": heads, "head_dim": dim, "num_key_value_heads": heads},
             "config.json"),
        "norm_eps", max_position_embeddings=2048,
    )  # fmt: skip
    names = ("decay_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim", "gate_low_rank_dim")
    ranks = [_rank(keys, name, width, dim) for name in names]
    kind = Rwkv7(
        heads, dim, _value_dim(keys, width) // heads,
        (ranks[0], ranks[1], ranks[2], ranks[3]), dim * shape["norm_eps"],
    )  # fmt: skip
    return _config(shape, kind, keys.flag("norm_first", True), keys.flag("norm_bias", True), _act(keys))


def heads_of(width: int, dim: int) -> int:
    if width % dim:
        raise BadCheckpoint(
            _(
                "The model's width {width} is not a multiple of its heads' {dim} numbers; the file is "
                "damaged.",
                width=width,
                dim=dim,
            )
        )
    return width // dim


def gguf_heads(keys: Keys) -> tuple[Keys, int, int]:
    """The number of heads and the size of each; the first is the header with what other decoders say of
    heads.
    """
    dim = keys.integer("wkv.head_size", 2, 1 << 12)
    heads = heads_of(keys.integer("embedding_length", 1, 1 << 20), dim)
    for name, value in (
        ("attention.head_count", heads), ("attention.head_count_kv", heads), ("attention.key_length", dim),
        ("attention.value_length", dim), ("rope.dimension_count", 2),
    ):  # fmt: skip
        keys = keys.replaced(name, value)
    return keys, heads, dim


def _act(keys: Keys) -> str:
    found = keys.text("hidden_act", "sqrelu")
    if found not in (*HF_ACTIVATIONS, "sqrelu"):
        raise unsupported_activation(found, (*HF_ACTIVATIONS, "sqrelu"))
    return HF_ACTIVATIONS.get(found, "relu2")


def _rank(keys: Keys, name: str, width: int, dim: int) -> int:
    """A null stands for the class's rule, which grows with the width."""
    if keys.raw(name) is not None:
        return keys.integer(name, 1, _MOST)
    if not keys.has(name):
        return {"decay_low_rank_dim": 64, "a_low_rank_dim": 64, "v_low_rank_dim": 16}.get(name, 128)
    factor = {"v_low_rank_dim": 1.7, "gate_low_rank_dim": 5.0}.get(name, 2.5)
    share = 1.0 if name == "gate_low_rank_dim" else dim / 64
    return max(32, round(factor * math.sqrt(width) * share / 32) * 32)


def _value_dim(keys: Keys, width: int) -> int:
    """Numbers of all values, the same in every layer."""
    if keys.raw("value_dim") is None:
        return width
    if isinstance(keys.raw("value_dim"), list):
        each = keys.integers("value_dim", 1, 1 << 20)
    else:
        each = (keys.integer("value_dim", 1, 1 << 20),)
    if len(set(each)) != 1:
        raise UnsupportedModel(
            _(
                "The model's layers differ in the size of their values, which is not supported. "
                "Choose another model."
            )
        )
    found: int = each[0]
    return found


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`rwkv7`, whose number of heads is 0."""
    shape, kind = _gguf(keys, tensors, "rwkv7", layer_norm=True)
    return _config(shape, kind, True, True, "relu2")


def from_gguf_converted(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`arwkv7`: the norms and the feed-forward parts of Qwen 2."""
    shape, kind = _gguf(keys, tensors, "arwkv7", layer_norm=False)
    layers = frozenset(range(shape["layers"]))
    kind = replace(kind, mixes_channels=False)
    return ModelConfig(**shape | {"rope": None}, recurrent=kind, recurrent_layers=layers)


def _gguf(
    keys: Keys, tensors: Mapping[str, RawTensor], architecture: str, *, layer_norm: bool
) -> tuple[dict[str, Any], Rwkv7]:
    keys, heads, dim = gguf_heads(keys)
    shape = gguf_decoder(keys, tensors, architecture, layer_norm=layer_norm)
    decay, rate, share = (
        keys.integer(f"attention.{name}_lora_rank", 1, _MOST)
        for name in ("decay", "iclr", "value_residual_mix")
    )
    gate = keys.integer("attention.gate_lora_rank", 0, _MOST, 0)
    gate = gate if "blk.0.time_mix_g1.weight" in tensors else 0
    eps = NORM_EPS if "blk.0.time_mix_ln.weight" in tensors else 0.0
    return shape, Rwkv7(heads, dim, dim, (decay, rate, share, gate), eps)


def _config(
    shape: dict[str, Any], kind: Rwkv7, embed_norm: bool, norm_bias: bool, activation: str
) -> ModelConfig:
    own: dict[str, Any] = {
        "rope": None, "norm": "layer", "norm_bias": norm_bias, "embed_norm": embed_norm, "gated": False,
        "mlp_bias": False, "activation": activation, "recurrent": kind,
    }  # fmt: skip
    return ModelConfig(**shape | own, recurrent_layers=frozenset(range(shape["layers"])))


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The shapes that a file has, and its first layer's shares in one or several tensors."""
    own, at = names.rwkv, names.layer.format(0)
    assert own is not None
    if at + "attn.x_x" in tensors:  # the first version of the class
        own = replace(own, shares=("attn.x_x",))
    stored = (*own.shares, own.channel_share, own.bonus)
    dims = {name: tensors[at + name].shape for name in stored if at + name in tensors}
    return replace(names, rwkv=replace(own, dims=tuple(dims.items())))


RWKV_7 = Architecture(
    ("rwkv7",), ("RWKV7ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=adapted
)
ARWKV_7 = Architecture(
    ("arwkv7",), (), from_hf, from_gguf_converted, HF_NAMES, ARWKV_GGUF_NAMES, adapt=adapted
)
