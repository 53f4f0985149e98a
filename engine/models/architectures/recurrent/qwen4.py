"""Qwen 4: the mixture of Qwen 3.5 with hyper-connections between several streams of rows, and full attention
that looks at blocks of positions chosen by the means of their keys; layers may add embeddings of n-grams.
Vision is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backends.indexer import IndexerShape
from engine.models.architecture import Architecture
from engine.models.architectures.llama.qwen import gguf_qwen_experts, hf_qwen_experts
from engine.models.architectures.recurrent.qwen3_5 import GGUF_NAMES as QWEN_3_5_GGUF
from engine.models.architectures.recurrent.qwen3_5 import MIXTURE_NAMES, delta_from_gguf, gguf_width
from engine.models.config import ModelConfig
from engine.models.config.hyper import GatedStreamNames, GatedStreams
from engine.models.config.indexer import Indexer, IndexerNames
from engine.models.config.recurrent import DeltaNet
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    each_layer,
    hf_decoder,
    hf_layer_types,
    refuse_other_than_silu,
)
from engine.models.headers.keys import Keys
from engine.models.headers.ngrams import gguf_ngrams, hf_ngrams
from engine.models.headers.refusals import unsupported
from engine.models.headers.sparse import indexers
from engine.tensors import RawTensor

_INDEXER = "self_attn.indexer."
NAMES = replace(
    MIXTURE_NAMES, norm="", hyper_attention="attn_hyper_connection.", hyper_mlp="mlp_hyper_connection.",
    hyper_head="model.hyper_connection_mixer.",
    indexer=IndexerNames(
        _INDEXER + "index_qk_proj", _INDEXER + "index_qk_proj", _INDEXER + "k_layernorm",
        query_norm=_INDEXER + "q_layernorm",
    ),
)  # fmt: skip
GGUF_NAMES = replace(
    QWEN_3_5_GGUF, norm="", attention_norm="", mlp_norm="", hyper_attention="hc_attn_", hyper_mlp="hc_ffn_",
    hyper_head="output_hc_", per_layer_table="per_layer_token_embd",
    gated_streams=GatedStreamNames(
        "norm", "down", "up", "inject", "", "ple_key", "ple_value", "ple_norm_key", "ple_norm_query",
        "ple_norm_conv", "ple_conv1d", 2,
    ),
    indexer=IndexerNames(
        "indexer.q_proj", "indexer.k_proj", "indexer.k_norm", query_norm="indexer.q_norm"
    ),
)  # fmt: skip
_MOST = 1 << 14
_LINEAR, _INDEXED = "linear_attention", "indexed_attention"
_USUAL = {"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512}


def from_hf(keys: Keys) -> ModelConfig:
    """`Qwen4ExpForCausalLM`, and the text model of `Qwen4ExpForConditionalGeneration`."""
    keys = keys.inner("text_config").over({"num_key_value_heads": 2, "moe_intermediate_size": 512})
    refuse_other_than_silu(keys)
    # All layers have experts, so there is no other feed-forward part.
    keys = keys.replaced("intermediate_size", keys.raw("moe_intermediate_size"))
    shape = hf_decoder(
        keys, bias=keys.flag("attention_bias", False), share=0.25, head_dim=256, max_position_embeddings=32768
    )
    layers = shape["layers"]
    own = keys.without("decoder_sparse_step", "mlp_only_layers")
    indexed = _indexed(keys, layers)
    if indexed:
        keys.integer("indexer_kv_heads", 1, 1)
    return ModelConfig(
        **shape, qk_norm="head", norm_offset=1.0, output_gate="queries", placement="", final_norm=False,
        recurrent=DeltaNet(
            keys.integer("linear_num_key_heads", 1, _MOST, 16),
            keys.integer("linear_num_value_heads", 1, _MOST, 32),
            keys.integer("linear_key_head_dim", 1, _MOST, 128),
            keys.integer("linear_value_head_dim", 1, _MOST, 128),
            keys.integer("linear_conv_kernel_dim", 1, 64, 4), activation=_gate(keys),
        ),
        recurrent_layers=frozenset(range(layers)) - indexed,
        experts=hf_qwen_experts(own, layers, _USUAL, shared=512, normalise=True),
        hyper=GatedStreams(
            keys.integer("hc_count", 2, 16, 4), keys.integer("hc_lowrank", 1, _MOST, 320),
            hf_ngrams(keys, shape["width"], shape["vocab_size"], frozenset(range(layers)) - indexed),
        ),
        indexer=_indexer(keys, shape["context_length"], shape["rope"].dim, indexed) if indexed else None,
    )  # fmt: skip


def _gate(keys: Keys) -> str:
    """The activation of the gate of linear attention."""
    name = keys.text("output_gate_type", "silu") if keys.raw("output_gate_type") is not None else "silu"
    if name not in ("sigmoid", "silu"):
        raise unsupported("output_gate_type", name)
    return name


def _indexed(keys: Keys, layers: int) -> frozenset[int]:
    """The layers with attention."""
    kinds = hf_layer_types(keys, layers, (_LINEAR, _INDEXED, "full_attention"))
    if kinds is not None:
        return frozenset(layer for layer, kind in enumerate(kinds) if kind != _LINEAR)
    step = keys.integer("full_attention_interval", 1, MAX_LAYERS, 4)
    return frozenset(layer for layer in range(layers) if (layer + 1) % step == 0)


def _indexer(keys: Keys, context: int, rope_dim: int, indexed: frozenset[int]) -> Indexer:
    """The indexer, whose keys are pooled over blocks."""
    budget, block = (
        keys.integer("indexer_budget", 1, MAX_CONTEXT),
        keys.integer("indexer_compress_ratio", 1, 64),
    )
    if budget % block:
        raise unsupported("indexer_budget", budget)
    shape = IndexerShape(
        keys.integer("indexer_n_heads", 1, 1 << 10), keys.integer("indexer_head_dim", rope_dim, 1 << 12),
        budget // block, block, pooled=True,
    )  # fmt: skip
    return replace(indexers(shape, context, indexed, indexed), pooling="mean")


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen4exp`, whose gates of linear attention are sigmoids, as in all published models."""
    config = delta_from_gguf(gguf_width(keys), tensors, "qwen4exp", tiled=True)
    layers = config.layers
    assert isinstance(config.recurrent, DeltaNet)
    assert config.rope is not None
    ratios = each_layer(keys, "attention.compress_ratios", 0, 64, layers)
    indexed = frozenset(layer for layer, ratio in enumerate(ratios) if ratio) - config.recurrent_layers
    blocks = {ratios[layer] for layer in indexed}
    if len(blocks) > 1:
        raise unsupported("attention.compress_ratios", sorted(blocks))
    own = keys.renamed(
        indexer_n_heads="attention.indexer.head_count", indexer_head_dim="attention.indexer.key_length",
        indexer_budget="attention.indexer.top_k",
    ).replaced("indexer_compress_ratio", next(iter(blocks), 1))  # fmt: skip
    return replace(
        config, placement="", final_norm=False, recurrent=replace(config.recurrent, activation="sigmoid"),
        experts=gguf_qwen_experts(keys, {"ffn_width": config.ffn_width, "layers": layers}),
        hyper=GatedStreams(
            keys.integer("hyper_connection.count", 2, 16),
            keys.integer("hyper_connection.low_rank", 1, _MOST),
            gguf_ngrams(keys, tensors, layers),
        ),
        indexer=_indexer(own, config.context_length, config.rope.dim, indexed) if indexed else None,
    )  # fmt: skip


QWEN_4 = Architecture(
    ("qwen4exp",), ("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"), from_hf, from_gguf, NAMES,
    GGUF_NAMES, prefixes=("", "-model.language_model.", "-"), gguf_tiled=True,
)  # fmt: skip
