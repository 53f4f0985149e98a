"""Hunyuan, Falcon, Falcon-H1, GPT-NeoX, Phi-2, OPT, GPT-J, GPT-BigCode, Bloom, MPT and Apertus."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Floats, Tensors
from tests.engine.models.gguf_form import GgufForm

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
OLD: dict[str, Any] = {key: SMALL[key] for key in ("vocab_size", "bos_token_id", "eos_token_id")}


def ungrouped(values: Floats, groups: int, ratio: int) -> Floats:
    """Rows of `ratio` queries, a key and a value for each of the groups, as all queries, keys, values."""
    parts = values.reshape(groups, ratio + 2, -1, *values.shape[1:])
    split = (parts[:, :ratio], parts[:, ratio], parts[:, ratio + 1])
    return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in split])


def with_ungrouped(tensors: Tensors, groups: int, ratio: int) -> Tensors:
    """The same of all fused matrices and their biases."""
    return {
        name: ungrouped(values, groups, ratio) if ".query_key_value." in name else values
        for name, values in tensors.items()
    }


def hunyuan_keys(config: Config) -> dict[str, Any]:
    """The raised base."""
    rope = config[ROPE]
    dim = config["head_dim"]
    return {"rope.freq_base": rope["rope_theta"] * rope["alpha"] ** (dim / (dim - 2))}


HUNYUAN: dict[str, Any] = {
    **SMALL, "head_dim": 24, ROPE: {**PLAIN, "rope_type": "dynamic", "alpha": 50.0, "factor": 1.0},
}  # fmt: skip


def falcon_groups(config: Config) -> int:
    """The number of key/value heads."""
    heads = config["num_attention_heads"]
    if config["new_decoder_architecture"]:
        return int(config["num_kv_heads"])
    return 1 if config["multi_query"] else int(heads)


def falcon_keys(config: Config) -> dict[str, Any]:
    """Falcon's own names."""
    return {
        "attention.head_count_kv": falcon_groups(config), "feed_forward_length": config["ffn_hidden_size"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
    }  # fmt: skip


def falcon_tensors(config: Config, tensors: Tensors) -> Tensors:
    """All queries, all keys, all values."""
    groups = falcon_groups(config)
    return with_ungrouped(tensors, groups, config["num_attention_heads"] // groups)


FALCON_GGUF = GgufForm("falcon", keys=falcon_keys, change=falcon_tensors)
FALCON: dict[str, Any] = {
    **OLD, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 512, ROPE: PLAIN,
}  # fmt: skip

FALCON_H1: dict[str, Any] = {
    **SMALL, "mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_n_groups": 2, "mamba_d_state": 12,
    "mamba_d_conv": 4, "projectors_bias": False, ROPE: PLAIN, "lm_head_multiplier": 0.5,
    "embedding_multiplier": 3.0, "mlp_multipliers": [0.7, 1.3], "key_multiplier": 0.6,
    "attention_out_multiplier": 1.2, "attention_in_multiplier": 0.9, "ssm_in_multiplier": 1.4,
    "ssm_out_multiplier": 0.8, "ssm_multipliers": [0.8, 0.9, 0.5, 1.5, 1.2],
}  # fmt: skip
"""With every multiplier."""


def falcon_h1_keys(config: Config) -> dict[str, Any]:
    """The sizes of Mamba-2."""
    return {
        "ssm.conv_kernel": config["mamba_d_conv"], "ssm.state_size": config["mamba_d_state"],
        "ssm.group_count": config["mamba_n_groups"], "ssm.time_step_rank": config["mamba_n_heads"],
        "ssm.inner_size": config["mamba_d_ssm"], "attention.key_length": 16, "attention.value_length": 16,
    }  # fmt: skip


def falcon_h1_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Multipliers within the weights, and the shapes of Mamba-2's tensors."""
    inner, groups = config["mamba_d_ssm"], config["mamba_n_groups"]
    sizes = [inner, inner, *[groups * config["mamba_d_state"]] * 2, config["mamba_n_heads"]]
    rows = np.repeat(config["ssm_multipliers"], sizes)[:, None] * config["ssm_in_multiplier"]
    outer = config["attention_in_multiplier"]
    factors = {
        "k_proj": config["key_multiplier"] * outer, "q_proj": outer, "v_proj": outer,
        "o_proj": config["attention_out_multiplier"], "mamba.out_proj": config["ssm_out_multiplier"],
        "mamba.in_proj": rows, "gate_proj": config["mlp_multipliers"][0],
        "down_proj": config["mlp_multipliers"][1], "lm_head": config["lm_head_multiplier"],
        "embed_tokens": config["embedding_multiplier"],
    }  # fmt: skip
    out = {}
    for name, tensor in tensors.items():
        factor = next((each for end, each in factors.items() if name.endswith(end + ".weight")), 1.0)
        changed = np.asarray(tensor * factor, np.float32)
        if name.endswith("conv1d.weight"):
            changed = changed.squeeze(1)
        elif name.endswith((".A_log", ".D")):
            changed = (-np.exp(changed) if name.endswith(".A_log") else changed)[:, None]
        elif name.endswith("mamba.norm.weight"):
            changed = changed.reshape(groups, -1)
        out[name.replace("dt_bias", "dt_proj.bias")] = changed
    return out


FALCON_H1_GGUF = GgufForm("falcon-h1", keys=falcon_h1_keys, change=falcon_h1_tensors)


def neox_keys(config: Config) -> dict[str, Any]:
    """Whether the halves are parallel."""
    return {"use_parallel_residual": config["use_parallel_residual"]}


def neox_tensors(config: Config, tensors: Tensors) -> Tensors:
    """All queries, all keys, all values."""
    return with_ungrouped(tensors, config["num_attention_heads"], 1)


NEOX_GGUF = GgufForm("gptneox", keys=neox_keys, change=neox_tensors)
NEOX: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "num_key_value_heads"},
    ROPE: {**PLAIN, "partial_rotary_factor": 0.25}, "tie_word_embeddings": False,
}  # fmt: skip
PHI_2: dict[str, Any] = {**SMALL, ROPE: {**PLAIN, "partial_rotary_factor": 0.5}}

