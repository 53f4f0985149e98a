"""Flint, ModernBERT's decoder and the first GPT."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ABSENT, ROPE, SMALL, Case

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
FULL, SLIDING = "full_attention", "sliding_attention"
TWO_ROPES = {FULL: PLAIN, SLIDING: {"rope_type": "default", "rope_theta": 60.0}}
FLINT: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 24, "sliding_window": 9, "num_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 56,
    "mlp_only_layers": [0], "layer_types": [SLIDING, FULL, SLIDING, FULL], ROPE: PLAIN,
}  # fmt: skip
MODERN: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "num_key_value_heads"}, "local_attention": 18,
    "num_hidden_layers": 4, "pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2, ROPE: TWO_ROPES,
}  # fmt: skip
GPT_1: dict[str, Any] = {"vocab_size": 307, "n_positions": 512, "n_embd": 64, "n_layer": 3, "n_head": 4}

FLINT_GPT_CASES = (
    Case(
        "Flint", "experts chosen by sigmoids, attention sinks, rope only in the layers with windows", "flint",
        FLINT,
    ),
    Case(
        "Flint", "", "flint",
        {
            **{key: value for key, value in FLINT.items() if key not in ("layer_types", "mlp_only_layers")},
            "num_hidden_layers": 5, "attention_bias": True, "norm_topk_prob": False,
            "tie_word_embeddings": True,
        },
        variant="its own layers, biases, tied",
    ),
    Case(
        "Ettin", "ModernBERT as a decoder: a matrix, an activation and a norm before the head",
        "modernbert-decoder",
        MODERN, older={ROPE: TWO_ROPES},
    ),
    Case(
        "Ettin", "", "modernbert-decoder",
        {
            **MODERN, "attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True,
            "decoder_bias": False, "tie_word_embeddings": False, "classifier_activation": "silu", ROPE: None,
        },
        variant="biases, untied", older={ROPE: ABSENT},
    ),
    Case("GPT-1", "GPT-2 with norms behind the sums", "openai-gpt", GPT_1),
    Case(
        "GPT-1", "", "openai-gpt", {**GPT_1, "afn": "relu", "tie_word_embeddings": False},
        variant="untied, relu",
    ),
)  # fmt: skip
