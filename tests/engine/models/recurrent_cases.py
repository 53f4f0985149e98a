"""LFM2, and other families with recurrent layers."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ABSENT, SMALL, Case, Config, Tensors
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
)  # fmt: skip
