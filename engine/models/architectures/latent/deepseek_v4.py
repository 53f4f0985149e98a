"""DeepSeek V4: compressed attention, experts of which the first layers take those of a token in a table, and
several streams of rows, which are mixed by nearly doubly stochastic matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.backends.indexer import IndexerShape
from engine.backends.routing import ROOT, SCORES
from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.latent.hunyuan_4 import MOST_STREAMS
from engine.models.config import ModelConfig
from engine.models.config.compressed import CompressedAttention, CompressedNames
from engine.models.config.experts import Experts
from engine.models.config.hyper import HyperConnections
from engine.models.config.indexer import Indexer, IndexerNames
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    all_layers,
    gguf_vocab,
    hf_layer_types,
    hf_shape,
)
from engine.models.headers.experts import gate_limits, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other, unsupported
from engine.models.headers.rope import ALPHA, STRETCH, gguf_factor, rope_from_hf
from engine.models.headers.sparse import indexers
from engine.models.names import GGUF, HF, TensorNames, with_experts, with_shared
from engine.tensors import RawTensor
from engine.words import _

_AT = "self_attn."
_INDEXER = _AT + "compressor.indexer."
HF_NAMES = replace(
    with_shared(with_experts(HF, "mlp.experts"), "mlp.shared_experts"), router="mlp.gate",
    correction="mlp.gate.e_score_correction_bias", expert_table="mlp.gate.tid2eid", query=_AT + "q_b_proj",
    key=_AT + "kv_proj", key_norm=_AT + "kv_norm", output=_AT + "o_b_proj", sinks=_AT + "sinks",
    hyper_attention="attn_hc.", hyper_mlp="ffn_hc.", hyper_head="model.hc_head.hc_",
    compressed=CompressedNames(
        _AT + "q_a_proj", _AT + "q_a_norm", _AT + "o_a_proj", _AT + "compressor.kv_proj",
        _AT + "compressor.gate_proj", _AT + "compressor.position_bias", _AT + "compressor.kv_norm",
    ),
    indexer=IndexerNames(
        _INDEXER + "q_b_proj", _INDEXER + "kv_proj", _INDEXER + "kv_norm",
        _INDEXER + "scorer.weights_proj", gates=_INDEXER + "gate_proj", bias=_INDEXER + "position_bias",
    ),
)  # fmt: skip
"""The names that transformers has in memory."""
_MADE = replace(
    with_experts(HF_NAMES, "ffn.experts", "w1", "w3", "w2"), embed="embed", norm="norm", head="head",
    layer="layers.{}.", attention_norm="attn_norm", mlp_norm="ffn_norm", router="ffn.gate",
    correction="ffn.gate.bias", expert_table="ffn.gate.tid2eid", shared_gate="ffn.shared_experts.w1",
    shared_up="ffn.shared_experts.w3", shared_down="ffn.shared_experts.w2", query="attn.wq_b",
    key="attn.wkv", key_norm="attn.kv_norm", output="attn.wo_b", sinks="attn.attn_sink",
    hyper_attention="hc_attn_", hyper_mlp="hc_ffn_", hyper_head="hc_head_",
    compressed=CompressedNames(
        "attn.wq_a", "attn.q_norm", "attn.wo_a", "attn.compressor.wkv", "attn.compressor.wgate",
        "attn.compressor.ape", "attn.compressor.norm",
    ),
    indexer=IndexerNames(
        "attn.indexer.wq_b", "attn.indexer.compressor.wkv", "attn.indexer.compressor.norm",
        "attn.indexer.weights_proj", gates="attn.indexer.compressor.wgate",
        bias="attn.indexer.compressor.ape",
    ),
)  # fmt: skip
"""The original names."""
GGUF_NAMES = replace(
    GGUF, query="attn_q_b", key="attn_kv", key_norm="attn_kv_a_norm", output="attn_output_b",
    expert_table="ffn_gate_tid2eid.weight", hyper_attention="hc_attn_{}.weight",
    hyper_mlp="hc_ffn_{}.weight", hyper_head="output_hc_{}.weight",
    compressed=CompressedNames(
        "attn_q_a", "attn_q_a_norm", "attn_output_a", "attn_compressor_kv", "attn_compressor_gate",
        "attn_compressor_ape.weight", "attn_compressor_norm",
    ),
    indexer=IndexerNames(
        "indexer.attn_q_b", "indexer_compressor_kv", "indexer_compressor_norm", "indexer.proj",
        gates="indexer_compressor_gate", bias="indexer_compressor_ape.weight",
    ),
)  # fmt: skip
"""Source: llama.cpp, `src/models/deepseek4.cpp` and its table of tensor names."""
_BY_GGUF_KEY = {
    "embedding_length": "hidden_size", "attention.head_count": "num_attention_heads",
    "attention.key_length": "head_dim", "context_length": "max_position_embeddings",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "attention.q_lora_rank": "q_lora_rank",
    "attention.output_lora_rank": "o_lora_rank", "attention.output_group_count": "o_groups",
    "attention.compress_rope_freq_base": "compress_rope_theta", "rope.freq_base": "rope_theta",
    "rope.dimension_count": "qk_rope_head_dim", "attention.sliding_window": "sliding_window",
    "expert_feed_forward_length": "moe_intermediate_size", "expert_count": "n_routed_experts",
    "expert_used_count": "num_experts_per_tok", "expert_weights_scale": "routed_scaling_factor",
    "hash_layer_count": "num_hash_layers", "attention.indexer.head_count": "index_n_heads",
    "attention.indexer.key_length": "index_head_dim", "attention.indexer.top_k": "index_topk",
    "hyper_connection.count": "hc_mult", "hyper_connection.sinkhorn_iterations": "hc_sinkhorn_iters",
    "hyper_connection.epsilon": "hc_eps",
}  # fmt: skip
_SCORES = {1: "softmax", 2: "sigmoid", 4: ROOT}
_DEFAULTS = {
    "num_attention_heads": 64, "num_hidden_layers": 43, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "num_experts_per_tok": 6,
}  # fmt: skip
_MOST, _MOST_BLOCK = 1 << 14, 1 << 12
_SLIDING, _CHOSEN, _WHOLE = (
    "sliding_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
)
_BY_RATE = {0: _SLIDING, 4: _CHOSEN, 128: _WHOLE}


def from_hf(keys: Keys) -> ModelConfig:
    """`DeepseekV4ForCausalLM`."""
    keys = keys.over(_DEFAULTS)
    refuse_other(keys, "hidden_act", "silu")
    # All layers have experts, so there is no other feed-forward part.
    keys = keys.replaced("intermediate_size", keys.raw("moe_intermediate_size"))
    shape = hf_shape(keys, head_dim=512, num_key_value_heads=1, max_position_embeddings=1 << 20)
    layers, dim = shape["layers"], shape["head_dim"]
    keys.integer("num_key_value_heads", 1, 1, 1)
    kinds = _kinds(keys, layers)
    chosen = [layer for layer, kind in enumerate(kinds) if kind == _CHOSEN]
    sliding = frozenset(layer for layer, kind in enumerate(kinds) if kind == _SLIDING)
    keys = _with_tables(keys, dim)
    plain, scaled = (
        rope_from_hf(keys, dim, share=1.0, interleaved=True, layer_type=name) for name in ("main", "compress")
    )
    rates = _rates(keys)
    compressed = CompressedAttention(
        keys.integer("q_lora_rank", 1, _MOST, 1024), scaled.dim, _groups(keys, shape["heads"]),
        keys.integer("o_lora_rank", 1, _MOST, 1024), tuple(rates[kind] for kind in kinds),
    )  # fmt: skip
    limits = gate_limits("swiglu_limit", keys.number("swiglu_limit", -1e6, 1e6, 10.0))
    return ModelConfig(
        **shape, rope=plain if len(sliding) == layers else scaled,
        rope_local=plain if sliding and len(sliding) < layers else None, local_layers=sliding,
        windows=(keys.integer("sliding_window", 1, MAX_CONTEXT, 128),) * layers, sinks=True,
        compressed=compressed, hyper=hyper_connections(keys), experts=_experts(keys, layers),
        mlp_limits=(limits,) * layers, expert_limits=(limits,) * layers,
        mlp_bias=keys.flag("mlp_bias", False), attention_bias=False, output_bias=False,
        indexer=_indexer(keys, shape["context_length"], rates[_CHOSEN], scaled.dim, chosen),
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`deepseek4`, whose keys become those of config.json."""
    # The last layers may predict further tokens; a file without them may still count them.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    further = keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    if f"blk.{layers - further}.nextn.eh_proj.weight" in tensors:
        layers -= further
    kind = keys.integer("expert_gating_func", 0, 1 << 10, 4)
    for name, found, usual in (
        ("expert_gating_func", kind, kind if kind in _SCORES else 4),
        ("expert_shared_count", keys.integer("expert_shared_count", 0, 1 << 10, 1), 1),
        ("expert_weights_norm", keys.flag("expert_weights_norm", True), True),
    ):
        if found != usual:
            raise unsupported(name, found)
    made: dict[str, Any] = {"architectures": ["deepseek4"], "num_hidden_layers": layers}
    for name, own in _BY_GGUF_KEY.items():
        keys.number(name, -1e12, 1e12)  # raises if it is absent
        made[own] = keys.raw(name)
    made |= {name: keys.raw(name) for name in (STRETCH, ALPHA) if keys.has(name)}
    rates = all_layers(
        keys.integers("attention.compress_ratios", 0, _MOST_BLOCK), "attention.compress_ratios", layers
    )
    made |= {
        "compress_ratios": list(rates), "scoring_func": _SCORES[kind], "vocab_size": gguf_vocab(tensors),
        "tie_word_embeddings": "output.weight" not in tensors, "swiglu_limit": _gguf_limit(keys, layers),
    }  # fmt: skip
    if keys.text("rope.scaling.type", "none") == "yarn":
        made["rope_scaling"] = {
            "type": "yarn", "factor": gguf_factor(keys) or 1.0,
            "original_max_position_embeddings": keys.integer(
                "rope.scaling.original_context_length", 1, MAX_CONTEXT
            ),
            "beta_fast": keys.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0),
            "beta_slow": keys.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0),
        }  # fmt: skip
    return replace(from_hf(Keys(made, "GGUF metadata")), name="")


