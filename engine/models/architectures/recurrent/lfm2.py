"""LFM2 (arXiv 2511.23404): short gated convolutions, with attention in some layers; dense, or with experts
after dense first layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.recurrent import ShortConvolution
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    gguf_decoder,
    hf_activation,
    hf_decoder,
    hf_layer_types,
    hf_shape,
    recurrent_by_heads,
)
from engine.models.headers.experts import gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_hf
from engine.models.names import GGUF, HF, RecurrentNames, TensorNames, with_experts
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    HF, norm="model.embedding_norm", attention_norm="operator_norm", mlp_norm="ffn_norm",
    output="self_attn.out_proj", gate="feed_forward.w1", up="feed_forward.w3", down="feed_forward.w2",
    query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm",
    recurrent=RecurrentNames("conv.in_proj", "conv.out_proj", "conv.conv"),
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF,
    norm="token_embd_norm",
    recurrent=RecurrentNames("shortconv.in_proj", "shortconv.out_proj", "shortconv.conv", gguf=True),
)
LATER_NAMES = replace(
    HF_NAMES, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm", output="self_attn.o_proj",
    output_gate="self_attn.g_proj", attention_post="post_operator_norm", mlp_post="post_ffn_norm",
)  # fmt: skip
MIXTURE_NAMES = replace(
    with_experts(HF_NAMES, "feed_forward.experts", "w1", "w3", "w2"), router="feed_forward.gate",
    correction="feed_forward.expert_bias",
)  # fmt: skip
_MOST_TAPS = 64


def from_hf(keys: Keys) -> ModelConfig:
    """`Lfm2ForCausalLM`."""
    keys = keys.over({"norm_eps": 1e-5})
    for newer, older in (("tie_word_embeddings", "tie_embedding"), ("intermediate_size", "block_ff_dim")):
        if keys.raw(older) is not None:
            keys = keys.replaced(newer, keys.raw(older))
    config = _from_hf(keys)
    return replace(config, ffn_width=_feed_forward(keys, config.ffn_width))


def from_hf_mixture(keys: Keys) -> ModelConfig:
    """`Lfm2MoeForCausalLM`."""
    defaults = {
        "norm_eps": 1e-5, "num_key_value_heads": 8, "intermediate_size": 7168, "num_experts": 32,
        "num_experts_per_tok": 4,
    }  # fmt: skip
    keys = keys.over(defaults)
    if keys.raw("tie_embedding") is not None:
        keys = keys.replaced("tie_word_embeddings", keys.raw("tie_embedding"))
    config = _from_hf(keys)
    dense = min(keys.integer("num_dense_layers", 0, MAX_LAYERS, 2), config.layers)
    experts = hf_experts(
        keys,
        range(dense, config.layers),
        count="num_experts",
        used="num_experts_per_tok",
        width=keys.integer("moe_intermediate_size", 1, 1 << 22, 1792),
        normalise=keys.flag("norm_topk_prob", True),
        scores="sigmoid",
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 1.0),
        corrected=keys.flag("use_expert_bias", True),
    )
    return replace(config, experts=experts)


def from_hf_3(keys: Keys) -> ModelConfig:
    """`Lfm3ForCausalLM`: norms after each half of a block, too, windows with a rope of their own, and a gate
    for each head of attention.
    """
    defaults = {
        "norm_eps": 1e-5, "head_dim": 128, "conv_L_cache": 7, "num_key_value_heads": 4,
        "max_position_embeddings": 128_000, "tie_word_embeddings": True,
    }  # fmt: skip
    keys = keys.over(defaults)
    shape: dict[str, Any] = hf_shape(keys, "norm_eps")
    layers, dim, bias = shape["layers"], shape["head_dim"], keys.flag("attention_bias", False)
    kinds = hf_layer_types(keys, layers, ("full_attention", "sliding_attention", "conv")) or tuple(
        "full_attention" if layer % 4 == 2 else "conv" if layer % 4 or not layer else "sliding_attention"
        for layer in range(layers)
    )
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0 if keys.has("sliding_window") else 256)
    ropes = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {
            "rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5
        },
    }  # fmt: skip
    keys = keys.over({"rope_parameters": ropes})
    return ModelConfig(
        **shape, activation=hf_activation(keys), attention_bias=bias, output_bias=bias, mlp_bias=False,
        qk_norm="head", placement="both" if keys.flag("use_sandwich_norm", True) else "before",
        output_gate="head" if keys.flag("use_attention_gate", True) else "",
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        rope=rope_from_hf(keys, dim, layer_type="full_attention"),
        rope_local=rope_from_hf(keys, dim, layer_type="sliding_attention"),
        recurrent=ShortConvolution(keys.integer("conv_L_cache", 1, _MOST_TAPS)),
        recurrent_layers=frozenset(layer for layer, kind in enumerate(kinds) if kind == "conv"),
    )  # fmt: skip


def _from_hf(keys: Keys) -> ModelConfig:
    shape = hf_decoder(
        keys, bias=False, base=1e6, norm_eps="norm_eps", max_position_embeddings=128_000,
        tie_word_embeddings=True,
    )  # fmt: skip
    layers = shape["layers"]
    with_attention = keys.integers("full_attn_idxs", 0, MAX_LAYERS)
    kinds = hf_layer_types(keys, layers, ("full_attention", "conv"))
    if kinds is None:
        kinds = tuple(
            "full_attention" if layer in with_attention or not keys.has("full_attn_idxs") else "conv"
            for layer in range(layers)
        )
    return ModelConfig(
        **shape,
        qk_norm="head",
        recurrent=ShortConvolution(keys.integer("conv_L_cache", 1, _MOST_TAPS, 3)),
        recurrent_layers=frozenset(layer for layer, kind in enumerate(kinds) if kind == "conv"),
    )


def _feed_forward(keys: Keys, width: int) -> int:
    """The features inside the feed-forward part, which config.json gives before it is adjusted."""
    if not keys.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    if keys.raw("block_ffn_dim_multiplier") is not None or not keys.has("block_ffn_dim_multiplier"):
        width = int(keys.number("block_ffn_dim_multiplier", 0.0, 1e3, 1.0) * width)
        multiple = keys.integer("block_multiple_of", 1, 1 << 20, 256)
        width = -(-width // multiple) * multiple
    if not width:
        raise BadCheckpoint(_("config.json: the feed-forward part has no features; the file is damaged."))
    return width


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`lfm2` and `lfm2moe`."""
    keys, recurrent = recurrent_by_heads(keys)
    shape = gguf_decoder(keys, tensors, keys.source["general.architecture"], handled=("expert_count",))
    return ModelConfig(
        **shape,
        qk_norm="head",
        experts=gguf_experts(keys, shape, scores="sigmoid"),
        recurrent=ShortConvolution(keys.integer("shortconv.l_cache", 1, _MOST_TAPS, 3)),
        recurrent_layers=recurrent,
    )


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Newer GGUF files call the last norm what others do, and mlx-lm the matrices of feed-forward parts."""
    if any(".feed_forward.gate_proj." in name for name in tensors):
        at = "feed_forward."
        names = replace(names, gate=at + "gate_proj", up=at + "up_proj", down=at + "down_proj")
    if any(".feed_forward.experts.gate_proj." in name for name in tensors):
        names = with_experts(names, "feed_forward.experts")
    return replace(names, norm="output_norm") if "output_norm.weight" in tensors else names


LFM2 = Architecture(("lfm2",), ("Lfm2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=adapted)
LFM2_MIXTURE = Architecture(
    ("lfm2moe",), ("Lfm2MoeForCausalLM",), from_hf_mixture, from_gguf, MIXTURE_NAMES, GGUF_NAMES,
    adapt=adapted,
)  # fmt: skip
LFM3 = Architecture(
    (), ("Lfm3ForCausalLM",), from_hf_3, None, LATER_NAMES, None,
    adapt=lambda names, tensors: replace(names, output_gate="self_attn.gate_proj")
    if any(name.endswith("self_attn.gate_proj.weight") for name in tensors)
    else names,
)  # fmt: skip
