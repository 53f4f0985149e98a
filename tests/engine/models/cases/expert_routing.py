"""Llama 4, and other mixtures that choose or weigh their experts in a way of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ABSENT, ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.mixture import GLM_4_MOE, GROUPS
from tests.engine.models.gguf_form import GgufForm
from tests.tiny import _interleaved

LLAMA_4: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 5, "num_local_experts": 5, "intermediate_size": 40,
    "intermediate_size_mlp": 96, "interleave_moe_layer_step": 2, "head_dim": 24, "rms_norm_eps": 1e-5,
    ROPE: {"rope_type": "default", "rope_theta": 700.0},
}  # fmt: skip
CHUNKS: dict[str, Any] = {"attention_chunk_size": 9, "floor_scale": 8, "attn_scale": 0.4}
DERIVED = {"moe_layers": ABSENT, "no_rope_layers": ABSENT, "layer_types": ABSENT}


def llama_4_keys(config: Config) -> dict[str, Any]:
    return {
        "feed_forward_length": config["intermediate_size_mlp"],
        "expert_feed_forward_length": config["intermediate_size"],
        "interleave_moe_layer_step": config["interleave_moe_layer_step"],
    }  # fmt: skip


def llama_4_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Stacks as (X, N, K), gate and up apart."""
    out: Tensors = {}
    for name, values in tensors.items():
        at = name.rpartition(".")[0]
        if name.endswith("gate_up_proj"):
            for half, part in zip(("gate", "up"), np.split(values, 2, axis=2), strict=True):
                out[f"{at}.{half}_proj.weight"] = part.swapaxes(1, 2)
        elif name.endswith("experts.down_proj"):
            out[name + ".weight"] = values.swapaxes(1, 2)
        else:
            out[name] = values
    return out


