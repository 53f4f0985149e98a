"""Beam, whose sums are scaled by their number of terms."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ROPE, SMALL, Case

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
BEAM: dict[str, Any] = {
    **SMALL, "head_dim": 12, "sliding_window": 7, "num_experts": 8, "num_experts_per_tok": 3, "n_group": 4,
    "topk_group": 2, "moe_intermediate_size": 40, "layer_types": KINDS, "final_logit_softcapping": 4.0,
    "mlp_layer_types": ["dense", "sparse", "sparse"], "rms_norm_eps": 0.05,
    ROPE: {"sliding_attention": PLAIN, "full_attention": None},
}  # fmt: skip
OTHER = {"sliding_attention": None, "full_attention": {**PLAIN, "rope_theta": 300.0}}
BOTH = {**OTHER, "sliding_attention": PLAIN}

BEAM_CASES = (
    Case(
        "Beam", "scaled sums, queries scaled by their position, gates with a bias of each head", "beam", BEAM,
        older={ROPE: BEAM[ROPE]},
    ),
    Case(
        "Beam", "", "beam",
        {
            **BEAM, "num_hidden_layers": 4, "layer_types": None, "mlp_layer_types": None, ROPE: None,
            "sliding_window": 5, "final_logit_softcapping": None, "norm_topk_prob": False,
            "attention_bias": True, "tie_word_embeddings": True,
        },
        variant="usual layers, biases, tied",
    ),
    Case(
        "Beam", "", "beam",
        {**BEAM, ROPE: OTHER}, variant="rope in other layers", older={ROPE: OTHER},
    ),
    Case(
        "Beam", "", "beam",
        {**BEAM, ROPE: BOTH}, variant="rope in all layers", older={ROPE: BOTH},
    ),
)  # fmt: skip
