"""Mixtral (arXiv 2401.04088): Mistral with experts. Its GGUF files name `llama`, see `llama/llama.py`."""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.llama.llama import LLAMA
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_decoder, hf_windows
from engine.models.headers.experts import hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import HF, experts_in_mlp, with_experts

NAMES = replace(
    with_experts(HF, "block_sparse_moe.experts", "w1", "w3", "w2"), router="block_sparse_moe.gate"
)


def from_hf(keys: Keys) -> ModelConfig:
    """`MixtralForCausalLM`."""
    keys = keys.over(
        {"num_local_experts": 8, "num_experts_per_tok": 2, "num_key_value_heads": 8, "rms_norm_eps": 1e-5}
    )
    shape = hf_decoder(keys, bias=False, base=1e6, max_position_embeddings=1 << 17)
    return ModelConfig(
        **shape,
        windows=hf_windows(keys, shape["layers"]),
        experts=hf_experts(
            keys,
            range(shape["layers"]),
            count="num_local_experts",
            used="num_experts_per_tok",
            width=shape["ffn_width"],
            normalise=True,
        ),
    )


MIXTRAL = Architecture(
    (), ("MixtralForCausalLM",), from_hf, None, NAMES, None, gguf_of=LLAMA, adapt=experts_in_mlp
)
