"""Families with arithmetic of their own: MiMo-V2-Flash and others."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.latent_attention import LATENT
from tests.engine.models.cases.llama import llama3_factors
from tests.engine.models.cases.mixture import GROUPS
from tests.engine.models.gguf_form import GgufForm

SLIDING, FULL = "sliding_attention", "full_attention"


def two_ropes(share: float) -> Config:
    """Low bases, so that the two tables differ visibly."""
    kinds = {SLIDING: 60.0, FULL: 700.0}
    return {
        kind: {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share}
        for kind, base in kinds.items()
    }


MIMO: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "num_key_value_heads": 1, "head_dim": 24, "v_head_dim": 16,
    "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "sliding_window": 9,
    "attention_value_scale": 0.6, ROPE: two_ropes(0.5),
}  # fmt: skip


def published_mimo(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' keys."""
    rope = config[ROPE]
    own = {
        "hybrid_layer_pattern": [int(kind == SLIDING) for kind in config["layer_types"]],
        "moe_layer_freq": [int(kind == "sparse") for kind in config["mlp_layer_types"]],
        "sliding_window_size": config["sliding_window"] - 1, "swa_num_key_value_heads": 2,
        "swa_head_dim": config["head_dim"], "swa_v_head_dim": config["v_head_dim"],
        "rope_theta": rope[FULL]["rope_theta"], "swa_rope_theta": rope[SLIDING]["rope_theta"],
        "partial_rotary_factor": 0.5, "routed_scaling_factor": None, "layernorm_epsilon": 1e-5,
        "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False,
    }  # fmt: skip
    dropped = ("layer_types", "mlp_layer_types", "sliding_window", ROPE, "rms_norm_eps")
    return {key: value for key, value in config.items() if key not in dropped} | own, tensors


def mimo_keys(config: Config) -> dict[str, Any]:
    slides = [kind == SLIDING for kind in config["layer_types"]]
    heads, rope = config["num_key_value_heads"], config[ROPE]
    return {
        "attention.value_length": config["v_head_dim"], "attention.sliding_window_pattern": slides,
        "attention.head_count_kv": [2 * heads if one else heads for one in slides],
        "attention.sliding_window": config["sliding_window"],
        "attention.value_scale": config["attention_value_scale"],
        "rope.freq_base": rope[FULL]["rope_theta"], "rope.freq_base_swa": rope[SLIDING]["rope_theta"],
        "rope.dimension_count": int(config["head_dim"] * rope[FULL]["partial_rotary_factor"]),
        "expert_count": config["n_routed_experts"], "expert_gating_func": 2,
        "expert_feed_forward_length": config["moe_intermediate_size"], "expert_weights_norm": True,
    }  # fmt: skip


def mimo_tensors(config: Config, tensors: Tensors) -> Tensors:
    names = {"attention_sink_bias": "sinks.weight", "correction_bias": "correction.bias"}
    out: Tensors = {}
    for name, values in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        out[name] = values
    return out


STEP: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 16, "num_sliding_attention_heads": 6,
    "layer_types": [FULL, SLIDING, SLIDING, SLIDING], "sliding_window": 9, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "share_expert_dim": 56,
    "moe_router_scaling_factor": 1.7, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "pad_token_id": 1, "swiglu_limits": [0.0, 0.0, 0.7, 0.6], "swiglu_limits_shared": [0.0, 0.8, 0.0, 0.6],
    ROPE: {
        FULL: {
            "rope_type": "llama3", "rope_theta": 700.0, "partial_rotary_factor": 0.5, "factor": 2.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
        SLIDING: {"rope_type": "default", "rope_theta": 60.0, "partial_rotary_factor": 1.0},
    },
}  # fmt: skip
STEP_VISION = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip


