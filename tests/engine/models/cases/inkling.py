"""Inkling: its text model alone, and the whole, which transformers saves under the makers' names."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import SMALL, Case

INKLING: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 24, "swa_num_attention_heads": 6,
    "swa_num_key_value_heads": 3, "swa_head_dim": 16, "sliding_window_size": 7, "d_rel": 5, "rel_extent": 19,
    "log_scaling_n_floor": 11, "log_scaling_alpha": 0.4, "local_layer_ids": [0, 2],
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense"], "moe_intermediate_size": 32,
    "n_routed_experts": 6, "num_experts_per_tok": 2, "route_scale": 2.5, "logits_mup_width_multiplier": 2.0,
}  # fmt: skip
TEXT: dict[str, Any] = {
    **INKLING, "log_scaling_n_floor": None, "n_shared_experts": 1, "conv_kernel_size": 3,
    "hidden_act": "gelu",
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "text_config": TEXT,
    "vision_config": {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "patch_size": 4},
    "audio_config": {"n_mel_bins": 4, "mel_vocab_size": 4},
}
INKLING_CASES = (
    Case(
        "Inkling",
        "biases that queries make by distance, short convolutions, shared experts weighed with the others",
        "inkling_text", INKLING, scale=2.0,
    ),
    Case("Inkling", "", "inkling_mm_model", WHOLE, variant="with pictures and sounds", scale=2.0),
)  # fmt: skip
