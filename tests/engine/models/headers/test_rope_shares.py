"""Which frequencies rope has where config.json states more than a class of transformers reads."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.models.architectures import ARCHITECTURES
from engine.models.config import ModelConfig
from engine.models.headers.keys import Keys
from engine.models.layers.positions.rope import RopeConfig
from tests.engine.models.architectures import ROPE
from tests.engine.models.cases.table import BY_NAME

HALF = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
LAYERS = {"full_attention": HALF, "sliding_attention": {**HALF, "rope_theta": 60.0}}
YARN = {
    "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 64,
    "beta_fast": 5.0, "beta_slow": 1.5, "truncate": False,
}  # fmt: skip
PLAIN = {"rope_type": "default", "rope_theta": 60.0}


def made(name: str, rope: dict[str, Any]) -> tuple[dict[str, npt.NDArray[np.float64]], ModelConfig]:
    """The frequencies of transformers' class by the name of their buffer, and what is read of its config."""
    from transformers import AutoConfig, AutoModelForCausalLM

    case = BY_NAME[name]
    config = AutoConfig.for_model(case.model_type, **{**case.settings, ROPE: rope})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    found = {at.rpartition(".")[2]: value.double().numpy() for at, value in model.named_buffers()}
    kind = type(model).__name__
    keys = Keys(json.loads(config.to_json_string(use_diff=False)) | {"architectures": [kind]}, "config.json")
    (architecture,) = (each for each in ARCHITECTURES if kind in each.hf)
    assert architecture.from_hf is not None
    return found, architecture.from_hf(keys)


def frequencies(rope: RopeConfig | None) -> npt.NDArray[np.float64]:
    assert rope is not None
    plain = rope.base ** (-np.arange(0, rope.dim, 2) / rope.dim)
    return np.asarray(plain / np.array(rope.divisors))


@pytest.mark.parametrize(
    "name",
    [
        "Llama", "Qwen 3", "Cohere 2", "DeepSeek V3", "OLMoE", "Phi-3, Phi-4", "GLM-4.5 to 4.7", "Solar Open",
        "GLM-4.7-Flash", "MiniMax-M3", "Nemotron",
    ],
)  # fmt: skip
def test_a_part_of_heads(name: str) -> None:
    """Classes without the key rotate whole heads."""
    found, config = made(name, HALF)
    np.testing.assert_allclose(frequencies(config.rope), found["inv_freq"], rtol=1e-5)


@pytest.mark.parametrize("name", ["OLMo 3", "Mellum 2", "Laguna", "Gemma 3"])
def test_a_part_of_heads_in_tables_of_layers(name: str) -> None:
    found, config = made(name, LAYERS)
    np.testing.assert_allclose(frequencies(config.rope), found["full_attention_inv_freq"], rtol=1e-5)
    np.testing.assert_allclose(frequencies(config.rope_local), found["sliding_attention_inv_freq"], rtol=1e-5)


def test_truncation_of_yarn() -> None:
    """It counts outside of the tables of layers alone."""
    found, config = made("OLMo 3", {"full_attention": YARN, "sliding_attention": PLAIN})
    np.testing.assert_allclose(frequencies(config.rope), found["full_attention_inv_freq"], rtol=1e-5)
    found, config = made("Llama", YARN)
    exact = frequencies(config.rope)
    np.testing.assert_allclose(exact, found["inv_freq"], rtol=1e-5)
    rounded = frequencies(made("Llama", {**YARN, "truncate": True})[1].rope)
    assert np.abs(rounded / exact - 1).max() > 0.01
