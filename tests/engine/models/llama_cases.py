"""Llama, Mistral, Mixtral, and every scaling of rotary positions on Llama's shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ABSENT, SMALL, Case, Config, Tensors
from tests.engine.models.gguf_form import GgufForm
from tests.tiny import LLAMA3_SCALING

LLAMA_FORM = GgufForm("llama", turned=True)
THETA = 500.0
"""Low, so that scalings change much within few positions."""


def scaled(kind: str, **settings: Any) -> dict[str, Any]:
    """Settings of Llama with a scaling; its context is 40, or 20 before that scaling."""
    return {**SMALL, "max_position_embeddings": 40, "rope_parameters": {"rope_theta": THETA, "rope_type": kind, **settings}}


LLAMA_CASES = (
    Case("Llama", "grouped queries", "llama", SMALL, LLAMA_FORM),
    Case("Llama", "", "llama", {**SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 20},
         LLAMA_FORM, "biases, tied, own head dimension"),
    Case("Llama", "", "llama", scaled("linear", factor=3.0), LLAMA_FORM, "linear", 100),
    Case("Llama", "", "llama", scaled("dynamic", factor=3.0), None, "dynamic", 100),
    Case("Llama", "", "llama", scaled("dynamic", factor=3.0), None, "dynamic within its context", 36),
    Case("Llama", "", "llama", {**scaled("yarn", factor=4.0, original_max_position_embeddings=20), "max_position_embeddings": 80},
         LLAMA_FORM, "yarn", 80),
)  # fmt: skip
