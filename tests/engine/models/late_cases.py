"""Ling 3 and others of 2026."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ROPE, SMALL, Case
from tests.engine.models.latent_cases import LATENT

LINEAR, FULL = "linear_attention", "full_attention"
LING: dict[str, Any] = {
    **{key: value for key, value in LATENT.items() if key != "q_lora_rank"}, "num_hidden_layers": 4,
    "layer_group_size": 2, "first_k_dense_replace": 1, "head_dim": 12, "num_local_experts": 8,
    "num_experts_per_tok": 3, "moe_intermediate_size": 36, "n_group": 4, "topk_group": 2,
}  # fmt: skip

MINIMAX: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 24, "num_local_experts": 5, "num_experts_per_tok": 2,
    "block_size": 16, "full_attn_alpha_factor": 3.5, "full_attn_beta_factor": 0.7,
    "linear_attn_alpha_factor": 2.0, "linear_attn_beta_factor": 1.3, "mlp_alpha_factor": 1.9,
    ROPE: {"rope_type": "default", "rope_theta": 700.0},
}  # fmt: skip

LATE_CASES = (
    Case(
        "Ling 3", "delta attention whose decays are bounded, latent attention with a gate, experts",
        "bailing_hybrid", LING, gpu=False,
    ),
    Case(
        "Ling 3", "", "bailing_hybrid",
        {
            **LING, "q_lora_rank": 24, "kda_safe_gate": False, "n_group": 1, "topk_group": 1,
            "norm_topk_prob": False, "short_conv_kernel_size": 3, "n_shared_experts": 2,
            "layer_types": [LINEAR, LINEAR, FULL, LINEAR], "attention_bias": True,
            "mlp_layer_types": ["sparse", "dense", "sparse", "dense"],
            ROPE: {
                "rope_type": "yarn", "rope_theta": 900.0, "factor": 4.0, "mscale": 1.0,
                "mscale_all_dim": 0.8, "original_max_position_embeddings": 24,
            },
        }, variant="decays without bounds, biases, yarn", gpu=False,
    ),
    Case(
        "MiniMax-01", "lightning attention in every second layer, experts, halves added to normed input",
        "minimax", MINIMAX,
    ),
    Case(
        "MiniMax-01", "", "minimax",
        {
            **MINIMAX, "layer_types": [LINEAR, LINEAR, FULL, LINEAR], "num_key_value_heads": 1,
            "num_attention_heads": 3, "mlp_beta_factor": 0.8, "sliding_window": 9, "hidden_act": "gelu",
            "tie_word_embeddings": True,
        }, variant="three heads, windows, tied",
    ),
)  # fmt: skip
