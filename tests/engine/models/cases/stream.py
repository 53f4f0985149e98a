"""Models with several streams of rows, or layers that run several times."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.engine.models.architectures import ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.latent_attention import LATENT, PLAIN, YARN, absorbed
from tests.engine.models.cases.ling_minimax import CHOOSING, FULL, chosen_keys
from tests.engine.models.cases.muse_apertus import MUSE, SLIDING, with_pictures
from tests.engine.models.gguf_form import GgufForm

HUNYUAN_4: dict[str, Any] = {
    **LATENT, **CHOOSING, "num_hidden_layers": 3, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 40, "hc_mult": 3, "swiglu_limit": 0.7, ROPE: PLAIN,
}  # fmt: skip

SPARK: dict[str, Any] = {
    **MUSE, "num_local_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    "moe_hidden_size": 36, "residual_gate_temperature": 2.5, "qk_scale_factor": 2.0,
    "mlp_layer_types": ["dense", *["sparse"] * 4],
}  # fmt: skip
SPARK_WHOLE: dict[str, Any] = {
    "out_hidden_size": 128, "projector_hidden_size": 32,
    "audio_config": {
        "patch_sizes": [4], "hidden_sizes": [8], "depths": [1], "num_hidden_layers": 1, "out_hidden_size": 64,
    },
}  # fmt: skip

DOTS: dict[str, Any] = {
    **LATENT, **CHOOSING, "num_hidden_layers": 4, "num_key_value_heads": 4, "sliding_window": 9,
    "layer_types": ["indexed_attention", SLIDING, "indexed_attention", SLIDING], "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "shared_experts_intermediate_size": 28,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "head_dim": 32,
    "swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "swa_q_lora_rank": 20,
    "swa_kv_lora_rank": 28, "swa_head_dim": 28, "swa_qk_nope_head_dim": 16, "swa_v_head_dim": 12,
}  # fmt: skip

DOTS_BY_GGUF: dict[str, Any] = {
    **DOTS, "swa_q_lora_rank": DOTS["q_lora_rank"], "swa_head_dim": 24, "index_topk": 64,
    "index_head_dim": 64,
    "shared_experts_intermediate_size": DOTS["moe_intermediate_size"], "n_shared_experts": 1,
}  # fmt: skip
"""All positions are chosen, since llama.cpp rotates halves of an indexer's queries and keys."""

HRM: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "num_key_value_heads"}, "num_hidden_layers": 2,
    "H_cycles": 2, "L_cycles": 2, "head_dim": 24, ROPE: PLAIN,
}  # fmt: skip


def hrm_keys(config: Config) -> dict[str, Any]:
    """Files state as many layers as run one after the other."""
    layers, slow, fast = config["num_hidden_layers"], config["H_cycles"], config["L_cycles"]
    size = config.get("num_layers_per_stack") or layers
    return {
        "block_count": size * slow * (fast + 1), "hrm.layers_per_stack": size, "hrm.h_cycles": slow,
        "hrm.l_cycles": fast, "hrm.prefix_lm": False, "embedding_scale": config["embedding_scale"],
    }  # fmt: skip


