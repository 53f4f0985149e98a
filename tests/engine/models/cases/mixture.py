"""Mixtures of experts with ordinary attention or gated delta nets."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ABSENT, ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.phi_granite import granite_keys
from tests.engine.models.cases.recurrent import (
    GRANITE_4,
    NEMOTRON_H,
    QWEN_3_5,
    granite_4_keys,
    granite_4_tensors,
    lfm2_keys,
    lfm2_tensors,
    nemotron_h_keys,
    nemotron_h_tensors,
    qwen_3_5_keys,
    qwen_3_5_tensors,
)
from tests.engine.models.gguf_form import GgufForm, stacked_experts

EXPERTS: dict[str, Any] = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
SHARING: dict[str, Any] = {**EXPERTS, "shared_expert_intermediate_size": 56}


def in_stacks(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Experts as transformers 5 has them in memory, as some makers save them: gate and up in one stack."""
    out = stacked_experts(tensors)
    for first, second, third in (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")):
        for name in [name for name in out if name.endswith(f".experts.{first}.weight")]:
            at = name.removesuffix(first + ".weight")
            both = [out.pop(name), out.pop(f"{at}{second}.weight")]
            out[at + "gate_up_proj"] = np.concatenate(both, axis=1)
            out[at + "down_proj"] = out.pop(f"{at}{third}.weight")
    return config, out


def qwen_moe_keys(config: Config) -> dict[str, Any]:
    return {
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_feed_forward_length": config["shared_expert_intermediate_size"],
    }


def qwen_moe_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The gate of the shared expert is a vector."""
    return {
        name: values.squeeze(0) if name.endswith("shared_expert_gate.weight") else values
        for name, values in tensors.items()
    }


def qwen_3_5_moe_tensors(config: Config, tensors: Tensors) -> Tensors:
    return qwen_moe_tensors(config, qwen_3_5_tensors(config, tensors))


def qwen_3_next_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Rows of queries, keys and values grouped by key head become all queries, all keys, all values."""
    groups = config["linear_num_key_heads"]
    keys, values = config["linear_key_head_dim"], config["linear_value_head_dim"]
    values *= config["linear_num_value_heads"] // groups
    out = {}
    for name, tensor in qwen_moe_tensors(config, tensors).items():
        if name.endswith("in_proj_qkvz.weight"):
            parts = np.split(tensor.reshape(groups, -1, tensor.shape[1]), np.cumsum([keys, keys, values]), 1)
            flat = [part.reshape(-1, tensor.shape[1]) for part in parts]
            at = "blk." + name.split(".")[2]
            out[at + ".attn_qkv.weight"], out[at + ".attn_gate.weight"] = np.concatenate(flat[:3]), flat[3]
        elif name.endswith("conv1d.weight"):
            out[name] = tensor.squeeze(1)
        elif name.endswith(".A_log"):
            out[name] = -np.exp(tensor)
        elif name.endswith("norm.weight") and ".linear_attn." not in name:
            out[name] = tensor + 1
        else:
            out[name.replace("dt_bias", "dt_proj.bias")] = tensor
    return out


QWEN_3_5_MOE_GGUF = GgufForm(
    "qwen35moe", keys=lambda config: qwen_3_5_keys(config) | qwen_moe_keys(config),
    change=qwen_3_5_moe_tensors,
)  # fmt: skip
QWEN_3_NEXT_GGUF = GgufForm(
    "qwen3next", keys=lambda config: qwen_3_5_keys(config) | qwen_moe_keys(config), change=qwen_3_next_tensors
)
QWEN_NEXT: dict[str, Any] = {
    **QWEN_3_5, **SHARING, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5},
}  # fmt: skip
KINDS = {"layer_types": ABSENT, "full_attention_interval": 2}


def granite_moe_keys(config: Config) -> dict[str, Any]:
    shared = config.get("shared_intermediate_size")
    return granite_keys(config) | {"expert_shared_feed_forward_length": shared}


