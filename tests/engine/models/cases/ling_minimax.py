"""Ling 3 and others of 2026."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.latent_attention import GLM, LATENT, SPARSE, YARN, absorbed, absorbed_keys
from tests.engine.models.families.qwen_4_form import QWEN_4_FORM
from tests.engine.models.gguf_form import GgufForm

LINEAR, FULL = "linear_attention", "full_attention"
LING: dict[str, Any] = {
    **{key: value for key, value in LATENT.items() if key != "q_lora_rank"}, "num_hidden_layers": 4,
    "layer_group_size": 2, "first_k_dense_replace": 1, "head_dim": 12, "num_local_experts": 8,
    "num_experts_per_tok": 3, "moe_intermediate_size": 36, "n_group": 4, "topk_group": 2,
}  # fmt: skip

MINIMAX: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 24, "num_local_experts": 5, "num_experts_per_tok": 2,
    "block_size": 16, "full_attn_alpha_factor": 3.5, "full_attn_beta_factor": 0.7,
    "linear_attn_alpha_factor": 2.0, "linear_attn_beta_factor": 1.3, "mlp_alpha_factor": 1.9,
    ROPE: {"rope_type": "default", "rope_theta": 700.0},
}  # fmt: skip


def ling_keys(config: Config) -> dict[str, Any]:
    """As llama.cpp's converter writes them: key/value heads of each layer, 0 where attention is linear."""
    named = config | {
        "n_routed_experts": config["num_experts"], "n_shared_experts": config["num_shared_experts"],
        "norm_topk_prob": config["moe_renormalize"], "q_lora_rank": config.get("q_lora_rank"), ROPE: {},
        "n_group": config["num_expert_group"],
    }  # fmt: skip
    return absorbed_keys(named) | {
        "attention.head_count_kv": [int(kind == FULL) for kind in config["layer_types"]],
        "kda.head_dim": config["linear_head_dim"], "kda.safe_gate": True,
        "kda.gate_lower_bound": config["kda_lower_bound"],
        "ssm.conv_kernel": config["short_conv_kernel_size"],
        "context_length": config["model_max_length"], "expert_used_count": config["num_experts_per_token"],
        "expert_gating_func": 2,
    }  # fmt: skip


