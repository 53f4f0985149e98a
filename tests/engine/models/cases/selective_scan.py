"""Mamba, Falcon Mamba, Jamba: states whose numbers decay alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import SMALL, Case, Config, Tensors
from tests.engine.models.gguf_form import GgufForm

MAMBA: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 307, "state_size": 8, "time_step_rank": 6,
    "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip
JAMBA: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4,
    "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 6,
}  # fmt: skip


def scan_keys(config: Config) -> dict[str, Any]:
    """The sizes of Mamba, none of attention and of feed-forward parts."""
    return {
        "ssm.conv_kernel": config["conv_kernel"], "ssm.inner_size": config["intermediate_size"],
        "ssm.state_size": config["state_size"], "ssm.time_step_rank": config["time_step_rank"],
        "ssm.dt_b_c_rms": "mixer_rms_eps" in config, "context_length": 1 << 20,
        "attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"], "attention.head_count": 0,
        "attention.head_count_kv": None, "feed_forward_length": 0, "rope.dimension_count": None,
        "expert_count": None,
    }  # fmt: skip


def jamba_keys(config: Config) -> dict[str, Any]:
    """The sizes of Mamba, and no key/value heads where it is."""
    period, offset = config["attn_layer_period"], config["attn_layer_offset"]
    heads = config["num_key_value_heads"]
    return {
        "ssm.conv_kernel": config["mamba_d_conv"], "ssm.state_size": config["mamba_d_state"],
        "ssm.inner_size": config["mamba_expand"] * config["hidden_size"],
        "ssm.time_step_rank": config["mamba_dt_rank"],
        "attention.head_count_kv": [heads if layer % period == offset else 0 for layer in range(4)],
        "rope.dimension_count": None,
    }  # fmt: skip


def scan_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Convolutions as matrices, rates as they are used."""
    return {
        name: values.squeeze(1)
        if name.endswith("conv1d.weight")
        else -np.exp(values)
        if name.endswith(".A_log")
        else values
        for name, values in tensors.items()
    }


def as_published(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Falcon Mamba's `expand` and `intermediate_size` on the hub, which contradict each other."""
    return config | {"expand": 16, "intermediate_size": 128}, tensors


SELECTIVE_SCAN_CASES = (
    Case(
        "Mamba", "recurrent layers alone, each number of whose states decays alone", "mamba", MAMBA,
        GgufForm("mamba", keys=scan_keys, change=scan_tensors),
    ),
    Case(
        "Mamba", "", "mamba",
        {
            **MAMBA, "use_bias": True, "use_conv_bias": False, "state_size": 5, "conv_kernel": 3,
            "expand": 3, "time_step_rank": "auto", "tie_word_embeddings": True,
        },
        variant="biases, tied, odd sizes",
    ),
    Case(
        "Falcon Mamba", "Mamba with norms of steps, keys and queries", "falcon_mamba", MAMBA,
        GgufForm("mamba", keys=scan_keys, change=scan_tensors), publish=as_published,
    ),
    Case(
        "Jamba", "Mamba, attention without rope in some layers, experts in others", "jamba", JAMBA,
        GgufForm("jamba", keys=jamba_keys, change=scan_tensors), length=90,
    ),
    Case(
        "Jamba", "", "jamba",
        {**JAMBA, "num_experts": 1, "mamba_proj_bias": True, "mamba_conv_bias": False, "mamba_expand": 3},
        variant="dense, biases",
    ),
)  # fmt: skip
