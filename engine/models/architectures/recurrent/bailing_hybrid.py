"""Ling 3 (Bailing Hybrid): Kimi delta attention whose decays are bounded, in most layers, latent attention
with rope and a gate for each head in the others, and experts as DeepSeek V3 has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek import HF_NAMES as LATENT_NAMES
from engine.models.architectures.recurrent.kimi_linear import GGUF_NAMES as KIMI_GGUF
from engine.models.architectures.recurrent.kimi_linear import adapted, decay_bound
from engine.models.architectures.windowed_mixtures.step3_5 import layer_limits
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
from engine.models.headers.refusals import refuse_other
from engine.models.names import HF, LatentNames, RecurrentNames, TensorNames
from engine.tensors import RawTensor


def _named(at: str, output: str, embed: str, correction: str) -> TensorNames:
    return replace(
        LATENT_NAMES, embed=embed, query=at + "q_proj", output=at + output, output_gate=at + "g_proj",
        correction=correction,
        latent=LatentNames(
            at + "q_a_proj", at + "q_a_layernorm", at + "q_b_proj", at + "kv_a_proj_with_mqa",
            at + "kv_a_layernorm", at + "kv_b_proj", at + "embed_q", at + "unembed_out",
        ),
        recurrent=RecurrentNames(
            "", at + output, "", at + "g_proj", at + "f_proj", at + "b_proj", rate=at + "A_log",
            shift=at + "dt_bias", norm=at + "o_norm", query=at + "q_proj", key=at + "k_proj",
            value=at + "v_proj", convolutions=(at + "q_conv1d", at + "k_conv1d", at + "v_conv1d"),
        ),
    )  # fmt: skip


HF_NAMES = _named("attention.", "dense", "model.word_embeddings", "mlp.gate.expert_bias")
_IN_MEMORY = _named("self_attn.", "o_proj", HF.embed, LATENT_NAMES.correction)
"""As transformers has them."""
assert KIMI_GGUF.recurrent is not None
GGUF_NAMES = replace(
    KIMI_GGUF, output_gate="attn_gate",
    recurrent=replace(
        KIMI_GGUF.recurrent, gate="ssm_g_a", decay="ssm_f_a", decay_up="", gate_up="", rates_positive=True
    ),
)  # fmt: skip
_MOST = 1 << 14
_NAMES = {
    "num_experts": "num_local_experts", "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts", "moe_renormalize": "norm_topk_prob",
    "n_group": "num_expert_group", "max_position_embeddings": "model_max_length",
}  # fmt: skip
_ONLY = {
    "no_kda_lora": True, "gated_attention_proj_granularity_type": "head_wise", "use_mla_nope": False,
    "multi_gate": False,
}  # fmt: skip
"""What the original class can do otherwise."""


def from_hf(keys: Keys) -> ModelConfig:
    """`BailingHybridForCausalLM`, which its authors call `BailingMoeV3ForCausalLM`, also inside of the model
    that sees pictures.
    """
    keys = keys.inner("text_config")
    refuse_other_than_silu(keys)
    for name, value in _ONLY.items():
        refuse_other(keys, name, value)
    # A null means that queries have no latent, which is the class's default.
    keys = keys.renamed(**_NAMES).over(
        {"q_lora_rank": None, "rope_theta": 6e6, "num_experts": 512, "num_experts_per_token": 8}
    )
    keys = keys.replaced("tie_word_embeddings", False)  # transformers never ties its tables
    dim = keys.integer("linear_head_dim", 1, _MOST, keys.integer("head_dim", 1, _MOST, 128))
    shape = hf_latent_decoder(
        keys, (512, 1536), (128, 64, 128), interleaved=keys.flag("rope_interleave", True),
        max_position_embeddings=262_144, num_key_value_heads=32,
    )  # fmt: skip
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, ("linear_attention", "full_attention"))
    size = keys.integer("layer_group_size", 1, MAX_LAYERS, 6)
    full = [
        layer
        for layer in range(layers)
        if (kinds[layer] == "full_attention" if kinds else (layer + 1) % size == 0)
    ]
    heads = keys.integer("linear_num_heads", 1, _MOST, shape["heads"])
    taps = keys.integer("linear_conv_kernel_dim", 1, 64, keys.integer("short_conv_kernel_size", 1, 64, 4))
    delta = SeparateDelta(
        heads, heads, dim, dim, taps, shape["norm_eps"], "sigmoid", decays="key",
        bound=_bound(keys, "kda_safe_gate", "kda_lower_bound"),
    )  # fmt: skip
    recurrent, lists = frozenset(range(layers)) - frozenset(full), ("expert", "share_expert")
    return _config(
        keys, shape, delta, recurrent, _experts(keys, layers), [f"{each}_swiglu_limit_list" for each in lists]
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`bailingmoe3`, with a list of key/value heads, 0 where there is delta attention. Rope of files with
    sections for pictures is not interleaved, unlike that of others.
    """
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    keys, recurrent = recurrent_by_heads(keys.replaced("block_count", layers))
    dim, taps = keys.integer("kda.head_dim", 1, _MOST), keys.integer("ssm.conv_kernel", 1, 64)
    keys, kind = gguf_latent(keys)
    plain = not any(keys.integers("rope.dimension_sections", 0, 1 << 16))
    shape: dict[str, Any] = gguf_decoder(
        keys, tensors, "bailingmoe3", interleaved=plain, handled=GGUF_EXPERT_KEYS
    )
    heads = shape["heads"]
    experts = gguf_experts(keys, shape, scores="sigmoid", corrected=True)
    shape = shape | cache_shape(kind) | {"attention_scale": kind.query_dim**-0.5}
    delta = SeparateDelta(
        heads, heads, dim, dim, taps, shape["norm_eps"], "sigmoid", decays="key",
        bound=_bound(keys, "kda.safe_gate", "kda.gate_lower_bound"),
    )  # fmt: skip
    return _config(keys, shape, delta, recurrent, experts, ["swiglu_clamp_exp", "swiglu_clamp_shexp"])


