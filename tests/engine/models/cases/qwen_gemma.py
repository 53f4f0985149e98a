"""Qwen, Gemma and GPT-OSS."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ABSENT, SMALL, Case, Config, Tensors
from tests.engine.models.gguf_form import GgufForm

SMALL_GEMMA = {**SMALL, "head_dim": 24, "tie_word_embeddings": True, "pad_token_id": 0}
WINDOWED: dict[str, Any] = {"sliding_window": 9, "use_sliding_window": True}
PATTERN_3 = {"layer_types": ABSENT, "sliding_window_pattern": 3}


def gemma_rope(config: Config) -> Config:
    """Both tables under transformers 4's names."""
    full, local = config["rope_parameters"]["full_attention"], config["rope_parameters"]["sliding_attention"]
    scaling = (
        None if full["rope_type"] == "default" else {"rope_type": full["rope_type"], "factor": full["factor"]}
    )
    bases = {"rope_theta": full["rope_theta"], "rope_local_base_freq": local["rope_theta"]}
    return {"rope_parameters": ABSENT, "rope_scaling": scaling, **bases}


def gemma_2_keys(config: Config) -> dict[str, Any]:
    return {
        "attention.sliding_window": config["sliding_window"],
        "attn_logit_softcapping": config["attn_logit_softcapping"],
        "final_logit_softcapping": config["final_logit_softcapping"],
    }  # fmt: skip


def gemma_3_keys(config: Config) -> dict[str, Any]:
    """The converter leaves out the pattern, since readers know that it is 6."""
    full, local = config["rope_parameters"]["full_attention"], config["rope_parameters"]["sliding_attention"]
    keys = {"rope.freq_base": full["rope_theta"], "attention.sliding_window": config["sliding_window"]}
    if local["rope_theta"] != 10000.0:
        keys["rope.freq_base_swa"] = local["rope_theta"]
    if full["rope_type"] == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": full["factor"]}
    return keys


def gemma_3_rope(local: float = 10000.0, **scaling: Any) -> dict[str, Any]:
    """Low bases, so that the two tables differ visibly."""
    full = {"rope_theta": 700.0, "rope_type": "default", **scaling}
    return {"full_attention": full, "sliding_attention": {"rope_theta": local, "rope_type": "default"}}


GEMMA_3_SETTINGS = {
    **SMALL_GEMMA,
    "num_hidden_layers": 7,
    "sliding_window": 9,
    "rope_parameters": gemma_3_rope(),
}
GEMMA_3_FORM = GgufForm("gemma3", offset=1.0, keys=gemma_3_keys)


def older_gemma_3(settings: dict[str, Any]) -> dict[str, Any]:
    return gemma_rope(settings) | {"layer_types": ABSENT}


def qwen_moe_keys(config: Config) -> dict[str, Any]:
    return {"expert_feed_forward_length": config["moe_intermediate_size"]}


def gpt_oss_keys(config: Config) -> dict[str, Any]:
    return {
        "attention.sliding_window": config["sliding_window"],
        "expert_feed_forward_length": config["intermediate_size"],
    }


