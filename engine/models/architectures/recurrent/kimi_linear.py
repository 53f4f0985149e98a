"""Kimi Linear (arXiv 2510.26692): delta attention whose keys decay each alone, latent attention without rope
in every fourth layer or so, and experts as DeepSeek V3 has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek import HF_NAMES as LATENT_NAMES
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.recurrent import SeparateDelta
from engine.models.headers.decoder import (
    MAX_LAYERS,
    gguf_decoder,
    hf_layer_types,
    recurrent_by_heads,
    refuse_other_than_silu,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, gguf_latent, hf_latent_decoder
from engine.models.headers.refusals import unsupported
from engine.models.names import GGUF, LATENT_GGUF, RecurrentNames, TensorNames, delta_in_memory, with_experts
from engine.tensors import RawTensor
from engine.words import _

_AT = "self_attn."
_DELTA = RecurrentNames(
    "", _AT + "o_proj", "", _AT + "g_a_proj", _AT + "f_a_proj", _AT + "b_proj",
    rate=_AT + "A_log", shift=_AT + "dt_bias", norm=_AT + "o_norm", query=_AT + "q_proj",
    key=_AT + "k_proj", value=_AT + "v_proj", decay_up=_AT + "f_b_proj", gate_up=_AT + "g_b_proj",
    convolutions=(_AT + "q_conv1d", _AT + "k_conv1d", _AT + "v_conv1d"), rate_dims=4,
)  # fmt: skip
HF_NAMES = replace(LATENT_NAMES, recurrent=_DELTA)
GGUF_NAMES = replace(
    GGUF, latent=LATENT_GGUF,
    recurrent=RecurrentNames(
        "", "attn_output", "", "ssm_g_a", "ssm_f_a", "ssm_beta", rate="ssm_a",
        shift="ssm_dt.bias", norm="ssm_norm", query="attn_q", key="attn_k", value="attn_v",
        decay_up="ssm_f_b", gate_up="ssm_g_b", rate_dims=2, gguf=True,
        convolutions=("ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"),
    ),
)  # fmt: skip
_MOST = 1 << 14


def from_hf(keys: Keys) -> ModelConfig:
    """`KimiLinearForCausalLM`, under the original keys or those of transformers 5."""
    keys = _one_name(keys).replaced("tie_word_embeddings", False)  # its authors' class never ties tables
    refuse_other_than_silu(keys)
    shape = hf_latent_decoder(
        keys, (512, 1536), (128, 64, 128), rms_norm_eps=1e-5, max_position_embeddings=1 << 20,
        num_key_value_heads=32,
    )  # fmt: skip
    layers, own = shape["layers"], keys.table("linear_attn_config") or Keys({}, "config.json")
    kinds = hf_layer_types(keys, layers, ("linear_attention", "full_attention"))
    full = [number - 1 for number in own.integers("full_attn_layers", 1, layers)]
    if kinds is not None:
        full = [layer for layer, kind in enumerate(kinds) if kind == "full_attention"]
    elif not own.has("full_attn_layers"):
        full = [layer for layer in range(1, layers) if layer % 4 == 0]
    dim = own.integer("head_dim", 1, _MOST, keys.integer("linear_head_dim", 1, _MOST, 128))
    heads = own.integer("num_heads", 1, _MOST, keys.integer("linear_num_heads", 1, _MOST, 32))
    taps = keys.integer("linear_conv_kernel_dim", 1, 64, 4)
    return _config(
        shape, heads, dim, own.integer("short_conv_kernel_size", 1, 64, taps),
        frozenset(range(layers)) - frozenset(full), _hf_experts(keys, layers),
    )  # fmt: skip


def _one_name(keys: Keys) -> Keys:
    """The original names of keys in place of others."""
    for name, newer in (
        ("num_experts", "num_local_experts"), ("num_experts_per_token", "num_experts_per_tok"),
        ("num_shared_experts", "n_shared_experts"), ("moe_renormalize", "norm_topk_prob"),
        ("num_expert_group", "n_group"), ("model_max_length", "max_position_embeddings"),
    ):  # fmt: skip
        keys = keys.renamed(**{name: newer})
    keys = keys.renamed(n_group="num_expert_group", max_position_embeddings="model_max_length")
    # A null means that queries have no latent, which is the class's default.
    return keys.over({"q_lora_rank": None})


def _hf_experts(keys: Keys, layers: int) -> Experts | None:
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    first = keys.integer("first_k_dense_replace", 0, MAX_LAYERS, 1)
    width = keys.integer("moe_intermediate_size", 1, 1 << 22, 1024)
    return hf_experts(
        keys.over({"num_experts": 256, "num_experts_per_token": 8}),
        [layer for layer in range(layers) if (kinds[layer] == "sparse" if kinds else layer >= first)],
        count="num_experts", used="num_experts_per_token", width=width,
        normalise=keys.flag("moe_renormalize", True), scores="sigmoid", corrected=True,
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 2.446),
        shared_width=width * keys.integer("num_shared_experts", 0, 1 << 10, 1), **hf_groups(keys),
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`kimi-linear`, with a list of key/value heads, 0 where there is delta attention."""
    keys, recurrent = recurrent_by_heads(keys)
    if not recurrent:
        raise BadCheckpoint(
            _("The GGUF metadata does not say which layers have linear attention; the file is damaged.")
        )
    dim, taps = keys.integer("kda.head_dim", 1, _MOST), keys.integer("ssm.conv_kernel", 1, 64)
    keys, kind = gguf_latent(keys)
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "kimi-linear", handled=GGUF_EXPERT_KEYS)
    heads = shape["heads"]
    experts = gguf_experts(keys, shape, scores="sigmoid")
    shape = shape | cache_shape(kind) | {"attention_scale": kind.query_dim**-0.5}
    return _config(shape, heads, dim, taps, recurrent, experts)


