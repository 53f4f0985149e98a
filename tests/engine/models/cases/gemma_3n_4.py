"""Gemma 3n, and Gemma 4: dense, with a second embedding for every layer, with experts."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from tests.engine.models.architectures import SMALL, Case, Config, Tensors
from tests.engine.models.gguf_form import GgufForm

SLIDING, FULL = "sliding_attention", "full_attention"
KINDS = [SLIDING, SLIDING, FULL, SLIDING, FULL, SLIDING, SLIDING, FULL]


def gemma_4_rope(share: float = 0.25, **scaling: Any) -> Config:
    """Low bases, so that the two tables differ visibly."""
    full = {"rope_type": "proportional", "rope_theta": 700.0, "partial_rotary_factor": share, **scaling}
    return {FULL: full, SLIDING: {"rope_type": "default", "rope_theta": 60.0}}


GEMMA_4: Config = {
    **SMALL, "num_hidden_layers": 8, "layer_types": KINDS, "head_dim": 16, "global_head_dim": 24,
    "sliding_window": 9, "hidden_size_per_layer_input": 0, "rope_parameters": gemma_4_rope(),
    "final_logit_softcapping": 5.0,
}  # fmt: skip
GEMMA_4_E: Config = {
    **GEMMA_4, "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 307,
    "num_kv_shared_layers": 4, "use_double_wide_mlp": True,
}  # fmt: skip
GEMMA_4_MIXTURE: Config = {
    **GEMMA_4, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 40,
    "attention_k_eq_v": True, "num_global_key_value_heads": 1,
}  # fmt: skip


def inside_the_model_with_images(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """As the text model of Google's folders."""
    kind = config["model_type"].removesuffix("_text")
    outer = {
        "architectures": [kind.capitalize() + "ForConditionalGeneration"], "model_type": kind,
        "tie_word_embeddings": config["tie_word_embeddings"],
        "text_config": {name: value for name, value in config.items() if name != "architectures"},
    }  # fmt: skip
    names = {name: name.replace("model.", "model.language_model.", 1) for name in tensors}
    return outer, {names[name]: values for name, values in tensors.items()}