def _gguf_limit(keys: Keys, layers: int) -> float:
    """What limits all experts alike; without a key nothing does."""
    found: set[float] = set()
    for name in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        value = keys.raw(name)
        if isinstance(value, list):
            found |= set(all_layers(keys.numbers(name, 0.0, 1e6), name, layers))
        elif value is not None:
            found.add(keys.number(name, 0.0, 1e6))
    if len(found) > 1:
        raise unsupported("swiglu_clamp_exp", sorted(found))
    return next(iter(found), 0.0) or 1e6


def hyper_connections(keys: Keys, *, mean: bool = False) -> HyperConnections:
    """The streams of rows, of V4 and of GLM-5 next."""
    return HyperConnections(
        keys.integer("hc_mult", 1, MOST_STREAMS, 4), 2.0, keys.number("hc_eps", 0.0, 1.0, 1e-6),
        keys.integer("hc_sinkhorn_iters", 1, 1 << 10, 20), mean,
    )  # fmt: skip


def _kinds(keys: Keys, layers: int) -> tuple[str, ...]:
    """The kind of each layer's attention: a list, the authors' rates, or the usual ones."""
    kinds = hf_layer_types(keys, layers, (_SLIDING, _CHOSEN, _WHOLE))
    if kinds is not None:
        return kinds
    if keys.raw("compress_ratios") is None:
        return (*(_WHOLE,) * 2, *(_CHOSEN if layer % 2 else _WHOLE for layer in range(layers)))[:layers]
    rates = all_layers(keys.integers("compress_ratios", 0, _MOST_BLOCK), "compress_ratios", layers)
    if other := [rate for rate in rates if rate not in _BY_RATE]:
        raise unsupported("compress_ratios", other[0])
    return tuple(_BY_RATE[rate] for rate in rates)


