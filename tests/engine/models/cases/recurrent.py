"""LFM2, and other families with recurrent layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.engine.models.architectures import ABSENT, SMALL, Case, Config, Tensors
from tests.engine.models.cases.phi_granite import granite_keys
from tests.engine.models.gguf_form import GgufForm


def lfm2_keys(config: Config) -> dict[str, Any]:
    """No key/value heads where there is a convolution."""
    heads, kinds = config["num_key_value_heads"], config["layer_types"]
    return {
        "attention.head_count_kv": [heads if kind == "full_attention" else 0 for kind in kinds],
        "attention.layer_norm_rms_epsilon": config["norm_eps"],
        "shortconv.l_cache": config["conv_L_cache"],
        "feed_forward_length": 96,
    }  # fmt: skip


def lfm2_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Convolutions as matrices."""
    return {
        name: values.squeeze(1) if name.endswith("conv.conv.weight") else values
        for name, values in tensors.items()
    }


LFM2_GGUF = GgufForm("lfm2", keys=lfm2_keys, change=lfm2_tensors)
LFM2: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"],
    "intermediate_size": 144, "block_multiple_of": 32, "norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
}  # fmt: skip

QWEN_3_5: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 24, "full_attention_interval": 2, "linear_num_key_heads": 2,
    "linear_num_value_heads": 6, "linear_key_head_dim": 12, "linear_value_head_dim": 12,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5,
        "mrope_section": [2, 2, 2], "mrope_interleaved": True,
    },
}  # fmt: skip


def qwen_3_5_keys(config: Config) -> dict[str, Any]:
    """The sizes of the delta net under the names of state space models."""
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    return {
        "ssm.conv_kernel": config["linear_conv_kernel_dim"], "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"], "ssm.inner_size": values,
        "ssm.time_step_rank": config["linear_num_value_heads"], "full_attention_interval": 2,
        "rope.dimension_sections": [2, 2, 2, 0],
    }  # fmt: skip


def qwen_3_5_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Value heads in the order of all key heads again and again, norms with their 1, rates as they are used,
    convolutions as matrices.
    """
    groups, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    keys, dim = groups * config["linear_key_head_dim"], config["linear_value_head_dim"]
    order = np.arange(heads).reshape(groups, -1).T.reshape(-1)
    values = (order[:, None] * dim + np.arange(dim)).reshape(-1)
    inputs = np.concatenate([np.arange(2 * keys), 2 * keys + values])
    rows = {"in_proj_qkv": inputs, "conv1d": inputs, "in_proj_z": values, "in_proj_a": order,
            "in_proj_b": order, "A_log": order, "dt_bias": order}  # fmt: skip
    out = {}
    for name, tensor in tensors.items():
        part = name.removesuffix(".weight").rpartition(".")[2]
        changed = tensor
        if ".linear_attn." in name and part in rows:
            changed = tensor[rows[part]]
            changed = (
                changed.squeeze(1) if part == "conv1d" else -np.exp(changed) if part == "A_log" else changed
            )
        elif ".linear_attn.out_proj" in name:
            changed = tensor[:, values]
        elif name.endswith("norm.weight") and ".linear_attn." not in name:
            changed = tensor + 1
        # The package's table has "dt_proj" with ".bias".
        out[name.replace("dt_bias", "dt_proj.bias")] = changed
    return out


QWEN_3_5_GGUF = GgufForm("qwen35", keys=qwen_3_5_keys, change=qwen_3_5_tensors)

GRANITE_4: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "num_local_experts": 0, "shared_intermediate_size": 96,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    "mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_expand": 2, "mamba_d_conv": 4,
    "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.6,
    "logits_scaling": 2.0, "position_embedding_type": "nope",
}  # fmt: skip


def granite_4_keys(config: Config) -> dict[str, Any]:
    """The multipliers, and the sizes of Mamba-2."""
    heads = config["num_key_value_heads"]
    return granite_keys(config) | {
        "attention.head_count_kv": [heads if "full" in kind else 0 for kind in config["layer_types"]],
        "ssm.conv_kernel": config["mamba_d_conv"], "ssm.state_size": config["mamba_d_state"],
        "ssm.group_count": config["mamba_n_groups"], "ssm.time_step_rank": config["mamba_n_heads"],
        "ssm.inner_size": config["mamba_expand"] * config["hidden_size"], "feed_forward_length": 96,
        "rope.scaling.finetuned": config["position_embedding_type"] == "rope",
        "expert_count": None, "expert_used_count": None,
    }  # fmt: skip


def granite_4_tensors(config: Config, tensors: Tensors) -> Tensors:
    """As the converter of Mamba-2 and that of Granite's experts have them."""
    groups = config["mamba_n_groups"]
    out = {}
    for name, tensor in tensors.items():
        if name.endswith("shared_mlp.input_linear.weight"):
            for half, part in zip(("gate", "up"), np.split(tensor, 2), strict=True):
                out[name.replace("shared_mlp.input_linear", f"mlp.{half}_proj")] = part
            continue
        changed = tensor
        if name.endswith("conv1d.weight"):
            changed = tensor.squeeze(1)
        elif name.endswith((".A_log", ".D")):
            changed = (-np.exp(tensor) if name.endswith(".A_log") else tensor)[:, None]
        elif name.endswith("mamba.norm.weight"):
            changed = tensor.reshape(groups, -1)
        out[name.replace("shared_mlp.output_linear", "mlp.down_proj").replace("dt_bias", "dt_proj.bias")] = (
            changed
        )
    return out


