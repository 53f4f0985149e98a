"""GPT-Neo, CodeGen, BioGPT, XGLM, Persimmon, nanochat, DBRX, the first DeepSeek mixture and that of
Cohere 2.
"""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ABSENT, ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.expert_routing import from_granite
from tests.engine.models.gguf_form import GgufForm

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
OUTER = {"vocab_size": 307, "bos_token_id": 0, "eos_token_id": 2}
NEO: dict[str, Any] = {
    **OUTER, "hidden_size": 64, "num_layers": 4, "num_heads": 4, "max_position_embeddings": 512,
    "attention_types": [[["global", "local"], 2]], "window_size": 9,
}  # fmt: skip
CODEGEN: dict[str, Any] = {
    **OUTER, "n_embd": 64, "n_layer": 3, "n_head": 8, "n_positions": 512, "n_ctx": 512, "rotary_dim": 6,
}  # fmt: skip
XGLM: dict[str, Any] = {
    **OUTER, "d_model": 64, "ffn_dim": 96, "num_layers": 3, "attention_heads": 4,
    "max_position_embeddings": 512,
}  # fmt: skip
COHERE: dict[str, Any] = {
    **SMALL, "head_dim": 24, "num_hidden_layers": 6, "intermediate_size": 40, "sliding_window": 9,
    "num_experts": 5, "num_experts_per_tok": 2, "num_shared_experts": 2, "first_k_dense_replace": 1,
    "prefix_dense_intermediate_size": 96, "logit_scale": 0.7, "expert_selection_fn": "sigmoid", ROPE: PLAIN,
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    **SMALL, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 40,
    "shared_intermediate_size": 80, "attention_multiplier": 0.25, ROPE: PLAIN,
}  # fmt: skip