def published_step(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' keys, with lists that go on for a layer that predicts a further token."""
    text = config["text_config"]
    rope, kinds = text[ROPE], [*text["layer_types"], SLIDING]
    own = {
        "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "layer_types": kinds,
        "num_nextn_predict_layers": 1, "num_attention_groups": text["num_key_value_heads"],
        "moe_num_experts": text["n_routed_experts"], "moe_top_k": text["num_experts_per_tok"],
        "moe_layers_enum": "1,2,3", "attention_other_setting": {"num_attention_heads": 6},
        "rope_theta": [rope[kind]["rope_theta"] for kind in kinds],
        "partial_rotary_factors": [rope[kind]["partial_rotary_factor"] for kind in kinds],
        "rope_scaling": {
            key: value for key, value in rope[FULL].items() if not key.startswith(("rope_theta", "partial"))
        },
        "swiglu_limits": [*text["swiglu_limits"], None], "moe_router_activation": "sigmoid",
        "swiglu_limits_shared": [*text["swiglu_limits_shared"], None], "zero_centered": True,
    }  # fmt: skip
    dropped = (
        "num_key_value_heads", "n_routed_experts", "num_experts_per_tok", "mlp_layer_types",
        "per_layer_config", "num_sliding_attention_heads", ROPE,
    )  # fmt: skip
    kept = {key: value for key, value in text.items() if key not in dropped}
    return kept | own, {
        name: values for name, values in tensors.items() if name.startswith(("model.", "lm_head."))
    }


def step_keys(config: Config) -> dict[str, Any]:
    layers = config["num_hidden_layers"]
    slides = [kind == SLIDING for kind in config["layer_types"]][:layers]
    others = config["attention_other_setting"]["num_attention_heads"]
    base, local = config["rope_theta"][:2]
    return {
        "attention.head_count": [others if one else config["num_attention_heads"] for one in slides],
        "attention.head_count_kv": [config["num_attention_groups"]] * layers,
        "attention.sliding_window": config["sliding_window"], "attention.sliding_window_pattern": slides,
        "rope.freq_base": base, "rope.freq_base_swa": local, "rope.dimension_count": 16,
        "rope.dimension_count_swa": 16, "expert_count": config["moe_num_experts"],
        "expert_used_count": config["moe_top_k"], "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_feed_forward_length": config["share_expert_dim"],
        "expert_weights_scale": config["moe_router_scaling_factor"], "leading_dense_block_count": 1,
        "swiglu_clamp_exp": [limit or 0.0 for limit in config["swiglu_limits"]][:layers],
        "swiglu_clamp_shexp": [limit or 0.0 for limit in config["swiglu_limits_shared"]][:layers],
    }  # fmt: skip


def step_tensors(config: Config, tensors: Tensors) -> Tensors:
    """With the factors of the scaled rope."""
    scaled = {
        "hidden_size": 8, "num_attention_heads": 1,
        ROPE: {"rope_theta": config["rope_theta"][0], **config["rope_scaling"]},
    }  # fmt: skip
    named = {name.replace("router_bias", "router_bias.bias"): values for name, values in tensors.items()}
    out = llama3_factors(config | scaled, named)
    factors = np.pad(out["rope_freqs.weight"], (0, 4), constant_values=1)  # as many as the longer rope has
    return out | {"rope_freqs.weight": factors}


LAGUNA: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 16, "num_attention_heads_per_layer": [4, 6, 6, 4],
    "layer_types": [FULL, SLIDING, SLIDING, FULL], "sliding_window": 9, "num_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 56,
    "moe_routed_scaling_factor": 1.7, "moe_router_logit_softcapping": 1.5,
    ROPE: {**two_ropes(0.5), SLIDING: two_ropes(1.0)[SLIDING]},
}  # fmt: skip


def laguna_keys(config: Config) -> dict[str, Any]:
    """Those of llama.cpp's converter, and the router's cap, which it does not write."""
    rope, dim = config[ROPE], config["head_dim"]
    return {
        "rope.freq_base": rope[FULL]["rope_theta"], "rope.freq_base_swa": rope[SLIDING]["rope_theta"],
        "rope.dimension_count": int(dim * rope[FULL]["partial_rotary_factor"]),
        "rope.dimension_count_swa": int(dim * rope[SLIDING].get("partial_rotary_factor", 1.0)),
        "attention.head_count": config["num_attention_heads_per_layer"] or config["num_attention_heads"],
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": [kind == SLIDING for kind in config["layer_types"]],
        "leading_dense_block_count": config["mlp_layer_types"].index("sparse"), "expert_gating_func": 2,
        "expert_feed_forward_length": config["moe_intermediate_size"], "expert_weights_norm": True,
        "expert_shared_feed_forward_length": config["shared_expert_intermediate_size"],
        "expert_weights_scale": config["moe_routed_scaling_factor"],
        "router_logit_softcapping": config["moe_router_logit_softcapping"],
    }  # fmt: skip


