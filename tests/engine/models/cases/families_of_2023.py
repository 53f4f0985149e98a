"""Families of 2023 that transformers does not have by their own names, made from those that compute the
same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.gguf_form import GgufForm
from tests.tiny import _interleaved

PLAIN = {"rope_type": "default", "rope_theta": 700.0}


def fused(tensors: Tensors, name: str) -> Tensors:
    """Queries, keys and values in one matrix, and a bias, called `name` after the layer."""
    out: Tensors = {}
    for each, values in tensors.items():
        if ".q_proj." in each:
            at, end = each.split(".self_attn.q_proj.")
            parts = [tensors[each.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"]
            out[f"{at}.{name}.{end}"] = np.concatenate(parts)
        elif ".k_proj." not in each and ".v_proj." not in each:
            out[each] = values
    return out


def qwen(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Qwen 1 from Qwen 2."""
    own = {
        "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "no_bias": True,
        "layer_norm_epsilon": config["rms_norm_eps"], "rotary_emb_base": 700.0,
        "seq_length": config["max_position_embeddings"], "kv_channels": 16,
        "intermediate_size": 2 * config["intermediate_size"],
    }  # fmt: skip
    names = {
        "model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f",
        "model.layers": "transformer.h", "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2",
        "self_attn.o_proj": "attn.c_proj", "mlp.gate_proj": "mlp.w2", "mlp.up_proj": "mlp.w1",
        "mlp.down_proj": "mlp.c_proj",
    }  # fmt: skip
    out: Tensors = {}
    for name, values in fused(tensors, "attn.c_attn").items():
        for old, new in names.items():
            name = name.replace(old, new)
        out[name] = values
    kept = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "bos_token_id")
    return {key: config[key] for key in kept} | own | {"tie_word_embeddings": False}, out


def qwen_keys(config: Config) -> dict[str, Any]:
    return {
        "context_length": config["seq_length"], "rope.freq_base": config["rotary_emb_base"],
        "attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"],
    }  # fmt: skip


