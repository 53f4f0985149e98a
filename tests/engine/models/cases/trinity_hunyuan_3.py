"""Families of 2026: Trinity, LFM3, Solar Open, Hunyuan 3, Granite with windows and others."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.latent_attention import LATENT, absorbed, absorbed_keys
from tests.engine.models.cases.llama import LLAMA3
from tests.engine.models.cases.mixture import CHOSEN, EXPERTS, GROUPS
from tests.engine.models.cases.phi_granite import granite_keys
from tests.engine.models.gguf_form import GgufForm

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
TWO_ROPES = {"sliding_attention": PLAIN, "full_attention": {"rope_type": "default", "rope_theta": 9000.0}}
TRINITY: dict[str, Any] = {
    **SMALL, **EXPERTS, "head_dim": 24, "num_hidden_layers": 4, "sliding_window": 9, "route_scale": 1.7,
    "num_shared_experts": 2, "mup_enabled": True, ROPE: PLAIN,
}  # fmt: skip


def mellum_keys(config: Config) -> dict[str, Any]:
    rope = config[ROPE]
    return {
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": [kind == KINDS[0] for kind in config["layer_types"]],
        "rope.freq_base": rope[KINDS[1]]["rope_theta"], "rope.freq_base_swa": rope[KINDS[0]]["rope_theta"],
    }  # fmt: skip


SLIDING_GRANITE: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "sliding_window": 9, "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2, "residual_multiplier": 0.6, "logits_scaling": 2.0, ROPE: PLAIN,
    "layer_rope_theta": [0, 700.0, 700.0, 700.0],
}  # fmt: skip
LFM_3: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "head_dim": 24, "sliding_window": 9, "conv_L_cache": 5,
    "layer_types": ["conv", "sliding_attention", "full_attention", "conv"],
    ROPE: {
        "sliding_attention": PLAIN,
        "full_attention": {
            "rope_type": "proportional", "rope_theta": 9000.0, "partial_rotary_factor": 0.5
        },
    },
}  # fmt: skip


def trinity_keys(config: Config) -> dict[str, Any]:
    return {
        "expert_shared_count": config["num_shared_experts"], "expert_gating_func": 2,
        "expert_feed_forward_length": config["moe_intermediate_size"], "expert_weights_norm": True,
        "expert_weights_scale": config["route_scale"], "attention.sliding_window": config["sliding_window"],
        "leading_dense_block_count": config["num_dense_layers"],
    }  # fmt: skip


def trinity_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The bias of the choice has the name of a bias."""
    return {
        f"{name}.bias" if name.endswith("expert_bias") else name: values for name, values in tensors.items()
    }


def published_hunyuan(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' names."""
    names = {
        "mlp.gate.weight": "mlp.router.gate.weight", "e_score_correction_bias": "expert_bias",
        "shared_experts": "shared_mlp",
    }  # fmt: skip
    out: Tensors = {}
    for name, values in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        out[name] = values
    return config, out


def hunyuan_keys(config: Config) -> dict[str, Any]:
    return {
        "expert_feed_forward_length": config["moe_intermediate_size"], "expert_gating_func": 2,
        "expert_shared_feed_forward_length":
            config["moe_intermediate_size"] * config["num_shared_experts"],
        "expert_weights_norm": True, "expert_weights_scale": config["router_scaling_factor"],
    }  # fmt: skip


HUNYUAN_FORM = GgufForm(
    "hy_v3", keys=hunyuan_keys, alike=("qwen3moe", "afmoe"),
    change=lambda config, tensors: {
        name.replace("mlp.router.gate", "mlp.gate").replace("shared_mlp", "shared_experts"): values
        for name, values in tensors.items()
    },
)  # fmt: skip


def sliding_keys(config: Config) -> dict[str, Any]:
    """The layers with windows, and those with rope."""
    keys = granite_keys(config) | {
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": [
            kind == "sliding_attention" for kind in config["layer_types"]
        ],
    }  # fmt: skip
    if not all(config["layer_rope_theta"]):
        keys["attention.rope_pattern"] = [base > 0 for base in config["layer_rope_theta"]]
    if config.get("shared_intermediate_size"):
        keys["expert_shared_feed_forward_length"] = config["shared_intermediate_size"]
    return keys


def sliding_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Gate and up stay in one tensor."""
    names = {
        "self_attn.sinks": "self_attn.sinks.weight",
        "block_sparse_moe.experts.gate_up_proj": "mlp.experts.gate_up_proj.weight",
        "block_sparse_moe.experts.down_proj": "mlp.experts.down_proj.weight",
        "block_sparse_moe.router": "mlp.gate", "shared_mlp.input_linear": "mlp.shared_expert.up_proj",
        "shared_mlp.output_linear": "mlp.shared_expert.down_proj",
    }  # fmt: skip
    out: Tensors = {}
    for name, values in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        out[name] = values
    return out


SLIDING_FORM = GgufForm(
    "granite_swa", interleaved=True, keys=sliding_keys, change=sliding_tensors,
    alike=("granitemoe", "granite", "qwen3next", "gpt-oss"),
)  # fmt: skip


def published_lfm_3(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' name of the gate."""
    return config, {name.replace("g_proj", "gate_proj"): values for name, values in tensors.items()}


