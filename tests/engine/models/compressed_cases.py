"""Models of which several streams of rows are mixed: DeepSeek V4 and GLM-5 next."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.late_cases import LINEAR

SLIDING, CHOSEN, WHOLE, INDEXED = (
    "sliding_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
    "indexed_attention",
)
_DROPPED = ("intermediate_size", "num_key_value_heads")
V4: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key not in _DROPPED}, "num_hidden_layers": 4,
    "head_dim": 32, "partial_rotary_factor": 0.25, "q_lora_rank": 24, "o_groups": 2, "o_lora_rank": 20,
    "moe_intermediate_size": 36, "n_routed_experts": 6, "num_experts_per_tok": 2, "hc_mult": 3,
    "index_n_heads": 12, "index_head_dim": 24, "index_topk": 3, "sliding_window": 9, "swiglu_limit": 0.7,
    "layer_types": [SLIDING, CHOSEN, WHOLE, CHOSEN], "compress_rates": {CHOSEN: 4, WHOLE: 7},
    "mlp_layer_types": ["hash_moe", "moe", "hash_moe", "moe"],
}  # fmt: skip
YARN: dict[str, Any] = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "beta_fast": 4.0,
}  # fmt: skip
V4_SCALED: dict[str, Any] = {
    **V4, "layer_types": [WHOLE, SLIDING, CHOSEN], "num_hidden_layers": 3, "hc_mult": 4, "hc_eps": 0.02,
    "hc_sinkhorn_iters": 3, "partial_rotary_factor": 1.0, "scoring_func": "sigmoid", "rms_norm_eps": 1e-3,
    "routed_scaling_factor": 2.0, "o_groups": 4, "index_topk": 300, "index_head_dim": 32,
    "compress_rates": {CHOSEN: 4, WHOLE: 128}, "mlp_layer_types": ["hash_moe", "hash_moe", "moe"],
    "rope_theta": 500.0, "compress_rope_theta": 900.0, "tie_word_embeddings": True, ROPE: YARN,
}  # fmt: skip

GLM: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 20,
    "qk_nope_head_dim": 16, "v_head_dim": 12, "moe_intermediate_size": 36, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "index_n_heads": 12, "index_head_dim": 16, "index_topk": 12, "index_kpool": 4,
    "hc_mult": 3, "linear_head_dim": 12, "linear_num_heads": 3, "swiglu_limit": 0.7,
    "layer_types": [LINEAR, INDEXED, INDEXED, LINEAR], "indexer_types": ["full", "full", "shared", "full"],
    "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
}  # fmt: skip
GLM_VISION: dict[str, Any] = {
    "depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64,
    "projection_intermediate_size": 32,
}  # fmt: skip


def as_made(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' names and keys of DeepSeek V4, as far as they differ from what transformers saves."""
    own = {
        "compress_ratios": [{SLIDING: 0, CHOSEN: 4, WHOLE: 128}[kind] for kind in config["layer_types"]],
        "num_hash_layers": 2, "qk_rope_head_dim": config["head_dim"],
        "rope_scaling": {{"rope_type": "type"}.get(key, key): value for key, value in YARN.items()},
    }  # fmt: skip
    dropped = ("layer_types", "compress_rates", "mlp_layer_types", "partial_rotary_factor", ROPE)
    out: Tensors = {}
    for name, values in tensors.items():
        name = name.removeprefix("model.").replace("hc_head.hc_", "hc_head_")
        out[name.replace("embed_tokens", "embed").replace(".attn.norm.", ".attn.kv_norm.")] = values
    return {key: value for key, value in config.items() if key not in dropped} | own, out


def in_memory(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """DeepSeek V4 under transformers' names instead of those that it saves."""
    names = {
        ".attn.indexer.compressor.": ".attn.compressor.indexer.", "head.weight": "lm_head.weight",
        ".attn.indexer.weights_proj": ".attn.compressor.indexer.scorer.weights_proj",
        ".attn.indexer.wq_b": ".attn.compressor.indexer.q_b_proj", ".attn_norm.": ".input_layernorm.",
        ".ffn_norm.": ".post_attention_layernorm.", ".hc_attn_": ".attn_hc.", ".hc_ffn_": ".ffn_hc.",
        ".norm.": ".kv_norm.", ".attn.": ".self_attn.", ".ffn.": ".mlp.", ".attn_sink": ".sinks",
        ".ape": ".position_bias", ".wq_a.": ".q_a_proj.", ".wq_b.": ".q_b_proj.", ".wkv.": ".kv_proj.",
        ".wgate.": ".gate_proj.", ".wo_a.": ".o_a_proj.", ".wo_b.": ".o_b_proj.", ".q_norm.": ".q_a_norm.",
        ".gate.bias": ".gate.e_score_correction_bias", ".w1.": ".gate_proj.", ".w2.": ".down_proj.",
        ".w3.": ".up_proj.",
    }  # fmt: skip
    out: Tensors = {}
    for name, values in tensors.items():
        for old, new in names.items():
            if name.startswith("model.layers.") or old == name:
                name = name.replace(old, new)
        out[name] = values
    return config, out


COMPRESSED_CASES = (
    Case(
        "DeepSeek V4",
        "attention to a window and keys of blocks, experts by token, mixed hyper-connections",
        "deepseek_v4", V4, gpu=False,
    ),
    Case(
        "DeepSeek V4", "", "deepseek_v4", V4_SCALED, variant="the makers' names, yarn, tied", length=150,
        publish=as_made, gpu=False,
    ),
    Case(
        "DeepSeek V4", "", "deepseek_v4",
        {
            **V4, "layer_types": [SLIDING, SLIDING, WHOLE, SLIDING],
            "mlp_layer_types": ["moe"] * 4, "hc_sinkhorn_iters": 1, "sliding_window": 100, "hc_mult": 2,
        }, variant="transformers' names, no choice", publish=in_memory, gpu=False,
    ),
    Case(
        "GLM-5 next",
        "mixed hyper-connections, Kimi's delta attention, attention without rope to chosen blocks",
        "glm5_next", {"text_config": GLM, "vision_config": GLM_VISION}, gpu=False,
    ),
    Case(
        "GLM-5 next", "", "glm5_next",
        {
            "text_config": {
                **GLM, "attention_bias": True, "n_group": 3, "topk_group": 2, "norm_topk_prob": False,
                "routed_scaling_factor": 1.7, "index_kpool": 1, "index_topk": 5, "hc_mult": 2,
                "linear_lower_bound": None, "linear_conv_kernel_dim": 3, "n_shared_experts": 2,
                "layer_types": [INDEXED, LINEAR, INDEXED, INDEXED], "rms_norm_eps": 1e-3, "hc_eps": 0.02,
                "indexer_types": ["full", "full", "full", "shared"], "hc_sinkhorn_iters": 3,
                "mlp_layer_types": ["sparse", "dense", "sparse", "dense"],
            },
            "vision_config": GLM_VISION,
        }, variant="groups, biases, decays without bounds", gpu=False,
    ),
)  # fmt: skip
