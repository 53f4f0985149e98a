"""GLM-5 next (GLM 5.3 Flash): Kimi delta attention, and in some layers latent attention without rope that
looks at blocks of positions chosen by gated means of their keys; GLM-5's experts, with limits, and streams of
rows as in DeepSeek V4. Vision is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.backends.indexer import IndexerShape
from engine.errors import UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.architectures.deepseek import by_sigmoid
from engine.models.architectures.deepseek_sparse import INDEXED
from engine.models.architectures.deepseek_v4 import hyper_connections
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.indexer import Indexer
from engine.models.config.recurrent import SeparateDelta
from engine.models.headers.decoder import MAX_CONTEXT, hf_layer_types, refuse_other, refuse_other_than_silu
from engine.models.headers.experts import gate_limits, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.latent import hf_latent_decoder
from engine.models.headers.sparse import full_layers, indexers
from engine.models.names import RecurrentNames
from engine.words import _

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
        indexer=_indexer(keys, shape, indexed),
    )  # fmt: skip


def _delta(keys: Keys, eps: float) -> SeparateDelta:
    """Kimi delta attention, for whose settings the makers have a table."""
    own = keys.table("linear_attn_config") or Keys({}, "config.json")
    dim = own.integer("head_dim", 1, _MOST, keys.integer("linear_head_dim", 1, _MOST, 128))
    heads = own.integer("num_heads", 1, _MOST, keys.integer("linear_num_heads", 1, _MOST, 64))
    taps = own.integer("short_conv_kernel_size", 2, 64, keys.integer("linear_conv_kernel_dim", 2, 64, 4))
    return SeparateDelta(
        heads, heads, dim, dim, taps, eps, "sigmoid", decays="key", rank=dim, bound=_bound(keys, own)
    )


def _bound(keys: Keys, own: Keys) -> float:
    """How far decays go in the exponent; 0: any distance. A null is a bound only where the makers' table does
    not say that there is none.
    """
    from_table = own.has("gate_lower_bound")
    name, of = ("gate_lower_bound", own) if from_table else ("linear_lower_bound", keys)
    if of.has(name) and of.raw(name) is None and not (own.source and own.flag("safe_gate", True)):
        return 0.0
    bound = -of.number(name, -1e6, 1e6, -5.0)
    if bound <= 0.0:
        raise UnsupportedModel(
            _(
                "The model sets {name} to {value!r}, which is not supported. Choose another model.",
                name=name,
                value=-bound,
            )
        )
    return bound


def _indexer(keys: Keys, shape: dict[str, Any], indexed: list[int]) -> Indexer | None:
    """The indexer, whose keys are pooled over blocks."""
    if not indexed:
        return None
    budget, block = keys.integer("index_topk", 1, MAX_CONTEXT, 2048), keys.integer("index_kpool", 1, 64, 16)
    if budget % block:
        raise UnsupportedModel(
            _(
                "The model sets {name} to {value!r}, which is not supported. Choose another model.",
                name="index_topk",
                value=budget,
            )
        )
    own = IndexerShape(
        keys.integer("index_n_heads", 1, 1 << 10, 32), keys.integer("index_head_dim", 1, 1 << 12, 128),
        budget // block, block, pooled=True,
    )  # fmt: skip
    made = indexers(own, shape["context_length"], full_layers(keys, shape["layers"]), indexed)
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


GLM_5_NEXT = Architecture(
    (), ("Glm5NextForConditionalGeneration",), from_hf, None, HF_NAMES, None,
    prefixes=("-model.language_model.", "", "-language_model.", "-"),
)  # fmt: skip
