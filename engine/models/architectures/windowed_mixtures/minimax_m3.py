"""MiniMax-M3: experts chosen by sigmoids and a bias, and a shared one, after dense first layers, all with the
activation of GPT-OSS; in most layers attention looks at blocks of positions that an indexer chooses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from engine.backends.indexer import IndexerShape
from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.indexer import Indexer, IndexerNames
from engine.models.headers.decoder import gguf_decoder, gguf_layers_with, hf_decoder, hf_layer_types
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.headers.sparse import indexers
from engine.models.names import GGUF, SHARING, TensorNames, with_experts, with_shared
from engine.tensors import RawTensor
from engine.words import _

_INDEXER = "self_attn.indexer."
HF_NAMES = replace(
    SHARING, gate_up="mlp.gate_up_proj", shared_gate_up="mlp.shared_experts.gate_up_proj",
    indexer=IndexerNames(
        _INDEXER + "q_proj", _INDEXER + "k_proj", _INDEXER + "k_norm", query_norm=_INDEXER + "q_norm"
    ),
)  # fmt: skip
_AT = "block_sparse_moe."
PUBLISHED = replace(
    with_shared(with_experts(HF_NAMES, _AT + "experts", "w1", "w3", "w2"), _AT + "shared_experts"),
    router=_AT + "gate", correction=_AT + "e_score_correction_bias",
    indexer=IndexerNames(
        "self_attn.index_q_proj", "self_attn.index_k_proj", "self_attn.index_k_norm",
        query_norm="self_attn.index_q_norm",
    ),
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF,
    indexer=IndexerNames(
        "indexer.q_proj", "indexer.k_proj", "indexer.k_norm", query_norm="indexer.q_norm"
    ),
)  # fmt: skip
_DEFAULTS = {
    "num_local_experts": 128, "num_experts_per_tok": 4, "num_key_value_heads": 4, "intermediate_size": 3072,
    "dense_intermediate_size": 12288, "shared_intermediate_size": 3072,
}  # fmt: skip
_ACTIVATION = {"swiglu_alpha": 1.702, "swiglu_limit": 7.0}
_SPARSE = "minimax_m3_sparse"
_MOST = 1 << 22


def from_hf(keys: Keys) -> ModelConfig:
    """`MiniMaxM3VLForCausalLM`, the text model of `MiniMaxM3SparseForConditionalGeneration`."""
    for name, usual in _ACTIVATION.items():
        if keys.number(name, 0.0, 1e6, usual) != usual:
            raise unsupported(name, keys.raw(name))
    keys = keys.over(_DEFAULTS).replaced("hidden_act", "silu")
    shape = hf_decoder(keys, bias=False, base=5e6, share=1.0, head_dim=128, max_position_embeddings=524_288)
    layers, own = shape["layers"], keys.table("sparse_attention_config") or Keys({}, "config.json")
    experts = hf_experts(
        keys, _sparse_layers(keys, layers), count="num_local_experts", used="num_experts_per_tok",
        width=shape["ffn_width"], normalise=True, scores="sigmoid", corrected=True,
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 2.0),
        shared_width=keys.integer("shared_intermediate_size", 1, _MOST),
    )  # fmt: skip
    read: dict[str, Any] = shape | {
        "ffn_width": keys.integer("dense_intermediate_size", 1, _MOST), "activation": "clamped_swiglu",
        "norm_offset": 1.0, "qk_norm": "head",
    }  # fmt: skip
    choosing = _choosing(keys, own, layers)
    indexer = _indexer(keys, own, read, choosing) if choosing else None
    return ModelConfig(**read, experts=experts, indexer=indexer)


def _choosing(keys: Keys, own: Keys, layers: int) -> list[int]:
    """The layers whose attention chooses."""
    kinds = hf_layer_types(keys, layers, (_SPARSE, "full_attention"))
    if kinds is not None:
        return [layer for layer, kind in enumerate(kinds) if kind == _SPARSE]
    if not own.has("sparse_attention_freq"):
        return []
    return [layer for layer, one in enumerate(own.integers("sparse_attention_freq", 0, 1)[:layers]) if one]


def _indexer(keys: Keys, own: Keys, shape: dict[str, Any], choosing: Collection[int]) -> Indexer:
    def number(name: str, former: str, low: int, default: int) -> int:
        return own.integer("sparse_" + former, low, _MOST, keys.integer("index_" + name, low, _MOST, default))

    size, count = number("block_size", "block_size", 1, 128), number("topk_blocks", "topk_blocks", 1, 16)
    dim, local = (
        number("head_dim", "index_dim", shape["rope"].dim, 128),
        number("local_blocks", "local_block", 0, 1),
    )
    heads = number("n_heads", "num_index_heads", 1, 4)
    return _by_blocks(IndexerShape(heads, dim, count, size, each=True, local=local), shape, choosing)


def _by_blocks(kind: IndexerShape, shape: dict[str, Any], choosing: Collection[int]) -> Indexer:
    if shape["heads"] % kind.heads:
        raise BadCheckpoint(
            _(
                "The model has {heads} heads and an indexer of {index_heads}; the first must be a multiple.",
                heads=shape["heads"],
                index_heads=kind.heads,
            )
        )
    return indexers(kind, shape["context_length"], choosing, choosing)


def _sparse_layers(keys: Keys, layers: int) -> list[int]:
    """The layers with experts."""
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    if kinds is not None:
        return [layer for layer, kind in enumerate(kinds) if kind == "sparse"]
    if keys.raw("moe_layer_freq") is not None:
        return [layer for layer, one in enumerate(keys.integers("moe_layer_freq", 0, 1)[:layers]) if one]
    return list(range(layers))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`minimax-m3`, whose files need not state the features inside the dense first layers."""
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "minimax-m3", handled=GGUF_EXPERT_KEYS)
    experts = gguf_experts(keys, shape, scores="sigmoid", corrected=True)
    dense, at = tensors.get("blk.0.ffn_gate.weight"), "attention.indexer."
    shape |= {"activation": "clamped_swiglu", "ffn_width": dense.shape[0] if dense else shape["ffn_width"]}
    choosing = gguf_layers_with(tensors, "indexer.k_proj", shape["layers"])
    if not choosing:
        return ModelConfig(**shape, qk_norm="head", experts=experts)
    kind = IndexerShape(
        keys.integer(at + "head_count", 1, _MOST), keys.integer(at + "key_length", shape["rope"].dim, _MOST),
        keys.integer(at + "top_k", 1, _MOST), keys.integer(at + "block_size", 1, _MOST), each=True,
        local=keys.integer(at + "local_blocks", 0, _MOST, 0),
    )  # fmt: skip
    indexer = _by_blocks(kind, shape, choosing)
    return ModelConfig(**shape, qk_norm="head", experts=experts, indexer=indexer)


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, where a file has them."""
    if not any(".block_sparse_moe." in name for name in tensors):
        return names
    return replace(PUBLISHED, embed=names.embed, norm=names.norm, head=names.head, layer=names.layer)


MINIMAX_M3 = Architecture(
    ("minimax-m3",), ("MiniMaxM3VLForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=adapted,
    prefixes=("", "-"),
)  # fmt: skip
