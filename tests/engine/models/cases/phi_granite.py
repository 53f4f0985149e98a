"""Phi, SmolLM3, OLMo 2, Granite, GLM-4, Cohere, StarCoder2, GPT-2, InternLM 2, StableLM and MiniCPM."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import SMALL, Case, Config, Tensors
from tests.engine.models.gguf_form import GgufForm

FACTORS = [1.0 + 0.3 * i for i in range(6)]
LONG = [2.0 + 0.7 * i for i in range(6)]


def longrope(context: int) -> dict[str, Any]:
    """Phi's scaling, original context 40; three quarters of each head of 16 are rotated."""
    return {
        **SMALL, "max_position_embeddings": context, "original_max_position_embeddings": 40,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 500.0, "short_factor": FACTORS, "long_factor": LONG,
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 40,
        },
    }  # fmt: skip


def phi_keys(config: Config) -> dict[str, Any]:
    """The converter's keys for longrope."""
    rope = config["rope_parameters"]
    if rope["rope_type"] != "longrope":
        return {"attention.sliding_window": config.get("sliding_window")}
    scale = config["max_position_embeddings"] / config["original_max_position_embeddings"]
    magnitude = float(np.sqrt(1 + np.log(scale) / np.log(config["original_max_position_embeddings"])))
    return {
        "rope.scaling.original_context_length": config["original_max_position_embeddings"],
        "rope.scaling.attn_factor": magnitude,
    }


def phi_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The factors are tensors; the fused gate and up are called up."""
    out = {name.replace("gate_up_proj", "up_proj"): values for name, values in tensors.items()}
    rope = config["rope_parameters"]
    if rope["rope_type"] == "longrope":
        for kind in ("short", "long"):
            out[f"rope_factors_{kind}.weight"] = np.array(rope[f"{kind}_factor"], np.float32)
    return out


PHI = GgufForm("phi3", keys=phi_keys, change=phi_tensors)


def granite_keys(config: Config) -> dict[str, Any]:
    """The multipliers."""
    return {
        "embedding_scale": config["embedding_multiplier"], "residual_scale": config["residual_multiplier"],
        "attention.scale": config["attention_multiplier"], "logit_scale": config["logits_scaling"],
    }  # fmt: skip


GRANITE_SETTINGS = {
    **SMALL, "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2,
    "logits_scaling": 2.0,
}  # fmt: skip


def glm_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The fused gate and up are called up."""
    return {name.replace("gate_up_proj", "up_proj"): values for name, values in tensors.items()}


def cohere_keys(config: Config) -> dict[str, Any]:
    """Layer norms, the scale of logits, and the window of Cohere 2."""
    return {"logit_scale": config["logit_scale"], "attention.sliding_window": config.get("sliding_window")}


