"""JetMoE (arXiv 2404.07413): experts of attention and of the feed-forward part."""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_activation, hf_decoder
from engine.models.headers.experts import hf_experts
from engine.models.headers.keys import Keys
from engine.models.layers.attention.expert_attention import expert_attention_blocks
from engine.models.names import HF

_MOST = 1 << 10
HF_NAMES = replace(
    HF, router="mlp.router.layer", expert_gate_up="mlp.input_linear", expert_down="mlp.output_linear"
)
_DEFAULTS = {
    "vocab_size": 32_000, "hidden_size": 2048, "num_hidden_layers": 12, "num_key_value_heads": 16,
    "intermediate_size": 5632, "max_position_embeddings": 4096, "num_local_experts": 8,
    "num_experts_per_tok": 2, "tie_word_embeddings": True, "kv_channels": 128,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`JetMoeForCausalLM`. All experts' queries are heads."""
    keys = keys.over(_DEFAULTS).renamed(head_dim="kv_channels")
    heads = keys.integer("num_local_experts", 1, _MOST) * keys.integer("num_key_value_heads", 1, 1 << 14)
    keys = keys.replaced("num_attention_heads", min(heads, 1 << 14))
    shape = hf_decoder(keys, bias=False)
    experts = hf_experts(
        keys, range(shape["layers"]), count="num_local_experts", used="num_experts_per_tok",
        width=shape["ffn_width"], normalise=True,
    )  # fmt: skip
    return ModelConfig(
        **shape | {"activation": hf_activation(keys, "activation_function")}, experts=experts
    )  # fmt: skip


JET_MOE = Architecture(
    (), ("JetMoeForCausalLM",), from_hf, None, HF_NAMES, None, layers=expert_attention_blocks
)
