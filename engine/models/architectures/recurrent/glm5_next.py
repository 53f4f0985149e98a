"""GLM-5 next (GLM 5.3 Flash): Kimi delta attention, and in some layers latent attention without rope that
looks at blocks of positions chosen by gated means of their keys; GLM-5's experts, with limits, and streams of
rows as in DeepSeek V4. Vision is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.backends.indexer import IndexerShape
from engine.models.architecture import Architecture
from engine.models.architectures.latent.deepseek import by_sigmoid
from engine.models.architectures.latent.deepseek_sparse import INDEXED
from engine.models.architectures.latent.deepseek_v4 import hyper_connections
from engine.models.architectures.latent.hunyuan_4 import MOST_STREAMS
from engine.models.architectures.recurrent.kimi_linear import GGUF_NAMES as KIMI_GGUF
from engine.models.architectures.recurrent.kimi_linear import adapted, decay_bound
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts, Limits
from engine.models.config.hyper import HyperConnections
from engine.models.config.indexer import Indexer, IndexerNames
from engine.models.config.recurrent import SeparateDelta
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    all_layers,
    gguf_decoder,
    hf_layer_types,
    refuse_other_than_silu,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gate_limits, gguf_experts, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.latent import cache_shape, gguf_latent, hf_latent_decoder
from engine.models.headers.refusals import refuse_other, unsupported
from engine.models.headers.sparse import full_layers, indexers
from engine.models.names import RecurrentNames, TensorNames
from engine.tensors import RawTensor

_AT, _LINEAR, _INDEXED = "self_attn.", "linear_attention", "indexed_attention"
assert INDEXED.indexer is not None
HF_NAMES = replace(
    INDEXED, hyper_attention="hc_attn_", hyper_mlp="hc_ffn_",
    indexer=replace(
        INDEXED.indexer, gates=_AT + "indexer.index_kpool_compress_gate",
        bias=_AT + "indexer.index_kpool_compress_ape",
    ),
    recurrent=RecurrentNames(
        "", _AT + "o_proj", "", _AT + "g_a_proj", _AT + "f_a_proj", _AT + "b_proj",
        rate=_AT + "A_log", shift=_AT + "dt_bias", norm=_AT + "o_norm", query=_AT + "q_proj",
        key=_AT + "k_proj", value=_AT + "v_proj", decay_up=_AT + "f_b_proj", gate_up=_AT + "g_b_proj",
        convolutions=(_AT + "q_conv1d", _AT + "k_conv1d", _AT + "v_conv1d"),
    ),
)  # fmt: skip
assert KIMI_GGUF.recurrent is not None
GGUF_NAMES = replace(
    KIMI_GGUF, hyper_attention="hc_attn_{}.weight", hyper_mlp="hc_ffn_{}.weight",
    indexer=IndexerNames(
        "indexer.attn_q_b", "indexer.attn_k", "indexer.k_norm", "indexer.proj",
        gates="indexer_compressor_gate.weight", bias="indexer_compressor_ape.weight",
    ),
    recurrent=replace(KIMI_GGUF.recurrent, rate_dims=1),
)  # fmt: skip
_DEFAULTS = {
    "n_routed_experts": 288, "n_shared_experts": 1, "moe_intermediate_size": 2048, "num_experts_per_tok": 8,
    "num_hidden_layers": 45, "num_attention_heads": 64, "intermediate_size": 12288,
}  # fmt: skip
_MOST = 1 << 14


def from_hf(keys: Keys) -> ModelConfig:
    """The text model of `Glm5NextForConditionalGeneration`."""
    keys = keys.inner("text_config").over(_DEFAULTS).without("head_dim")
    refuse_other_than_silu(keys)
    refuse_other(keys, "index_kpool_always_select_tail", True)
    shape = hf_latent_decoder(
        keys, (512, 1536), (256, 0, 256), rotated=False, rms_norm_eps=1e-5, max_position_embeddings=1 << 20
    )
    layers, latent = shape["layers"], replace(shape["latent"], norm_eps=shape["norm_eps"])
    kinds = hf_layer_types(keys, layers, (_LINEAR, _INDEXED, "full_attention"))
    indexed = [layer for layer in range(layers) if (kinds[layer] != _LINEAR if kinds else layer % 4 == 3)]
    limits = gate_limits("swiglu_limit", keys.number("swiglu_limit", -1e6, 1e6, 10.0))
    return ModelConfig(
        **shape | {"latent": latent}, recurrent=_delta(keys, shape["norm_eps"]),
        recurrent_layers=frozenset(range(layers)) - frozenset(indexed),
        hyper=hyper_connections(keys, mean=True), experts=_experts(keys, layers),
        mlp_limits=(limits,) * layers, expert_limits=(limits,) * layers,
        indexer=_indexer(keys, shape["context_length"], indexed, full_layers(keys, layers)),
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`glm5-next`, with a list of key/value heads, 0 where there is delta attention."""
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    counts = all_layers(keys.integers("attention.head_count_kv", 0, _MOST), "attention.head_count_kv", layers)
    indexed = [layer for layer, count in enumerate(counts) if count]
    keys = keys.replaced("block_count", layers).replaced("attention.head_count_kv", 1)
    dim, taps = keys.integer("kda.head_dim", 1, _MOST), keys.integer("ssm.conv_kernel", 1, 64)
    bound = -keys.number("kda.gate_lower_bound", -1e6, 0.0, 0.0)
    keys, kind = gguf_latent(keys, rotated=False)
    shape: dict[str, Any] = gguf_decoder(
        keys.replaced("rope.dimension_count", 2), tensors, "glm5-next", handled=GGUF_EXPERT_KEYS
    )
    heads, eps = shape["heads"], shape["norm_eps"]
    delta = SeparateDelta(heads, heads, dim, dim, taps, eps, "sigmoid", decays="key", rank=dim, bound=bound)
    experts = gguf_experts(keys, shape, scores="sigmoid")
    config = ModelConfig(
        **shape | cache_shape(kind) | {"rope": None, "latent": replace(kind, norm_eps=eps)},
        attention_scale=kind.query_dim**-0.5, recurrent=delta, experts=experts,
        recurrent_layers=frozenset(range(layers)) - frozenset(indexed),
        mlp_limits=_limits(keys, "swiglu_clamp_shexp", layers),
        expert_limits=_limits(keys, "swiglu_clamp_exp", layers),
        hyper=HyperConnections(
            keys.integer("hyper_connection.count", 1, MOST_STREAMS), 2.0,
            keys.number("hyper_connection.epsilon", 0.0, 1.0),
            keys.integer("hyper_connection.sinkhorn_iterations", 1, 1 << 10), mean=True,
        ),
    )  # fmt: skip
    return replace(config, indexer=_gguf_indexer(keys, config, indexed))


