"""EXAONE 3 and K-EXAONE, Mistral 4, Mamba-2, Bamba, InternLM 3, Helium, OLMo 1, CWM, Jais 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.engine.models.architectures import ABSENT, ROPE, SMALL, Case, Config, Tensors
from tests.engine.models.cases.latent_attention import absorbed, absorbed_keys
from tests.engine.models.cases.mixture import CHOSEN, GROUPS, bias_of_choice, deepseek_keys
from tests.engine.models.cases.olmo_3_exaone_4 import KINDS, SLIDING, sliding_keys
from tests.engine.models.gguf_form import GgufForm

PLAIN = {"rope_type": "default", "rope_theta": 700.0}
LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 700.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip


def exaone(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' names."""
    own = {
        "architectures": ["ExaoneForCausalLM"], "num_layers": config["num_hidden_layers"],
        "layer_norm_epsilon": config["rms_norm_eps"], "activation_function": "silu",
        "model_type": "exaone",
    }  # fmt: skip
    names = {
        "model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f",
        "model.layers": "transformer.h",
        "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2",
        "self_attn.o_proj": "attn.attention.out_proj",
        "self_attn": "attn.attention", "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj",
    }  # fmt: skip
    out: Tensors = {}
    for name, values in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        out[name] = values
    dropped = ("num_hidden_layers", "rms_norm_eps", "hidden_act")
    return {key: value for key, value in config.items() if key not in dropped} | own, out


def exaone_keys(config: Config) -> dict[str, Any]:
    return {
        "attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"], "block_count": config["num_layers"]
    }  # fmt: skip


