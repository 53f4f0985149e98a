"""MiniMax-M2: experts chosen by sigmoids and a bias, qk norm over whole rows, rope on a part of each head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_decoder
from engine.models.headers.experts import gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, experts_in_mlp, with_experts
from engine.tensors import RawTensor

HF_NAMES = replace(
    with_experts(HF, "block_sparse_moe.experts", "w1", "w3", "w2"), router="block_sparse_moe.gate",
    correction="block_sparse_moe.e_score_correction_bias",
)  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`MiniMaxM2ForCausalLM`."""
    keys = keys.over({"num_local_experts": 256, "num_experts_per_tok": 8, "num_key_value_heads": 8})
    share, rotary = 1.0, keys.integer("rotary_dim", 0, 1 << 12, 0)
    if rotary:
        share = min(1.0, rotary / keys.integer("head_dim", 2, 1 << 12, 128))
    shape = hf_decoder(keys, bias=False, base=5e6, share=share, head_dim=128, max_position_embeddings=196_608)
    experts = hf_experts(
        keys,
        range(shape["layers"]),
        count="num_local_experts",
        used="num_experts_per_tok",
        width=shape["ffn_width"],
        normalise=True,
        scores="sigmoid",
        corrected=True,
    )
    return ModelConfig(**shape, qk_norm="row", experts=experts)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`minimax-m2`."""
    shape = gguf_decoder(keys, tensors, "minimax-m2", handled=("expert_count",))
    return ModelConfig(**shape, qk_norm="row", experts=gguf_experts(keys, shape, scores="sigmoid"))


MINIMAX_M2 = Architecture(
    ("minimax-m2",), ("MiniMaxM2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF,
    adapt=experts_in_mlp,
)  # fmt: skip
