"""A.X K2: DeepSeek V3.2 with gated norms, and one matrix for queries and a gate, which reads the queries'
latent before and after its norm.
"""

from __future__ import annotations

from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek_sparse import INDEXED, hf_sparse
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_LAYERS
from engine.models.headers.experts import hf_groups
from engine.models.headers.keys import Keys

_DEFAULTS = {"n_routed_experts": 128, "moe_intermediate_size": 512, "rms_norm_eps": 1e-6}


def from_hf(keys: Keys) -> ModelConfig:
    """`AXK2ForCausalLM`."""
    layers = keys.integer("num_hidden_layers", 1, MAX_LAYERS)
    first = keys.integer("first_k_dense_replace", 0, MAX_LAYERS, 1)
    step = keys.integer("moe_layer_freq", 1, MAX_LAYERS, 1)
    sparse = [layer for layer in range(layers) if layer >= first and layer % step == 0]
    groups = hf_groups(keys) if keys.raw("n_group") is not None else {}
    read = hf_sparse(
        keys.over(_DEFAULTS), ((128, 384), (64, 32, 64)), sparse, groups, 16, max_position_embeddings=131072
    )
    return ModelConfig(
        **read, output_gate="queries", norm_gate_rank=keys.integer("gated_norm_rank", 1, 1 << 14, 16)
    )


A_X_K2 = Architecture((), ("AXK2ForCausalLM",), from_hf, None, INDEXED, None)
