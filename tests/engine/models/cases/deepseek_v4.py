"""Models of which several streams of rows are mixed: DeepSeek V4 and GLM-5 next."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.latent_attention import absorbed
from tests.engine.models.cases.ling_minimax import LINEAR
from tests.engine.models.gguf_form import GgufForm, stacked_experts

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


_GGUF_PARTS = {
    "attn.wq_a": "attn_q_a",
    "attn.wq_b": "attn_q_b",
    "attn.q_norm": "attn_q_a_norm",
    "attn.wkv": "attn_kv",
    "attn.kv_norm": "attn_kv_a_norm",
    "attn.wo_a": "attn_output_a",
    "attn.wo_b": "attn_output_b",
    "attn.attn_sink": "attn_sinks.weight",
    "attn.compressor.wkv": "attn_compressor_kv",
    "attn.compressor.wgate": "attn_compressor_gate",
    "attn.compressor.ape": "attn_compressor_ape.weight",
    "attn.compressor.norm": "attn_compressor_norm",
    "attn.indexer.wq_b": "indexer.attn_q_b",
    "attn.indexer.weights_proj": "indexer.proj",
    "attn.indexer.compressor.wkv": "indexer_compressor_kv",
    "attn.indexer.compressor.wgate": "indexer_compressor_gate",
    "attn.indexer.compressor.ape": "indexer_compressor_ape.weight",
    "attn.indexer.compressor.norm": "indexer_compressor_norm",
    "ffn.gate.bias": "exp_probs_b.bias",
    "ffn.gate.tid2eid": "ffn_gate_tid2eid.weight",
    "ffn.gate": "ffn_gate_inp",
    "ffn.experts.w1": "ffn_gate_exps",
    "ffn.experts.w2": "ffn_down_exps",
    "ffn.experts.w3": "ffn_up_exps",
    "ffn.shared_experts.w1": "ffn_gate_shexp",
    "ffn.shared_experts.w2": "ffn_down_shexp",
    "ffn.shared_experts.w3": "ffn_up_shexp",
    **{
        f"hc_{part}_{end}": f"hc_{part}_{end}.weight"
        for part in ("attn", "ffn")
        for end in ("fn", "base", "scale")
    },
}
_GGUF_OUTER = {
    "embed": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "hc_head_fn": "output_hc_fn.weight",
    "hc_head_base": "output_hc_base.weight",
    "hc_head_scale": "output_hc_scale.weight",
}


def gguf_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The makers' names of DeepSeek V4 as llama.cpp's converter renames them."""
    out: Tensors = {}
    for name, values in stacked_experts(tensors).items():
        layer = re.match(r"layers\.(\d+)\.", name)
        rest = name[layer.end() :] if layer else name
        bare = rest.removesuffix(".weight")
        found = (_GGUF_PARTS if layer else _GGUF_OUTER).get(bare, bare)
        end = ".weight" if bare != rest else ""
        out[(f"blk.{layer[1]}." if layer else "") + found + end] = values
    return out


def gguf_keys(config: Config) -> Config:
    """llama.cpp's keys of DeepSeek V4."""
    names = {
        "attention.q_lora_rank": "q_lora_rank", "attention.output_lora_rank": "o_lora_rank",
        "attention.output_group_count": "o_groups", "attention.compress_ratios": "compress_ratios",
        "rope.dimension_count": "qk_rope_head_dim", "attention.sliding_window": "sliding_window",
        "expert_feed_forward_length": "moe_intermediate_size", "expert_count": "n_routed_experts",
        "hash_layer_count": "num_hash_layers", "attention.indexer.head_count": "index_n_heads",
        "attention.indexer.key_length": "index_head_dim", "attention.indexer.top_k": "index_topk",
        "hyper_connection.count": "hc_mult", "hyper_connection.sinkhorn_iterations": "hc_sinkhorn_iters",
    }  # fmt: skip
    layers, scaling = config["num_hidden_layers"], config["rope_scaling"]
    return {key: config[name] for key, name in names.items()} | {
        "rope.freq_base": float(config["rope_theta"]), "hyper_connection.epsilon": float(config["hc_eps"]),
        "attention.compress_rope_freq_base": float(config["compress_rope_theta"]),
        "expert_weights_scale": float(config["routed_scaling_factor"]), "expert_shared_count": 1,
        "expert_gating_func": {"sigmoid": 2, "sqrtsoftplus": 4}[config["scoring_func"]],
        "expert_weights_norm": True, "swiglu_clamp_exp": [float(config["swiglu_limit"])] * layers,
        "nextn_predict_layers": 1, "rope.scaling.type": "yarn",
        "rope.scaling.factor": float(scaling["factor"]),
        "rope.scaling.original_context_length": scaling["original_max_position_embeddings"],
        "rope.scaling.yarn_beta_fast": float(scaling["beta_fast"]),
    }  # fmt: skip


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


