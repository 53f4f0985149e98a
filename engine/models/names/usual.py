"""The usual names in GGUF files and in Hugging Face folders; most architectures use them or change a few."""

from __future__ import annotations

from dataclasses import replace

from engine.models.names.tensors import LatentNames, RecurrentNames, TensorNames

LATENT_GGUF = LatentNames(
    "attn_q_a", "attn_q_a_norm", "attn_q_b", "attn_kv_a_mqa", "attn_kv_a_norm", "attn_kv_b", "attn_k_b",
    "attn_v_b",
)  # fmt: skip
MAMBA_GGUF = RecurrentNames(
    "ssm_in", "ssm_out", "ssm_conv1d", rate="ssm_a", shift="ssm_dt.bias", skip="ssm_d", norm="ssm_norm",
    gguf=True,
)  # fmt: skip
SCAN_GGUF = RecurrentNames(
    "ssm_in", "ssm_out", "ssm_conv1d", rate="ssm_a", shift="ssm_dt.bias", skip="ssm_d", mixed="ssm_x",
    step="ssm_dt", step_norm="ssm_dt_norm", key_norm="ssm_b_norm", query_norm="ssm_c_norm", gguf=True,
)  # fmt: skip
LATENT_HF = LatentNames(
    "self_attn.q_a_proj", "self_attn.q_a_layernorm", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa",
    "self_attn.kv_a_layernorm", "self_attn.kv_b_proj", "self_attn.embed_q", "self_attn.unembed_out",
)  # fmt: skip
"""Those of folders; the last two are mlx-lm's, in place of the one before them."""

GGUF = TensorNames(
    embed="token_embd", norm="output_norm", head="output", layer="blk.{}.", attention_norm="attn_norm",
    query="attn_q", key="attn_k", value="attn_v", output="attn_output", mlp_norm="ffn_norm", gate="ffn_gate",
    up="ffn_up", down="ffn_down", query_key_value="attn_qkv", query_norm="attn_q_norm",
    key_norm="attn_k_norm", attention_post="post_attention_norm", mlp_post="post_ffw_norm",
    positions="position_embd", embed_norm="token_embd_norm", sinks="attn_sinks.weight",
    router="ffn_gate_inp", expert_gate="ffn_gate_exps", expert_up="ffn_up_exps", expert_down="ffn_down_exps",
    expert_gate_up="ffn_gate_up_exps", correction="exp_probs_b.bias", shared_router="ffn_gate_inp_shexp",
    shared_gate="ffn_gate_shexp", shared_up="ffn_up_shexp", shared_down="ffn_down_shexp",
    shared_gate_vector=True,
)  # fmt: skip
"""The names in nearly all GGUF files. Source: llama.cpp's table of tensor names."""

HF = TensorNames(
    embed="model.embed_tokens", norm="model.norm", head="lm_head", layer="model.layers.{}.",
    attention_norm="input_layernorm", query="self_attn.q_proj", key="self_attn.k_proj",
    value="self_attn.v_proj", output="self_attn.o_proj", mlp_norm="post_attention_layernorm",
    gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj", query_norm="self_attn.q_norm",
    key_norm="self_attn.k_norm",
)  # fmt: skip
"""The names in the folders of Llama and of the many architectures that adopted them."""


def mamba_names(module: str) -> RecurrentNames:
    """The names of Mamba-2's tensors in folders, where it is this module of a layer."""
    return RecurrentNames(
        f"{module}.in_proj", f"{module}.out_proj", f"{module}.conv1d", rate=f"{module}.A_log",
        shift=f"{module}.dt_bias", skip=f"{module}.D", norm=f"{module}.norm",
    )  # fmt: skip


def scan_names(module: str) -> RecurrentNames:
    """The names of Mamba's tensors in folders, where it is this module of a layer."""
    return RecurrentNames(
        f"{module}.in_proj", f"{module}.out_proj", f"{module}.conv1d", rate=f"{module}.A_log",
        shift=f"{module}.dt_proj.bias", skip=f"{module}.D", mixed=f"{module}.x_proj",
        step=f"{module}.dt_proj", step_norm=f"{module}.dt_layernorm", key_norm=f"{module}.b_layernorm",
        query_norm=f"{module}.c_layernorm",
    )  # fmt: skip


def with_experts(
    names: TensorNames, at: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj"
) -> TensorNames:
    """The same names with those of the experts of the module `at` in folders: a tensor each, or stacks as
    transformers 5 has them in memory.
    """
    return replace(
        names, expert_gate=f"{at}.{{}}.{gate}", expert_up=f"{at}.{{}}.{up}", expert_down=f"{at}.{{}}.{down}",
        expert_gate_up=f"{at}.gate_up_proj", expert_down_stack=f"{at}.down_proj", stack_ends=("", "_bias"),
    )  # fmt: skip


MIXTURE = replace(with_experts(HF, "mlp.experts"), router="mlp.gate")
"""The names of most mixtures in folders."""


def with_shared(names: TensorNames, at: str) -> TensorNames:
    """The same names with those of the shared expert, the module `at` in folders."""
    return replace(
        names, shared_gate=f"{at}.gate_proj", shared_up=f"{at}.up_proj", shared_down=f"{at}.down_proj"
    )


SHARING = replace(with_shared(MIXTURE, "mlp.shared_experts"), correction="mlp.gate.e_score_correction_bias")
"""The names of DeepSeek V3 and of the mixtures that followed it."""