def inside(architecture: str, kind: str, at: str = "language_model.") -> Any:
    """A `Case.publish`: the text model as a part of one for pictures, as the makers' folders have it."""

    def publish(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
        inner = {key: value for key, value in config.items() if key != "architectures"}
        outer: Config = {"architectures": [architecture], "model_type": kind, "text_config": inner}
        return outer, {at + name: values for name, values in tensors.items()}

    return publish


PHI_MOE: dict[str, Any] = {
    **SMALL, "num_local_experts": 5, "rms_norm_eps": 1e-5, "attention_bias": True, "lm_head_bias": True,
    "router_jitter_noise": 0.01, ROPE: {"rope_type": "default", "rope_theta": 700.0},
}  # fmt: skip


def phi_moe_keys(config: Config) -> dict[str, Any]:
    return {"attention.layer_norm_epsilon": config["rms_norm_eps"], "attention.layer_norm_rms_epsilon": 1e-5}


def bailing(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' names: queries, keys and values in one matrix."""
    out: Tensors = {}
    for name, values in tensors.items():
        at = name.rpartition(".self_attn.")[0]
        if ".q_proj." in name:
            parts = [tensors[name.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"]
            out[f"{at}.attention.query_key_value.{name.rpartition('.')[2]}"] = np.concatenate(parts)
        elif ".k_proj." not in name and ".v_proj." not in name:
            for old, new in (
                ("self_attn.o_proj", "attention.dense"), ("self_attn.q_norm", "attention.query_layernorm"),
                ("self_attn.k_norm", "attention.key_layernorm"), ("embed_tokens", "word_embeddings"),
                ("gate.e_score_correction_bias", "gate.expert_bias"),
            ):  # fmt: skip
                name = name.replace(old, new)
            out[name] = values
    return config, out


def bailing_2(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The second version from GLM-4.5, which differs in names alone."""
    own = {
        "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe",
        "num_experts": config["n_routed_experts"], "num_shared_experts": config["n_shared_experts"],
        "use_qkv_bias": config["attention_bias"], "rope_theta": 700.0, "partial_rotary_factor": 0.5,
    }  # fmt: skip
    kept = {key: value for key, value in config.items() if key not in ("n_routed_experts", ROPE)}
    return bailing(kept | own, tensors)


def from_granite(tensors: Tensors) -> Tensors:
    """The mixture of Granite 3 with a tensor for each expert, under the names of DeepSeek."""
    out: Tensors = {}
    for name, values in tensors.items():
        at = ".".join(name.split(".")[:3]) + ".mlp"
        if name.endswith("shared_mlp.input_linear.weight"):
            halves = np.split(values, 2)
            out |= {
                f"{at}.shared_experts.{half}_proj.weight": halves[half == "up"] for half in ("gate", "up")
            }
        elif name.endswith("block_sparse_moe.input_linear.weight"):
            for expert, matrix in enumerate(values):
                halves = np.split(matrix, 2)
                out |= {
                    f"{at}.experts.{expert}.{half}_proj.weight": halves[half == "up"]
                    for half in ("gate", "up")
                }
        elif name.endswith("block_sparse_moe.output_linear.weight"):
            out |= {f"{at}.experts.{expert}.down_proj.weight": matrix for expert, matrix in enumerate(values)}
        else:
            name = name.replace("shared_mlp.output_linear", "mlp.shared_experts.down_proj")
            out[name.replace("block_sparse_moe.router.layer", "mlp.gate")] = values
    return out


def bailing_1(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The first version from Granite 3 without its multipliers."""
    own = {
        "architectures": ["BailingMoeForCausalLM"], "model_type": "bailing_moe", "norm_topk_prob": True,
        "num_experts": config["num_local_experts"], "num_shared_experts": 2, "rope_theta": 700.0,
        "moe_intermediate_size": config["intermediate_size"],
    }  # fmt: skip
    kept = {key: value for key, value in config.items() if key not in ("num_local_experts", ROPE)}
    return bailing(kept | own, from_granite(tensors))


def bailing_keys(config: Config) -> dict[str, Any]:
    return {
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config["num_shared_experts"], "leading_dense_block_count": 0,
        "expert_weights_norm": config["norm_topk_prob"], "rope.freq_base": config["rope_theta"],
    }  # fmt: skip


def bailing_2_keys(config: Config) -> dict[str, Any]:
    return bailing_keys(config) | {
        "leading_dense_block_count": config["first_k_dense_replace"], "expert_gating_func": 2,
        "expert_weights_scale": config["routed_scaling_factor"],
        "rope.dimension_count": config["head_dim"] // 2,
        "expert_group_count": config["n_group"], "expert_group_used_count": config["topk_group"],
    }  # fmt: skip


def bailing_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Queries, keys and values apart, in the order of interleaved rope."""
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config["hidden_size"] // heads
    out: Tensors = {}
    for name, values in tensors.items():
        if "query_key_value" in name:
            at = "blk." + name.split(".")[2]
            q, k, v = np.split(values, np.cumsum([heads * dim, groups * dim]))
            out |= {
                f"{at}.attn_q.weight": _interleaved(q, heads), f"{at}.attn_k.weight": _interleaved(k, groups),
                f"{at}.attn_v.weight": v,
            }  # fmt: skip
        else:
            out[name] = values
    return out


def expert_bias(config: Config, tensors: Tensors) -> Tensors:
    """Under a name that the package's table has."""
    return {name.replace(".expert_bias", ".expert_bias.bias"): values for name, values in tensors.items()}


EXPERT_ROUTING_CASES = (
    Case(
        "Llama 4", "chunks of attention, no rope in every fourth layer, an expert whose input is weighed",
        "llama4_text", LLAMA_4, GgufForm("llama4", keys=llama_4_keys, change=llama_4_tensors), older=DERIVED,
    ),
    Case(
        "Llama 4", "", "llama4_text", {**LLAMA_4, **CHUNKS}, variant="short chunks, scaled queries",
        older=DERIVED, publish=inside("Llama4ForConditionalGeneration", "llama4"),
    ),
    Case(
        "Llama 4", "", "llama4_text",
        {
            **LLAMA_4, **CHUNKS, "use_qk_norm": False, "attention_bias": True, "moe_layers": [0, 1, 2, 3, 4],
            "no_rope_layers": [0, 1, 1, 0, 1], "tie_word_embeddings": True, "attention_chunk_size": 16,
            ROPE: {
                "rope_type": "llama3", "rope_theta": 700.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
            },
            "layer_types": ["full_attention", *["chunked_attention"] * 3, "full_attention"],
        },
        variant="experts in all layers, no norms, biases, tied",
    ),
    Case(
        "Llama 4", "", "llama4_text",
        {**LLAMA_4, "attention_chunk_size": None, "attn_temperature_tuning": False},
        variant="whole attention", older=DERIVED,
    ),
    Case(
        "Phi-3.5-MoE", "layer norms, two experts whose weights come of those that are nearly as good",
        "phimoe", PHI_MOE, GgufForm("phimoe", keys=phi_moe_keys),
    ),
    Case(
        "Phi-3.5-MoE", "", "phimoe",
        {
            **PHI_MOE, "attention_bias": False, "lm_head_bias": False, "router_jitter_noise": 0.4,
            "sliding_window": 9, "num_local_experts": 8,
        },
        variant="a window, no biases, many near experts",
        publish=lambda config, tensors: (config | {"architectures": ["PhiMoEForCausalLM"]}, tensors),
    ),
    Case(
        "Ling", "experts and shared ones", "granitemoeshared",
        {
            **SMALL, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 40,
            "shared_intermediate_size": 80, "attention_multiplier": 0.25,
            ROPE: {"rope_type": "default", "rope_theta": 700.0},
        },
        GgufForm("bailingmoe", keys=bailing_keys, change=bailing_tensors), publish=bailing_1,
    ),
    Case(
        "Ling 2", "experts chosen by sigmoids and a bias, qk norm, rope on half a head", "glm4_moe",
        {**GLM_4_MOE, **GROUPS, "head_dim": 16},
        GgufForm("bailingmoe2", keys=bailing_2_keys, change=expert_bias), publish=bailing_2,
    ),
    Case(
        "Ling 2", "", "glm4_moe",
        {**GLM_4_MOE, "use_qk_norm": False, "attention_bias": True, "first_k_dense_replace": 0,
         "n_shared_experts": 1, "norm_topk_prob": False},
        variant="no norms, biases", publish=bailing_2,
    ),
)  # fmt: skip