GRANITE_4_GGUF = GgufForm("granitehybrid", interleaved=True, keys=granite_4_keys, change=granite_4_tensors)

NEMOTRON_H: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "num_hidden_layers"}, "head_dim": 24,
    "layers_block_type": ["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"],
    "mamba_num_heads": 6, "mamba_head_dim": 16, "ssm_state_size": 12, "n_groups": 2, "conv_kernel": 4,
}  # fmt: skip


def nemotron_h_keys(config: Config) -> dict[str, Any]:
    """Lists over the layers, and the sizes of Mamba-2."""
    kinds = config.get("layers_block_type") or config["layer_types"]
    heads, width = config["num_key_value_heads"], config["intermediate_size"]
    return {
        "block_count": len(kinds),
        "attention.head_count_kv": [heads if kind == "full_attention" else 0 for kind in kinds],
        "feed_forward_length": [width if kind == "mlp" else 0 for kind in kinds],
        "ssm.conv_kernel": config["conv_kernel"], "ssm.state_size": config["ssm_state_size"],
        "ssm.group_count": config["n_groups"], "ssm.time_step_rank": config["mamba_num_heads"],
        "ssm.inner_size": config["mamba_num_heads"] * config["mamba_head_dim"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
        "expert_count": None, "expert_used_count": None,
    }  # fmt: skip


def nemotron_h_tensors(config: Config, tensors: Tensors) -> Tensors:
    """As the converter of Mamba-2 has them."""
    out = {}
    for name, tensor in tensors.items():
        changed = tensor
        if name.endswith("conv1d.weight"):
            changed = tensor.squeeze(1)
        elif name.endswith((".A_log", ".D")):
            changed = (-np.exp(tensor) if name.endswith(".A_log") else tensor)[:, None]
        elif name.endswith("mixer.norm.weight"):
            changed = tensor.reshape(config["n_groups"], -1)
        out[name.replace("dt_bias", "dt_proj.bias")] = changed
    return out


NEMOTRON_H_GGUF = GgufForm("nemotron_h", keys=nemotron_h_keys, change=nemotron_h_tensors)

RECURRENT_CASES = (
    Case(
        "LFM2", "short convolutions with a gate, attention in some layers, qk norm", "lfm2", LFM2, LFM2_GGUF,
        older={
            "layer_types": ABSENT, "full_attn_idxs": [1], "block_ff_dim": 144, "intermediate_size": ABSENT,
        },
    ),
    Case(
        "LFM2", "", "lfm2",
        {
            **LFM2, "conv_bias": True, "conv_L_cache": 5, "block_auto_adjust_ff_dim": False,
            "intermediate_size": 96, "tie_word_embeddings": False,
        },
        variant="biases, untied, five taps",
    ),
    Case(
        "Qwen 3.5", "gated delta nets, attention with an output gate in every fourth layer, norms plus 1",
        "qwen3_5_text", QWEN_3_5, QWEN_3_5_GGUF, length=90,
        older={"layer_types": ABSENT, "full_attention_interval": 2},
    ),
    Case(
        "Qwen 3.5", "", "qwen3_5_text",
        {
            **QWEN_3_5, "linear_value_head_dim": 20, "linear_num_value_heads": 2, "attention_bias": True,
            "linear_conv_kernel_dim": 3, "tie_word_embeddings": True,
        },
        variant="values of another length, biases, tied", length=90,
    ),
    Case(
        "Granite 4", "Granite with Mamba-2 in most layers", "granitemoehybrid", GRANITE_4, GRANITE_4_GGUF,

    ),
    Case(
        "Granite 4", "", "granitemoehybrid",
        {
            **GRANITE_4, "position_embedding_type": "rope", "mamba_conv_bias": False, "mamba_proj_bias": True,
            "mamba_n_groups": 1, "mamba_d_conv": 3, "attention_bias": True,
            "time_step_limit": [0.6, math.inf],
        },
        variant="rope, biases, a least step",
    ),
    Case(
        "Granite 4", "", "granitemoehybrid", {**GRANITE_4, "layer_types": ["full_attention"] * 4},
        variant="attention alone",
    ),
    Case(
        "Nemotron-H", "layers of one part each: Mamba-2, attention without rope, the square of relu",
        "nemotron_h", NEMOTRON_H, NEMOTRON_H_GGUF,
    ),
    Case(
        "Nemotron-H", "", "nemotron_h",
        {
            **NEMOTRON_H, "use_conv_bias": False, "use_bias": True, "mlp_bias": True, "n_groups": 1,
            "time_step_min": 0.6, "tie_word_embeddings": True,
        },
        variant="biases, a least step, said to be tied",
    ),
)  # fmt: skip
