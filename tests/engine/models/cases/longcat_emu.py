"""LongCat-Flash and others whose layers are no row of equal blocks."""

from __future__ import annotations

from typing import Any

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
LONG_CAT: dict[str, Any] = {
    **{key: SMALL[key] for key in SMALL if key not in ("num_key_value_heads", "intermediate_size")},
    "num_layers": 2, "ffn_hidden_size": 96, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "head_dim": 8, "moe_topk": 4, "n_routed_experts": 5,
    "zero_expert_num": 3, "expert_ffn_hidden_size": 40, "routed_scaling_factor": 1.5, ROPE: PLAIN,
}  # fmt: skip
del LONG_CAT["num_hidden_layers"]
ZAMBA: dict[str, Any] = {
    **{key: SMALL[key] for key in SMALL if key != "num_key_value_heads"}, "num_hidden_layers": 4,
    "mamba_d_state": 12, "mamba_expand": 1, "pad_token_id": 0, "bos_token_id": 1,
    "layers_block_type": ["hybrid", "linear_attention", "hybrid", "hybrid"],
}  # fmt: skip
ZAMBA_1: dict[str, Any] = {**ZAMBA, "num_key_value_heads": 4}
ZAMBA_2: dict[str, Any] = {
    **ZAMBA, "num_hidden_layers": 2, "layers_block_type": ["hybrid", "hybrid"], "mamba_d_state": 64,
    "mamba_ngroups": 2, "n_mamba_heads": 8, "adapter_rank": 6, "use_mem_rope": True,
    "use_shared_attention_adapter": True, ROPE: PLAIN,
}  # fmt: skip
THREE = {"num_hidden_layers": 3, "layers_block_type": ["hybrid"] * 3, "num_mem_blocks": 2}
RECURRENT_GEMMA: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "attention_window_size": 9, "logits_soft_cap": 4.0, "pad_token_id": 0,
    "bos_token_id": 2, "eos_token_id": 1, ROPE: {**PLAIN, "partial_rotary_factor": 0.5},
}  # fmt: skip
JET_MOE: dict[str, Any] = {
    **{key: SMALL[key] for key in SMALL if key != "num_attention_heads"}, "num_key_value_heads": 2,
    "kv_channels": 16, "num_local_experts": 4, "num_experts_per_tok": 2, ROPE: PLAIN,
}  # fmt: skip
JAPANESE: dict[str, Any] = {
    **{key: SMALL[key] for key in SMALL if key not in ("num_key_value_heads", "intermediate_size")},
    "intermediate_multiple_size": 2, "tie_word_embeddings": False, ROPE: PLAIN,
}  # fmt: skip
CTRL: dict[str, Any] = {
    "vocab_size": 307, "n_positions": 512, "n_embd": 64, "n_layer": 3, "n_head": 4, "dff": 96,
}  # fmt: skip


def as_emu(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The class of Emu 3 without pictures."""
    return config | {"architectures": ["Emu3ForCausalLM"], "model_type": "emu3_text_model"}, tensors


LONGCAT_EMU_CASES = (
    Case(
        "LongCat-Flash",
        "pairs of layers, experts that are added after the second, some of which give back their input",
        "longcat_flash", LONG_CAT,
    ),
    Case(
        "LongCat-Flash", "", "longcat_flash",
        {
            **LONG_CAT, "num_layers": 1, "zero_expert_num": 0, "attention_bias": True, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
        },
        variant="all experts of matrices, biases, tied",
    ),
    Case(
        "Zamba 2", "Mamba-2, and blocks of attention that layers share", "zamba2", ZAMBA_2,
        length=34,
    ),
    Case(
        "Zamba 2", "", "zamba2",
        {
            **ZAMBA_2, **THREE, "use_mem_rope": False, "use_shared_attention_adapter": False,
            "mamba_ngroups": 1, "rms_norm_eps": 0.1,
        },
        variant="two blocks in turn", length=34,
    ),
    Case(
        "Zamba 2", "", "zamba2",
        {**ZAMBA_2, "add_bias_linear": True, "tie_word_embeddings": False, "rms_norm_eps": 1e-4,
         "hidden_act": "silu"},
        variant="biases, untied", length=34,
    ),
    Case(
        "RecurrentGemma", "a gated recurrent unit, and windows", "recurrent_gemma", RECURRENT_GEMMA,
    ),
    Case(
        "RecurrentGemma", "", "recurrent_gemma",
        {
            **RECURRENT_GEMMA, "lru_width": 80, "conv1d_width": 2, "attention_bias": True, "head_dim": 12,
            "num_key_value_heads": None, "block_types": ["attention", "recurrent"],
            "hidden_activation": "silu",
        },
        variant="wider, biases",
    ),
    Case(
        "Zamba", "Mamba of several heads, and attention that layers share", "zamba",
        {**ZAMBA_1, "num_hidden_layers": 2, "layers_block_type": ["hybrid", "hybrid"]},
    ),
    Case(
        "Zamba", "", "zamba",
        {
            **ZAMBA_1, "num_hidden_layers": 3,
            "layers_block_type": ["linear_attention", "hybrid", "hybrid"], "n_mamba_heads": 4,
            "mamba_proj_bias": True, "mamba_dt_rank": 5, "mamba_expand": 2, "num_key_value_heads": 2,
        },
        variant="four heads, biases",
    ),
    Case("JetMoE", "experts of attention", "jetmoe", JET_MOE),
    Case(
        "JetMoE", "", "jetmoe",
        {
            **JET_MOE, "num_experts_per_tok": 3, "activation_function": "gelu", "rms_norm_eps": 1e-3,
            "tie_word_embeddings": False,
        },
        variant="three of four, untied",
    ),
    Case("DiffLlama", "differences of two attentions", "diffllama", {**SMALL, ROPE: PLAIN}),
    Case(
        "DiffLlama", "", "diffllama",
        {
            **SMALL, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 12,
            "attention_bias": True, "tie_word_embeddings": True, ROPE: PLAIN,
        },
        variant="own head dimension, biases, tied",
    ),
    Case(
        "GPT-NeoX Japanese", "one half after the other, a bias in the last layer alone", "gpt_neox_japanese",
        JAPANESE,
    ),
    Case(
        "GPT-NeoX Japanese", "", "gpt_neox_japanese",
        {
            **JAPANESE, "tie_word_embeddings": True, "hidden_act": "relu",
            ROPE: {**PLAIN, "partial_rotary_factor": 0.5},
        },
        variant="half of each head, tied",
    ),
    Case("CTRL", "GPT-2 with computed positions", "ctrl", CTRL),
    Case("Llama", "", "llama", {**SMALL, ROPE: PLAIN}, variant="Emu 3", publish=as_emu),
)  # fmt: skip