def _rates(keys: Keys) -> dict[str, int]:
    """The positions of a block, by the kind of layer."""
    own = keys.table("compress_rates") or Keys({}, "config.json")
    older = keys.over({"compress_rate_csa": 4, "compress_rate_hca": 128})
    return {
        _SLIDING: 0,
        _CHOSEN: own.integer(_CHOSEN, 1, _MOST_BLOCK, older.raw("compress_rate_csa")),
        _WHOLE: own.integer(_WHOLE, 1, _MOST_BLOCK, older.raw("compress_rate_hca")),
    }


def _with_tables(keys: Keys, dim: int) -> Keys:
    """The keys with two tables of rope: of layers with a window alone, and of the others, whose base is
    another and which alone are scaled.
    """
    table = keys.table("rope_parameters") or keys.table("rope_scaling")
    found: dict[str, Any] = {**table.source} if table else {}
    if isinstance(found.get("main"), Mapping) and isinstance(found.get("compress"), Mapping):
        return keys
    share = keys.number("partial_rotary_factor", 0.0, 1.0, 64 / 512)
    if not keys.has("partial_rotary_factor") and keys.has("qk_rope_head_dim"):
        share = keys.integer("qk_rope_head_dim", 2, dim) / dim
    scaled = {
        **found, "rope_type": found.get("rope_type", found.get("type", "default")),
        "rope_theta": keys.number("compress_rope_theta", 1.0, 1e12, 160000.0),
        "partial_rotary_factor": share,
    }  # fmt: skip
    if scaled["rope_type"] == "yarn":
        scaled.setdefault("attention_factor", 1.0)
    plain = {"rope_theta": keys.number("rope_theta", 1.0, 1e12, 1e4), "partial_rotary_factor": share}
    return keys.replaced("rope_parameters", {"main": plain, "compress": scaled})