GLM_AS_GGUF: dict[str, Any] = {
    **GLM, "linear_num_heads": 4, "hc_mult": 4, "mlp_layer_types": ["dense", *["sparse"] * 3],
    "n_shared_experts": 2,
}  # fmt: skip


def glm_keys(config: Config) -> dict[str, Any]:
    rank, layers = config["kv_lora_rank"], config["num_hidden_layers"]
    return {
        "attention.head_count_kv": [int(kind != LINEAR) for kind in config["layer_types"]],
        "attention.layer_norm_epsilon": 1e-6, "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "kda.head_dim": config["linear_head_dim"], "kda.gate_lower_bound": config["linear_lower_bound"],
        "attention.q_lora_rank": config["q_lora_rank"], "attention.kv_lora_rank": rank,
        "rope.dimension_count": 0, "attention.key_length": rank, "attention.value_length": rank,
        "attention.key_length_mla": config["qk_nope_head_dim"],
        "attention.value_length_mla": config["v_head_dim"],
        "attention.indexer.head_count": config["index_n_heads"],
        "attention.indexer.key_length": config["index_head_dim"],
        "attention.indexer.top_k": config["index_topk"], "attention.indexer.kpool": config["index_kpool"],
        "attention.indexer.kpool_select_tail": True,
        "attention.indexer.types": [kind == "full" for kind in config["indexer_types"]],
        "hyper_connection.count": config["hc_mult"], "hyper_connection.epsilon": config["hc_eps"],
        "hyper_connection.sinkhorn_iterations": config["hc_sinkhorn_iters"],
        "leading_dense_block_count": 1, "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_count": config["n_routed_experts"], "expert_shared_count": config["n_shared_experts"],
        "expert_weights_scale": config["routed_scaling_factor"],
        "expert_weights_norm": config["norm_topk_prob"],
        "swiglu_clamp_exp": [config["swiglu_limit"]] * layers,
        "swiglu_clamp_shexp": [config["swiglu_limit"]] * layers,
    }  # fmt: skip


def glm_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The tensors of GLM-5 next under the names of GGUF where these are its own."""
    own = {
        "hc_attn_fn": "hc_attn_fn", "hc_attn_base": "hc_attn_base", "hc_attn_scale": "hc_attn_scale",
        "hc_ffn_fn": "hc_ffn_fn", "hc_ffn_base": "hc_ffn_base", "hc_ffn_scale": "hc_ffn_scale",
        "self_attn.indexer.index_kpool_compress_gate": "indexer_compressor_gate",
        "self_attn.indexer.index_kpool_compress_ape": "indexer_compressor_ape",
        "self_attn.indexer.wq_b.weight": "indexer.attn_q_b", "self_attn.indexer.wk.weight": "indexer.attn_k",
        "self_attn.indexer.k_norm.weight": "indexer.k_norm",
        "self_attn.indexer.weights_proj.weight": "indexer.proj",
    }  # fmt: skip
    out: Tensors = {}
    for name, values in absorbed(config, tensors).items():
        match = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
        part = match[2] if match else ""
        if match and part in own:
            out[f"blk.{match[1]}.{own[part]}.weight"] = values
        elif match and part == "self_attn.indexer.k_norm.bias":
            out[f"blk.{match[1]}.indexer.k_norm.bias"] = values
        elif "_conv1d" in name:
            out[name] = values[None]
        elif name.endswith(".A_log"):
            out[name] = -np.exp(values.reshape(-1))
        else:
            out[name.replace("dt_bias", "dt_proj.bias")] = values
    return out


DEEPSEEK_V4_CASES = (
    Case(
        "DeepSeek V4",
        "attention to a window and keys of blocks, experts by token, mixed hyper-connections",
        "deepseek_v4", V4,
    ),
    Case(
        "DeepSeek V4", "", "deepseek_v4", V4_SCALED, variant="the makers' names, yarn, tied", length=150,
        publish=as_made,
        gguf=GgufForm("deepseek4", alike=("deepseek2",), keys=gguf_keys, change=gguf_tensors),
    ),
    Case(
        "DeepSeek V4", "", "deepseek_v4",
        {
            **V4, "layer_types": [SLIDING, SLIDING, WHOLE, SLIDING],
            "mlp_layer_types": ["moe"] * 4, "hc_sinkhorn_iters": 1, "sliding_window": 100, "hc_mult": 2,
            "mlp_bias": True,
        }, variant="transformers' names, no choice", publish=in_memory,
    ),
    Case(
        "GLM-5 next",
        "mixed hyper-connections, Kimi's delta attention, attention without rope to chosen blocks",
        "glm5_next", {"text_config": GLM, "vision_config": GLM_VISION},
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
        }, variant="groups, biases, decays without bounds",
    ),
    Case(
        "GLM-5 next", "", "glm5_next", {"text_config": GLM_AS_GGUF, "vision_config": GLM_VISION},
        GgufForm("glm5-next", keys=glm_keys, change=glm_tensors, alike=("kimi-linear",)),
        variant="sizes of GGUF files",
    ),
)  # fmt: skip
