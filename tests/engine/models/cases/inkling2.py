"""Inkling 2 and Inkling 2 Mini: the text models alone, and the wholes; transformers saves all under the
makers' names.
"""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import SMALL, Case

INKLING_2: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "intermediate_size"}, "num_hidden_layers": 5,
    "head_dim": 24, "swa_num_attention_heads": 6, "swa_num_key_value_heads": 3, "swa_head_dim": 16,
    "sliding_window_size": 7, "d_rel": 5, "rel_extent": 19, "log_scaling_n_floor": 11,
    "log_scaling_alpha": 0.4, "layer_types": ["hybrid_sliding", "hybrid", "hybrid", *["hybrid_sliding"] * 2],
    "moe_intermediate_size": 32, "n_routed_experts": 6, "num_experts_per_tok": 2, "route_scale": 2.5,
    "n_layers_per_attn_res_block": 2, "unpadded_vocab_size": 307, "qk_l2_clip_threshold": 4.0,
    "rel_l2_clip_threshold": 1.5, "mlp_gate_softcap": 1.5, "mlp_up_softcap": 2.0,
    "final_logit_softcapping": 12.0,
}  # fmt: skip
LOOPED: dict[str, Any] = {
    **INKLING_2, "num_hidden_layers": 6, "layer_types": ["hybrid_sliding", "hybrid"] * 3,
    "loop_layer_index_start": 2, "loop_layer_index_end": 4, "loop_num_passes": 3, "loop_gate_rank": 8,
}  # fmt: skip
VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 4,
          "text_hidden_size": 64}  # fmt: skip
INKLING_2_CASES = (
    Case(
        "Inkling 2",
        "layers that read a softmax over sums of earlier layers, heads no longer than a limit, sinks that "
        "queries make, taps that rows make", "inkling2_text", INKLING_2, scale=2.0,
    ),
    Case(
        "Inkling 2", "", "inkling2",
        {"text_config": {**INKLING_2, "conv_kernel_size": 3}, "vision_config": VISION},
        variant="with pictures", scale=2.0,
    ),
    Case(
        "Inkling 2 Mini", "layers that run several times, each time with messages from the time before",
        "inkling2_loop_text", LOOPED, scale=2.0,
    ),
    Case(
        "Inkling 2 Mini", "", "inkling2_loop_text",
        {**LOOPED, "n_layers_per_attn_res_block": 1, "loop_layer_index_start": 1, "loop_layer_index_end": 5,
         "loop_num_passes": 2},
        variant="many layers of the loop, blocks of one", scale=2.0,
    ),
)  # fmt: skip