def _config(
    shape: dict[str, Any], heads: int, dim: int, taps: int, recurrent: frozenset[int],
    experts: Experts | None,
) -> ModelConfig:  # fmt: skip
    delta = SeparateDelta(heads, heads, dim, dim, taps, shape["norm_eps"], "sigmoid", decays="key", rank=dim)
    return ModelConfig(**shape | {"rope": None}, recurrent=delta, recurrent_layers=recurrent, experts=experts)


def decay_bound(keys: Keys, name: str) -> float:
    """How far decays go in the exponent at most, by a key that states it as a negative number."""
    bound = -keys.number(name, -1e6, 1e6, -5.0)
    if bound <= 0.0:
        raise unsupported(name, -bound)
    return bound


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The names and shapes that a file has."""
    own = names.recurrent
    assert own is not None
    if any(".block_sparse_moe." in name for name in tensors):
        names = replace(
            with_experts(names, "block_sparse_moe.experts", "w1", "w3", "w2"),
            router="block_sparse_moe.gate", correction="block_sparse_moe.gate.e_score_correction_bias",
            shared_gate="block_sparse_moe.shared_experts.gate_proj",
            shared_up="block_sparse_moe.shared_experts.up_proj",
            shared_down="block_sparse_moe.shared_experts.down_proj",
        )  # fmt: skip
    if any(name.endswith(".block_sparse_moe.up_proj.weight") for name in tensors):  # saved by transformers 5
        at = "block_sparse_moe."
        names = replace(names, gate=at + "gate_proj", up=at + "up_proj", down=at + "down_proj")
    if any(".self_attn.q_conv.conv." in name for name in tensors):  # saved by mlx-lm
        own = replace(own, convolutions=tuple(f"self_attn.{part}_conv.conv" for part in "qkv"))
        names = replace(names, correction="mlp.e_score_correction_bias")
    if any(name.endswith(".attn_qkv.weight") for name in tensors):  # as llama.cpp's converter can
        own = replace(own, fused="attn_qkv")
    own = delta_in_memory(own, tensors)
    taps = [tensor for name, tensor in tensors.items() if name.endswith("ssm_conv1d_q.weight")]
    rates = [tensor for name, tensor in tensors.items() if name.endswith("." + own.rate)]
    return replace(
        names,
        recurrent=replace(
            own,
            tap_dims=len(taps[0].shape) if taps and len(taps[0].shape) in (2, 3, 4) else 0,
            rate_dims=len(rates[0].shape) if rates and len(rates[0].shape) in (1, 2, 4) else own.rate_dims,
        ),
    )


KIMI_LINEAR = Architecture(
    ("kimi-linear",), ("KimiLinearForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=adapted
)
