"""Models with latent attention: MiniCPM 3, DeepSeek V2 and V3, GLM-4.7-Flash."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.gguf_form import GgufForm

LATENT: dict[str, Any] = {
    **SMALL, "num_key_value_heads": 4, "kv_lora_rank": 40, "q_lora_rank": 24, "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8, "v_head_dim": 20,
}  # fmt: skip
"""Sizes that are no multiples of each other, nor of 16."""
PLAIN = {"rope_type": "default", "rope_theta": 700.0}


def latent_keys(config: Config) -> dict[str, Any]:
    """The sizes of latents and of heads, as the files of llama.cpp without absorbed matrices give them."""
    nope, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    keys = {
        "attention.q_lora_rank": config["q_lora_rank"], "attention.kv_lora_rank": config["kv_lora_rank"],
        "attention.key_length": nope + rope, "attention.value_length": config["v_head_dim"],
        "rope.dimension_count": rope, "attention.head_count_kv": config["num_attention_heads"],
    }  # fmt: skip
    return {key: value for key, value in keys.items() if value is not None}


def absorbed_keys(config: Config) -> dict[str, Any]:
    """The same, as newer files give them, and the experts."""
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    old = latent_keys(config)
    scaling = config[ROPE]
    keys = old | {
        "attention.key_length_mla": old["attention.key_length"],
        "attention.value_length_mla": old["attention.value_length"], "attention.head_count_kv": 1,
        "attention.key_length": rank + rope, "attention.value_length": rank,
    } | expert_keys(config)  # fmt: skip
    if "mscale_all_dim" in scaling:
        keys["rope.scaling.yarn_log_multiplier"] = 0.1 * scaling["mscale_all_dim"]
    return keys


def expanded_keys(config: Config) -> dict[str, Any]:
    """As in files from before llama.cpp had absorbed matrices."""
    keys = {**absorbed_keys(config), **latent_keys(config)}
    return {key: value for key, value in keys.items() if not key.endswith("_mla")}


def expert_keys(config: Config) -> dict[str, Any]:
    """How experts are chosen, and which layers have some."""
    sigmoid = config["model_type"] != "deepseek_v2"
    kinds = config.get("mlp_layer_types") or []
    keys = {
        "expert_count": config["n_routed_experts"], "expert_shared_count": config["n_shared_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_weights_scale": float(config["routed_scaling_factor"]),
        "expert_weights_norm": bool(config["norm_topk_prob"]) and sigmoid,
        "expert_gating_func": {"deepseek_v2": 1, "deepseek_v3": 2}.get(config["model_type"]),
        "expert_group_count": config.get("n_group"),
        "expert_group_used_count": config.get("topk_group"),
        "leading_dense_block_count": kinds.count("dense") or config.get("first_k_dense_replace", 0),
    }  # fmt: skip
    return {key: value for key, value in keys.items() if value is not None}


def absorbed(config: Config, tensors: Tensors) -> Tensors:
    """The matrix of keys and values as stacks of each head's matrices, that of the key transposed."""
    out = dict(expanded(config, tensors))
    nope, rank = config["qk_nope_head_dim"], config["kv_lora_rank"]
    for name in [each for each in out if each.endswith("kv_b_proj.weight")]:
        heads = out.pop(name).reshape(config["num_attention_heads"], -1, rank)
        out[name.replace("kv_b", "k_b")] = np.ascontiguousarray(heads[:, :nope].transpose(0, 2, 1))
        out[name.replace("kv_b", "v_b")] = np.ascontiguousarray(heads[:, nope:])
    return out


def expanded(config: Config, tensors: Tensors) -> Tensors:
    """The bias of the choice has the name of a bias."""
    return {
        name.replace("e_score_correction_bias", "e_score_correction.bias"): values
        for name, values in tensors.items()
    }


YARN = {
    "rope_type": "yarn", "rope_theta": 700.0, "factor": 8.0, "original_max_position_embeddings": 16,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.8, "mscale_all_dim": 0.8,
}  # fmt: skip
SPARSE: dict[str, Any] = {
    **LATENT, ROPE: PLAIN, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2,
    "moe_intermediate_size": 36, "first_k_dense_replace": 1, "routed_scaling_factor": 1.7, "n_group": 4,
    "topk_group": 2,
}  # fmt: skip
V2: dict[str, Any] = {**SPARSE, "topk_method": "group_limited_greedy"}
LITE: dict[str, Any] = {
    **SPARSE, "topk_method": "greedy", "q_lora_rank": None, "n_group": None, "topk_group": None,
    "routed_scaling_factor": 1.0, "first_k_dense_replace": 2, ROPE: YARN,
}  # fmt: skip
GLM: dict[str, Any] = {
    **{key: value for key, value in SPARSE.items() if key not in ("first_k_dense_replace",)}, "n_group": 1,
    "topk_group": 1, "mlp_layer_types": ["dense", "sparse", "sparse"], "qk_nope_head_dim": 20,
    "v_head_dim": 28, "n_shared_experts": 1,
}  # fmt: skip


MINICPM: dict[str, Any] = {**LATENT, ROPE: PLAIN, "hidden_size": 80}


LATENT_ATTENTION_CASES = (
    Case(
        "MiniCPM 3", "latent attention, scaled embeddings, residuals and logits", "minicpm3", MINICPM,
        GgufForm("minicpm3", keys=latent_keys), scale=3.0,
    ),
    Case(
        "MiniCPM 3", "", "minicpm3",
        {
            **MINICPM, "q_lora_rank": None, "attention_bias": True, "mlp_bias": True, "v_head_dim": None,
            "num_attention_heads": 5, "num_key_value_heads": 5, "scale_depth": None, "dim_model_base": None,
            "scale_emb": 3, "tie_word_embeddings": False,
        }, variant="biases, one matrix of queries",
    ),
    Case(
        "DeepSeek V2", "latent attention, experts from the best groups, shared experts, dense first layers",
        "deepseek_v2", V2, GgufForm("deepseek2", keys=absorbed_keys, change=absorbed),
    ),
    Case(
        "DeepSeek V2", "", "deepseek_v2", LITE, GgufForm("deepseek2", keys=expanded_keys, change=expanded),
        variant="Lite",
    ),
    Case(
        "DeepSeek V2", "", "deepseek_v2",
        {
            **V2, "first_k_dense_replace": 3, "attention_bias": True, "mlp_bias": True,
            ROPE: {**YARN, "mscale": 1.2},
        }, variant="dense, biases",
    ),
    Case(
        "DeepSeek V3", "experts by sigmoid, with a bias for the choice", "deepseek_v3",
        {**SPARSE, ROPE: YARN}, GgufForm("deepseek2", keys=absorbed_keys, change=absorbed),
    ),
    Case(
        "DeepSeek V3", "", "deepseek_v3",
        {
            **SPARSE, "q_lora_rank": None, "rope_interleave": False, "norm_topk_prob": False, "n_group": 1,
            "topk_group": 1, "attention_bias": True, "first_k_dense_replace": 0,
        }, variant="halves, one group",
    ),
    Case(
        "GLM-4.7-Flash", "", "glm4_moe_lite", GLM, GgufForm("deepseek2", keys=absorbed_keys, change=absorbed),
    ),
)  # fmt: skip