def _groups(keys: Keys, heads: int) -> int:
    groups = keys.integer("o_groups", 1, heads, 8)
    if heads % groups:
        raise BadCheckpoint(
            _(
                "The model projects {heads} heads in {groups} groups; the first must be a multiple.",
                heads=heads,
                groups=groups,
            )
        )
    return groups


def _indexer(keys: Keys, context: int, block: int, rope_dim: int, chosen: list[int]) -> Indexer | None:
    if not chosen:
        return None
    shape = IndexerShape(
        keys.integer("index_n_heads", 1, 1 << 10, 64), keys.integer("index_head_dim", rope_dim, 1 << 12, 128),
        keys.integer("index_topk", 1, MAX_CONTEXT, 512), block, pooled=True, ends=True,
    )  # fmt: skip
    return replace(indexers(shape, context, chosen, chosen, interleaved=True), pooling="overlapping")


def _experts(keys: Keys, layers: int) -> Experts | None:
    kinds = hf_layer_types(keys, layers, ("hash_moe", "moe"), "mlp_layer_types")
    first = keys.integer("num_hash_layers", 0, MAX_LAYERS, 3)
    tabled = [layer for layer in range(layers) if (kinds[layer] == "hash_moe" if kinds else layer < first)]
    scores, width = keys.text("scoring_func", ROOT), keys.integer("moe_intermediate_size", 1, 1 << 22)
    if scores not in (*SCORES, ROOT):
        raise unsupported("scoring_func", scores)
    return hf_experts(
        keys, range(layers), count="n_routed_experts", used="num_experts_per_tok", width=width,
        normalise=True, scores=scores, corrected=True, shared_width=width, tabled=frozenset(tabled),
        scale=keys.number("routed_scaling_factor", 0.0, 1e6, 1.5),
    )  # fmt: skip


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, or those that transformers gives when it saves, where a file has them."""
    if not any(".attn.wq_a." in name for name in tensors):
        return names
    made = _MADE
    if made.embed + ".weight" not in tensors:
        whole = {name: getattr(names, name) for name in ("embed", "norm", "layer", "hyper_head")}
        made = replace(made, **whole)
    if not any(name.endswith(".attn.kv_norm.weight") for name in tensors):
        made = replace(made, key_norm="attn.norm")
    return made


DEEPSEEK_4 = Architecture(
    ("deepseek4",), ("DeepseekV4ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=adapted
)