GPT: dict[str, Any] = {**OLD, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 96}


def bigcode_keys(config: Config) -> dict[str, Any]:
    """GPT-2's own names in config.json; it has no rope."""
    return {
        "feed_forward_length": 4 * config["n_embd"], "attention.head_count_kv": 1,
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"], "rope.dimension_count": None,
    }  # fmt: skip


OPT: dict[str, Any] = {
    **OLD, "pad_token_id": 1, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "ffn_dim": 96, "max_position_embeddings": 96,
}  # fmt: skip

BLOOM: dict[str, Any] = {
    **OLD, "pad_token_id": 3, "hidden_size": 64, "n_layer": 3, "n_head": 4, "seq_length": 256,
}  # fmt: skip


def bloom_keys(config: Config) -> dict[str, Any]:
    """Bloom's own names."""
    return {
        "context_length": config["seq_length"], "feed_forward_length": 4 * config["hidden_size"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"], "rope.dimension_count": None,
    }  # fmt: skip


def bloom_tensors(config: Config, tensors: Tensors) -> Tensors:
    """All queries, all keys, all values; names without the prefix."""
    plain = {name.removeprefix("transformer."): values for name, values in tensors.items()}
    return with_ungrouped(plain, config["n_head"], 1)


MPT: dict[str, Any] = {**OLD, "d_model": 64, "n_layers": 3, "n_heads": 4, "max_seq_len": 256}


def mpt_keys(config: Config) -> dict[str, Any]:
    """MPT's own names."""
    attention = config["attn_config"]
    return {
        "context_length": config["max_seq_len"],
        "feed_forward_length": config["expansion_ratio"] * config["d_model"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"], "rope.dimension_count": None,
        "attention.max_alibi_bias": float(attention["alibi_bias_max"]),
        "attention.clamp_kqv": attention["clip_qkv"],
    }  # fmt: skip


MPT_GGUF = GgufForm("mpt", keys=mpt_keys)
APERTUS: dict[str, Any] = {
    **SMALL, ROPE: {"rope_type": "linear", "rope_theta": 700.0, "factor": 2.0}, "rms_norm_eps": 1e-5,
}  # fmt: skip


def apertus_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Without the numbers of xIELU, which go to the metadata."""
    found: dict[str, list[float]] = {"alpha_p": [], "alpha_n": [], "beta": [], "eps": []}
    for layer in range(config["num_hidden_layers"]):
        for name, values in found.items():
            stored = tensors[f"model.layers.{layer}.mlp.act_fn.{name}"]
            values.append(float(np.asarray(stored).reshape(-1)[0]))
    config["xielu"] = found
    return {name: values for name, values in tensors.items() if ".act_fn." not in name}


def apertus_keys(config: Config) -> dict[str, Any]:
    """The numbers of xIELU, a list of each."""
    return {f"xielu.{name}": values for name, values in config.get("xielu", {}).items()}


FALCON_GPT_NEOX_CASES = (
    Case(
        "Hunyuan", "qk norm after rope", "hunyuan_v1_dense", HUNYUAN,
        GgufForm("hunyuan-dense", keys=hunyuan_keys),
    ),
    Case(
        "Hunyuan", "", "hunyuan_v1_dense",
        {**SMALL, "head_dim": 16, "attention_bias": True, "tie_word_embeddings": True},
        variant="biases, tied",
    ),
    Case("Falcon", "one norm, one key/value head", "falcon", FALCON, FALCON_GGUF),
    Case(
        "Falcon", "", "falcon",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 104}, FALCON_GGUF,
        variant="40B: two norms, two key/value heads",
    ),
    Case(
        "Falcon", "", "falcon",
        {
            **FALCON, "new_decoder_architecture": True, "num_kv_heads": 1, "num_ln_in_parallel_attn": 1,
            "bias": True, "tie_word_embeddings": False, "activation": "gelu_new",
        },
        variant="11B: one norm, biases, untied",
    ),
    Case(
        "Falcon", "", "falcon", {**FALCON, "parallel_attn": False, "multi_query": False, "bias": True},
        variant="one half after the other, all key/value heads",
    ),
    Case(
        "Falcon", "", "falcon",
        {
            **FALCON, "parallel_attn": False, "multi_query": False, "bias": True, "alibi": True,
            "num_attention_heads": 6, "hidden_size": 72,
        },
        variant="RW: ALiBi, six heads", attention="sdpa",  # the other adds it twice
    ),
    Case(
        "Falcon-H1", "attention and Mamba-2 side by side in each layer, multipliers", "falcon_h1", FALCON_H1,
        FALCON_H1_GGUF,
    ),
    Case(
        "Falcon-H1", "", "falcon_h1",
        {
            **FALCON_H1, "mamba_rms_norm": True, "mamba_norm_before_gate": False, "attention_bias": True,
            "mamba_proj_bias": True, "projectors_bias": True, "mlp_bias": True, "mamba_conv_bias": False,
            "mamba_n_groups": 3, "mamba_d_conv": 3, "tie_word_embeddings": True,
        },
        variant="norm after the gate, biases, tied",
    ),
    Case(
        "Falcon-H1", "", "falcon_h1",
        {**SMALL, "mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_rms_norm": True, "mamba_n_groups": 2},
        variant="norm before the gate",
    ),
    Case(
        "GPT-NeoX", "parallel halves with a norm each, rope on a quarter of each head", "gpt_neox", NEOX,
        NEOX_GGUF, older={"rotary_emb_base": 700.0, "rotary_pct": 0.25},
    ),
    Case(
        "GPT-NeoX", "", "gpt_neox",
        {
            **NEOX, ROPE: {**PLAIN, "partial_rotary_factor": 1.0}, "use_parallel_residual": False,
            "hidden_act": "gelu_fast", "tie_word_embeddings": True,
        },
        variant="one half after the other, rope on all of it, tied",
    ),
    Case("GPT-NeoX", "", "gpt_neox", {**NEOX, "attention_bias": False}, variant="no biases of attention"),
    Case(
        "GPT-NeoX", "", "gpt_neox",
        {**NEOX, "hidden_size": 56, ROPE: {**PLAIN, "partial_rotary_factor": 0.5}},
        variant="rope on seven of 14 dimensions",
    ),
    Case(
        "Phi-2", "one norm for both halves, rope on a half of each head", "phi", PHI_2, GgufForm("phi2"),
    ),
    Case(
        "Phi-2", "", "phi", {**PHI_2, "qk_layernorm": True, ROPE: {**PLAIN, "partial_rotary_factor": 0.375}},
        variant="qk norm",
    ),
    Case("OPT", "learned positions after two spare rows, relu", "opt", OPT),
    Case(
        "OPT", "", "opt", {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 48},
        variant="350M: norms after the sums, narrower embeddings",
    ),
    Case(
        "OPT", "", "opt",
        {
            **OPT, "enable_bias": False, "layer_norm_elementwise_affine": False,
            "activation_function": "gelu", "tie_word_embeddings": False,
        },
        variant="Galactica: no biases, norms without weights, untied",
    ),
    Case("OPT", "", "opt", {**OPT, "_remove_final_layer_norm": True}, variant="no last norm"),
    Case(
        "GPT-J", "one norm for both halves, interleaved rope on a part of each head", "gptj",
        {**GPT, "rotary_dim": 8},
    ),
    Case(
        "GPT-J", "", "gptj", {**GPT, "rotary_dim": 16, "n_inner": 100, "tie_word_embeddings": True},
        variant="tied",
    ),
    Case(
        "GPT-BigCode", "GPT-2 with one key/value head", "gpt_bigcode", GPT,
        GgufForm("starcoder", keys=bigcode_keys),
    ),
    Case(
        "GPT-BigCode", "", "gpt_bigcode",
        {**GPT, "multi_query": False, "scale_attn_weights": False, "n_inner": 100},
        variant="all key/value heads",
    ),
    Case(
        "Bloom", "ALiBi, a norm of embeddings", "bloom", BLOOM,
        GgufForm("bloom", keys=bloom_keys, change=bloom_tensors),
    ),
    Case(
        "Bloom", "", "bloom",
        {
            **BLOOM, "n_head": 6, "hidden_size": 72, "apply_residual_connection_post_layernorm": True,
            "tie_word_embeddings": False,
        },
        variant="six heads, normed sums, untied",
    ),
    Case("MPT", "ALiBi, norms without biases", "mpt", MPT, MPT_GGUF),
    Case(
        "MPT", "", "mpt",
        {
            **MPT, "n_heads": 6, "d_model": 72, "expansion_ratio": 2,
            "attn_config": {"clip_qkv": 0.8, "softmax_scale": 0.3},
        },
        variant="six heads, clipped, another scale",
    ),
    Case(
        "MPT", "", "mpt", {**MPT, "n_heads": 6, "d_model": 72, "attn_config": {"clip_qkv": 0.8}}, MPT_GGUF,
        variant="six heads, clipped",
    ),
    Case(
        "Apertus", "qk norm, xIELU", "apertus", APERTUS,
        GgufForm("apertus", keys=apertus_keys, change=apertus_tensors),
    ),
    Case(
        "Apertus", "", "apertus",
        {
            **SMALL, "rms_norm_eps": 1e-5, "attention_bias": True, "tie_word_embeddings": True,
            "hidden_act": "relu2",
        },
        variant="biases, tied, another activation",
    ),
)  # fmt: skip