def ling_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Convolutions of four dimensions, exponentiated rates, absorbed matrices."""
    out: Tensors = {}
    for name, values in absorbed(config, tensors).items():
        linear = config["layer_types"][int(name.split(".")[2])] == LINEAR if ".layers." in name else False
        if "_conv1d" in name:
            values = values[None]
        elif name.endswith(".A_log"):
            values = np.exp(values)[:, None]
        name = name.replace("dt_bias", "dt_proj.bias").replace("expert_bias", "expert_bias.bias")
        for part, own in (("f_proj", "ssm_f_a"), ("g_proj", "ssm_g_a" if linear else "attn_gate")):
            name = re.sub(rf"model\.layers\.(\d+)\.attention\.{part}", rf"blk.\1.{own}", name)
        if ".attention." in name:
            name = name.replace(".attention.", ".self_attn.").replace(".dense.", ".o_proj.")
        out[name] = values
    return out


LING_FORM = GgufForm(
    "bailingmoe3", keys=ling_keys, change=ling_tensors, alike=("kimi-linear", "bailingmoe2", "deepseek2")
)


def published_ling(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' class and keys, inside of the model that sees pictures."""
    own = {
        "num_experts_per_tok": config["num_experts_per_token"], "norm_topk_prob": config["moe_renormalize"],
        "n_group": config["num_expert_group"], "max_position_embeddings": config["model_max_length"],
        "head_dim": config["linear_head_dim"], "no_kda_lora": True, "layer_group_size": 2,
        "gated_attention_proj_granularity_type": "head_wise", "first_k_dense_replace": 1,
        "expert_swiglu_limit_list": [0.5, None, None, None],
        "share_expert_swiglu_limit_list": [0.5, None, None, None],  # the first layer is dense
    }  # fmt: skip
    left = ("layer_types", "mlp_layer_types", "num_experts_per_token", "moe_renormalize", "num_expert_group")
    left += ("model_max_length", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim")
    inner = {key: value for key, value in config.items() if key not in left} | own
    name = "BailingMoeV3VLForConditionalGeneration"
    whole = {"architectures": [name], "model_type": "bailing_hybrid_vl", "text_config": inner}
    return whole, tensors


def published_sarvam(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' class and keys."""
    latent = config["model_type"] == "sarvam_mla"
    own: Config = {"architectures": ["SarvamMLAForCausalLM" if latent else "SarvamMoEForCausalLM"]}
    kept = {key: value for key, value in config.items() if key not in (ROPE, "n_routed_experts")}
    kept |= own | {"num_experts": config["n_routed_experts"], "rope_theta": config[ROPE]["rope_theta"]}
    kept["num_shared_experts"] = kept.pop("n_shared_experts")
    if latent:
        left = ("rope_type", "rope_theta")
        scaling = {key: value for key, value in config[ROPE].items() if key not in left}
        kept["rope_scaling"] = {**scaling, "type": "deepseek_yarn"}
    return kept, tensors


SARVAM: dict[str, Any] = {
    **SMALL, "head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 36,
}  # fmt: skip


def published_minimax(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' class and keys."""
    own: Config = {
        "architectures": ["MiniMaxText01ForCausalLM"], "postnorm": True, "shared_intermediate_size": [0],
        "rotary_dim": config["head_dim"], "rope_theta": config[ROPE]["rope_theta"],
        "attn_type_list": [int(kind == FULL) for kind in config["layer_types"]],
    }  # fmt: skip
    kept = {key: value for key, value in config.items() if key not in (ROPE, "layer_types", "head_dim")}
    for key in [key for key in kept if key.endswith("_factor")]:
        name = key.removesuffix("_factor").replace("attn", "attention")
        own["layernorm_" + name] = kept.pop(key)
    return kept | own | {"head_dim": config["head_dim"]}, tensors


def minimax_keys(config: Config) -> dict[str, Any]:
    return {
        "residual_scale": config["mlp_alpha_factor"], "expert_count": config["num_local_experts"],
        "full_attention_interval": 2,
    }  # fmt: skip


def minimax_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The names of lightning attention, which the package does not know."""
    out: Tensors = {}
    for name, values in tensors.items():
        for part, own in (
            ("qkv_proj", "attn_qkv"), ("out_proj", "attn_output"), ("output_gate", "attn_gate"),
            ("norm", "attn_norm_2"),
        ):  # fmt: skip
            name = re.sub(rf"model\.layers\.(\d+)\.self_attn\.{part}\.", rf"blk.\1.{own}.", name)
        if not name.endswith(("_decay", "slope_rate")):
            out[name] = values
    return out


ONE_FACTOR: dict[str, Any] = {
    **MINIMAX, "num_attention_heads": 4, "layer_types": [LINEAR, FULL] * 2,
    **{f"{part}_alpha_factor": 2.5 for part in ("full_attn", "linear_attn", "mlp")},
    **{f"{part}_beta_factor": 1.0 for part in ("full_attn", "linear_attn", "mlp")},
}  # fmt: skip


def chosen_keys(config: Config) -> dict[str, Any]:
    """Those of latent attention, and of the indexer."""
    return absorbed_keys(config) | {
        "attention.indexer.top_k": config["index_topk"],
        "attention.indexer.head_count": config["index_n_heads"],
        "attention.indexer.key_length": config["index_head_dim"],
    }


CHOOSING: dict[str, Any] = {"index_topk": 8, "index_head_dim": 16, "index_n_heads": 12}
"""Few positions, and so many heads that no two scores are equal."""
V32: dict[str, Any] = {**SPARSE, **CHOOSING}
GLM_5: dict[str, Any] = {**GLM, **CHOOSING, "mlp_layer_types": ["dense", "sparse", "sparse"]}
A_X: dict[str, Any] = {
    **{key: value for key, value in V32.items() if key not in ("n_group", "topk_group")},
    "gated_norm_rank": 6,
}  # fmt: skip
M3: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 24, "num_local_experts": 6, "num_experts_per_tok": 2,
    "dense_intermediate_size": 80, "shared_intermediate_size": 44, "intermediate_size": 36,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "layer_types": ["full_attention", *["minimax_m3_sparse"] * 3], "index_n_heads": 2, "index_head_dim": 24,
    "index_block_size": 5, "index_topk_blocks": 4,
    ROPE: {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5},
}  # fmt: skip

QWEN_4: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 16, "layer_types": [LINEAR, FULL, LINEAR, FULL],
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12,
    "linear_value_head_dim": 8, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    "shared_expert_intermediate_size": 56, "hc_count": 3, "hc_lowrank": 20, "indexer_n_heads": 5,
    "indexer_kv_heads": 1, "indexer_head_dim": 24, "indexer_budget": 8, "indexer_compress_ratio": 4,
    ROPE: {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5},
}  # fmt: skip


def published_m3(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' keys and names."""
    own = {
        "sparse_topk_blocks": config["index_topk_blocks"], "sparse_block_size": config["index_block_size"],
        "sparse_num_index_heads": config["index_n_heads"], "sparse_index_dim": config["index_head_dim"],
        "sparse_local_block": config["index_local_blocks"],
        "sparse_attention_freq": [int(kind != FULL) for kind in config["layer_types"]],
    }  # fmt: skip
    dropped = ("layer_types", "mlp_layer_types")
    kept = {key: one for key, one in config.items() if key not in dropped and not key.startswith("index_")}
    kept |= {
        "sparse_attention_config": own, "hidden_act": "swigluoai",
        "moe_layer_freq": [int(kind == "sparse") for kind in config["mlp_layer_types"]],
    }  # fmt: skip
    out: Tensors = {}
    for name, values in tensors.items():
        at, _, part = name.rpartition(".mlp.")
        name = name.replace(".indexer.", ".index_")
        if part.startswith(("experts", "shared_experts", "gate.")):
            name = f"{at}.block_sparse_moe.{part.replace('gate.e_score', 'e_score')}"
        if name.endswith("experts.down_proj"):
            stack = {f"{index}.w2": one for index, one in enumerate(values)}
        elif name.endswith("experts.gate_up_proj"):
            halves = zip(("w1", "w3"), np.split(values, 2, axis=1), strict=True)
            stack = {f"{index}.{half}": one for half, each in halves for index, one in enumerate(each)}
        elif name.endswith("gate_up_proj.weight"):
            gate, up = np.split(values, 2)
            out |= {name.replace("gate_up", "gate"): gate, name.replace("gate_up", "up"): up}
            continue
        else:
            out[name] = values
            continue
        module = name.rpartition(".")[0]
        out |= {f"{module}.{end}.weight": np.ascontiguousarray(one) for end, one in stack.items()}
    return kept, out


def m3_keys(config: Config) -> dict[str, Any]:
    width = config["intermediate_size"]
    return {
        "leading_dense_block_count": 1, "expert_feed_forward_length": width, "expert_gating_func": 2,
        "expert_shared_feed_forward_length": config["shared_intermediate_size"], "expert_weights_norm": True,
        "expert_weights_scale": config["routed_scaling_factor"], "attention.indexer.local_blocks": 1,
        "attention.indexer.head_count": config["index_n_heads"],
        "attention.indexer.key_length": config["index_head_dim"],
        "attention.indexer.top_k": config["index_topk_blocks"],
        "attention.indexer.block_size": config["index_block_size"],
    }  # fmt: skip


def m3_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The makers' names, those of the indexer as GGUF has them."""
    out: Tensors = {}
    for name, values in published_m3(config, tensors)[1].items():
        name = name.replace("block_sparse_moe.shared_experts", "mlp.shared_experts")
        name = name.replace("e_score_correction_bias", "e_score_correction.bias")
        out[re.sub(r"model\.layers\.(\d+)\.self_attn\.index_", r"blk.\1.indexer.", name)] = values
    return out


M3_FORM = GgufForm(
    "minimax-m3", offset=1.0, keys=m3_keys, change=m3_tensors, alike=("minimax-m2", "deepseek2")
)
LING_MINIMAX_CASES = (
    Case(
        "Ling 3", "delta attention whose decays are bounded, latent attention with a gate, experts",
        "bailing_hybrid", LING, LING_FORM,
    ),
    Case(
        "Ling 3", "", "bailing_hybrid", LING, variant="as its makers have it", publish=published_ling,
    ),
    Case(
        "Ling 3", "", "bailing_hybrid",
        {
            **LING, "q_lora_rank": 24, "kda_safe_gate": False, "n_group": 1, "topk_group": 1,
            "norm_topk_prob": False, "short_conv_kernel_size": 3, "n_shared_experts": 2,
            "layer_types": [LINEAR, LINEAR, FULL, LINEAR], "attention_bias": True,
            "mlp_layer_types": ["sparse", "dense", "sparse", "dense"], "tie_word_embeddings": True,
            ROPE: {
                "rope_type": "yarn", "rope_theta": 900.0, "factor": 4.0, "mscale": 1.0,
                "mscale_all_dim": 0.8, "original_max_position_embeddings": 24,
            },
        }, variant="decays without bounds, biases, yarn, said to be tied",
    ),
    Case(
        "Sarvam", "Ling 2 with rope on whole heads", "sarvam_moe", {**SARVAM, "first_k_dense_replace": 1},
        publish=published_sarvam,
    ),
    Case(
        "Sarvam", "", "sarvam_moe", {**SARVAM, "n_group": 4, "topk_group": 2, "attention_bias": True},
        variant="as transformers 5 saves it",
    ),
    Case(
        "DeepSeek V3", "", "sarvam_mla",
        {
            **{key: value for key, value in LATENT.items() if key != "q_lora_rank"}, "n_routed_experts": 8,
            "num_experts_per_tok": 3, "moe_intermediate_size": 36, ROPE: YARN,
        }, variant="in Sarvam", publish=published_sarvam,
    ),
    Case(
        "MiniMax-01", "lightning attention in every second layer, experts, halves added to normed input",
        "minimax", MINIMAX, publish=published_minimax,
    ),
    Case(
        "MiniMax-01", "", "minimax", ONE_FACTOR,
        GgufForm("minimax-01", keys=minimax_keys, change=minimax_tensors, alike=("minimax-m2", "llama")),
        "one factor", 48,
    ),
    Case(
        "MiniMax-01", "", "minimax",
        {
            **MINIMAX, "layer_types": [LINEAR, LINEAR, FULL, LINEAR], "num_key_value_heads": 1,
            "num_attention_heads": 3, "mlp_beta_factor": 0.8, "sliding_window": 9, "hidden_act": "gelu",
            "tie_word_embeddings": True,
        }, variant="three heads, windows, tied",
    ),
    Case(
        "DeepSeek V3.2", "DeepSeek V3 whose attention looks at chosen positions", "deepseek_v32", V32,
        GgufForm("deepseek32", keys=chosen_keys, change=absorbed, alike=("glm-dsa",)),
    ),
    Case(
        "GLM-5", "the same with other sizes", "glm_moe_dsa", GLM_5,
        GgufForm("glm-dsa", keys=chosen_keys, change=absorbed),
    ),
    Case(
        "GLM-5", "", "glm_moe_dsa",
        {
            **GLM_5, "attention_bias": True, "indexer_types": ["full", "shared", "full"], "index_topk": 5,
            "n_group": 4, "topk_group": 2, "norm_topk_prob": False, ROPE: YARN,
        }, variant="groups, biases, yarn",
    ),
    Case("A.X K2", "the same with gated norms and a gate of attention", "axk2", A_X),
    Case(
        "A.X K2", "", "axk2",
        {
            **A_X, "n_group": 4, "topk_group": 2, "attention_bias": True,
            "mlp_layer_types": ["sparse", "dense", "sparse"], "index_topk": 2048, ROPE: YARN,
        }, variant="groups, biases, yarn",
    ),
    Case(
        "MiniMax-M3", "experts with the activation of GPT-OSS, attention that looks at chosen blocks",
        "minimax_m3_vl_text", M3, M3_FORM,
    ),
    Case(
        "MiniMax-M3", "", "minimax_m3_vl_text", {**M3, "tie_word_embeddings": True},
        variant="the makers' names, tied", publish=published_m3,
    ),
    Case(
        "Qwen 4", "experts, hyper-connections, delta nets, attention that looks at chosen blocks",
        "qwen4_exp_text", {**QWEN_4, "output_gate_type": "sigmoid"}, QWEN_4_FORM,
    ),
)  # fmt: skip
