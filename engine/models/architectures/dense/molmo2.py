"""Molmo 2, text only: Qwen 3 or OLMo 3, by its qk norm and the place of its norms, with one matrix for all of
queries, keys and values; the scaling of rope may be left out in some layers. The first Molmo is Qwen 2 or
OLMo 2 in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_LAYERS, MAX_VOCAB, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other, unsupported
from engine.models.headers.rope import rope_from_hf
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import HF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(HF, attention_post=HF.attention_norm, mlp_post=HF.mlp_norm)
PUBLISHED = replace(
    HF_NAMES, embed="model.transformer.wte", norm="model.transformer.ln_f",
    layer="model.transformer.blocks.{}.", attention_norm="attn_norm", attention_post="attn_norm",
    query_key_value="self_attn.att_proj", output="self_attn.attn_out", mlp_norm="ff_norm", mlp_post="ff_norm",
    gate_up="mlp.ff_proj", gate_last=True, down="mlp.ff_out",
)  # fmt: skip
FIRST = replace(
    PUBLISHED, query_key_value="att_proj", output="attn_out", gate_up="ff_proj", down="ff_out",
    query_norm="q_norm", key_norm="k_norm", head="model.transformer.ff_out",
)  # fmt: skip
"""The names of the first Molmo."""
_EXTRA = 128
"""The rows that its second table of embeddings has."""
_DEFAULTS = {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
    "num_attention_heads": 32,
}  # fmt: skip
_SCALED = "rope_scaling_layers"
_QK_NORMS = {"qwen3": "head", "olmo": "row"}


def from_hf(keys: Keys) -> ModelConfig:
    """The text model of `Molmo2ForConditionalGeneration`."""
    tied = keys.raw("tie_word_embeddings")  # the whole's word counts
    keys = keys.inner("text_config").over(_DEFAULTS).replaced("tie_word_embeddings", tied)
    keys = keys.renamed(rms_norm_eps="layer_norm_eps", attention_bias="qkv_bias")
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), num_key_value_heads=8, head_dim=128,
        max_position_embeddings=36864,
    )  # fmt: skip
    kind = keys.text("qk_norm_type", "qwen3")
    if kind not in _QK_NORMS:
        raise unsupported("qk_norm_type", kind)
    every = range(shape["layers"])
    scaled = every if keys.raw(_SCALED) is None else keys.integers(_SCALED, 0, MAX_LAYERS)
    unscaled = frozenset(every).difference(scaled)
    return ModelConfig(
        **shape | {"output_bias": False},
        qk_norm=_QK_NORMS[kind],
        placement="after" if keys.flag("norm_after", False) else "before",
        extra_embeddings=keys.integer("additional_vocab_size", 0, 1 << 20, 128),
        rope_local=_unscaled(keys, shape["head_dim"]) if unscaled else None,
        local_layers=unscaled,
    )


def from_hf_first(keys: Keys) -> ModelConfig:
    """`MolmoForCausalLM`, whose feed-forward width counts gates, too."""
    for name, value in (("layer_norm_type", "rms"), ("clip_qkv", None), ("rope_impl", "llama")):
        refuse_other(keys, name, value)
    keys = keys.renamed(rms_norm_eps="layer_norm_eps", tie_word_embeddings="weight_tying")
    keys = keys.replaced("intermediate_size", keys.integer("intermediate_size", 2, 1 << 22) // 2)
    rows = keys.integer("embedding_size", 1, MAX_VOCAB, keys.integer("vocab_size", 1, MAX_VOCAB))
    shape = hf_decoder(keys.replaced("vocab_size", rows), bias=keys.flag("qkv_bias", False))
    return ModelConfig(
        **shape | {"output_bias": False}, extra_embeddings=_EXTRA,
        qk_norm="row" if keys.flag("attention_layer_norm", False) else "none",
        placement="after" if keys.flag("norm_after", False) else "before",
    )  # fmt: skip


def _unscaled(keys: Keys, dim: int) -> RopeConfig:
    """The rope without its scaling."""
    scaling = keys.table("rope_parameters") or keys.table("rope_scaling") or keys
    base = scaling.raw("rope_theta") or keys.raw("rope_theta")
    plain = {"rope_type": "default", "rope_theta": base}
    return rope_from_hf(keys.replaced("rope_parameters", plain).without("rope_scaling"), dim)


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, where the file has them."""
    return PUBLISHED if PUBLISHED.embed + ".weight" in tensors else names


MOLMO_2 = Architecture(
    (), ("Molmo2ForConditionalGeneration",), from_hf, None, HF_NAMES, None,
    prefixes=("-model.language_model.", "-"), adapt=_adapt, untied=True,
)  # fmt: skip
MOLMO = Architecture((), ("MolmoForCausalLM",), from_hf_first, None, FIRST, None, untied=True)
