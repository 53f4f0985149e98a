"""Models with latent attention: MiniCPM 3."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ROPE, SMALL, Case, Config
from tests.engine.models.gguf_form import GgufForm

LATENT: dict[str, Any] = {
    **SMALL, "num_key_value_heads": 4, "kv_lora_rank": 40, "q_lora_rank": 24, "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8, "v_head_dim": 20,
}  # fmt: skip
"""Sizes that are no multiples of each other, nor of 16."""
PLAIN = {"rope_type": "default", "rope_theta": 700.0}


def latent_keys(config: Config) -> dict[str, Any]:
    """The sizes of latents and of heads, as the files of llama.cpp without absorbed matrices give them."""
    nope, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    keys = {
        "attention.q_lora_rank": config["q_lora_rank"], "attention.kv_lora_rank": config["kv_lora_rank"],
        "attention.key_length": nope + rope, "attention.value_length": config["v_head_dim"],
        "rope.dimension_count": rope, "attention.head_count_kv": config["num_attention_heads"],
    }  # fmt: skip
    return {key: value for key, value in keys.items() if value is not None}


MINICPM: dict[str, Any] = {**LATENT, ROPE: PLAIN, "hidden_size": 80}


LATENT_CASES = (
    Case(
        "MiniCPM 3", "latent attention, scaled embeddings, residuals and logits", "minicpm3", MINICPM,
        GgufForm("minicpm3", keys=latent_keys), scale=3.0,
    ),
    Case(
        "MiniCPM 3", "", "minicpm3",
        {
            **MINICPM, "q_lora_rank": None, "attention_bias": True, "mlp_bias": True, "v_head_dim": None,
            "num_attention_heads": 5, "num_key_value_heads": 5, "scale_depth": None, "dim_model_base": None,
            "scale_emb": 3, "tie_word_embeddings": False,
        }, variant="biases, one matrix of queries",
    ),
)  # fmt: skip
