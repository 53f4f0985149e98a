"""Ling and Ring (Bailing MoE, arXiv 2503.05139): experts and shared ones, in the second version chosen as
DeepSeek V3 chooses them, after dense first layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.headers.decoder import MAX_LAYERS, gguf_decoder, hf_decoder
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, MIXTURE, SHARING, with_shared
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    with_shared(MIXTURE, "mlp.shared_experts"), embed="model.word_embeddings",
    query_key_value="attention.query_key_value", output="attention.dense",
    query_norm="attention.query_layernorm", key_norm="attention.key_layernorm",
    correction="mlp.gate.expert_bias",
)  # fmt: skip
_SARVAM = {
    "head_dim": 64, "num_key_value_heads": 4, "moe_intermediate_size": 1024, "num_experts_per_tok": 6,
    "num_shared_experts": 1, "num_experts": 128, "first_k_dense_replace": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`BailingMoeForCausalLM`."""
    _refuse_normed_head(keys)
    keys = keys.over({"num_shared_experts": 0})
    return ModelConfig(**_hf_shape(keys), experts=_experts(keys, {}))


def from_hf_2(keys: Keys) -> ModelConfig:
    """`BailingMoeV2ForCausalLM`."""
    _refuse_normed_head(keys)
    keys = keys.over({"num_shared_experts": 0, "norm_topk_prob": True})
    return _config_2(keys, _hf_shape(keys, share=0.5 if keys.raw("rotary_dim") is None else 1.0))


def from_hf_sarvam(keys: Keys) -> ModelConfig:
    """`SarvamMoEForCausalLM`: rope on whole heads."""
    keys = keys.renamed(
        num_experts="n_routed_experts", num_shared_experts="n_shared_experts", use_qkv_bias="attention_bias"
    )
    keys = keys.over(_SARVAM)
    return _config_2(keys, _hf_shape(keys, base=8e6, most=131_072))


def _config_2(keys: Keys, shape: dict[str, Any]) -> ModelConfig:
    scores = keys.text("score_function", "sigmoid")
    if scores not in ("sigmoid", "softmax"):
        raise UnsupportedModel(
            _(
                "The model scores its experts by {scores!r}; only sigmoid and softmax are "
                "supported. Choose another model.",
                scores=scores,
            )
        )
    more = {
        "scores": scores, "scale": keys.number("routed_scaling_factor", 0.0, 1e6, 1.0),
        "corrected": keys.flag("moe_router_enable_expert_bias", True), **hf_groups(keys),
    }  # fmt: skip
    return ModelConfig(
        **shape, qk_norm="head" if keys.flag("use_qk_norm", True) else "none", experts=_experts(keys, more)
    )


def _hf_shape(keys: Keys, share: float = 1.0, *, base: float = 10000.0, most: int = 16384) -> dict[str, Any]:
    bias = keys.flag("use_qkv_bias", False)
    shape = hf_decoder(
        keys, bias=bias, mlp_bias=keys.flag("use_bias", False), base=base, share=share,
        max_position_embeddings=most,
    )  # fmt: skip
    return shape | {"output_bias": keys.flag("use_bias", False)}


def _experts(keys: Keys, more: dict[str, Any]) -> Experts | None:
    layers = keys.integer("num_hidden_layers", 1, MAX_LAYERS)
    first = min(layers, keys.integer("first_k_dense_replace", 0, MAX_LAYERS, 0))
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    shared = keys.integer("moe_shared_expert_intermediate_size", 1, 1 << 22, width)
    return hf_experts(
        keys,
        range(first, layers),
        count="num_experts",
        used="num_experts_per_tok",
        width=width,
        normalise=keys.flag("norm_topk_prob", False),
        shared_width=shared * keys.integer("num_shared_experts", 0, 1 << 10),
        **more,
    )


def _refuse_normed_head(keys: Keys) -> None:
    if keys.flag("norm_head", False):
        raise UnsupportedModel(
            _(
                "The model norms the rows of its head when it is loaded (norm_head), which is not supported. "
                "Choose another model, or a GGUF file of this one."
            )
        )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`bailingmoe`."""
    shape: dict[str, Any] = gguf_decoder(
        keys, tensors, "bailingmoe", interleaved=True, handled=GGUF_EXPERT_KEYS
    )
    return ModelConfig(**shape, experts=gguf_experts(keys, shape, normalise=False))


def from_gguf_2(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`bailingmoe2`."""
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    keys = keys.replaced("block_count", layers)
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "bailingmoe2", handled=GGUF_EXPERT_KEYS)
    width = keys.integer("expert_feed_forward_length", 1, 1 << 22)
    shared = keys.integer("expert_shared_feed_forward_length", 0, 1 << 22, 0) or width
    experts = gguf_experts(
        keys, shape, normalise=False, scores="sigmoid",
        shared_width=shared * keys.integer("expert_shared_count", 0, 1 << 10, 0),
    )  # fmt: skip
    return ModelConfig(**shape, qk_norm="head", experts=experts)


BAILING = Architecture(
    ("bailingmoe",), ("BailingMoeForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF, interleaved_rows=True
)
BAILING_2 = Architecture(
    ("bailingmoe2",), ("BailingMoeV2ForCausalLM",), from_hf_2, from_gguf_2, HF_NAMES, GGUF
)
SARVAM = Architecture(
    (), ("SarvamMoEForCausalLM",), from_hf_sarvam, None, HF_NAMES, None, gguf_of=BAILING_2,
    adapt=lambda names, tensors: SHARING if HF.embed + ".weight" in tensors else names,  # as in memory
)  # fmt: skip