def as_published(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The same, with heads of layers without a window under keys of their own."""
    published, own = dict(config), next(iter(config["per_layer_config"].values()))
    del published["per_layer_config"]
    published["global_head_dim"] = own["head_dim"]
    published["num_global_key_value_heads"] = own.get("num_key_value_heads")
    return inside_the_model_with_images(published, tensors)


def gemma_4_keys(config: Config) -> Config:
    """As the converter writes them, sizes of layers in lists."""
    config = {**config, **config.get("text_config", {})}
    slides = [kind == SLIDING for kind in config["layer_types"]]
    heads, dim = config["num_key_value_heads"], config["head_dim"]
    own = next(iter(config["per_layer_config"].values()))
    shared, inner = config["num_kv_shared_layers"], config["intermediate_size"]
    wide = [inner] * (len(slides) - shared) + [2 * inner] * shared
    rope = config["rope_parameters"]
    kv_heads = [heads if one else own.get("num_key_value_heads", heads) for one in slides]
    return {
        "attention.sliding_window": config["sliding_window"], "attention.sliding_window_pattern": slides,
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "attention.key_length": own["head_dim"], "attention.value_length": own["head_dim"],
        "attention.key_length_swa": dim, "attention.value_length_swa": dim,
        "rope.dimension_count": own["head_dim"], "rope.dimension_count_swa": dim,
        "rope.freq_base": rope[FULL]["rope_theta"], "rope.freq_base_swa": rope[SLIDING]["rope_theta"],
        "attention.head_count_kv": kv_heads if len(set(kv_heads)) > 1 else heads,
        "feed_forward_length": wide if config["use_double_wide_mlp"] else inner,
        "final_logit_softcapping": config["final_logit_softcapping"],
        "expert_count": config["num_experts"], "expert_used_count": config["top_k_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
    }  # fmt: skip


def gemma_4_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Numbers of layers as weights, factors of routers under other names, which part of heads is rotated."""
    own = next(iter(config["per_layer_config"].values()))
    pairs = own["head_dim"] // 2
    share = config["rope_parameters"][FULL]["partial_rotary_factor"]
    rotated = int(own["head_dim"] * share / 2)
    freqs = np.array([1.0] * rotated + [1e30] * (pairs - rotated), np.float32)
    out = {"rope_freqs.weight": freqs}
    for name, values in tensors.items():
        layer = name.split(".")[2]
        if name.endswith(".router.scale"):
            out[f"blk.{layer}.ffn_gate_inp.scale"] = values
        elif name.endswith(".per_expert_scale"):
            out[f"blk.{layer}.ffn_down_exps.scale"] = values
        else:
            plain = name.endswith(("layer_scalar", "experts.gate_up_proj", "experts.down_proj"))
            out[name + ".weight" if plain else name] = values
    return out


GEMMA_4_OLDER = {"rope_parameters": gemma_4_rope()}
GEMMA_4_FORM = GgufForm("gemma4", keys=gemma_4_keys, change=gemma_4_tensors)

GEMMA_3N: Config = {
    **SMALL, "num_hidden_layers": 8, "layer_types": KINDS, "head_dim": 16, "sliding_window": 9,
    "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 307, "num_kv_shared_layers": 3,
    "laurel_rank": 8, "activation_sparsity_pattern": [0.9, 0.5, 0.2] + [0.0] * 5,
    "rope_parameters": {
        FULL: {"rope_type": "default", "rope_theta": 700.0},
        SLIDING: {"rope_type": "default", "rope_theta": 60.0},
    },
    "final_logit_softcapping": 5.0,
}  # fmt: skip


def gemma_3n_keys(config: Config) -> Config:
    """As the converter writes them."""
    slides = [kind == SLIDING for kind in config["layer_types"]]
    rope = config["rope_parameters"]
    pattern = config["activation_sparsity_pattern"]
    return {
        "attention.sliding_window": config["sliding_window"], "attention.sliding_window_pattern": slides,
        "attention.shared_kv_layers": config["num_kv_shared_layers"],
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "altup.active_idx": config["altup_active_idx"], "altup.num_inputs": config["altup_num_inputs"],
        "activation_sparsity_scale": [
            NormalDist().inv_cdf(share) if share else -float("inf") for share in pattern
        ],
        "rope.freq_base": rope[FULL]["rope_theta"], "rope.freq_base_swa": rope[SLIDING]["rope_theta"],
        "final_logit_softcapping": config["final_logit_softcapping"],
    }  # fmt: skip


def gemma_3n_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Numbered matrices in stacks, factors as weights."""
    out, stacks = {}, dict[str, list[Any]]()
    for name, values in sorted(tensors.items()):
        if "altup_" in name:
            stacks.setdefault(name.rpartition(".weight")[0].rpartition(".")[0] + ".weight", []).append(values)
        else:
            out[name + ".weight" if name.endswith("_scale") else name] = values
    return out | {name: np.stack(matrices) for name, matrices in stacks.items()}


GEMMA_3N_FORM = GgufForm("gemma3n", keys=gemma_3n_keys, change=gemma_3n_tensors)

GEMMA_3N_4_CASES = (
    Case(
        "Gemma 3n", "versions of each row, a second embedding, sparse gates, shared layers", "gemma3n_text",
        GEMMA_3N, GEMMA_3N_FORM, older={"rope_parameters": GEMMA_3N["rope_parameters"]},
    ),
    Case(
        "Gemma 3n", "", "gemma3n_text",
        {
            **GEMMA_3N, "altup_num_inputs": 3, "altup_active_idx": 1, "altup_correct_scale": False,
            "attention_bias": True, "num_kv_shared_layers": 0, "hidden_activation": "silu",
            "intermediate_size": [96, 80, 96, 50, 64, 96, 96, 64], "hidden_size": 60, "head_dim": 20,
        },
        variant="three versions, layers of several widths, odd sizes, as published",
        publish=inside_the_model_with_images,
    ),
    Case(
        "Gemma 3n", "", "gemma3n_text",
        {
            **{
                name: value
                for name, value in GEMMA_3N.items()
                if name not in ("layer_types", "activation_sparsity_pattern", "rope_parameters")
            },
            "num_hidden_layers": 10, "num_kv_shared_layers": 2, "tie_word_embeddings": False,
            "vocab_size_per_layer_input": 350,
        },
        variant="default kinds of layers and ropes, untied",
    ),
    Case(
        "Gemma 4", "heads of their own and proportional rope in layers without a window, normed values",
        "gemma4_text", GEMMA_4, GEMMA_4_FORM, older=GEMMA_4_OLDER,
    ),
    Case(
        "Gemma 4", "", "gemma4_text", GEMMA_4_E, GEMMA_4_FORM, "a second embedding and shared layers",
        older=GEMMA_4_OLDER,
    ),
    Case(
        "Gemma 4", "", "gemma4_text", GEMMA_4_MIXTURE, GEMMA_4_FORM, "experts beside, keys as values",
        older=GEMMA_4_OLDER,
    ),
    Case(
        "Gemma 4", "", "gemma4_text",
        {
            **GEMMA_4_E, "num_kv_shared_layers": 3, "use_double_wide_mlp": False, "attention_k_eq_v": True,
            "attention_bias": True, "num_global_key_value_heads": 4, "sliding_window": 5,
            "final_logit_softcapping": None, "hidden_activation": "silu",
            "rope_parameters": gemma_4_rope(0.5, factor=3.0),
        },
        variant="biases, three shared layers, as published", publish=as_published,
    ),
    Case(
        "Gemma 4", "", "gemma4_text",
        {
            **{name: value for name, value in GEMMA_4_E.items() if name != "layer_types"},
            "num_hidden_layers": 13, "num_kv_shared_layers": 1, "tie_word_embeddings": False,
            "num_global_key_value_heads": 1,
        },
        variant="default kinds of layers, untied", publish=as_published,
    ),
)  # fmt: skip
