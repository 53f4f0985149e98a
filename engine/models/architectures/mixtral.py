"""Mixtral (arXiv 2401.04088): Mistral with experts. Its GGUF files say `llama` and are read there."""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.experts import hf_experts
from engine.models.config import ModelConfig, hf_activation, hf_shape, sliding
from engine.models.keys import Keys
from engine.models.names import HF
from engine.models.rope_files import extended_context, rope_from_hf

NAMES = replace(
    HF, router="block_sparse_moe.gate", expert_gate="block_sparse_moe.experts.{}.w1",
    expert_up="block_sparse_moe.experts.{}.w3", expert_down="block_sparse_moe.experts.{}.w2",
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`MixtralForCausalLM`."""
    keys = keys.over(
        {"num_local_experts": 8, "num_experts_per_tok": 2, "num_key_value_heads": 8, "rms_norm_eps": 1e-5}
    )
    shape = hf_shape(keys, max_position_embeddings=1 << 17)
    shape["context_length"] = extended_context(keys, shape["context_length"])
    layers = frozenset(range(shape["layers"]))
    return ModelConfig(
        **shape,
        activation=hf_activation(keys),
        rope=rope_from_hf(keys, shape["head_dim"], base=1e6),
        attention_bias=False,
        output_bias=False,
        mlp_bias=False,
        windows=sliding(keys, shape["layers"]),
        experts=hf_experts(
            keys,
            layers,
            count="num_local_experts",
            used="num_experts_per_tok",
            width=shape["ffn_width"],
            normalise=True,
        ),
    )


MIXTRAL = Architecture((), ("MixtralForCausalLM",), from_hf, None, NAMES, None)
