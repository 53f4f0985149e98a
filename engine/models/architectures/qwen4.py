"""Qwen 4: the mixture of Qwen 3.5 with hyper-connections between several streams of rows, and full attention
that looks at blocks of positions chosen by the means of their keys; layers may add embeddings of n-grams.
Vision is left out.
"""

from __future__ import annotations

from dataclasses import replace

from engine.backends.indexer import IndexerShape
from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.architectures.qwen import hf_qwen_experts
from engine.models.architectures.qwen3_5 import MIXTURE_NAMES
from engine.models.config import ModelConfig
from engine.models.config.hyper import GatedStreams
from engine.models.config.indexer import Indexer, IndexerNames
from engine.models.config.recurrent import DeltaNet
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    hf_decoder,
    hf_layer_types,
    refuse_other_than_silu,
)
from engine.models.headers.keys import Keys
from engine.models.headers.ngrams import hf_ngrams
from engine.models.headers.sparse import indexers
from engine.words import _

_INDEXER = "self_attn.indexer."
NAMES = replace(
    MIXTURE_NAMES, norm="", hyper_attention="attn_hyper_connection.", hyper_mlp="mlp_hyper_connection.",
    hyper_head="model.hyper_connection_mixer.",
    indexer=IndexerNames(
        _INDEXER + "index_qk_proj", _INDEXER + "index_qk_proj", _INDEXER + "k_layernorm",
        query_norm=_INDEXER + "q_layernorm",
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
    return ModelConfig(
        **shape, qk_norm="head", norm_offset=1.0, output_gate="queries", placement="", final_norm=False,
        recurrent=DeltaNet(
            keys.integer("linear_num_key_heads", 1, _MOST, 16),
            keys.integer("linear_num_value_heads", 1, _MOST, 32),
            keys.integer("linear_key_head_dim", 1, _MOST, 128),
            keys.integer("linear_value_head_dim", 1, _MOST, 128),
            keys.integer("linear_conv_kernel_dim", 2, 64, 4), activation=_gate(keys),
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
        raise _unsupported("output_gate_type", name)
    return name


def _unsupported(name: str, value: object) -> UnsupportedModel:
    return UnsupportedModel(
        _(
            "The model sets {name} to {value!r}, which is not supported. Choose another model.",
            name=name,
            value=value,
        )
    )


def _indexed(keys: Keys, layers: int) -> frozenset[int]:
    """The layers with attention."""
    kinds = hf_layer_types(keys, layers, (_LINEAR, _INDEXED, "full_attention"))
    if kinds is not None:
        return frozenset(layer for layer, kind in enumerate(kinds) if kind != _LINEAR)
    step = keys.integer("full_attention_interval", 1, MAX_LAYERS, 4)
    return frozenset(layer for layer in range(layers) if (layer + 1) % step == 0)


def _indexer(keys: Keys, context: int, rope_dim: int, indexed: frozenset[int]) -> Indexer:
    """The indexer, whose keys are pooled over blocks."""
    keys.integer("indexer_kv_heads", 1, 1)
    budget, block = (
        keys.integer("indexer_budget", 1, MAX_CONTEXT),
        keys.integer("indexer_compress_ratio", 1, 64),
    )
    if budget % block:
        raise _unsupported("indexer_budget", budget)
    shape = IndexerShape(
        keys.integer("indexer_n_heads", 1, 1 << 10), keys.integer("indexer_head_dim", rope_dim, 1 << 12),
        budget // block, block, pooled=True,
    )  # fmt: skip
    return replace(indexers(shape, context, indexed, indexed), pooling="mean")


QWEN_4 = Architecture(
    (), ("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"), from_hf, None, NAMES, None,
    prefixes=("", "-model.language_model.", "-"),
)  # fmt: skip