def hrm_tensors(config: Config, tensors: Tensors) -> Tensors:
    size = config.get("num_layers_per_stack") or config["num_hidden_layers"]
    stacks, modules = {"L": 0, "H": size}, {
        "self_attn.gate_proj": "attn_gate", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    out: Tensors = {}
    for name, values in tensors.items():
        match = re.fullmatch(r"model\.([LH])_module\.layers\.(\d+)\.(.*)\.(weight|bias)", name)
        if match:
            layer = stacks[match[1]] + int(match[2])
            out[f"blk.{layer}.{modules[match[3]]}.{match[4]}"] = values
        else:
            out["hrm.z_l_init" if name == "model.z_L_init" else name] = values
    return out


HRM_FORM = GgufForm("hrm_text", keys=hrm_keys, change=hrm_tensors, alike=("llama",))


def unfused(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """HRM-Text with a matrix for each part, as transformers has it in memory."""
    out: Tensors = {}
    for name, values in tensors.items():
        at = name.replace(".attn.", ".self_attn.")
        if "gqkv_proj" in name:
            for part, rows in zip(["gate", "q", "k", "v"], np.split(values, 4), strict=True):
                out[at.replace("gqkv", part)] = rows
        elif "gate_up_proj" in name:
            for part, rows in zip(("gate", "up"), np.split(values, 2), strict=True):
                out[at.replace("gate_up", part)] = rows
        else:
            out[at] = values
    return config, out


def as_made(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' keys of Dots 3 in place of transformers'."""
    dropped = ("per_layer_config", "layer_types", "mlp_layer_types", "sliding_window", ROPE)
    own = {key: value for key, value in DOTS.items() if key.startswith("swa_")} | {
        "layer_types": [kind.replace("indexed", "full") for kind in config["layer_types"]],
        "moe_layer_freq": [int(kind == "sparse") for kind in config["mlp_layer_types"]],
        "sliding_window_size": config["sliding_window"], "first_k_dense_replace": 0,
        "swa_rope_theta": config[ROPE][SLIDING]["rope_theta"],
        "rope_theta": config[ROPE]["indexed_attention"]["rope_theta"],
    }  # fmt: skip
    return {key: value for key, value in config.items() if key not in dropped} | own, tensors


def dots_keys(config: Config) -> dict[str, Any]:
    """As llama.cpp's converter writes them: sizes of layers with windows under keys of their own."""
    kinds, own = config["layer_types"], {**DOTS_BY_GGUF}
    slides = [kind == SLIDING for kind in kinds]
    rank, rope = own["swa_kv_lora_rank"], config["qk_rope_head_dim"]
    heads = own["swa_num_attention_heads"], config["num_attention_heads"]
    ropes = config[ROPE]
    return chosen_keys({**config, ROPE: ropes["indexed_attention"]}) | {
        "attention.head_count": [heads[0] if slide else heads[1] for slide in slides],
        "attention.sliding_window": config["sliding_window"], "attention.sliding_window_pattern": slides,
        "attention.kv_lora_rank_swa": rank, "attention.key_length_swa": rank + rope,
        "attention.value_length_swa": rank, "attention.key_length_mla_swa": own["swa_head_dim"],
        "attention.value_length_mla_swa": own["swa_v_head_dim"], "expert_gating_func": 2,
        "attention.indexer.types": [not slide for slide in slides],
        "rope.freq_base": ropes["indexed_attention"]["rope_theta"],
        "rope.freq_base_swa": ropes[SLIDING]["rope_theta"],
    }  # fmt: skip


def dots_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Norms of latents multiplied by what folders multiply latents by, and absorbed matrices."""
    own, out = DOTS_BY_GGUF, dict[str, Any]()
    for name, values in tensors.items():
        match = re.match(r"model\.layers\.(\d+)\.self_attn\.", name)
        slides = match is not None and config["layer_types"][int(match[1])] == SLIDING
        sizes = {key: own["swa_" + key] for key in DOTS if "swa_" + key in DOTS} if slides else {}
        if name.endswith(("q_a_layernorm.weight", "kv_a_layernorm.weight")):
            values = values * np.float32((config["hidden_size"] / len(values)) ** 0.5)
        elif match is not None:
            name = name.replace(match[0] + "g_proj", f"blk.{match[1]}.attn_gate")
            name = name.replace(match[0] + "k_rope_only_layernorm", f"blk.{match[1]}.attn_k_norm")
        out |= absorbed({**config, **sizes}, {name: values})
    return out


def in_memory(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Hunyuan 4 under transformers' names instead of those that it saves."""
    renamed = {
        "hc_pre.": "", "hc_attn_layer.hc_": "attn_hc.", "hc_mlp_layer.hc_": "ffn_hc.",
        "hc_head.hc_head_": "hc_head.hc_", "learnable_sink_param": "sinks", "linear_gate": "gate_proj",
    }  # fmt: skip
    out: Tensors = {}
    for name, values in tensors.items():
        for old, new in renamed.items():
            name = name.replace(old, new)
        out[name] = values
    return config, out


def interleaved(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Hunyuan 4 with the makers' order of rows, where rope rotates neighbours instead of halves."""
    rope, nope, dim = (config[key] for key in ("qk_rope_head_dim", "qk_nope_head_dim", "index_head_dim"))
    mixed = np.arange(rope).reshape(2, -1).T.reshape(-1)
    out: Tensors = {}
    for name, values in tensors.items():
        size = {
            "q_b_proj": nope + rope, "kv_a_proj_with_mqa": config["kv_lora_rank"] + rope, "wq_b": dim,
            "wk": dim, "k_norm": dim,
        }.get(name.split(".")[-2])  # fmt: skip
        if size and ".self_attn." in name:
            order = np.append(np.arange(size - rope), size - rope + mixed)
            heads = values.reshape(-1, size, *values.shape[1:])
            values = np.ascontiguousarray(heads[:, order].reshape(values.shape))
        out[name] = values
    return config, out


def hunyuan_4_keys(config: Config) -> dict[str, Any]:
    return chosen_keys(config) | {
        "attention.indexer.types": [kind == "full" for kind in config["indexer_types"]],
        "hyper_connection.count": config["hc_mult"], "hyper_connection.epsilon": config["hc_eps"],
        "hyper_connection.magnitude": config["hc_magnitude"], "expert_gating_func": 2,
        "swiglu_clamp_exp": [config["swiglu_limit"]] * config["num_hidden_layers"],
    }  # fmt: skip


def hunyuan_4_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Under the names of GGUF where these are Hunyuan's own."""
    out: Tensors = {}
    for name, values in absorbed(config, in_memory(config, tensors)[1]).items():
        name = name.replace("model.hc_head.hc_", "output_hc_")
        name = re.sub(r"^model\.layers\.(\d+)\.(attn|ffn)_hc\.", r"blk.\1.hc_\2_", name)
        name = re.sub(r"^model\.layers\.(\d+)\.self_attn\.sinks", r"blk.\1.attn_sinks", name)
        name = re.sub(r"^model\.layers\.(\d+)\.self_attn\.gate_proj", r"blk.\1.attn_gate", name)
        if name.endswith("gate_up_proj"):
            for part, rows in zip(("gate", "up"), np.split(values, 2, axis=1), strict=True):
                out[name.replace("gate_up", part) + ".weight"] = rows
            continue
        out[name if name.endswith((".weight", ".bias")) else name + ".weight"] = values
    return out


HUNYUAN_4_FORM = GgufForm("hy_v4", keys=hunyuan_4_keys, change=hunyuan_4_tensors, alike=("glm-dsa",))
DOTS_FORM = GgufForm("dots3note", keys=dots_keys, change=dots_tensors, alike=("glm-dsa",))
STREAM_CASES = (
    Case(
        "Hunyuan 4", "hyper-connections, latent attention with sinks to chosen positions", "hy_v4",
        HUNYUAN_4, HUNYUAN_4_FORM, publish=interleaved,
    ),
    Case(
        "Hunyuan 4", "", "hy_v4",
        {
            **HUNYUAN_4, "hc_magnitude": 1.3, "hc_eps": 0.02, "swiglu_limit": 3.0, "n_group": 4,
            "topk_group": 2, "norm_topk_prob": False, "attention_bias": True, "index_topk": 2048,
            "hc_mult": 4, "mlp_layer_types": ["sparse", "dense", "sparse"], ROPE: YARN,
        }, variant="groups, biases, yarn",
        publish=lambda config, tensors: in_memory(*interleaved(config, tensors)),
    ),
    Case(
        "Muse Spark", "experts on a projection, gates of what layers add to and add", "muse_spark",
        with_pictures(SPARK, **SPARK_WHOLE), scale=2.0,
    ),
    Case(
        "Muse Spark", "", "muse_spark",
        with_pictures(
            {
                **SPARK, "attention_bias": True, "post_norm_eps": 0.05, "routed_scaling_factor": 1.7,
                "layer_types": [FULL, SLIDING, FULL, SLIDING, FULL], "layer_rope_theta": [7, 0, 0, 9, 7],
                "qk_scale_factor": 1.5, "output_multiplier": 0.7, "residual_gate_temperature": 1.2,
                "mlp_layer_types": ["sparse", "dense", "sparse", "sparse", "dense"],
            },
            **SPARK_WHOLE, tie_word_embeddings=True,
        ),
        variant="its own layers, biases",
    ),
    Case(
        "Dots 3 Note", "latent attention to chosen positions, or with windows of other sizes",
        "dots3_note_text", DOTS,
    ),
    Case(
        "Dots 3 Note", "", "dots3_note_text",
        {
            **DOTS, "attention_bias": True, "n_group": 4, "topk_group": 2, "norm_topk_prob": False,
            "routed_scaling_factor": 1.7, "layer_types": ["full_attention", SLIDING, SLIDING, SLIDING],
            "use_dsa": False, "tie_word_embeddings": True, "rms_norm_eps": 1e-3,
        }, variant="whole attention, groups, biases, tied",
    ),
    Case(
        "HRM-Text", "two stacks of layers that run in turns, several times", "hrm_text", HRM, HRM_FORM,
        publish=unfused,
    ),
    Case(
        "HRM-Text", "", "hrm_text",
        {
            **HRM, "num_hidden_layers": 1, "H_cycles": 1, "L_cycles": 3, "attention_bias": True,
            "mlp_bias": True, "embedding_scale": 3.0, "tie_word_embeddings": True,
        }, HRM_FORM, variant="biases, tied", publish=unfused,
    ),
    Case("HRM-Text", "", "hrm_text", HRM, variant="the makers' names"),
    Case("Dots 3 Note", "", "dots3_note_text", DOTS_BY_GGUF, DOTS_FORM, variant="sizes of GGUF files"),
    Case("Dots 3 Note", "", "dots3_note_text", DOTS, variant="the makers' keys", publish=as_made),
)  # fmt: skip
