"""Muse Glimmer, Apertus 1.5, North Vision, Lara Mini, Molmo 2, Cosmos 3 and Kolibri 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.mixture import in_stacks
from tests.engine.models.cases.text_of_multimodal import named
from tests.engine.models.gguf_form import GgufForm

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 700.0, "factor": 8.0, "original_max_position_embeddings": 32,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip

TWO_ROPES = {SLIDING: {**PLAIN, "rope_theta": 60.0}, FULL: {**LLAMA_3, "rope_theta": 900.0}}


PICTURES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def with_pictures(text: Config, **more: Any) -> Config:
    """The settings of a whole whose encoder of pictures is as small as it can be."""
    return {"text_config": text, "vision_config": PICTURES, **more}


MUSE: dict[str, Any] = {**SMALL, "num_hidden_layers": 5, "head_dim": 24, "sliding_window": 9, ROPE: PLAIN}
MUSE_WHOLE = {"out_hidden_size": 128, "projector_hidden_size": 32}


def muse_keys(config: Config) -> dict[str, Any]:
    return {
        "attention.sliding_window": config["sliding_window"], "logit_scale": config["output_multiplier"],
        "attention.sliding_window_pattern": [kind == SLIDING for kind in config["layer_types"]],
        "final_logit_softcapping": config["final_logit_softcapping"],
    }  # fmt: skip


def muse_tensors(config: Config, tensors: Tensors) -> Tensors:
    """1 is added to the norms of layers, and those of queries and keys get weights that scale scores."""
    out = {
        name: values + 1 if name.endswith("layernorm.weight") else values
        for name, values in tensors.items()
        if not name.startswith("model.vision_")
    }
    ones = np.ones(config["head_dim"], np.float32)
    for layer in range(config["num_hidden_layers"]):
        out[f"blk.{layer}.attn_q_norm.weight"] = ones * np.float32(config["qk_scale_factor"])
        out[f"blk.{layer}.attn_k_norm.weight"] = ones
    return out


MUSE_FORM = GgufForm(
    "muse-glimmer", interleaved=True, keys=muse_keys, change=muse_tensors, alike=("afmoe", "gemma2")
)
COMPASS: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "sliding_window": 9, "layer_types": [SLIDING, SLIDING, FULL, SLIDING],
    ROPE: {SLIDING: PLAIN, FULL: None}, "pad_token_id": 0,
}  # fmt: skip
LARA: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 6, "head_dim": 24, "sliding_window": 9, "num_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 56,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 24, "linear_conv_kernel_dim": 3, ROPE: PLAIN,
}  # fmt: skip
KOLIBRI: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "intermediate_size"}, "num_hidden_layers": 5,
    "head_dim": 24, "sliding_window": 9, "num_experts": 7, "num_experts_per_tok": 3,
    "moe_intermediate_size": 40, "shared_expert_intermediate_size": 56, ROPE: PLAIN,
}  # fmt: skip


MOLMO: dict[str, Any] = {**SMALL, "head_dim": 24, "additional_vocab_size": 8, ROPE: LLAMA_3}
MOLMO_WHOLE: dict[str, Any] = {
    "vision_config": {**PICTURES, "num_key_value_heads": 2, "head_dim": 16},
    "adapter_config": {
        **PICTURES, "num_key_value_heads": 2, "head_dim": 16, "text_hidden_size": 64,
        "vision_feature_layer": [-1],
    },
}  # fmt: skip


def as_in_memory(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Molmo 2 under transformers' names, its embedding in one table."""
    out, at = dict[str, Any](), "model.transformer."
    renamed = {
        at + "ln_f": "model.language_model.norm", at + "blocks": "model.language_model.layers",
        "attn_norm": "input_layernorm", "ff_norm": "post_attention_layernorm", "attn_out": "o_proj",
        "ff_out": "down_proj",
    }  # fmt: skip
    text = config["text_config"]
    heads = text["num_attention_heads"] * text["head_dim"], text["num_key_value_heads"] * text["head_dim"]
    for name, values in tensors.items():
        for old, new in renamed.items():
            name = name.replace(old, new)
        parts = {
            "self_attn.att_proj": ("q_proj", "k_proj", "v_proj"),
            "mlp.ff_proj": ("up_proj", "gate_proj"),
        }
        ends = {"self_attn.att_proj": np.cumsum(heads), "mlp.ff_proj": [len(values) // 2]}
        fused = next((part for part in parts if part in name), None)
        if fused is None:
            out[name] = values
            continue
        module = fused.partition(".")[2]
        for part, rows in zip(parts[fused], np.split(values, ends[fused]), strict=True):
            out[name.replace(module, part)] = rows
    table = [out.pop(f"{at}wte.{end}") for end in ("embedding", "new_embedding")]
    return config, out | {"model.language_model.embed_tokens.weight": np.concatenate(table)}


def omni(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The folders of Cosmos 3 Omni name the matrices and norms of attention in their own way."""
    publish = named("Cosmos3OmniForConditionalGeneration", "cosmos3_omni", "qwen3_vl_text", at="")
    config, tensors = publish(config, tensors)
    own = {f"{part}_proj": f"to_{part}" for part in "qkv"} | {"o_proj": "to_out"}
    own |= {"q_norm": "norm_q", "k_norm": "norm_k"}
    parted = {name: name.split(".") for name in tensors}
    return config, {
        ".".join(own.get(part, part) for part in parts): tensors[name] for name, parts in parted.items()
    }


def as_first_published(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Lara Mini as transformers has it in memory, where each part of a delta net's input has a matrix."""
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    heads, out = config["linear_num_value_heads"], dict[str, Any]()
    ends = np.cumsum([2 * keys + values, values, heads])
    for name, weight in tensors.items():
        if not name.endswith(".in_proj.weight"):
            out[name.replace(".out_norm.", ".norm.")] = weight
            continue
        for part, rows in zip(("qkv", "z", "b", "a"), np.split(weight, ends), strict=True):
            out[name.replace(".in_proj.", f".in_proj_{part}.")] = rows
    return config, out


MUSE_APERTUS_CASES = (
    Case(
        "Muse Glimmer", "gated attention, four norms, no rope in every fourth layer", "muse_glimmer",
        with_pictures(MUSE, **MUSE_WHOLE), MUSE_FORM, scale=2.0,
    ),
    Case(
        "Muse Glimmer", "", "muse_glimmer",
        with_pictures(
            {
                **MUSE, "num_key_value_heads": 1, "attention_bias": True, "post_norm_eps": 0.05,
                "layer_types": [FULL, SLIDING, FULL, SLIDING, FULL], "layer_rope_theta": [7, 0, 0, 9, 7],
                "qk_scale_factor": 1.5, "output_multiplier": 0.7, "final_logit_softcapping": 7.0,
            },
            **MUSE_WHOLE, tie_word_embeddings=True,
        ),
        variant="its own layers, biases, tied",
    ),
    Case(
        "Apertus 1.5", "xIELU and qk norm, a head with fewer rows than the embedding", "apertus1p5_text",
        {**SMALL, "vocab_size": 340, "output_vocab_size": 307, ROPE: LLAMA_3},
    ),
    Case("Apertus 1.5", "", "apertus1p5_text", {**SMALL, "tie_word_embeddings": True}, variant="tied",
         publish=named("Apertus1p5ForConditionalGeneration", "apertus1p5", "apertus1p5_text"),
    ),
    Case(
        "North Vision", "Cohere 2 with a rope for each kind of layer", "cohere_compass_text", COMPASS,
        older={ROPE: COMPASS[ROPE]},
    ),
    Case(
        "North Vision", "", "cohere_compass_text",
        {
            **COMPASS, "attention_bias": True, "logit_scale": 0.25, "tie_word_embeddings": False,
            ROPE: TWO_ROPES, "head_dim": 24,
        },
        variant="two ropes, biases, untied", older={ROPE: TWO_ROPES},
        publish=named("CohereCompassForConditionalGeneration", "cohere_compass", "cohere_compass_text"),
    ),
    Case(
        "Lara Mini", "gated delta nets beside attention with windows, experts", "lara_mini", LARA,
    ),
    Case(
        "Lara Mini", "", "lara_mini",
        {
            **LARA, "layer_types": [FULL, LINEAR, SLIDING, FULL, LINEAR, LINEAR], "num_key_value_heads": 1,
            "attention_bias": True, "norm_topk_prob": False, "tie_word_embeddings": False,
        },
        variant="its own layers, biases, untied", publish=as_first_published,
    ),
    Case(
        "Molmo 2", "Qwen 3's qk norm, one matrix for queries, keys and values", "molmo2",
        MOLMO_WHOLE | {"text_config": MOLMO},
    ),
    Case(
        "Molmo 2", "", "molmo2",
        MOLMO_WHOLE
        | {
            "text_config": {
                **MOLMO, "attention_bias": True, "qk_norm_type": "olmo", "norm_after": True,
                "rope_scaling_layers": [1], "rms_norm_eps": 1e-4, "num_key_value_heads": 1,
            },
        },
        variant="norms behind, a rope without scaling", publish=as_in_memory,
    ),
    Case(
        "Cosmos 3 Edge", "Llama with a plain feed-forward part of squared ReLUs", "cosmos3_edge",
        with_pictures({**SMALL, "head_dim": 24, ROPE: {**PLAIN, "mrope_section": [4, 4, 4]}}),
    ),
    Case(
        "Cosmos 3 Edge", "", "cosmos3_edge",
        with_pictures(
            {
                **SMALL, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1, "head_dim": 16,
                ROPE: {**PLAIN, "mrope_section": [4, 2, 2]},
            },
        ),
        variant="biases",
    ),
    Case(
        "Qwen 3", "", "qwen3", {**SMALL, "head_dim": 24, ROPE: {**PLAIN, "mrope_section": [4, 4, 4]}},
        variant="in Cosmos 3 Omni", publish=omni,
    ),
    Case("Kolibri 1", "experts chosen by logits and a bias, weighed by sigmoids", "kolibri1", KOLIBRI),
    Case(
        "Kolibri 1", "", "kolibri1",
        {**KOLIBRI, "layer_types": [FULL, SLIDING, FULL, SLIDING, FULL], "norm_topk_prob": True,
         "tie_word_embeddings": True, "num_key_value_heads": 1},
        variant="its own layers, stacks, tied", publish=in_stacks,
    ),
)  # fmt: skip
