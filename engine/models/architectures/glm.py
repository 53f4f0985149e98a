"""GLM-4: half of each head turned in neighbouring pairs, gate and up fused; the 0414 generation has norms
after both halves too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backends.base import RawTensor
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig, gguf_shape, hf_activation, hf_shape
from engine.models.keys import Keys
from engine.models.names import GGUF, HF
from engine.models.rope_files import extended_context, rope_from_gguf, rope_from_hf

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
    shape = hf_shape(
        keys, num_key_value_heads=2, head_dim=128, rms_norm_eps=1.5625e-7, max_position_embeddings=131072
    )
    shape["context_length"] = extended_context(keys, shape["context_length"])
    newer = keys.source["architectures"][0] == "Glm4ForCausalLM"
    return ModelConfig(
        **shape,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"], share=0.5, interleaved=True),
        attention_bias=keys.flag("attention_bias", True),
        output_bias=False,
        mlp_bias=False,
        placement="both" if newer else "before",
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`chatglm` and `glm4`."""
    architecture = keys.source["general.architecture"]
    shape = gguf_shape(keys, tensors, architecture)
    return ModelConfig(
        **shape,
        rope=rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=True, share=0.5),
        placement="both" if architecture == "glm4" else "before",
    )


GLM = Architecture(
    ("chatglm", "glm4"), ("GlmForCausalLM", "Glm4ForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF_NAMES
)