def baichuan(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Baichuan from Llama."""
    own = {
        "architectures": ["BaichuanForCausalLM"], "model_type": "baichuan",
        "model_max_length": config["max_position_embeddings"],
    }  # fmt: skip
    kept = {key: value for key, value in config.items() if key != "max_position_embeddings"}
    return kept | own, fused(tensors, "self_attn.W_pack")


def baichuan_keys(config: Config) -> dict[str, Any]:
    return {"context_length": config["model_max_length"]}


def baichuan_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Queries, keys and values apart, in the order of interleaved rope."""
    heads, out = config["num_attention_heads"], Tensors()
    for name, values in tensors.items():
        if ".W_pack." in name:
            at = "blk." + name.split(".")[2]
            q, k, v = np.split(values, 3)
            out |= {
                f"{at}.attn_q.weight": _interleaved(q, heads), f"{at}.attn_k.weight": _interleaved(k, heads),
                f"{at}.attn_v.weight": v,
            }  # fmt: skip
        else:
            out[name] = values
    return out


def renamed(architecture: str, kind: str) -> Any:
    """A `Case.publish`: another class, the same names."""

    def publish(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
        return config | {"architectures": [architecture], "model_type": kind}, tensors

    return publish


def orion(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Orion from StableLM with rope on whole heads."""
    own = {"architectures": ["OrionForCausalLM"], "model_type": "orion", ROPE: PLAIN}
    return config | own | {"rms_norm_eps": config["layer_norm_eps"]}, tensors


def chatglm(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """ChatGLM from GLM-4 as transformers has it."""
    own = {
        "architectures": ["ChatGLMModel"], "model_type": "chatglm", "add_bias_linear": False,
        "add_qkv_bias": True, "apply_residual_connection_post_layernorm": False, "rmsnorm": True,
        "multi_query_attention": True, "post_layer_norm": True, "quantization_bit": 0, "pre_seq_len": None,
        "num_layers": config["num_hidden_layers"], "ffn_hidden_size": config["intermediate_size"],
        "multi_query_group_num": config["num_key_value_heads"], "kv_channels": config["head_dim"],
        "layernorm_epsilon": config["rms_norm_eps"], "padded_vocab_size": config["vocab_size"],
        "seq_length": config["max_position_embeddings"], "rope_ratio": config[ROPE]["rope_theta"] / 1e4,
    }  # fmt: skip
    names = {
        "model.embed_tokens": "transformer.embedding.word_embeddings", "lm_head": "transformer.output_layer",
        "model.norm": "transformer.encoder.final_layernorm", "model.layers": "transformer.encoder.layers",
        "self_attn.o_proj": "self_attention.dense", "mlp.gate_up_proj": "mlp.dense_h_to_4h",
        "mlp.down_proj": "mlp.dense_4h_to_h",
    }  # fmt: skip
    out: Tensors = {"transformer.rotary_pos_emb.inv_freq": np.zeros(4, np.float32)}
    for name, values in fused(tensors, "self_attention.query_key_value").items():
        for old, new in names.items():
            name = name.replace(old, new)
        out[name] = values
    kept = ("hidden_size", "num_attention_heads", "tie_word_embeddings", "eos_token_id")
    return {key: config[key] for key in kept} | own, out


def cogvlm(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """CogVLM from Llama, or CogVLM2, whose heads share keys, with matrices for pictures."""
    own: Config = {
        "architectures": ["CogVLMForCausalLM"], "vision_config": {"hidden_size": 7}, "model_type": "cogvlm"
    }  # fmt: skip
    if config["num_key_value_heads"] != config["num_attention_heads"]:
        own["num_multi_query_heads"] = config["num_key_value_heads"]
    kept = {key: value for key, value in config.items() if key not in (ROPE, "num_key_value_heads")}
    out: Tensors = {}
    for name, values in fused(tensors, "self_attn.language_expert_query_key_value").items():
        name = name.replace("self_attn.o_proj", "self_attn.language_expert_dense")
        name = name.replace(".mlp.", ".mlp.language_mlp.")
        out[name] = values
        if "language_" in name:
            out[name.replace("language_", "vision_")] = np.full_like(values, 9.0)
    return kept | own, out


ALL_HEADS = {**SMALL, "num_key_value_heads": 4, ROPE: PLAIN}
FAMILIES_OF_2023_CASES = (
    Case(
        "Qwen 1", "biases of queries, keys and values", "qwen2", ALL_HEADS, GgufForm("qwen", keys=qwen_keys),
        publish=qwen,
    ),
    Case(
        "Baichuan", "Llama with one matrix of queries, keys and values", "llama", ALL_HEADS,
        GgufForm("baichuan", keys=baichuan_keys, change=baichuan_tensors), publish=baichuan,
    ),
    Case(
        "XVERSE", "Llama under another name", "llama", {**SMALL, ROPE: PLAIN},
        GgufForm("xverse", interleaved=True), publish=renamed("XverseForCausalLM", "xverse"),
    ),
    Case(
        "Orion", "Llama with layer norms", "stablelm",
        {**SMALL, ROPE: {**PLAIN, "partial_rotary_factor": 1.0}, "layer_norm_eps": 1e-5}, GgufForm("orion"),
        publish=orion,
    ),
    Case(
        "ChatGLM2, 3", "GLM-4 under names of its own", "glm",
        {**SMALL, "head_dim": 16, ROPE: {**PLAIN, "partial_rotary_factor": 0.5}}, publish=chatglm,
    ),
    Case(
        "CogVLM", "Llama with one matrix of queries, keys and values", "llama",
        {**ALL_HEADS, ROPE: {**PLAIN, "rope_theta": 1e4}}, GgufForm("cogvlm"),
        publish=cogvlm,
    ),
    Case("CogVLM", "", "llama", {**SMALL, ROPE: {**PLAIN, "rope_theta": 5e5}}, variant="2", publish=cogvlm),
)  # fmt: skip
