"""ChatGLM's config.json as its makers publish it: the base of rope, divided positions, sizes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.models.architectures.dense.chatglm import from_hf
from engine.models.headers.keys import Keys

CONFIG: dict[str, Any] = {
    "architectures": ["ChatGLMModel"], "model_type": "chatglm", "add_bias_linear": False,
    "add_qkv_bias": True, "apply_query_key_layer_scaling": True,
    "apply_residual_connection_post_layernorm": False, "ffn_hidden_size": 13696, "hidden_size": 4096,
    "kv_channels": 128, "layernorm_epsilon": 1e-5, "multi_query_attention": True,
    "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28, "original_rope": True,
    "padded_vocab_size": 65024, "post_layer_norm": True, "quantization_bit": 0, "pre_seq_len": None,
    "prefix_projection": False, "rmsnorm": True, "seq_length": 32768, "tie_word_embeddings": False,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
NAMES = {
    "num_layers": "num_hidden_layers", "ffn_hidden_size": "intermediate_size", "kv_channels": "head_dim",
    "multi_query_group_num": "num_key_value_heads", "padded_vocab_size": "vocab_size",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes", "base", "divisor"),
    [
        ("ChatGLM2-6B", {}, 1e4, 1.0),
        ("ChatGLM2-6B-32K", {"rope_ratio": 16}, 1e4, 16.0),
        ("ChatGLM3-6B-32K", {"rope_ratio": 50}, 5e5, 1.0),
        ("ChatGLM3-6B-128K", {"rope_ratio": 500, "seq_length": 131072}, 5e6, 1.0),
        ("glm-4-9b-chat", {"rope_ratio": 500, "seq_length": 131072, "padded_vocab_size": 151552}, 5e6, 1.0),
        (
            "glm-4-9b-chat-1m",
            {"rope_ratio": 10000, "seq_length": 1 << 20, "multi_query_group_num": 4},
            1e8,
            1.0,
        ),
    ],
)
def test_positions(name: str, changes: dict[str, Any], base: float, divisor: float) -> None:
    whole = CONFIG | changes
    config = from_hf(Keys(whole, "config.json"))
    assert config.rope is not None
    assert (config.rope.base, config.rope.dim, set(config.rope.divisors)) == (base, 64, {divisor})
    assert config.rope.interleaved
    assert config.context_length == whole["seq_length"]
    assert (config.layers, config.kv_heads) == (28, whole["multi_query_group_num"])
    assert (config.ffn_width, config.vocab_size) == (13696, whole["padded_vocab_size"])
    assert (config.attention_bias, config.output_bias, config.tied) == (True, False, False)
    assert config.norm_eps == 1e-5


def test_keys_that_both_classes_may_write() -> None:
    """Folders saved by a later transformers may hold the usual name of a key beside the maker's own."""
    both = CONFIG | {usual: CONFIG[own] for own, usual in NAMES.items()}
    assert from_hf(Keys(both, "config.json")) == from_hf(Keys(CONFIG, "config.json"))
