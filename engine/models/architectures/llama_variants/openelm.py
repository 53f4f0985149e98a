"""OpenELM (arXiv 2404.14619): Llama whose layers differ in heads and in the width of the feed-forward part,
with one matrix for queries, keys and values, and norms of queries and keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import MAX_LAYERS, each_layer, gguf_decoder, hf_decoder
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import GGUF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = TensorNames(
    embed="transformer.token_embeddings", norm="transformer.norm", head="lm_head",
    layer="transformer.layers.{}.", attention_norm="attn_norm", query="", key="", value="",
    query_key_value="attn.qkv_proj", query_norm="attn.q_norm", key_norm="attn.k_norm",
    output="attn.out_proj", mlp_norm="ffn_norm", gate="", up="", gate_up="ffn.proj_1", down="ffn.proj_2",
)  # fmt: skip
_KEYS = {
    "hidden_size": "model_dim", "num_hidden_layers": "num_transformer_layers",
    "max_position_embeddings": "max_context_length", "rope_theta": "rope_freq_constant",
    "hidden_act": "activation_fn_name", "tie_word_embeddings": "share_input_output_layers",
}  # fmt: skip
_USUAL = {"normalization_layer_name": "rms_norm", "normalize_qk_projections": True, "ffn_with_glu": True}
_MOST, _WIDEST = 1 << 14, 1 << 22


def from_hf(keys: Keys) -> ModelConfig:
    """`OpenELMForCausalLM`, by the original keys."""
    for name, usual in _USUAL.items():
        refuse_other(keys, name, usual)
    keys = keys.renamed(**_KEYS).over({"hidden_act": "swish", "vocab_size": 32000})
    layers, width = keys.integer("num_hidden_layers", 1, MAX_LAYERS), keys.integer("hidden_size", 1, 1 << 20)
    queries, groups = (
        each_layer(keys, name, 1, _MOST, layers) for name in ("num_query_heads", "num_kv_heads")
    )
    factors = keys.numbers("ffn_multipliers", 1e-3, 1e3) or (4.0,)
    factors = factors if len(factors) > 1 else factors * layers
    step = keys.integer("ffn_dim_divisor", 1, _MOST, 256)
    widths = [_rounded(factor * width, step) for factor in factors[:layers]]
    shape = hf_decoder(
        keys.replaced("num_attention_heads", max(queries)).replaced("num_key_value_heads", max(groups))
        .replaced("intermediate_size", max(widths)),
        bias=False, rms_norm_eps=1e-6, head_dim=128, tie_word_embeddings=True,
    )  # fmt: skip
    return _config(shape, queries, groups, widths)


def _rounded(size: float, step: int) -> int:
    """The nearest multiple, or the next one where that is less than nine tenths."""
    near = max(step, int(size + step / 2) // step * step)
    return near + step if near < 0.9 * size else near


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`openelm`."""
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    names = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    found = [each_layer(keys, name, 1, _WIDEST, layers) for name in names]
    for name, numbers in zip(names, found, strict=True):
        keys = keys.replaced(name, max(numbers))
    return _config(gguf_decoder(keys, tensors, "openelm"), *found)


def _config(
    shape: dict[str, Any], queries: Sequence[int], groups: Sequence[int], widths: Sequence[int]
) -> ModelConfig:
    heads = tuple((count, shape["head_dim"]) for count in groups)
    return ModelConfig(
        **shape, qk_norm="head", layer_queries=tuple(queries), layer_heads=heads, ffn_widths=tuple(widths)
    )


OPEN_ELM = Architecture(
    ("openelm",),
    ("OpenELMForCausalLM",),
    from_hf,
    from_gguf,
    HF_NAMES,
    replace(GGUF, query="", key="", value=""),
)