def youtu_keys(config: Config) -> dict[str, Any]:
    """Those of DeepSeek V3, without experts."""
    none = {
        "n_routed_experts": 0, "n_shared_experts": 0, "moe_intermediate_size": 1, "norm_topk_prob": False,
        "first_k_dense_replace": 3, "routed_scaling_factor": 1.0, "num_experts_per_tok": 0,
    }  # fmt: skip
    keys = absorbed_keys(config | none)
    kept = {key: value for key, value in keys.items() if not key.startswith("expert")}
    return kept | {"expert_feed_forward_length": config["intermediate_size"]}


KIMI: dict[str, Any] = {
    **{key: value for key, value in LATENT.items() if key != "q_lora_rank"}, "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "linear_head_dim": 12, "linear_num_heads": 4, "num_local_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 36, "n_shared_experts": 2, "routed_scaling_factor": 1.7,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
}  # fmt: skip


def published_kimi(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' keys and names."""
    own = {
        "num_heads": config["linear_num_heads"], "head_dim": config["linear_head_dim"],
        "short_conv_kernel_size": config["linear_conv_kernel_dim"], "full_attn_layers": [2],
        "kda_layers": [1, 3, 4],
    }  # fmt: skip
    dropped = ("layer_types", "mlp_layer_types", "linear_num_heads", "linear_head_dim")
    kept = {key: value for key, value in config.items() if key not in dropped}
    kept |= {"linear_attn_config": own, "first_k_dense_replace": 1}
    out: Tensors = {}
    for name, values in tensors.items():
        dense = "block_sparse_moe" in name and name.split("block_sparse_moe.")[1].count(".") == 1
        plain = dense and "_proj" in name
        out[name.replace("block_sparse_moe", "mlp") if plain else name] = values
    return kept, out


def kimi_keys(config: Config) -> dict[str, Any]:
    own = config["linear_attn_config"]
    named = config | {
        "n_routed_experts": config["num_experts"], "n_shared_experts": config["num_shared_experts"],
        "norm_topk_prob": config["moe_renormalize"], "q_lora_rank": None, ROPE: {},
    }  # fmt: skip
    return absorbed_keys(named) | {
        "attention.head_count_kv": [
            int(layer + 1 in own["full_attn_layers"]) for layer in range(4)
        ],
        "kda.head_dim": own["head_dim"], "ssm.conv_kernel": own["short_conv_kernel_size"],
        "context_length": config["model_max_length"], "expert_used_count": config["num_experts_per_token"],
    }  # fmt: skip


def kimi_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Convolutions of four dimensions, rates as they are used, absorbed matrices."""
    out: Tensors = {}
    for name, values in absorbed(config, tensors).items():
        if "_conv1d" in name:
            values = values[None]
        elif name.endswith(".A_log"):
            values = -np.exp(values)
        out[name.replace("dt_bias", "dt_proj.bias")] = values
    return out


OLMO_HYBRID: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "num_key_value_heads": 4, "linear_num_key_heads": 2, ROPE: PLAIN,
    "linear_num_value_heads": 6, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
}  # fmt: skip


def published_olmo(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The convolutions as they were trained; transformers saves them in three parts of one size."""
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    out = dict(tensors)
    for name in [name for name in tensors if "q_conv1d" in name]:
        names = [name.replace("q_conv1d", f"{letter}_conv1d") for letter in "qkv"]
        whole = np.concatenate([tensors[each] for each in names])
        for each, part in zip(names, np.split(whole, [keys, 2 * keys]), strict=True):
            out[each] = part
    return config, out


def published_olmo_norms(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The same, with the makers' name of a norm of attention layers, which transformers changes."""
    config, out = published_olmo(config, tensors)
    name = "model.layers.1.feedforward_layer_norm.weight"
    out[name.replace("feedforward_layer_norm", "post_attention_layernorm")] = out.pop(name)
    return config, out


TRINITY_HUNYUAN_3_CASES = (
    Case(
        "Kimi Linear", "delta attention whose keys decay alone, latent attention without rope, experts",
        "kimi_linear", KIMI, GgufForm("kimi-linear", keys=kimi_keys, change=kimi_tensors),
        publish=published_kimi,
    ),
    Case(
        "Kimi Linear", "", "kimi_linear",
        {
            **KIMI, "q_lora_rank": 24, "n_group": 4, "topk_group": 2, "norm_topk_prob": False,
            "linear_conv_kernel_dim": 3, "linear_num_heads": 3, "tie_word_embeddings": True,
        }, variant="as transformers 5 saves it",
    ),
    Case(
        "OLMo Hybrid", "gated delta nets of double strength in three of four layers", "olmo_hybrid",
        OLMO_HYBRID, publish=published_olmo_norms,
    ),
    Case(
        "OLMo Hybrid", "", "olmo_hybrid",
        {
            **OLMO_HYBRID, "linear_allow_neg_eigval": False, "linear_conv_kernel_dim": 3,
            "attention_bias": True, ROPE: {"rope_type": "default", "rope_theta": None},
            "layer_types": ["linear_attention", "full_attention"] * 2,
        }, variant="no rope, single strength, norms of two names", publish=published_olmo,
    ),
    Case(
        "Trinity", "gated attention, windows in three of four layers, experts, four norms", "afmoe", TRINITY,
        GgufForm("afmoe", keys=trinity_keys, change=trinity_tensors),
    ),
    Case(
        "Trinity", "", "afmoe",
        {
            **TRINITY, "mup_enabled": False, "num_dense_layers": 0, "attention_bias": True,
            "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
            "tie_word_embeddings": True,
        }, variant="biases, other layers",
    ),
    Case(
        "LFM3", "LFM2 with windows, four norms and a gate for each head", "lfm3", LFM_3,
        publish=published_lfm_3, older={ROPE: LFM_3[ROPE]},
    ),
    Case(
        "LFM3", "", "lfm3",
        {
            **LFM_3, "conv_bias": True, "use_sandwich_norm": False, "use_attention_gate": False,
            "attention_bias": True, "tie_word_embeddings": False,
        },
        variant="biases, two norms, no gate", older={ROPE: LFM_3[ROPE]},
    ),
    Case(
        "Solar Open", "GLM-4.5 with rope on whole heads", "solar_open",
        {
            **{key: value for key, value in {**SMALL, **CHOSEN, **GROUPS}.items() if key[:5] != "first"},
            "head_dim": 24, "attention_bias": True, "norm_topk_prob": False,
        },
    ),
    Case(
        "Hunyuan 3", "experts by sigmoid, with a bias for the choice, a shared one, qk norm", "hy_v3",
        {**SMALL, **EXPERTS, "head_dim": 24, "num_shared_experts": 2, ROPE: PLAIN}, HUNYUAN_FORM,
        publish=published_hunyuan,
    ),
    Case(
        "Hunyuan 3", "", "hy_v3",
        {
            **SMALL, **EXPERTS, "head_dim": 16, "attention_bias": True,
            "mlp_layer_types": ["sparse", "dense", "sparse"],
        }, variant="biases, other layers",
    ),
    Case(
        "Granite with windows", "attention sinks, windows in three of four layers", "granite_swa",
        SLIDING_GRANITE, SLIDING_FORM, length=90,
    ),
    Case(
        "Granite with windows", "", "granitemoe_swa",
        {
            **SLIDING_GRANITE, "num_local_experts": 5, "num_experts_per_tok": 2, "attention_bias": True,
            "shared_intermediate_size": 40, "layer_rope_theta": [9000.0, 700.0, 700.0, 700.0],
            ROPE: {**LLAMA3, "rope_theta": 10000.0},
        }, variant="experts, two ropes",
    ),
    Case(
        "Granite with windows", "", "granitemoe_swa",
        {
            **SLIDING_GRANITE, "num_local_experts": 5, "num_experts_per_tok": 2, "layer_rope_theta": None,
            "layer_types": ["sliding_attention", "full_attention"] * 2, "shared_intermediate_size": 40,
        }, SLIDING_FORM, variant="experts, other layers",
    ),
    Case(
        "HyperCLOVA X", "Granite with four norms", "hyperclovax",
        {
            **SMALL, "head_dim": 16, "embedding_multiplier": 3.0, "residual_multiplier": 0.6,
            "logits_scaling": 1.5, "attention_bias": True, "mlp_bias": True,
        },
    ),
    Case(
        "HyperCLOVA X", "", "hyperclovax",
        {**SMALL, "use_post_norm": False, "attention_multiplier": 0.2, "tie_word_embeddings": True},
        variant="two norms, tied",
    ),
    Case(
        "VaultGemma", "Gemma 2 with two norms", "vaultgemma",
        {**SMALL, "head_dim": 24, "sliding_window": 9, "query_pre_attn_scalar": 30, ROPE: PLAIN},
    ),
    Case(
        "Youtu", "latent attention, dense", "youtu", {**LATENT, ROPE: PLAIN},
        GgufForm("deepseek2", keys=youtu_keys, change=absorbed),
    ),
    Case(
        "Mellum 2", "experts, windows with a rope of their own, qk norm", "mellum",
        {
            **SMALL, **EXPERTS, "head_dim": 24, "sliding_window": 9, "layer_types": KINDS, ROPE: TWO_ROPES,
            "mlp_layer_types": ["dense", "sparse", "sparse"],
        },
        GgufForm("mellum", keys=mellum_keys, alike=("qwen3moe", "llama")), older={ROPE: TWO_ROPES},
    ),
    Case(
        "FlexOlmo", "OLMo 2 with experts", "flex_olmo",
        {**SMALL, "num_experts": 5, "num_experts_per_tok": 2, "attention_bias": True, ROPE: PLAIN},
    ),
)  # fmt: skip
