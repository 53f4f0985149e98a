"""Apertus (arXiv 2509.14233): Llama with qk norm, and xIELU in a plain feed-forward part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import HF_ACTIVATIONS, gguf_decoder, hf_activation, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    HF, attention_norm="attention_layernorm", mlp_norm="feedforward_layernorm", gate="", xielu="mlp.act_fn."
)
_QUIRKS: dict[str, Any] = {"qk_norm": "head", "gated": False}
_ROPE = {
    "rope_type": "llama3", "rope_theta": 12e6, "factor": 8.0, "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
_DEFAULTS = {
    "vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip

_DEFAULTS_1_5 = {"vocab_size": 266752}


def from_hf(keys: Keys) -> ModelConfig:
    """`ApertusForCausalLM`."""
    keys = keys.over(_DEFAULTS)
    if keys.raw("rope_parameters") is None and keys.raw("rope_scaling") is None:
        keys = keys.replaced("rope_parameters", _ROPE)
    activation = "xielu"
    if keys.text("hidden_act", "xielu") in HF_ACTIVATIONS:
        activation = hf_activation(keys)
    shape = hf_decoder(
        keys.replaced("hidden_act", "silu"), bias=keys.flag("attention_bias", False), base=12e6,
        rms_norm_eps=1e-5, max_position_embeddings=65536,
    )  # fmt: skip
    return ModelConfig(**shape | {"activation": activation}, **_QUIRKS)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`apertus`, with the numbers of xIELU in the metadata."""
    shape = gguf_decoder(keys, tensors, "apertus")
    above, below, slope = (
        _numbers(keys, f"xielu.{name}", shape["layers"]) for name in ("alpha_p", "alpha_n", "beta")
    )
    numbers = tuple(
        (float(np.logaddexp(0.0, p)), s + float(np.logaddexp(0.0, n)), s)
        for p, n, s in zip(above, below, slope, strict=True)
    )
    return ModelConfig(**shape, **_QUIRKS, activation="xielu", xielu=numbers)


def _numbers(keys: Keys, name: str, layers: int) -> list[float]:
    """A number for each layer, or one for all."""
    values = keys.source.get(name)  # these names have no prefix
    values = values if isinstance(values, list) else [values] * layers
    if len(values) != layers or any(
        type(value) not in (int, float) or not abs(value) <= 1e6 for value in values
    ):
        raise BadCheckpoint(
            _("The GGUF metadata: {name} is not a list of {layers} numbers.", name=name, layers=layers)
        )
    return [float(value) for value in values]


def from_hf_1_5(keys: Keys) -> ModelConfig:
    """`Apertus1p5TextForCausalLM`, and the text model of `Apertus1p5ForConditionalGeneration`: the head may
    lack the last rows of the vocabulary, those of pictures and sounds.
    """
    tied = keys.raw("tie_word_embeddings")  # the whole's word counts
    config = from_hf(keys.inner("text_config").over(_DEFAULTS_1_5).replaced("tie_word_embeddings", tied))
    rows = keys.inner("text_config").integer("output_vocab_size", 1, config.vocab_size, config.vocab_size)
    return replace(config, vocab_size=rows, extra_embeddings=config.vocab_size - rows)


APERTUS = Architecture(("apertus",), ("ApertusForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
APERTUS_1_5 = Architecture(
    (), ("Apertus1p5TextForCausalLM", "Apertus1p5ForConditionalGeneration"), from_hf_1_5, None, HF_NAMES,
    None, prefixes=("", "-model.language_model.", "-"),
)  # fmt: skip