def gpt_oss_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Gate and up are split, and stacks are (X, N, K)."""
    out: Tensors = {}
    for name, values in tensors.items():
        stem, bias = name.removesuffix("_bias"), name.endswith("_bias")
        end = ".bias" if bias else ".weight"
        if stem.endswith("experts.gate_up_proj"):
            values = values if bias else values.swapaxes(1, 2)
            out[stem.replace("gate_up", "gate") + end], out[stem.replace("gate_up", "up") + end] = (
                values[:, ::2],
                values[:, 1::2],
            )
        elif stem.endswith("experts.down_proj"):
            out[stem + end] = values if bias else values.swapaxes(1, 2)
        else:
            out[name + ".weight" if name.endswith("sinks") else name] = values
    return {name: np.ascontiguousarray(values) for name, values in out.items()}


QWEN_3_MOE = {
    **SMALL, "head_dim": 24, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    "norm_topk_prob": True,
}  # fmt: skip
GPT_OSS = {
    **SMALL, "head_dim": 16, "num_hidden_layers": 4, "num_local_experts": 5, "num_experts_per_tok": 3,
    "sliding_window": 9,
    "max_position_embeddings": 80,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 32.0,
    "beta_slow": 1.0, "truncate": False,
                        "original_max_position_embeddings": 20},
}  # fmt: skip

QWEN_GEMMA_CASES = (
    Case("Qwen 2 and 2.5", "biases on queries, keys and values", "qwen2", SMALL, GgufForm("qwen2")),
    Case("Qwen 2 and 2.5", "", "qwen2", {**SMALL, **WINDOWED, "max_window_layers": 1,
    "tie_word_embeddings": True, "num_attention_heads": 6}, None,  # six heads of ten dimensions
         "a window from layer 1 on", older={"layer_types": ABSENT}),
    Case("Qwen 3", "norms of queries and keys", "qwen3", {**SMALL, "head_dim": 24}, GgufForm("qwen3")),
    Case("Qwen 3", "", "qwen3", {**SMALL, **WINDOWED, "head_dim": 24, "max_window_layers": 2,
    "attention_bias": True,
         "rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0,
         "original_max_position_embeddings": 20}},
         None, "yarn, biases and a window", older={"layer_types": ABSENT}),
    Case("Qwen 3 mixture of experts", "2 of 5 experts", "qwen3_moe", QWEN_3_MOE,
    GgufForm("qwen3moe", keys=qwen_moe_keys)),
    Case("Qwen 3 mixture of experts", "", "qwen3_moe", {**QWEN_3_MOE, **WINDOWED, "num_hidden_layers": 5,
    "decoder_sparse_step": 2,
         "mlp_only_layers": [3], "norm_topk_prob": False}, None,
         "some layers without experts, weights as they come, a window"),
    Case("Gemma", "norms of 1 + weight, scaled embeddings", "gemma", SMALL_GEMMA,
    GgufForm("gemma", offset=1.0)),
    Case("Gemma 2", "soft caps, four norms, a window in every second layer", "gemma2",
         {**SMALL_GEMMA, "sliding_window": 9, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0,
         "query_pre_attn_scalar": 24},
         GgufForm("gemma2", offset=1.0, keys=gemma_2_keys), older={"layer_types": ABSENT}),
    Case("Gemma 2", "", "gemma2", {**SMALL_GEMMA, "sliding_window": 9, "attn_logit_softcapping": None,
    "query_pre_attn_scalar": 17,
         "layer_types": ["full_attention", "full_attention", "sliding_attention"]}, None,
         "another scale and pattern, no attention cap"),
    Case("Gemma 3", "norms of queries and keys, a window in five layers of six with a rotary table of its "
        "own", "gemma3_text",
         {**GEMMA_3_SETTINGS, "query_pre_attn_scalar": 24}, GEMMA_3_FORM,
         older=older_gemma_3(GEMMA_3_SETTINGS)),
    Case("Gemma 3", "", "gemma3_text",
         {**GEMMA_3_SETTINGS, "query_pre_attn_scalar": 24, "rope_parameters": gemma_3_rope(60.0,
         rope_type="linear", factor=8.0)},
         GEMMA_3_FORM, "linear scaling of the one table", 100,
         older=older_gemma_3({"rope_parameters": gemma_3_rope(60.0, rope_type="linear", factor=8.0)})),
    Case("Gemma 3", "", "gemma3_text", {**SMALL_GEMMA, "sliding_window": 9, "query_pre_attn_scalar": 40,
    "final_logit_softcapping": 5.0,
         "sliding_window_pattern": 3, "num_hidden_layers": 4, "rope_parameters": gemma_3_rope(60.0)}, None,
         "another scale, pattern and cap", older=gemma_rope({"rope_parameters": gemma_3_rope(60.0)})
         | PATTERN_3),
    Case("GPT-OSS", "experts with biases, sinks, a window in every second layer", "gpt_oss", GPT_OSS,
         GgufForm("gpt-oss", keys=gpt_oss_keys, change=gpt_oss_tensors), length=80,
         older={"layer_types": ABSENT}),
    Case(
        "GPT-OSS", "", "gpt_oss", {**GPT_OSS, "swiglu_limit": 0.4, "swiglu_alpha": 1.3},
        variant="another limit and slope", length=80,
    ),
)  # fmt: skip
