"""Llama, Mistral, Mixtral, and every scaling of rope on Llama's shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import SMALL, Case, Config, Tensors
from tests.engine.models.gguf_form import GgufForm

LLAMA_FORM = GgufForm("llama", interleaved=True)
THETA = 500.0
"""Low, so that scalings change much within few positions."""
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": THETA, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": THETA, "short_factor": [1 + 0.2 * i for i in range(8)],
    "long_factor": [2 + 0.9 * i for i in range(8)], "original_max_position_embeddings": 40,
}  # fmt: skip


def scaled(kind: str, **settings: Any) -> dict[str, Any]:
    """Llama's settings with a scaling; its context is 40, or 20 before the scaling."""
    return {
        **SMALL,
        "max_position_embeddings": 40,
        "rope_parameters": {"rope_theta": THETA, "rope_type": kind, **settings},
    }


def llama3_factors(config: Config, tensors: Tensors) -> Tensors:
    """The converter's tensor of divisors, from Llama 3.1's three cases."""
    s, dim, factors = config["rope_parameters"], config["hidden_size"] // config["num_attention_heads"], []
    for i in range(0, dim, 2):
        wavelength = 2 * np.pi * s["rope_theta"] ** (i / dim)
        turns = s["original_max_position_embeddings"] / wavelength
        if turns > s["high_freq_factor"]:
            factors.append(1.0)
        elif turns < s["low_freq_factor"]:
            factors.append(s["factor"])
        else:
            smooth = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / s["factor"] + smooth))
    return tensors | {"rope_freqs.weight": np.array(factors, np.float32)}


OWN_YARN = GgufForm(
    "llama", interleaved=True,
    keys=lambda config: {
        f"rope.scaling.yarn_{name}": config["rope_parameters"][key]
        for name, key in (
            ("attn_factor", "attention_factor"), ("beta_fast", "beta_fast"), ("beta_slow", "beta_slow")
        )
    },
)  # fmt: skip
"""What the converter writes of these numbers, and llama.cpp reads in few architectures: its Llama has those
that yarn begins with. The model was trained with its own, which transformers takes as they are.
"""


LLAMA_CASES = (
    Case("Llama", "grouped queries", "llama", SMALL, LLAMA_FORM),
    Case("Llama", "", "llama", {**SMALL, "attention_bias": True, "mlp_bias": True,
    "tie_word_embeddings": True, "head_dim": 20},
         LLAMA_FORM, "biases, tied, own head dimension"),
    Case("Llama", "", "llama", scaled("linear", factor=3.0), LLAMA_FORM, "linear", 100),
    Case("Llama", "", "llama", scaled("dynamic", factor=3.0), None, "dynamic", 100),
    Case("Llama", "", "llama", scaled("dynamic", factor=3.0), None, "dynamic within its context", 36),
    Case("Llama", "", "llama", {**scaled("yarn", factor=4.0, original_max_position_embeddings=20),
    "max_position_embeddings": 80},
         LLAMA_FORM, "yarn", 80),
    Case("Llama", "", "llama", {**scaled("yarn", factor=4.0, original_max_position_embeddings=20,
    attention_factor=1.3, beta_fast=8.0,
         beta_slow=2.0, truncate=False), "max_position_embeddings": 80}, OWN_YARN,
         "yarn with its own numbers", 80),
    Case("Llama", "", "llama", {**SMALL, "rope_parameters": LLAMA3},
    GgufForm("llama", interleaved=True, change=llama3_factors), "llama3", 100),
    Case("Llama", "", "llama", {**SMALL, "max_position_embeddings": 160, "rope_parameters": LONGROPE}, None,
    "longrope", 100),
    Case("Llama", "", "llama", {**SMALL, "max_position_embeddings": 160, "rope_parameters": LONGROPE}, None,
         "longrope within its first context", 38),
    Case("Mistral", "a window in every layer", "mistral", {**SMALL, "sliding_window": 9, "head_dim": 24},
         GgufForm("llama", interleaved=True,
         keys=lambda config: {"attention.sliding_window": config["sliding_window"]})),
    Case("Mixtral", "2 of 4 experts", "mixtral", {**SMALL, "num_local_experts": 4}, LLAMA_FORM),
    Case("Mixtral", "", "mixtral", {**SMALL, "num_local_experts": 5, "num_experts_per_tok": 3,
    "sliding_window": 9, "head_dim": 24},
         GgufForm("llama", interleaved=True,
         keys=lambda config: {"attention.sliding_window": config["sliding_window"]}), "with a window"),
)  # fmt: skip