def internlm_3(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """The makers' class and keys."""
    own = {"architectures": ["InternLM3ForCausalLM"], "qkv_bias": config["attention_bias"]}
    own["bias"] = config["mlp_bias"]
    dropped = ("attention_bias", "mlp_bias")
    return {key: value for key, value in config.items() if key not in dropped} | own, tensors


def exaone_moe_keys(config: Config) -> dict[str, Any]:
    count = config.get("num_local_experts") or config["num_experts"]
    return sliding_keys(config) | deepseek_keys(
        config | {"n_routed_experts": count, "n_shared_experts": config["num_shared_experts"]}
    )


def exaone_moe_bias(config: Config, tensors: Tensors) -> Tensors:
    """Under a name that the package's table has."""
    return {
        name.replace("mlp.gate.e_score", "mlp.e_score"): values
        for name, values in bias_of_choice(config, tensors).items()
    }


EXAONE_MOE: dict[str, Any] = {
    **SLIDING, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
    "num_shared_experts": 2, "head_dim": 16, ROPE: PLAIN,
}  # fmt: skip

MISTRAL_4: dict[str, Any] = {
    **SMALL, **CHOSEN, "kv_lora_rank": 24, "q_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 20, "num_key_value_heads": 4,
    ROPE: {
        "rope_type": "yarn", "rope_theta": 700.0, "factor": 8.0, "original_max_position_embeddings": 16,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.4,
    },
}  # fmt: skip


def mistral_4_keys(config: Config) -> dict[str, Any]:
    return absorbed_keys(config) | {
        "attention.temperature_scale": config[ROPE]["llama_4_scaling_beta"],
        "attention.temperature_length": config[ROPE]["original_max_position_embeddings"],
        "expert_weights_norm": config["norm_topk_prob"], "expert_gating_func": 1,
    }  # fmt: skip


def mistral_4_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Stacks have the names of weights."""
    return {
        name + ".weight" if ".experts." in name else name: values
        for name, values in absorbed(config, tensors).items()
    }


MAMBA_2: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 307, "num_heads": 8, "head_dim": 16,
    "n_groups": 2, "state_size": 16, "expand": 2, "chunk_size": 16, "bos_token_id": 0, "eos_token_id": 2,
    "pad_token_id": None,
}  # fmt: skip


def mamba_2_keys(config: Config) -> dict[str, Any]:
    """The sizes of attention and of feed-forward parts are 0."""
    return {
        "attention.head_count": 0, "attention.head_count_kv": 0, "feed_forward_length": 0,
        "attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"], "context_length": 1 << 20,
        "attention.key_length": None, "attention.value_length": None, "rope.dimension_count": None,
        "ssm.conv_kernel": config["conv_kernel"], "ssm.state_size": config["state_size"],
        "ssm.group_count": config["n_groups"], "ssm.time_step_rank": config["num_heads"],
        "ssm.inner_size": config["expand"] * config["hidden_size"],
    }  # fmt: skip


def mamba_2_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Convolutions as matrices, rates as they are used, norms in groups."""
    out: Tensors = {}
    for name, tensor in tensors.items():
        changed = tensor
        if name.endswith("conv1d.weight"):
            changed = tensor.squeeze(1)
        elif name.endswith((".A_log", ".D")):
            changed = (-np.exp(tensor) if name.endswith(".A_log") else tensor)[:, None]
        elif name.endswith("mixer.norm.weight"):
            changed = tensor.reshape(config["n_groups"], -1)
        out[name.replace("dt_bias", "dt_proj.bias")] = changed
    return out


BAMBA: dict[str, Any] = {
    **SMALL, "num_hidden_layers": 4, "mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 16,
    "attn_layer_indices": [1],
    ROPE: {**PLAIN, "partial_rotary_factor": 0.5},
}  # fmt: skip


def bitnet_tensors(config: Config, tensors: Tensors) -> Tensors:
    """Under names that the package's table has."""
    return {
        name.replace("ffn_sub_norm", "ffn_layernorm").replace("attn_sub_norm", "inner_attn_ln"): values
        for name, values in tensors.items()
    }


EXAONE_MISTRAL_4_CASES = (
    Case(
        "BitNet", "a norm more before the last matrix of each half", "bitnet",
        {**SMALL, "hidden_act": "silu", "tie_word_embeddings": True, ROPE: PLAIN},
        GgufForm("bitnet", change=bitnet_tensors),
    ),
    Case(
        "BitNet", "", "bitnet", {**SMALL, "attention_bias": True, ROPE: PLAIN},
        variant="the square of relu, biases",
    ),
    Case(
        "BitNet", "", "bitnet", {**SMALL, "tie_word_embeddings": True, ROPE: PLAIN},
        GgufForm("bitnet-b1.58", change=bitnet_tensors, alike=("bitnet",)),
        variant="the square of relu, as bitnet.cpp has it",
    ),
    Case(
        "EXAONE 3", "Llama under other names", "exaone", {**SMALL, ROPE: PLAIN},
        GgufForm("exaone", keys=exaone_keys), publish=exaone,
    ),
    Case("EXAONE 3", "", "exaone", {**SMALL, ROPE: LLAMA_3, "tie_word_embeddings": True}, publish=exaone,
         variant="scaled rope, tied"),
    Case(
        "K-EXAONE", "EXAONE 4's attention, and experts chosen by sigmoids and a bias", "exaone_moe",
        EXAONE_MOE, GgufForm("exaone-moe", keys=exaone_moe_keys, change=exaone_moe_bias),
    ),
    Case(
        "K-EXAONE", "", "exaone_moe",
        {
            **EXAONE_MOE, **GROUPS, "norm_topk_prob": False, "first_k_dense_replace": 0,
            "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"], "tie_word_embeddings": True,
        },
        variant="groups, tied",
    ),
    Case(
        "Mistral 4", "latent attention whose queries are scaled by their positions, experts by softmax",
        "mistral4", MISTRAL_4, GgufForm("mistral4", keys=mistral_4_keys, change=mistral_4_tensors),
    ),
    Case(
        "Mistral 4", "", "mistral4",
        {
            **MISTRAL_4, **GROUPS, "q_lora_rank": None, "attention_bias": True, "norm_topk_prob": False,
            "first_k_dense_replace": 0,
        },
        variant="no latent of queries, groups",
    ),
    Case(
        "Mamba-2", "recurrent layers alone", "mamba2", MAMBA_2,
        GgufForm("mamba2", keys=mamba_2_keys, change=mamba_2_tensors), length=90,
    ),
    Case(
        "Mamba-2", "", "mamba2",
        {**MAMBA_2, "use_bias": True, "use_conv_bias": False, "n_groups": 1, "tie_word_embeddings": True},
        variant="biases, tied",
    ),
    Case("Bamba", "Mamba-2, and attention in some layers", "bamba", BAMBA),
    Case(
        "Bamba", "", "bamba",
        {
            **BAMBA, "attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True,
            "mamba_conv_bias": False,
        },
        variant="biases",
    ),
    Case(
        "InternLM 3", "Llama under other keys", "internlm3", {**SMALL, "head_dim": 24}, publish=internlm_3,
    ),
    Case(
        "InternLM 3", "", "internlm3", {**SMALL, "head_dim": 16, "attention_bias": True, "mlp_bias": True},
        variant="biases", publish=internlm_3,
    ),
    Case("EXAONE 3", "", "exaone", {**SMALL, ROPE: PLAIN}, variant="as transformers 5 saves it"),
    Case(
        "InternLM 3", "", "internlm3", {**SMALL, "attention_bias": True, "mlp_bias": True},
        variant="as transformers 5 saves it",
    ),
    Case("Helium", "interleaved rope", "helium", {**SMALL, "head_dim": 16}),
    Case(
        "Helium", "", "helium", {**SMALL, "head_dim": 16, "attention_bias": True, "mlp_bias": True},
        variant="biases",
    ),
    Case(
        "OLMo 1", "layer norms without weights", "olmo", {**SMALL, "clip_qkv": 0.7},
        GgufForm(
            "olmo", interleaved=True,
            keys=lambda config: {
                "attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": config["clip_qkv"],
            },
        ),
    ),
    Case("OLMo 1", "", "olmo", {**SMALL, "attention_bias": True, "num_key_value_heads": 4}, variant="biases"),
    Case("CWM", "Llama 3 with windows in three of four layers", "cwm",
         {**SMALL, "num_hidden_layers": 5, "sliding_window": 9, "head_dim": 16, ROPE: LLAMA_3},
         older={"layer_types": ABSENT}),
    Case(
        "Jais 2", "layer norms, biases, the square of relu", "jais2", {**SMALL, ROPE: PLAIN},
        GgufForm("jais2", keys=lambda config: {"attention.layer_norm_epsilon": config["layer_norm_eps"]}),
    ),
    Case(
        "Mistral", "", "ministral",
        {**SMALL, "num_hidden_layers": 4, "head_dim": 16, "sliding_window": 9, "layer_types": KINDS},
        variant="windows in some layers",
    ),
)  # fmt: skip
