"""Ministral 3: Mistral whose queries are scaled by their positions. GGUF calls Mistral Small 3 so, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_CONTEXT, gguf_decoder, hf_decoder, hf_windows
from engine.models.headers.keys import Keys
from engine.models.headers.rope import gguf_factor
from engine.models.layers.positions.rope import RopeConfig, yarn_magnitude
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor
from engine.words import _


def from_hf(keys: Keys) -> ModelConfig:
    """`Ministral3ForCausalLM`."""
    if not keys.has("num_key_value_heads"):
        keys = keys.over({"num_key_value_heads": 8})
    shape = hf_decoder(
        keys, bias=False, base=1e6, rms_norm_eps=1e-5, head_dim=128, max_position_embeddings=262_144
    )
    table = keys.table("rope_parameters") or keys.table("rope_scaling") or keys
    beta = table.number("llama_4_scaling_beta", 0.0, 1e3, 0.1)
    length = table.integer("original_max_position_embeddings", 1, MAX_CONTEXT, 16384)
    rope = scaled(shape["rope"], shape["head_dim"], beta, length)
    windows = hf_windows(keys, shape["layers"])
    return ModelConfig(**shape | {"rope": rope, "windows": windows})


def scaled(rope: RopeConfig, head_dim: int, beta: float, length: int) -> RopeConfig:
    """The same with scaled queries. Raises `UnsupportedModel` if only a part of each head is rotated."""
    if not beta:
        return rope
    if rope.dim != head_dim:
        raise UnsupportedModel(
            _(
                "The model scales its queries by their positions but rotates only a part of each head, "
                "which is not supported. Choose another model."
            )
        )
    return replace(rope, query_beta=beta, query_length=length)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`mistral3`."""
    shape = gguf_decoder(
        keys, tensors, "mistral3", interleaved=True, handled=("attention.temperature_scale",)
    )
    rope: RopeConfig = shape["rope"]
    weight = keys.number("rope.scaling.yarn_log_multiplier", 0.0, 1e3, 0.0)
    # Instead of the usual magnitude, as config.json's mscale and mscale_all_dim say.
    if weight and not keys.has("rope.scaling.yarn_attn_factor"):
        factor = gguf_factor(keys) or 1.0
        rope = replace(rope, magnitude=rope.magnitude / yarn_magnitude(factor, weight))
    beta = keys.number("attention.temperature_scale", 0.0, 1e3, 0.0)
    original = keys.integer("rope.scaling.original_context_length", 0, MAX_CONTEXT, 0)
    length = keys.integer("attention.temperature_length", 0, MAX_CONTEXT, 0) or original or 16384
    windows = hf_windows(keys, shape["layers"], "attention.sliding_window")
    return ModelConfig(**shape | {"rope": scaled(rope, shape["head_dim"], beta, length), "windows": windows})


MISTRAL_3 = Architecture(
    ("mistral3",), ("Ministral3ForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True
)