def laguna_tensors(config: Config, tensors: Tensors) -> Tensors:
    found = r"model\.layers\.(\d+)\.mlp\.experts\.e_score_correction_bias"
    return {re.sub(found, r"blk.\1.exp_probs_b.bias", name): values for name, values in tensors.items()}


LAGUNA_FORM = GgufForm("laguna", keys=laguna_keys, change=laguna_tensors, alike=("step35", "afmoe"))


def norm_inside(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """transformers' name of the norm behind the experts."""
    return config, {
        name.replace(".post_mlp_layernorm", ".mlp.post_mlp_layernorm"): values
        for name, values in tensors.items()
    }


MIMO_STEP_CASES = (
    Case(
        "MiMo-V2-Flash", "windows with sinks in most layers, values shorter than keys, experts",
        "mimo_v2_flash", MIMO,
        GgufForm("mimo2", keys=mimo_keys, change=mimo_tensors), older={ROPE: MIMO[ROPE]},
    ),
    Case(
        "MiMo-V2-Flash", "", "mimo_v2_flash",
        {
            **MIMO, **GROUPS, "num_key_value_heads": 2, "attention_value_scale": None, "v_head_dim": 24,
            "norm_topk_prob": False, "routed_scaling_factor": 1.7, "attention_bias": True,
            "n_routed_experts": 8, "num_experts_per_tok": 3,
            "layer_types": [SLIDING, SLIDING, FULL, FULL], ROPE: two_ropes(1.0),
            "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"],
        }, variant="biases, other layers", older={ROPE: two_ropes(1.0)},
    ),
    Case(
        "MiMo-V2-Flash", "", "mimo_v2_flash", MIMO, variant="as its makers save it",
        publish=published_mimo,
    ),
    Case(
        "Laguna", "windows, more heads in some layers, softplus gates, experts by sigmoid", "laguna", LAGUNA,
        LAGUNA_FORM, older={ROPE: LAGUNA[ROPE]},
    ),
    Case(
        "Laguna", "", "laguna",
        {
            **LAGUNA, "gating": "per-element", "num_attention_heads_per_layer": None, "attention_bias": True,
            "moe_router_logit_softcapping": 0.0, "layer_types": None, "tie_word_embeddings": True,
            "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"],
        }, LAGUNA_FORM, variant="biases, a gate for each number", older={ROPE: LAGUNA[ROPE]},
    ),
    Case(
        "A.X K1", "DeepSeek V3 with a norm behind the experts", "axk1",
        {
            **LATENT, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
            "n_shared_experts": 2, **GROUPS, ROPE: {"rope_type": "default", "rope_theta": 700.0},
        },
    ),
    Case(
        "A.X K1", "", "axk1",
        {
            **LATENT, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
            "n_shared_experts": 1, **GROUPS, "rope_interleave": False, "attention_bias": True,
            "norm_topk_prob": False, "mlp_layer_types": ["sparse", "dense", "sparse"],
        }, variant="biases, other layers", publish=norm_inside,
    ),
    Case(
        "Step 3.5 Flash", "windows with more heads, a gate for each head, experts, limits in some layers",
        "step3p7", {"text_config": STEP, "vision_config": STEP_VISION},
        GgufForm("step35", offset=1.0, keys=step_keys, change=step_tensors), publish=published_step,
    ),
    Case(
        "Step 3.5 Flash", "", "step3p7",
        {
            "text_config": {
                **STEP, "attention_bias": True, "query_pre_attn_scalar": 30, "layer_types": [FULL] * 4,
                "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"], "swiglu_limits": None,
                "swiglu_limits_shared": None, "tie_word_embeddings": True,
            },
            "vision_config": STEP_VISION, "tie_word_embeddings": True,
        }, variant="in Step 3.7, biases, other layers",
    ),
)  # fmt: skip
