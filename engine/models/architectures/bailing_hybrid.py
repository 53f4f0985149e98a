"""Ling 3 (Bailing Hybrid): Kimi delta attention whose decays are bounded, in most layers, latent attention
with rope and a gate for each head in the others, and experts as DeepSeek V3 has them.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.architectures.deepseek import HF_NAMES as LATENT_NAMES
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.recurrent import SeparateDelta
from engine.models.headers.decoder import MAX_LAYERS, hf_layer_types, refuse_other_than_silu
from engine.models.headers.experts import hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.latent import hf_latent_decoder
from engine.models.names import LatentNames, RecurrentNames
from engine.words import _

_AT = "attention."
HF_NAMES = replace(
    LATENT_NAMES, embed="model.word_embeddings", query=_AT + "q_proj", output=_AT + "dense",
    output_gate=_AT + "g_proj", correction="mlp.gate.expert_bias",
    latent=LatentNames(
        _AT + "q_a_proj", _AT + "q_a_layernorm", _AT + "q_b_proj", _AT + "kv_a_proj_with_mqa",
        _AT + "kv_a_layernorm", _AT + "kv_b_proj",
    ),
    recurrent=RecurrentNames(
        "", _AT + "dense", "", _AT + "g_proj", _AT + "f_proj", _AT + "b_proj", rate=_AT + "A_log",
        shift=_AT + "dt_bias", norm=_AT + "o_norm", query=_AT + "q_proj", key=_AT + "k_proj",
        value=_AT + "v_proj",
        convolutions=(_AT + "q_conv1d", _AT + "k_conv1d", _AT + "v_conv1d"),
    ),
)  # fmt: skip
_MOST = 1 << 14
_NAMES = {
    "num_experts": "num_local_experts", "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts", "moe_renormalize": "norm_topk_prob",
    "n_group": "num_expert_group", "max_position_embeddings": "model_max_length",
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`BailingHybridForCausalLM`."""
    refuse_other_than_silu(keys)
    # A null means that queries have no latent, which is the class's default.
    keys = keys.renamed(**_NAMES).over(
        {"q_lora_rank": None, "rope_theta": 6e6, "num_experts": 512, "num_experts_per_token": 8}
    )
    keys = keys.replaced("tie_word_embeddings", False)  # transformers never ties its tables
    dim = keys.integer("linear_head_dim", 1, _MOST, keys.integer("head_dim", 1, _MOST, 128))
    shape = hf_latent_decoder(
        keys, (512, 1536), (128, 64, 128), max_position_embeddings=262_144, num_key_value_heads=32
    )
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, ("linear_attention", "full_attention"))
    size = keys.integer("layer_group_size", 1, MAX_LAYERS, 6)
    full = [
        layer
        for layer in range(layers)
        if (kinds[layer] == "full_attention" if kinds else (layer + 1) % size == 0)
    ]
    heads = keys.integer("linear_num_heads", 1, _MOST, shape["heads"])
    taps = keys.integer("linear_conv_kernel_dim", 2, 64, keys.integer("short_conv_kernel_size", 2, 64, 4))
    delta = SeparateDelta(
        heads, heads, dim, dim, taps, shape["norm_eps"], "sigmoid", decays="key", bound=_bound(keys)
    )
    return ModelConfig(
        **shape, output_gate="head", recurrent=delta, experts=_experts(keys, layers),
        recurrent_layers=frozenset(range(layers)) - frozenset(full),
    )  # fmt: skip


def _bound(keys: Keys) -> float:
    """How far decays go in the exponent; 0: any distance."""
    if not keys.flag("kda_safe_gate", True):
        return 0.0
    bound = -keys.number("kda_lower_bound", -1e6, 1e6, -5.0)
    if bound <= 0.0:
        raise UnsupportedModel(
            _(
                "The model sets {name} to {value!r}, which is not supported. Choose another model.",
                name="kda_lower_bound",
                value=-bound,
            )
        )
    return bound


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


BAILING_HYBRID = Architecture((), ("BailingHybridForCausalLM",), from_hf, None, HF_NAMES, None)