def granite_moe_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Gate and up apart, of the experts and of the shared one."""
    out: Tensors = {}
    for name, tensor in tensors.items():
        layer = ".".join(name.split(".")[:3])
        for stored, gate, up in (
            ("block_sparse_moe.input_linear", "mlp.experts.gate_proj", "mlp.experts.up_proj"),
            ("shared_mlp.input_linear", "mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"),
        ):
            if name.endswith(stored + ".weight"):
                halves = np.split(tensor, 2, axis=-2)
                out |= {f"{layer}.{end}.weight": half for end, half in zip((gate, up), halves, strict=True)}
                break
        else:
            out[name.replace("shared_mlp.output_linear", "mlp.shared_experts.down_proj")] = tensor
    return out


def granite_4_moe_tensors(config: Config, tensors: Tensors) -> Tensors:
    """The same, and Mamba-2 as its converter has it."""
    mixers = {name: values for name, values in tensors.items() if "_mlp." not in name and "_moe." not in name}
    others = {name: values for name, values in tensors.items() if name not in mixers}
    return granite_4_tensors(config, mixers) | granite_moe_tensors(config, others)


GRANITE_MOE: dict[str, Any] = {
    **SMALL, "num_local_experts": 5, "num_experts_per_tok": 2, "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2, "residual_multiplier": 0.6, "logits_scaling": 2.0,
}  # fmt: skip
GRANITE_4_MOE = {
    **GRANITE_4, "num_local_experts": 5, "num_experts_per_tok": 2, "shared_intermediate_size": 56,
    "intermediate_size": 40,
}  # fmt: skip


def granite_4_moe_keys(config: Config) -> dict[str, Any]:
    return granite_4_keys(config) | {
        "expert_count": config["num_local_experts"], "expert_used_count": config["num_experts_per_tok"],
        "expert_shared_feed_forward_length": config["shared_intermediate_size"],
        "feed_forward_length": config["intermediate_size"],
    }  # fmt: skip


def deepseek_keys(config: Config) -> dict[str, Any]:
    """How experts are chosen since DeepSeek V3."""
    return {
        "expert_count": config["n_routed_experts"], "expert_shared_count": config["n_shared_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "leading_dense_block_count": config["first_k_dense_replace"], "expert_gating_func": 2,
        "expert_weights_scale": config["routed_scaling_factor"],
        "expert_weights_norm": config["norm_topk_prob"],
    }  # fmt: skip


def bias_of_choice(config: Config, tensors: Tensors) -> Tensors:
    """Under a name that the package's table has."""
    return {
        name.replace("e_score_correction_bias", "e_score_correction.bias"): values
        for name, values in tensors.items()
    }


CHOSEN: dict[str, Any] = {
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
}  # fmt: skip
GROUPS: dict[str, Any] = {"n_group": 4, "topk_group": 2}
HALF = {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5}
GLM_4_MOE: dict[str, Any] = {**SMALL, **CHOSEN, "head_dim": 24, "use_qk_norm": True, ROPE: HALF}


def lfm2_moe_keys(config: Config) -> dict[str, Any]:
    return {
        **lfm2_keys(config), "feed_forward_length": config["intermediate_size"], "expert_gating_func": 2,
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "leading_dense_block_count": config["num_dense_layers"],
    }  # fmt: skip


def lfm2_moe_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Under names that the package's table has."""
    return {
        name.replace(".expert_bias", ".expert_bias.bias").replace("model.", "", ".experts." in name): values
        for name, values in stacked_experts(lfm2_tensors(config, tensors)).items()
    }


LFM2_MOE: dict[str, Any] = {
    **SMALL, **EXPERTS, "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"],
    "num_dense_layers": 2, "norm_eps": 1e-5, ROPE: {"rope_type": "default", "rope_theta": 700.0},
}  # fmt: skip


def nemotron_h_moe_keys(config: Config) -> dict[str, Any]:
    kinds = config.get("layers_block_type") or config["layer_types"]
    width = config["moe_intermediate_size"]
    return nemotron_h_keys(config) | {
        "feed_forward_length": [width if kind == "moe" else 0 for kind in kinds],
        "expert_count": config["n_routed_experts"], "expert_used_count": config["num_experts_per_tok"],
        "expert_feed_forward_length": width, "expert_shared_count": config["n_shared_experts"],
        "expert_shared_feed_forward_length": config["moe_shared_expert_intermediate_size"],
        "expert_weights_norm": config["norm_topk_prob"], "expert_group_count": config["n_group"],
        "expert_weights_scale": config["routed_scaling_factor"],
    }  # fmt: skip


def nemotron_h_moe_tensors(config: Config, tensors: Tensors) -> Tensors:
    out = bias_of_choice(config, nemotron_h_tensors(config, stacked_experts(tensors)))
    return {
        name.replace("backbone", "model").replace("mixer.experts", "mlp.experts")
        if ".experts." in name else name: values
        for name, values in out.items()
    }  # fmt: skip


NEMOTRON_3: dict[str, Any] = {
    **NEMOTRON_H, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    "moe_shared_expert_intermediate_size": 56, "routed_scaling_factor": 2.5,
    "layers_block_type": ["linear_attention", "moe", "linear_attention", "full_attention", "moe"],
}  # fmt: skip


