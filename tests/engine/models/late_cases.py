"""Ling 3 and others of 2026."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ROPE, Case
from tests.engine.models.latent_cases import LATENT

LINEAR, FULL = "linear_attention", "full_attention"
LING: dict[str, Any] = {
    **{key: value for key, value in LATENT.items() if key != "q_lora_rank"}, "num_hidden_layers": 4,
    "layer_group_size": 2, "first_k_dense_replace": 1, "head_dim": 12, "num_local_experts": 8,
    "num_experts_per_tok": 3, "moe_intermediate_size": 36, "n_group": 4, "topk_group": 2,
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
)  # fmt: skip
