"""Muse Spark, text only: Muse Glimmer with experts on a projection of the features, a norm of what each head
of attention makes, and gates of what each half of a layer adds to and of what it adds.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.dense.gemma import FOUR_NORMS
from engine.models.architectures.dense.muse_glimmer import text_keys, text_shape
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_layer_types
from engine.models.headers.experts import hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import NarrowNames, with_experts

HF_NAMES = replace(
    with_experts(FOUR_NORMS, "mlp.experts"), output_gate="self_attn.gate_proj", router="mlp.gate",
    correction="mlp.gate.e_score_correction_bias",
    narrow=NarrowNames(
        "mlp.pre_expert_proj", "mlp.post_expert_proj", "mlp.pre_expert_norm", "mlp.experts.post_expert_norm"
    ),
    attention_residual_gate="post_attention_residual_gate.gate",
    mlp_residual_gate="post_feedforward_residual_gate.gate",
)  # fmt: skip
_DEFAULTS = {
    "vocab_size": 202_048, "hidden_size": 8192, "intermediate_size": 16384, "num_hidden_layers": 62,
    "num_attention_heads": 128, "num_key_value_heads": 16, "head_dim": 64, "rope_theta": 5e5,
    "max_position_embeddings": 1 << 20, "num_local_experts": 256, "num_experts_per_tok": 8,
    "qk_scale_factor": 5.4730064863875, "output_multiplier": 0.1767766952966369,
}  # fmt: skip
_MOST = 1 << 20


def from_hf(keys: Keys) -> ModelConfig:
    """The text model of `MuseSparkForConditionalGeneration`."""
    keys = text_keys(keys, _DEFAULTS)
    keys = keys.replaced("tie_word_embeddings", False)  # transformers never ties its tables
    shape = text_shape(keys)
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    experts = hf_experts(
        keys, [layer for layer in range(layers) if kinds is None or kinds[layer] == "sparse"],
        count="num_local_experts", used="num_experts_per_tok", normalise=True, scores="sigmoid",
        width=keys.integer("moe_intermediate_size", 1, _MOST, 4096), corrected=True,
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 1.0), router_scale=shape["logit_scale"],
        narrow=keys.integer("moe_hidden_size", 1, _MOST, 4096),
    )  # fmt: skip
    return ModelConfig(
        **shape, placement="before", head_results_normed=True, experts=experts,
        residual_gates=keys.number("residual_gate_temperature", 1e-6, 1e6, 0.3),
    )  # fmt: skip


MUSE_SPARK = Architecture(
    (), ("MuseSparkForConditionalGeneration",), from_hf, None, HF_NAMES, None,
    prefixes=("-model.language_model.", "-"), untied=True,
)  # fmt: skip
