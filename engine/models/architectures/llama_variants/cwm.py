"""CWM (Code World Model): Llama 3 with windows in three of four layers."""

from __future__ import annotations

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, hf_decoder, layer_kinds
from engine.models.headers.keys import Keys
from engine.models.names import HF

_STEP = 4
_ROPE = {
    "rope_type": "llama3", "rope_theta": 1e6, "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`CwmForCausalLM`."""
    keys = keys.over({"num_key_value_heads": 8})
    if keys.raw("rope_parameters") is None and keys.raw("rope_scaling") is None:
        keys = keys.replaced("rope_parameters", _ROPE)
    shape = hf_decoder(
        keys, bias=False, mlp_bias=keys.flag("mlp_bias", False), base=1e6, rms_norm_eps=1e-5, head_dim=128,
        max_position_embeddings=131_072,
    )  # fmt: skip
    layers, kinds = shape["layers"], layer_kinds(keys, shape["layers"])
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0 if keys.has("sliding_window") else 8192)
    slides = [kind[0] == "s" for kind in kinds] if kinds else [layer % _STEP > 0 for layer in range(layers)]
    return ModelConfig(**shape, windows=tuple(window if each else 0 for each in slides) if window else ())


CWM = Architecture((), ("CwmForCausalLM",), from_hf, None, HF, None)