def _limits(keys: Keys, name: str, layers: int) -> tuple[Limits | None, ...]:
    """The limits of each layer; () if the file has none."""
    found = keys.numbers(name, 0.0, 1e6)
    limits = all_layers(found, name, layers) if found else ()
    return tuple(gate_limits(name, limit) if limit else None for limit in limits)


def _gguf_indexer(keys: Keys, config: ModelConfig, indexed: list[int]) -> Indexer | None:
    """The indexer of these layers, of which those that share a choice have none of their own."""
    if not indexed:
        return None
    at = "attention.indexer."
    own = keys.renamed(
        index_topk=at + "top_k", index_kpool=at + "kpool", index_n_heads=at + "head_count",
        index_head_dim=at + "key_length",
    )  # fmt: skip
    flags = keys.flags(at + "types", config.layers)
    full = [layer for layer in range(config.layers) if not flags or flags[layer]]
    return _indexer(own, config.context_length, indexed, full)


def _delta(keys: Keys, eps: float) -> SeparateDelta:
    """Kimi delta attention, for whose settings the authors have a table."""
    own = keys.table("linear_attn_config") or Keys({}, "config.json")
    dim = own.integer("head_dim", 1, _MOST, keys.integer("linear_head_dim", 1, _MOST, 128))
    heads = own.integer("num_heads", 1, _MOST, keys.integer("linear_num_heads", 1, _MOST, 64))
    taps = own.integer("short_conv_kernel_size", 1, 64, keys.integer("linear_conv_kernel_dim", 1, 64, 4))
    return SeparateDelta(
        heads, heads, dim, dim, taps, eps, "sigmoid", decays="key", rank=dim, bound=_bound(keys, own)
    )


def _bound(keys: Keys, own: Keys) -> float:
    """How far decays go in the exponent; 0: any distance. A null is a bound only where the original table
    does not say that there is none.
    """
    from_table = own.has("gate_lower_bound")
    name, of = ("gate_lower_bound", own) if from_table else ("linear_lower_bound", keys)
    if of.has(name) and of.raw(name) is None and not (own.source and own.flag("safe_gate", True)):
        return 0.0
    return decay_bound(of, name)


def _indexer(keys: Keys, context: int, indexed: list[int], full: list[int]) -> Indexer | None:
    """The indexer, whose keys are pooled over blocks; those of the layers `full` are their own."""
    if not indexed:
        return None
    budget, block = keys.integer("index_topk", 1, MAX_CONTEXT, 2048), keys.integer("index_kpool", 1, 64, 16)
    if budget % block:
        raise unsupported("index_topk", budget)
    own = IndexerShape(
        keys.integer("index_n_heads", 1, 1 << 10, 32), keys.integer("index_head_dim", 1, 1 << 12, 128),
        budget // block, block, pooled=True,
    )  # fmt: skip
    made = indexers(own, context, full, indexed)
    return replace(made, pooling="gates")


def _experts(keys: Keys, layers: int) -> Experts | None:
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    scored = by_sigmoid(keys, keys.number("routed_scaling_factor", 0.0, 1e6, 2.5)) | hf_groups(keys)
    return hf_experts(
        keys, [layer for layer in range(layers) if (kinds[layer] == "sparse" if kinds else layer >= 3)],
        count="n_routed_experts", used="num_experts_per_tok", width=width,
        shared_width=width * keys.integer("n_shared_experts", 0, 1 << 10), **scored,
    )  # fmt: skip


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    if any(".attn_hc." in name for name in tensors):  # as transformers has them in memory
        names = replace(names, hyper_attention="attn_hc.", hyper_mlp="ffn_hc.")
    return adapted(names, tensors)


GLM_5_NEXT = Architecture(
    ("glm5-next",), ("Glm5NextForConditionalGeneration",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES,
    prefixes=("-model.language_model.", "", "-language_model.", "-"), adapt=_adapt,
)  # fmt: skip