def stablelm_epoch(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' class and keys."""
    own = {
        "architectures": ["StableLMEpochForCausalLM"], "model_type": "stablelm_epoch",
        "norm_eps": config["layer_norm_eps"], "rotary_scaling_factor": 1.0,
        "rope_pct": config["rope_parameters"]["partial_rotary_factor"],
        "rope_theta": config["rope_parameters"]["rope_theta"],
    }  # fmt: skip
    gone = ("layer_norm_eps", "rope_parameters", "partial_rotary_factor", "head_dim")
    return {key: value for key, value in config.items() if key not in gone} | own, tensors


def stablelm_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The qk norms of all heads are stacked."""
    out = {name: values for name, values in tensors.items() if ".norms." not in name}
    for layer in range(config["num_hidden_layers"]):
        for kind, heads in (("q", config["num_attention_heads"]), ("k", config["num_key_value_heads"])):
            parts = [
                tensors.get(f"model.layers.{layer}.self_attn.{kind}_layernorm.norms.{i}.weight")
                for i in range(heads)
            ]
            found = [part for part in parts if part is not None]
            if found:
                out[f"model.layers.{layer}.self_attn.{kind}_layernorm.weight"] = np.stack(found)
    return out


def gpt2_keys(config: Config) -> dict[str, Any]:
    """GPT-2's own names in config.json; it has no rope."""
    return {
        "feed_forward_length": 4 * config["n_embd"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"], "rope.dimension_count": None,
    }  # fmt: skip


def gpt2_tensors(config: Config, tensors: Tensors) -> Tensors:
    """GGUF stores the matrices (N, K)."""
    transposed = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    return {name: values.T if name.endswith(transposed) else values for name, values in tensors.items()}


GPT2 = {
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 96,
    "vocab_size": 307,
    "bos_token_id": 0,
    "eos_token_id": 2,
}


def as_internlm2(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Llama's weights under InternLM 2's names: one matrix, grouped by key/value head."""
    groups, ratio = (
        config["num_key_value_heads"],
        config["num_attention_heads"] // config["num_key_value_heads"],
    )
    own = {
        "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
        "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
        "embed_tokens": "tok_embeddings", "lm_head": "output",
    }  # fmt: skip
    out: Tensors = {}
    for name, values in tensors.items():
        if ".self_attn." in name and "o_proj" not in name:
            continue
        for before, after in own.items():
            name = name.replace(before, after)
        out[name] = values
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for kind in ("weight", "bias"):
            parts = [tensors.get(f"{at}self_attn.{letter}_proj.{kind}") for letter in "qkv"]
            if parts[0] is None:
                continue
            shape = (groups, -1, *parts[0].shape[1:])
            cut = [part.reshape(shape) for part in parts if part is not None]
            assert cut[0].shape[1] == ratio * cut[1].shape[1]
            out[f"{at}attention.wqkv.{kind}"] = np.concatenate(cut, axis=1).reshape(-1, *parts[0].shape[1:])
    changed = {key: value for key, value in config.items() if key != "attention_bias"}
    return changed | {
        "architectures": ["InternLM2ForCausalLM"],
        "bias": config["attention_bias"],
        "model_type": "internlm2",
    }, out


def from_internlm2(config: Config, tensors: Tensors) -> Tensors:
    """The converter splits the fused matrix and interleaves its rows."""
    from tests.tiny import _interleaved

    groups, heads = config["num_key_value_heads"], config["num_attention_heads"]
    dim = config["hidden_size"] // heads
    out = {name: values for name, values in tensors.items() if "wqkv" not in name}
    for name, values in tensors.items():
        if "wqkv" in name:
            layer, kind = name.split(".")[2], name.rsplit(".", 1)[1]
            cut = values.reshape(groups, heads // groups + 2, dim, *values.shape[1:])
            q, k, v = (part.reshape(-1, *values.shape[1:]) for part in (cut[:, :-2], cut[:, -2], cut[:, -1]))
            out |= {
                f"blk.{layer}.attn_q.{kind}": _interleaved(q, heads),
                f"blk.{layer}.attn_k.{kind}": _interleaved(k, groups),
            }
            out[f"blk.{layer}.attn_v.{kind}"] = v
    return out


def as_minicpm(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Granite's weights with MiniCPM's keys; attention has the usual scale."""
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    gone = ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")
    own = {
        "architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm",
        "scale_emb": config["embedding_multiplier"],
        "scale_depth": config["residual_multiplier"] * layers**0.5,
        "dim_model_base": round(width / config["logits_scaling"]),
    }  # fmt: skip
    return {key: value for key, value in config.items() if key not in gone} | own, tensors


def minicpm_keys(config: Config) -> dict[str, Any]:
    """The scales as numbers."""
    return {
        "embedding_scale": config["scale_emb"],
        "residual_scale": config["scale_depth"] / config["num_hidden_layers"] ** 0.5,
        "logit_scale": config["hidden_size"] / config["dim_model_base"],
    }  # fmt: skip


PHI_GRANITE_CASES = (
    Case("Phi-3, Phi-4", "fused projections, partial longrope, window", "phi3", longrope(72), PHI, length=60),
    Case("Phi-3, Phi-4", "", "phi3", longrope(72), PHI, "within its first context", 40),
    Case("Phi-3, Phi-4", "", "phi3", {**SMALL, "sliding_window": 9}, PHI, "window"),
    Case("SmolLM3", "every fourth layer without positions", "smollm3", {**SMALL, "num_hidden_layers": 5},
    GgufForm("smollm3", interleaved=True)),
    Case("SmolLM3", "", "smollm3", {**SMALL, "no_rope_layers": [0, 1, 1], "tie_word_embeddings": False,
    "use_sliding_window": True,
         "sliding_window": 9, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}, None,
         "other layers"),
    Case("OLMo 2", "norms after each half, over all queries and keys", "olmo2", SMALL, GgufForm("olmo2")),
    Case("Granite 3", "multipliers on embeddings, attention, residuals, logits", "granite", GRANITE_SETTINGS,
         GgufForm("granite", interleaved=True, keys=granite_keys)),
    Case("GLM-4", "interleaved rope on half of a head, fused gate and up", "glm", {**SMALL, "head_dim": 16},
         GgufForm("chatglm", change=glm_tensors)),
    Case("GLM-4", "", "glm4", {**SMALL, "head_dim": 16}, GgufForm("glm4", change=glm_tensors),
    "0414: norms on both sides"),
    Case("Cohere, Command-R", "parallel halves, layer norms, interleaved rope, scaled logits", "cohere",
    {**SMALL, "logit_scale": 0.5},
         GgufForm("command-r", keys=cohere_keys), scale=2.0),
    Case("Cohere, Command-R", "", "cohere", {**SMALL, "use_qk_norm": True, "attention_bias": True},
    GgufForm("command-r", keys=cohere_keys),
         "norms of heads", scale=4.0),
    Case("Cohere 2", "windows, rope only in their layers", "cohere2",
    {**SMALL, "num_hidden_layers": 5, "sliding_window": 9,
         "logit_scale": 0.5}, GgufForm("cohere2", keys=cohere_keys), scale=2.0),
    Case("StarCoder2", "layer norms, biases, plain feed-forward", "starcoder2",
    {**SMALL, "sliding_window": None},
         GgufForm("starcoder2",
         keys=lambda config: {"attention.layer_norm_epsilon": config["norm_epsilon"]})),
    Case("StarCoder2", "", "starcoder2", {**SMALL, "sliding_window": 9, "use_bias": False}, None,
    "window, no biases"),
    Case("GPT-2", "learned positions, layer norms, transposed matrices", "gpt2", GPT2,
         GgufForm("gpt2", keys=gpt2_keys, change=gpt2_tensors)),
    Case("GPT-2", "", "gpt2",
         {**GPT2, "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
         variant="scores by the number of the layer"),
    Case("InternLM 2", "query, key and value in one matrix by key/value head", "llama",
    {**SMALL, "attention_bias": True},
         GgufForm("internlm2", change=from_internlm2), publish=as_internlm2),
    Case("StableLM 2", "layer norms, rope on a quarter of each head", "stablelm",
    {**SMALL, "use_qkv_bias": True},
         GgufForm("stablelm", change=stablelm_tensors)),
    Case("StableLM 2", "", "stablelm", {**SMALL, "qk_layernorm": True, "use_parallel_residual": True},
         GgufForm("stablelm", change=stablelm_tensors), "12B: norms of heads, parallel halves"),
    Case("StableLM 2", "", "stablelm",
    {**SMALL, "layer_norm_eps": 0.02, "rope_parameters":
         {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5}},
         variant="the makers' keys", publish=stablelm_epoch),
    Case("MiniCPM", "scales of depth and width", "granite", {**GRANITE_SETTINGS, "attention_multiplier": 0.25,
    "tie_word_embeddings": True},
         GgufForm("minicpm", interleaved=True, keys=minicpm_keys), publish=as_minicpm),
)  # fmt: skip
