"""Chameleon's folders, RWKV-4, xLSTM, Doge and ZAYA1."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ROPE, SMALL, Case
from tests.engine.models.whole_models import CODES

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
CHAMELEON: dict[str, Any] = {
    **SMALL, ROPE: PLAIN, "vq_config": CODES, "vocabulary_map": {"<image>": 5}, "attention_bias": True,
}  # fmt: skip
RWKV_4: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "vocab_size": 307,
    "context_length": 512, "rescale_every": 2,
}  # fmt: skip
DOGE: dict[str, Any] = {**SMALL, ROPE: PLAIN, "keep_window_size": 100}
X_LSTM: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_heads": 4, "vocab_size": 307, "ffn_proj_factor": 1.5,
    "ffn_round_up_to_multiple_of": 32, "autocast_kernel_dtype": "float32",
}  # fmt: skip

ZAYA: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "vocab_size": 307, "max_position_embeddings": 512, "moe_intermediate_size": 40,
    "num_experts": 4, "router_hidden_size": 24, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip

CHAMELEON_RWKV_4_CASES = (
    Case("Chameleon", "a layer norm of every head's queries and keys", "chameleon", CHAMELEON),
    Case(
        "Chameleon", "", "chameleon", {**CHAMELEON, "swin_norm": True, "attention_bias": False},
        variant="norms behind",
    ),
    Case("RWKV-4", "weighted means of channels, rows mixed with those before", "rwkv", RWKV_4),
    Case(
        "RWKV-4", "", "rwkv",
        {**RWKV_4, "rescale_every": 0, "attention_hidden_size": 40, "tie_word_embeddings": True},
        variant="other channels, not halved",
    ),
    Case("Doge", "scores with what each key's value makes", "doge", DOGE),
    Case(
        "Doge", "", "doge",
        {
            **DOGE, "num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True, "sliding_window": 9,
            "tie_word_embeddings": True, "head_dim": 24,
        },
        variant="biases, windows, tied",
    ),
    Case(
        "ZAYA1", "convolved queries and keys, a network that chooses experts", "zaya", ZAYA,
    ),
    Case(
        "ZAYA1", "", "zaya",
        {
            **ZAYA, "num_attention_heads": 6, "attention_bias": True, "cca_time0": 3, "cca_time1": 3,
            "lm_head_bias": True, "tie_word_embeddings": False, "sliding_window": 9,
            "layer_types": ["hybrid", "hybrid_sliding", "hybrid"],
        },
        variant="more taps, biases, windows",
    ),
    Case(
        "ZAYA1", "", "zaya",
        {**ZAYA, "num_key_value_heads": 1, "cca_time0": 1, "cca_time1": 1, "num_experts": 1},
        variant="one tap, one expert",
    ),
    Case("xLSTM", "LSTMs with matrices as memory", "xlstm", X_LSTM, length=90),
    Case(
        "xLSTM", "", "xlstm",
        {
            **X_LSTM, "qk_dim_factor": 0.625, "v_dim_factor": 1.5, "gate_soft_cap": 4.0,
            "tie_word_embeddings": True,
        },
        variant="other sizes, said to be tied",
    ),
)  # fmt: skip
