"""GLM-4: interleaved rope on half of each head, gate and up fused; GLM-4-0414 has norms after both halves
of a block, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_architecture, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF,
    gate="",
    up="",
    gate_up="mlp.gate_up_proj",
    attention_post="post_self_attn_layernorm",
    mlp_post="post_mlp_layernorm",
)
GGUF_NAMES = replace(GGUF, gate_up="ffn_up")


def from_hf(keys: Keys) -> ModelConfig:
    """`GlmForCausalLM` (GLM-4-9B) and `Glm4ForCausalLM` (GLM-4-0414)."""
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", True), share=0.5, interleaved=True, num_key_value_heads=2,
        head_dim=128, rms_norm_eps=1.5625e-7, max_position_embeddings=131072,
    )  # fmt: skip
    newer = hf_architecture(keys.source) == "Glm4ForCausalLM"
    return ModelConfig(**shape | {"output_bias": False}, placement="both" if newer else "before")


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`chatglm` and `glm4`; rope of GLM-4.1V's text model is not interleaved, unlike its folder's."""
    architecture = keys.source["general.architecture"]
    plain = not any(keys.integers("rope.dimension_sections", 0, 1 << 16))
    shape = gguf_decoder(keys, tensors, architecture, interleaved=plain)
    return ModelConfig(**shape, placement="both" if architecture == "glm4" else "before")


GLM = Architecture(
    ("chatglm", "glm4"), ("GlmForCausalLM", "Glm4ForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF_NAMES
)
