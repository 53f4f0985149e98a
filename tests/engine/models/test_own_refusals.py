"""Settings of families with arithmetic of their own that are refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.models.architectures import ARCHITECTURES
from engine.models.headers.keys import Keys

SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 307, "head_dim": 16, "sliding_window": 9,
}  # fmt: skip
MIMO, STEP, LAGUNA = "MiMoV2FlashForCausalLM", "Step3p5ForCausalLM", "LagunaForCausalLM"
MINIMAX = "MiniMaxM1ForCausalLM"
LING = "BailingMoeV3ForCausalLM"
CHAT_GLM = "ChatGLMModel"
V4, GLM = "DeepseekV4ForCausalLM", "Glm5NextForConditionalGeneration"
REFUSED: dict[str, tuple[str, dict[str, Any], type[EngineError], str]] = {
    "much shorter values": (MIMO, {"v_head_dim": 7}, UnsupportedModel, "differ in length"),
    "longer values": (MIMO, {"v_head_dim": 17}, UnsupportedModel, "differ in length"),
    "other heads in windows": (
        MIMO, {"v_head_dim": 16, "swa_head_dim": 24}, UnsupportedModel, "swa_head_dim to 24"
    ),
    "a pattern of too few layers": (MIMO, {"hybrid_layer_pattern": [0, 1]}, BadCheckpoint, "list of 3 flags"),
    "no multiple of key/value heads": (
        MIMO, {"v_head_dim": 16, "partial_rotary_factor": 0.5, "swa_num_key_value_heads": 3}, BadCheckpoint,
        "4 heads and 3 key/value",
    ),
    "longest steps": (
        "FalconH1ForCausalLM", {"time_step_limit": [0.0, 2.0]}, UnsupportedModel, "time_step_limit",
    ),
    "steps below nothing": (
        "BambaForCausalLM", {"time_step_limit": [-1.0, "Infinity"]}, UnsupportedModel, "time_step_limit"
    ),
    "a tiny limit": (STEP, {"swiglu_limits": [0.0, 0.1, 0.0]}, UnsupportedModel, "swiglu_limits to 0.1"),
    "too few limits": (STEP, {"swiglu_limits": [0.0]}, BadCheckpoint, "3 layers but states swiglu_limits"),
    "an unknown kind of layer": (
        STEP, {"layer_types": ["full_attention", "chunked_attention", "full_attention"]}, UnsupportedModel,
        "of the kind 'chunked_attention'",
    ),
    "no gate": (STEP, {"use_head_wise_attn_gate": False}, UnsupportedModel, "use_head_wise_attn_gate"),
    "key/value heads of windows": (
        STEP, {"attention_other_setting": {"num_attention_groups": 4}}, UnsupportedModel,
        "num_attention_groups to 4",
    ),
    "settings of a single layer": (
        STEP, {"per_layer_config": {"1": {"head_dim": 32}}}, UnsupportedModel, "per_layer_config"
    ),
    "two matrices of decays": (LING, {"no_kda_lora": False}, UnsupportedModel, "no_kda_lora to False"),
    "a gate for each number": (
        LING, {"gated_attention_proj_granularity_type": "element_wise"}, UnsupportedModel,
        "granularity_type to 'element_wise'",
    ),
    "keys without rope": (LING, {"use_mla_nope": True}, UnsupportedModel, "use_mla_nope to True"),
    "a least sum of weights": (
        "Ernie4_5_MoeForCausalLM", {"moe_norm_min": 0.5}, UnsupportedModel, "moe_norm_min to 0.5"
    ),
    "several routers": (LING, {"multi_gate": True}, UnsupportedModel, "multi_gate to True"),
    "norms of the residual": (MINIMAX, {"postnorm": False}, UnsupportedModel, "postnorm to False"),
    "a shared expert": (
        MINIMAX, {"shared_intermediate_size": [64], "postnorm": True}, UnsupportedModel,
        r"shared_intermediate_size to \[64\]",
    ),
    "limited queries": (
        "MolmoForCausalLM", {"clip_qkv": 8.0, "layer_norm_type": "rms"}, UnsupportedModel, "clip_qkv to 8.0"
    ),
    "layers of words": (STEP, {"moe_layers_enum": "1,two"}, BadCheckpoint, "whole numbers"),
    "an unknown gate": (LAGUNA, {"gating": "per-group"}, UnsupportedModel, "gating to 'per-group'"),
    "no gate at all": (LAGUNA, {"gating": None}, UnsupportedModel, "gating to None"),
    "weights on the input": (
        LAGUNA, {"moe_apply_router_weight_on_input": True}, UnsupportedModel, "router_weight_on_input to True"
    ),
    "too few heads": (
        LAGUNA, {"num_attention_heads_per_layer": [4, 4]}, BadCheckpoint, "states num_attention_heads_per"
    ),
    "uneven groups of heads": (
        V4, {"num_key_value_heads": 1, "o_groups": 3}, BadCheckpoint, "projects 4 heads in 3 groups"
    ),
    "an unknown rate": (
        V4, {"num_key_value_heads": 1, "compress_ratios": [0, 4, 8]}, UnsupportedModel, "compress_ratios to 8"
    ),
    "unknown scores": (
        V4, {"num_key_value_heads": 1, "o_groups": 4, "scoring_func": "relu"}, UnsupportedModel,
        "scoring_func to 'relu'",
    ),
    "several heads of keys": (V4, {}, BadCheckpoint, "num_key_value_heads is 2"),
    "no tail of positions": (
        GLM, {"index_kpool_always_select_tail": False}, UnsupportedModel, "always_select_tail to False"
    ),
    "parts of blocks": (
        GLM, {"index_topk": 10, "layer_types": ["full_attention"] * 3}, UnsupportedModel, "index_topk to 10"
    ),
    "ChatGLM-6B": (CHAT_GLM, {"position_encoding_2d": True}, UnsupportedModel, "encoding_2d to True"),
    "the makers' own 4-bit weights": (
        CHAT_GLM, {"multi_query_attention": True, "quantization_bit": 4}, UnsupportedModel, "bit to 4"
    ),
    "a tuned prefix": (
        CHAT_GLM, {"multi_query_attention": True, "pre_seq_len": 128}, UnsupportedModel, "len to 128"
    ),
    "grouped rows": (CHAT_GLM, {"kv_channels": 16}, UnsupportedModel, "multi_query_attention to False"),
    "layers as a text": (
        CHAT_GLM, {"multi_query_attention": True, "num_layers": "3"}, BadCheckpoint,
        "num_hidden_layers is '3'",
    ),
    "no ratio of bases": (
        CHAT_GLM, {"multi_query_attention": True, "rope_ratio": 0}, BadCheckpoint, "rope_ratio is 0"
    ),
    "decays that grow": (GLM, {"linear_lower_bound": 1.0}, UnsupportedModel, "linear_lower_bound to 1.0"),
}  # fmt: skip


def test_no_shared_expert_of_minimax() -> None:
    found = next(each for each in ARCHITECTURES if MINIMAX in each.hf)
    config = {**SMALL, "architectures": [MINIMAX], "attn_type_list": [0, 0, 1], "rotary_dim": 8}
    assert found.from_hf is not None
    read = [
        found.from_hf(Keys(config | {"shared_intermediate_size": none}, "config.json")) for none in (0, [0])
    ]
    assert read[0] == read[1]
    assert read[0].recurrent_layers == {0, 1}
    assert read[0].rope is not None
    assert read[0].rope.dim == 8


@pytest.mark.parametrize("name", REFUSED)
def test_sentence(name: str) -> None:
    architecture, changes, kind, words = REFUSED[name]
    found = next(each for each in ARCHITECTURES if architecture in each.hf)
    config = {**SMALL, "architectures": [architecture], **changes}
    with pytest.raises(kind, match=words):
        found.from_hf(Keys(config, "config.json"))
