"""Falcon (arXiv 2311.16867): both halves of a block have the same input, with one layer norm or (in "new"
ones, as Falcon 40B) one each; one matrix for queries, keys and values; few or single keys and values.
Falcon RW has ALiBi and a block's halves one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import gguf_decoder, hf_activation, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.layers.positions.alibi import alibi_slopes, in_bfloat16
from engine.models.names import GGUF, HF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF, embed="transformer.word_embeddings", norm="transformer.ln_f", layer="transformer.h.{}.", query="",
    key="", value="", query_key_value="self_attention.query_key_value", output="self_attention.dense",
    gate="", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h", grouped=True,
)  # fmt: skip
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "gated": False}
_DEFAULTS = {"vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71}


def from_hf(keys: Keys) -> ModelConfig:
    """`FalconForCausalLM`, and `RWForCausalLM` in the first folders, with other names of some keys."""
    keys = keys.renamed(
        hidden_size="n_embed", num_hidden_layers="n_layer", num_attention_heads="n_head",
        num_kv_heads="n_head_kv",
    ).over(_DEFAULTS)  # fmt: skip
    width, heads = keys.integer("hidden_size", 1, 1 << 20), keys.integer("num_attention_heads", 1, 1 << 14)
    newer = keys.flag("new_decoder_architecture", False)
    single = keys.flag("multi_query", True) and not newer
    # Only newer ones share keys and values among some heads: the others have one for all, or one each.
    shared = keys.integer("num_kv_heads", 1, 1 << 14, heads) if newer else heads
    keys = keys.replaced("num_key_value_heads", 1 if single else shared)
    keys = keys.replaced("intermediate_size", keys.integer("ffn_hidden_size", 1, 1 << 22, 4 * width))
    bias = keys.flag("bias", False)
    shape = hf_decoder(
        keys.without("head_dim", "hidden_act"), bias=bias, mlp_bias=bias, norm_eps="layer_norm_epsilon",
        layer_norm_epsilon=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    if keys.flag("alibi", False):
        # Falcon adds slopes to scores before these are scaled, in bfloat16.
        shape["rope"] = None
        shape["slopes"] = in_bfloat16(alibi_slopes(heads))
        shape["rounded_slopes"] = shape["head_dim"] ** -0.5
    norms = keys.integer("num_ln_in_parallel_attn", 1, 2, 2) if newer else 1
    return ModelConfig(
        **shape | {"activation": hf_activation(keys, "activation", "gelu")},
        **_QUIRKS,
        placement=_placement(norms, parallel=newer or keys.flag("parallel_attn", True)),
    )


def _placement(norms: int, *, parallel: bool) -> str:
    return "before" if not parallel else "parallel_both" if norms == 2 else "parallel"


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`falcon`."""
    shape = gguf_decoder(keys, tensors, "falcon", layer_norm=True)
    norms = 2 if "blk.0.attn_norm_2.weight" in tensors else 1
    return ModelConfig(**shape, **_QUIRKS, activation="gelu", placement=_placement(norms, parallel=True))


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Where there are two norms, they have names of their own."""
    if names.layer.format(0) + "attn_norm_2.weight" in tensors:
        return replace(names, attention_norm="attn_norm_2", mlp_norm="attn_norm")
    if names.layer.format(0) + "ln_attn.weight" in tensors:
        return replace(names, attention_norm="ln_attn", mlp_norm="ln_mlp")
    return names


FALCON = Architecture(
    ("falcon",), ("FalconForCausalLM", "RWForCausalLM"), from_hf, from_gguf, HF_NAMES, GGUF,
    prefixes=("", "-"), adapt=_adapt,
)  # fmt: skip
