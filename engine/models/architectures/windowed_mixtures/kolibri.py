"""Kolibri 1: a mixture with norms around each half of a block, windows with rope in four of five layers and
no rope in the fifth; a bias is added to the logits by which experts are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder, hf_sliding
from engine.models.headers.experts import hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import SHARING, TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(
    SHARING, attention_post="post_self_attn_layernorm", mlp_norm="post_attention_layernorm",
    mlp_post="post_mlp_layernorm",
)  # fmt: skip
PUBLISHED = replace(
    HF_NAMES, attention_post="post_attn_norm", mlp_post="post_ffn_norm", correction="moe.router.expert_bias"
)
_STEP = 5


def from_hf(keys: Keys) -> ModelConfig:
    """`Kolibri1ForCausalLM`."""
    # transformers 5 writes the count under Mixtral's name.
    count = "num_experts" if keys.raw("num_local_experts") is None else "num_local_experts"
    keys = keys.over({count: 384, "num_experts_per_tok": 6})
    width = keys.integer("moe_intermediate_size", 1, 1 << 22, 512)
    shape = hf_decoder(
        keys.replaced("intermediate_size", width),  # all layers have experts
        bias=False, num_key_value_heads=4, head_dim=128, max_position_embeddings=262_144,
    )  # fmt: skip
    layers = shape["layers"]
    windows = hf_sliding(keys, layers, 513, _STEP)
    return ModelConfig(
        **shape,
        placement="both",
        qk_norm="head",
        windows=windows,
        nope_layers=frozenset(layer for layer, window in enumerate(windows) if not window),
        experts=hf_experts(
            keys, range(layers), count=count, used="num_experts_per_tok", width=width,
            normalise=keys.flag("norm_topk_prob", False), scores="sigmoid", corrected=True, by_logit=True,
            shared_width=keys.integer("shared_expert_intermediate_size", 1, 1 << 22, 512),
        ),
    )  # fmt: skip


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, where the file has them."""
    return PUBLISHED if any(".post_attn_norm." in name for name in tensors) else names


KOLIBRI_1 = Architecture((), ("Kolibri1ForCausalLM",), from_hf, None, HF_NAMES, None, adapt=_adapt)