def deepseek(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' folder, from Granite 3 without its multipliers, which divides the chosen weights by their
    sum.
    """
    own = {
        "architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "norm_topk_prob": True,
        "n_routed_experts": config["num_local_experts"], "n_shared_experts": 2, "rope_theta": 700.0,
        "moe_intermediate_size": config["intermediate_size"], "first_k_dense_replace": 0,
    }  # fmt: skip
    kept = {key: value for key, value in config.items() if key not in ("num_local_experts", ROPE)}
    return kept | own, from_granite(tensors)


def deepseek_keys(config: Config) -> dict[str, Any]:
    """The converter does not write whether weights are divided by their sum, which no such model does."""
    keys = {
        "leading_dense_block_count": config["first_k_dense_replace"], "expert_weights_scale": 1.0,
        "expert_count": config["n_routed_experts"], "expert_shared_count": config["n_shared_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"], "rope.freq_base": config["rope_theta"],
    }  # fmt: skip
    return keys | ({"expert_weights_norm": True} if config["norm_topk_prob"] else {})


def cohere_keys(config: Config) -> dict[str, Any]:
    return {
        "logit_scale": config["logit_scale"], "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": [
            kind == "sliding_attention" for kind in config["layer_types"]
        ],
        "expert_feed_forward_length": config["intermediate_size"], "leading_dense_block_count": 1,
        "expert_weights_norm": config["norm_topk_prob"],
        "expert_shared_count": config["num_shared_experts"],
        "expert_shared_feed_forward_length": config["intermediate_size"] * config["num_shared_experts"],
        "feed_forward_length": config["prefix_dense_intermediate_size"],
    }  # fmt: skip


def dbrx_keys(config: Config) -> dict[str, Any]:
    attention, own = config["attn_config"], config["ffn_config"]
    return {
        "attention.clamp_kqv": attention["clip_qkv"], "attention.head_count_kv": attention["kv_n_heads"],
        "feed_forward_length": own["ffn_hidden_size"], "expert_count": own["moe_num_experts"],
        "expert_used_count": own["moe_top_k"], "attention.layer_norm_epsilon": 1e-5,
    }  # fmt: skip


def dbrx_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Stacks of three dimensions, the last ones transposed."""
    count, out = config["ffn_config"]["moe_num_experts"], dict(tensors)
    for name in [name for name in tensors if ".experts.mlp." in name]:
        stack = out.pop(name).reshape(count, -1, config["d_model"])
        out[name + ".weight"] = stack.swapaxes(1, 2) if name.endswith("w2") else stack
    return out


DBRX: dict[str, Any] = {
    "vocab_size": 307, "d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 512, "bos_token_id": 0,
    "eos_token_id": 2, "attn_config": {"kv_n_heads": 2, "clip_qkv": 1.1, "rope_theta": 700.0},
    "ffn_config": {"ffn_hidden_size": 40, "moe_num_experts": 5, "moe_top_k": 2}, ROPE: PLAIN,
}  # fmt: skip
COHERE_FORM = GgufForm("cohere2moe", keys=cohere_keys, alike=("cohere2", "qwen2moe", "deepseek"))

GPT_NEO_CODEGEN_CASES = (
    Case("GPT-Neo", "windows in every other layer, scores without a scale", "gpt_neo", NEO),
    Case(
        "GPT-Neo", "", "gpt_neo",
        {
            **NEO, "attention_types": [[["global"], 4]], "intermediate_size": 96,
            "activation_function": "relu", "tie_word_embeddings": False,
        },
        variant="no windows, untied",
    ),
    Case("CodeGen", "GPT-J with one matrix in four parts", "codegen", CODEGEN),
    Case("CodeGen", "", "codegen", {**CODEGEN, "n_inner": 96, "n_head": 4}, variant="own width"),
    Case(
        "BioGPT", "OPT with scaled embeddings", "biogpt",
        {key: value for key, value in SMALL.items() if key != "num_key_value_heads"},
    ),
    Case("XGLM", "BioGPT with sines and cosines as positions", "xglm", XGLM),
    Case("XGLM", "", "xglm", {**XGLM, "scale_embedding": False, "d_model": 36}, variant="not scaled"),
    Case("Persimmon", "layer norms of queries and keys, rope on a half of each head", "persimmon",
         {**SMALL, ROPE: {**PLAIN, "partial_rotary_factor": 0.5}}),
    Case(
        "Persimmon", "", "persimmon",
        {
            **SMALL, "qk_layernorm": False, "hidden_act": "gelu",
            ROPE: {**PLAIN, "partial_rotary_factor": 0.25},
        },
        variant="no qk norm",
    ),
    Case(
        "nanochat", "norms without weights, also of embeddings, rope by negative angles", "nanochat",
        {**SMALL, ROPE: PLAIN},
    ),
    Case(
        "nanochat", "", "nanochat",
        {**SMALL, ROPE: PLAIN, "attention_bias": True, "final_logit_softcapping": None},
        variant="biases, no cap",
    ),
    Case(
        "DeepSeek 1", "experts and shared ones beside Llama's attention", "granitemoeshared", DEEPSEEK,
        GgufForm("deepseek", interleaved=True, keys=deepseek_keys), publish=deepseek,
    ),
    Case(
        "DBRX", "experts, layer norms, queries, keys and values of a limited size", "dbrx", DBRX,
        GgufForm("dbrx", keys=dbrx_keys, change=dbrx_tensors), older={ROPE: ABSENT},
    ),
    Case(
        "DBRX", "", "dbrx",
        {
            **DBRX, "attn_config": {"kv_n_heads": 4, "rope_theta": 700.0, "clip_qkv": 9.0},
            "ffn_config": {**DBRX["ffn_config"], "moe_normalize_expert_weights": None},
        },
        variant="a wider limit, weights as they are",
    ),
    Case(
        "Cohere 2 mixture of experts", "the mean of experts and a shared one, a dense first layer",
        "cohere2_moe", COHERE, COHERE_FORM,
    ),
    Case(
        "Cohere 2 mixture of experts", "", "cohere2_moe",
        {
            **COHERE, "rms_norm_eps": 1e-5, "expert_selection_fn": "softmax", "attention_bias": True,
            "shared_expert_combination_strategy": "sum", "prefix_dense_sliding_window_pattern": 2,
            "first_k_dense_replace": 2, "sliding_window_pattern": 3, "tie_word_embeddings": False,
        },
        variant="RMS norms, softmax, sums",
    ),
    Case(
        "Cohere 2 mixture of experts", "", "cohere2_moe",
        {**COHERE, "num_shared_experts": 0, "norm_topk_prob": False, "first_k_dense_replace": 0},
        variant="no shared expert, weights as they are",
    ),
)  # fmt: skip
