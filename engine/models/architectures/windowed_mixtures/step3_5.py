"""Step 3.5 Flash: windows with more query heads in three of four layers, a gate for each head, experts
chosen by sigmoids, and in the last layers limits of what is inside the feed-forward part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Limits
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    each_layer,
    gguf_decoder,
    gguf_layers_with,
    gguf_windows,
    head_dimension,
    hf_activation,
    hf_shape,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import not_kinds, unlike_layers, unsupported, unsupported_layer
from engine.models.headers.rope import gguf_unscaled_rope, rope_from_hf
from engine.models.names import GGUF, SHARING, TensorNames, with_shared
from engine.tensors import RawTensor
from engine.weights.tensor import FileTensor

HF_NAMES = replace(SHARING, output_gate="self_attn.g_proj")
PUBLISHED = replace(
    with_shared(HF_NAMES, "share_expert"), router="moe.gate", correction="moe.router_bias",
    expert_gate="moe.gate_proj", expert_up="moe.up_proj", expert_down="moe.down_proj", expert_gate_up="",
    expert_down_stack="", stack_ends=(".weight", ".bias"),
)  # fmt: skip
GGUF_NAMES = replace(GGUF, output_gate="attn_gate")
_FULL, _SLIDING = "full_attention", "sliding_attention"
_FIRST, _BASE = 3, 1e4
_DEFAULTS = {
    "num_key_value_heads": 8, "n_routed_experts": 288, "num_experts_per_tok": 8, "share_expert_dim": 1280,
    "moe_intermediate_size": 1280, "intermediate_size": 11264, "hidden_size": 4096, "num_hidden_layers": 45,
    "num_attention_heads": 64, "vocab_size": 128815,
}  # fmt: skip
_EXPECTED = {
    "moe_router_activation": "sigmoid", "use_head_wise_attn_gate": True, "norm_expert_weight": True,
    "use_moe_router_bias": True, "zero_centered": True,
}  # fmt: skip
"""Keys of the authors that have one value."""
_QUIRKS: dict[str, Any] = {"qk_norm": "head", "output_gate": "head"}
_LEAST_LIMIT = 0.5


def from_hf(keys: Keys) -> ModelConfig:
    """`Step3p5ForCausalLM`, and the text model of `Step3p7ForConditionalGeneration`, with the original keys
    or those of transformers. Lists may go on for the layers that predict further tokens.
    """
    keys = keys.renamed(
        num_key_value_heads="num_attention_groups", n_routed_experts="moe_num_experts",
        num_experts_per_tok="moe_top_k", share_expert_dim="share_expert_dims",
    ).over(_DEFAULTS)  # fmt: skip
    for name, value in _EXPECTED.items():
        if keys.raw(name) not in (None, value):
            raise unsupported(name, keys.raw(name))
    shape: dict[str, Any] = hf_shape(keys, head_dim=128, rms_norm_eps=1e-5, max_position_embeddings=128000)
    layers, dim = shape["layers"], shape["head_dim"]
    kinds = _kinds(keys, "layer_types", (_FULL, _SLIDING), layers) or (_FULL,) * layers
    keys = _with_ropes(keys, kinds)
    slides = _SLIDING in kinds
    window = keys.integer("sliding_window", 1, MAX_CONTEXT) if slides else 0
    sparse, width = _sparse(keys, layers), keys.integer("moe_intermediate_size", 1, 1 << 22)
    scale = keys.number("query_pre_attn_scalar", 1e-3, 1e9, dim) ** -0.5
    return ModelConfig(
        **shape, **_QUIRKS, norm_offset=1.0, activation=hf_activation(keys), attention_scale=scale,
        attention_bias=keys.flag("attention_bias", False), output_bias=keys.flag("attention_bias", False),
        mlp_bias=False, rope=rope_from_hf(keys, dim, base=_BASE, share=1.0, layer_type=_FULL),
        rope_local=rope_from_hf(keys, dim, base=_BASE, share=1.0, layer_type=_SLIDING) if slides else None,
        windows=tuple(window if kind == _SLIDING else 0 for kind in kinds) if slides else (),
        layer_queries=_queries(keys, kinds, shape["heads"]),
        mlp_limits=layer_limits(keys, "swiglu_limits_shared", layers),
        expert_limits=layer_limits(keys, "swiglu_limits", layers),
        experts=hf_experts(
            keys, sparse, count="n_routed_experts", used="num_experts_per_tok", width=width, normalise=True,
            scores="sigmoid", corrected=True, shared_width=keys.integer("share_expert_dim", 1, 1 << 22),
            scale=keys.number("moe_router_scaling_factor", 0.0, 1e6, 1.0),
        ),
    )  # fmt: skip


def _kinds(keys: Keys, name: str, known: tuple[str, ...], layers: int) -> tuple[str, ...]:
    """A kind of each layer; () if absent."""
    found = keys.raw(name)
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) < layers:
        raise not_kinds(name, layers)
    for kind in found[:layers]:
        if kind not in known:
            raise unsupported_layer(kind)
    return tuple(found[:layers])


def _sparse(keys: Keys, layers: int) -> list[int]:
    """The layers with experts."""
    kinds = _kinds(keys, "mlp_layer_types", ("dense", "sparse"), layers)
    if kinds:
        return [layer for layer, kind in enumerate(kinds) if kind == "sparse"]
    listed = keys.raw("moe_layers_enum")
    if listed is None:
        return list(range(min(_FIRST, layers), layers))
    if isinstance(listed, str):
        listed = [
            int(part) if part.strip().isdecimal() else part for part in listed.split(",") if part.strip()
        ]
    return [layer for layer in keys.replaced("n", listed).integers("n", 0, MAX_LAYERS) if layer < layers]


def _queries(keys: Keys, kinds: tuple[str, ...], heads: int) -> tuple[int, ...]:
    """The query heads of each layer."""
    other = keys.table("attention_other_setting")
    usual = other.integer("num_attention_heads", 1, 1 << 14, heads) if other else heads
    own = keys.integer("num_sliding_attention_heads", 1, 1 << 14, usual)
    if other is not None:
        same = ("num_attention_groups", "num_key_value_heads"), ("head_dim", "head_dim")
        for name, name_of_all in same:
            if other.raw(name) not in (None, keys.raw(name_of_all)):
                raise unsupported(name, other.raw(name))
    found = [own if kind == _SLIDING else heads for kind in kinds]
    single = keys.table("per_layer_config")
    for name, value in single.source.items() if single else ():
        of_layer = single.table(name) if single else None
        if of_layer is None or not str(name).isdecimal() or set(value) - {"num_attention_heads"}:
            raise unsupported("per_layer_config", value)
        if int(name) < len(found):
            found[int(name)] = of_layer.integer("num_attention_heads", 1, 1 << 14, heads)
    return tuple(found) if set(found) != {heads} else ()


def layer_limits(keys: Keys, name: str, layers: int) -> tuple[Limits | None, ...]:
    """The limits of each layer, where a null or 0 is none; () if there are none."""
    found = keys.raw(name)
    if isinstance(found, list):
        keys = keys.replaced(name, [each or 0 for each in found])
    limits = keys.numbers(name, 0.0, 1e6)
    if limits and len(limits) < layers:
        raise unlike_layers(layers, name, len(limits))
    # An activated gate is above -0.3: below that a limit would be one of its smallest values, too.
    if any(0 < limit < _LEAST_LIMIT for limit in limits):
        raise unsupported(name, min(limit for limit in limits if limit))
    pairs = tuple((limit, limit) if limit else None for limit in limits[:layers])
    return pairs if any(pairs) else ()


def _with_ropes(keys: Keys, kinds: tuple[str, ...]) -> Keys:
    """The keys with a rope of each kind of layer; the authors' have a base and a share of each layer."""
    found = keys.raw("rope_parameters")
    if isinstance(found, Mapping) and all(isinstance(found.get(kind), Mapping) for kind in kinds):
        return keys
    ropes: dict[str, dict[str, Any]] = {}
    for kind in {*kinds}:
        at, own = kinds.index(kind), ropes.setdefault(kind, {})
        for name, lists in (
            ("rope_theta", "rope_theta"),
            ("partial_rotary_factor", "partial_rotary_factors"),
        ):
            value = keys.raw(lists)
            value = value[at] if isinstance(value, list) and len(value) > at else value
            if value is not None:
                own[name] = value
    scaling = keys.raw("rope_scaling")
    if isinstance(scaling, Mapping) and _FULL in ropes:
        ropes[_FULL] |= scaling
    return keys.without("rope_theta", "rope_scaling").replaced("rope_parameters", ropes)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`step35`."""
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    heads = each_layer(keys, "attention.head_count", 1, 1 << 14, layers)
    counts = each_layer(keys, "attention.head_count_kv", 1, 1 << 14, layers)
    for name, value in (
        ("block_count", layers), ("attention.head_count", max(heads)),
        ("attention.head_count_kv", max(counts)),
    ):  # fmt: skip
        keys = keys.replaced(name, value)
    dim = head_dimension(
        keys, "attention.key_length", keys.integer("embedding_length", 1, 1 << 20), max(heads)
    )
    # Layers without a window rotate half of what the files say, as llama.cpp has it.
    stated = keys.integer("rope.dimension_count", 4, dim, dim)
    keys = keys.over({"rope.dimension_count_swa": stated}).replaced("rope.dimension_count", stated // 2)
    shape: dict[str, Any] = gguf_decoder(
        keys, _with_factors(tensors, stated // 4), "step35", handled=GGUF_EXPERT_KEYS
    )
    experts = gguf_experts(
        keys,
        shape,
        normalise=False,
        scores="sigmoid",
        layers=gguf_layers_with(tensors, "ffn_gate_inp", layers),
    )
    return ModelConfig(
        **shape, **_QUIRKS, rope_local=gguf_unscaled_rope(keys.over({"rope.freq_base_swa": _BASE}), dim),
        layer_queries=heads if len({*heads}) > 1 else (),
        layer_heads=tuple((count, dim) for count in counts) if len({*counts}) > 1 else (),
        windows=gguf_windows(keys, layers, keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0), 4),
        mlp_limits=layer_limits(keys, "swiglu_clamp_shexp", layers),
        expert_limits=layer_limits(keys, "swiglu_clamp_exp", layers), experts=experts,
    )  # fmt: skip


def _with_factors(tensors: Mapping[str, RawTensor], count: int) -> Mapping[str, RawTensor]:
    """The tensors with the first `count` factors of rope; a file may have as many as the longer rope has."""
    stored = tensors.get("rope_freqs.weight")
    if stored is None or len(stored.shape) != 1 or stored.shape[0] <= count:
        return tensors
    values = np.ascontiguousarray(stored.dequantise()[:count])
    return {**tensors, stored.name: FileTensor(stored.name, "F32", (count,), values.view(np.uint8))}


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, where the file has them."""
    if not any(".moe.gate." in name for name in tensors):
        return names
    return replace(PUBLISHED, embed=names.embed, norm=names.norm, head=names.head, layer=names.layer)


STEP_3_5 = Architecture(
    ("step35",), ("Step3p5ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=adapted
)