def _config(
    keys: Keys, shape: dict[str, Any], delta: SeparateDelta, recurrent: frozenset[int],
    experts: Experts | None, limits: list[str],
) -> ModelConfig:  # fmt: skip
    """`limits` are the keys of the limits of experts and of shared ones, a number for each layer."""
    routed, shared = (layer_limits(keys, name, shape["layers"]) for name in limits)
    sparse = experts.layers if experts is not None else frozenset()
    return ModelConfig(
        **shape, output_gate="head", recurrent=delta, experts=experts,
        recurrent_layers=frozenset(layer for layer in recurrent if layer < shape["layers"]),
        expert_limits=routed,
        mlp_limits=tuple(limit if layer in sparse else None for layer, limit in enumerate(shared)),
    )  # fmt: skip


def _bound(keys: Keys, bounded: str, name: str) -> float:
    """How far decays go in the exponent; 0: any distance."""
    return decay_bound(keys, name) if keys.flag(bounded, True) else 0.0


def _experts(keys: Keys, layers: int) -> Experts | None:
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    first = keys.integer("first_k_dense_replace", 0, MAX_LAYERS, 2)
    width = keys.integer("moe_intermediate_size", 1, 1 << 22, 768)
    return hf_experts(
        keys, [layer for layer in range(layers) if (kinds[layer] == "sparse" if kinds else layer >= first)],
        count="num_experts", used="num_experts_per_token", width=width,
        normalise=keys.flag("moe_renormalize", True), scores="sigmoid", corrected=True,
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 2.5),
        shared_width=width * keys.integer("num_shared_experts", 0, 1 << 10, 1), **hf_groups(keys, 8, 4),
    )  # fmt: skip


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    return adapted(_IN_MEMORY if HF.embed + ".weight" in tensors else names, tensors)


BAILING_HYBRID = Architecture(
    ("bailingmoe3",),
    ("BailingHybridForCausalLM", "BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"),
    from_hf, from_gguf, HF_NAMES, GGUF_NAMES, prefixes=("", "-model.language_model."),
    adapt=_adapt,
)  # fmt: skip