def ernie_moe_keys(config: Config) -> dict[str, Any]:
    width = config["moe_intermediate_size"]
    return {
        "expert_count": config["moe_num_experts"], "expert_used_count": config["moe_k"],
        "interleave_moe_layer_step": config["moe_layer_interval"],
        "leading_dense_block_count": config["moe_layer_start_index"], "expert_feed_forward_length": width,
        "expert_shared_count": config["moe_num_shared_experts"],
        "expert_shared_feed_forward_length": width * config["moe_num_shared_experts"],
    }  # fmt: skip


ERNIE_MOE: dict[str, Any] = {
    **SMALL, "moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 40, "moe_num_shared_experts": 2,
    ROPE: {"rope_type": "default", "rope_theta": 700.0},
}  # fmt: skip


def hunyuan_moe_keys(config: Config) -> dict[str, Any]:
    return {
        "expert_used_count": config["moe_topk"], "expert_shared_count": 1,
        "expert_shared_feed_forward_length": config["intermediate_size"],
        "expert_feed_forward_length": config["intermediate_size"],
    }  # fmt: skip


HUNYUAN_MOE: dict[str, Any] = {**SMALL, "num_experts": 5, "moe_topk": 2, "head_dim": 24}


def listed(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """One number for each layer, as Hunyuan A13B has them."""
    layers = config["num_hidden_layers"]
    lists = {"moe_topk": [config["moe_topk"]] * layers, "num_shared_expert": [1] * layers}
    return config | lists | {"moe_intermediate_size": [config["intermediate_size"]] * layers}, tensors


def minimax_keys(config: Config) -> dict[str, Any]:
    return {"expert_feed_forward_length": config["intermediate_size"], "expert_gating_func": 2}


MINIMAX: dict[str, Any] = {
    **SMALL, "num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 24, ROPE: HALF,
}  # fmt: skip

MIXTURE_CASES = (
    Case(
        "Qwen 3.5 mixture of experts", "Qwen 3.5 with a gated shared expert", "qwen3_5_moe_text",
        {**QWEN_3_5, **SHARING}, QWEN_3_5_MOE_GGUF, length=90, older=KINDS,
    ),
    Case(
        "Qwen 3.5 mixture of experts", "", "qwen3_5_moe_text",
        {**QWEN_3_5, **SHARING, "num_experts_per_tok": 1, "tie_word_embeddings": True},
        variant="in stacks, tied", length=90, publish=in_stacks,
    ),
    Case(
        "Qwen3-Next", "Qwen 3.5's predecessor, a mixture with a gated shared expert", "qwen3_next", QWEN_NEXT,
        QWEN_3_NEXT_GGUF, older=KINDS,
    ),
    Case(
        "Qwen3-Next", "", "qwen3_next",
        {
            **QWEN_NEXT, "norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": [3],
            "num_hidden_layers": 6, "linear_value_head_dim": 20, "attention_bias": True,
        },
        variant="some layers without experts, weights as they come", length=90,
    ),
    Case(
        "Qwen 2 mixture of experts", "biases, weights as they come, a gated shared expert", "qwen2_moe",
        {**SMALL, **SHARING}, GgufForm("qwen2moe", keys=qwen_moe_keys),  # the vector in two dimensions
        older={"layer_types": ABSENT},
    ),
    Case(
        "Qwen 2 mixture of experts", "", "qwen2_moe",
        {
            **SMALL, **SHARING, "norm_topk_prob": True, "qkv_bias": False, "decoder_sparse_step": 2,
            "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1,
        },
        variant="some layers without experts, a window", older={"layer_types": ABSENT},
    ),
    Case(
        "Granite 3 mixture of experts", "Granite 3 with experts", "granitemoe", GRANITE_MOE,
        GgufForm("granitemoe", interleaved=True, keys=granite_moe_keys, change=granite_moe_tensors),
    ),
    Case(
        "Granite 3 mixture of experts", "", "granitemoeshared",
        {**GRANITE_MOE, "shared_intermediate_size": 56, "attention_bias": True, "tie_word_embeddings": True},
        GgufForm("granitemoe", interleaved=True, keys=granite_moe_keys, change=granite_moe_tensors),
        "a shared expert, biases, tied",
    ),
    Case(
        "Granite 4", "", "granitemoehybrid", GRANITE_4_MOE,
        GgufForm(
            "granitehybrid", interleaved=True, keys=granite_4_moe_keys, change=granite_4_moe_tensors,
        ),
        "experts and a shared one",
    ),
    Case(
        "OLMoE", "experts, weights as they come, qk norm over whole rows", "olmoe",
        {**SMALL, "num_experts": 5, "num_experts_per_tok": 2, "num_key_value_heads": 4}, GgufForm("olmoe"),
    ),
    Case(
        "OLMoE", "", "olmoe",
        {**SMALL, "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": True, "attention_bias": True},
        variant="biases", publish=in_stacks,
    ),
    Case(
        "GLM-4.5 to 4.7", "experts chosen by sigmoids and a bias, shared ones, a dense first layer",
        "glm4_moe", GLM_4_MOE,
        GgufForm("glm4moe", keys=deepseek_keys, change=bias_of_choice),
    ),
    Case(
        "GLM-4.5 to 4.7", "", "glm4_moe",
        {
            **GLM_4_MOE, **GROUPS, "use_qk_norm": False, "attention_bias": True, "norm_topk_prob": False,
            "first_k_dense_replace": 0, "n_shared_experts": 1, "tie_word_embeddings": True,
        },
        variant="groups, weights as they come, biases, no qk norm", publish=in_stacks,
    ),
    Case(
        "dots.llm1", "the same with qk norm", "dots1",
        {**SMALL, **CHOSEN, "num_key_value_heads": 4},
        GgufForm("dots1", keys=deepseek_keys, change=bias_of_choice),
        older={"layer_types": ABSENT},
    ),
    Case(
        "dots.llm1", "", "dots1",
        {
            **SMALL, **CHOSEN, **GROUPS, "norm_topk_prob": True, "sliding_window": 9, "max_window_layers": 1,
            "attention_bias": True, "first_k_dense_replace": 2,
        },
        variant="groups, a window, biases", older={"layer_types": ABSENT},
    ),
    Case(
        "LFM2 mixture of experts", "LFM2 with experts after dense first layers", "lfm2_moe", LFM2_MOE,
        GgufForm("lfm2moe", keys=lfm2_moe_keys, change=lfm2_moe_tensors),
    ),
    Case(
        "LFM2 mixture of experts", "", "lfm2_moe",
        {
            **LFM2_MOE, "num_dense_layers": 0, "use_expert_bias": False, "norm_topk_prob": False,
            "routed_scaling_factor": 1.5, "tie_word_embeddings": False, "conv_bias": True,
        },
        variant="no bias of the choice, weights as they come, untied", publish=in_stacks,
    ),
    Case(
        "Nemotron-H", "", "nemotron_h", NEMOTRON_3,
        GgufForm("nemotron_h_moe", keys=nemotron_h_moe_keys, change=nemotron_h_moe_tensors),
        "experts without gates and a shared one",
    ),
    Case(
        "Nemotron-H", "", "nemotron_h",
        {
            **NEMOTRON_3, **GROUPS, "n_routed_experts": 8, "norm_topk_prob": False,
            "layers_block_type": ["moe", "linear_attention", "mlp", "full_attention", "moe"],
        },
        variant="groups of experts, and a layer without them",
    ),
    Case(
        "ERNIE 4.5 mixture of experts", "ERNIE 4.5 with experts and shared ones after a dense first layer",
        "ernie4_5_moe", ERNIE_MOE, GgufForm("ernie4_5-moe", keys=ernie_moe_keys, change=bias_of_choice),
    ),
    Case(
        "ERNIE 4.5 mixture of experts", "", "ernie4_5_moe",
        {
            **ERNIE_MOE, "num_hidden_layers": 5, "moe_layer_interval": 2, "moe_layer_end_index": 3,
            "moe_num_shared_experts": 0, "use_bias": True, "tie_word_embeddings": False,
        },
        variant="every second layer, biases, untied",
    ),
    Case(
        "Hunyuan mixture of experts", "Hunyuan with experts and a shared one", "hunyuan_v1_moe", HUNYUAN_MOE,
        GgufForm("hunyuan-moe", keys=hunyuan_moe_keys),
    ),
    Case(
        "Hunyuan mixture of experts", "", "hunyuan_v1_moe",
        {**HUNYUAN_MOE, "moe_topk": 1, "attention_bias": True, "tie_word_embeddings": True},
        variant="lists, biases, tied", publish=listed,
    ),
    Case(
        "MiniMax-M2", "experts chosen by sigmoids and a bias, qk norm over whole rows, rope on half a head",
        "minimax_m2", MINIMAX, GgufForm("minimax-m2", keys=minimax_keys, change=bias_of_choice),
    ),
    Case(
        "MiniMax-M2", "", "minimax_m2",
        {**MINIMAX, "num_experts_per_tok": 4, "tie_word_embeddings": True, "head_dim": 16}, variant="tied",
        publish=in_stacks,
    ),
)  # fmt: skip
