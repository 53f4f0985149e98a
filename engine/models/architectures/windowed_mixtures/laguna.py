"""Laguna: windows, more query heads in some layers than in others, a softplus gate for each head, and experts
chosen by sigmoids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    each_layer,
    gguf_decoder,
    gguf_layers_with,
    gguf_windows,
    hf_activation,
    hf_layer_types,
    hf_shape,
    layer_kinds,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.headers.rope import gguf_unscaled_rope, rope_from_hf
from engine.models.names import GGUF, SHARING, TensorNames, with_shared
from engine.tensors import RawTensor

HF_NAMES = replace(SHARING, output_gate="self_attn.g_proj")
PUBLISHED = replace(
    with_shared(HF_NAMES, "mlp.shared_expert"), correction="mlp.experts.e_score_correction_bias"
)
GGUF_NAMES = replace(GGUF, output_gate="attn_gate")
_ROPES = {
    "full_attention": {"rope_theta": 500_000.0, "partial_rotary_factor": 0.5},
    "sliding_attention": {"rope_theta": 10_000.0},
}
_DEFAULTS: dict[str, Any] = {
    "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "sliding_window": 512, "rope_parameters": _ROPES,
}  # fmt: skip
_GATES = {True: "head", "per-head": "head", "per-element": "row"}


def from_hf(keys: Keys) -> ModelConfig:
    """`LagunaForCausalLM`."""
    count = "num_experts" if keys.raw("num_local_experts") is None else "num_local_experts"
    keys = keys.over(_DEFAULTS | {count: 256})
    gating = keys.raw("gating") if keys.has("gating") else True
    input_weighted = keys.flag("moe_apply_router_weight_on_input", False)
    if input_weighted:
        raise unsupported("moe_apply_router_weight_on_input", True)
    if not isinstance(gating, bool | str) or gating not in _GATES:
        raise unsupported("gating", gating)
    shape: dict[str, Any] = hf_shape(
        keys, head_dim=128, num_key_value_heads=8, max_position_embeddings=131072
    )
    layers, dim = shape["layers"], shape["head_dim"]
    window, kinds = keys.integer("sliding_window", 0, MAX_CONTEXT, 0), layer_kinds(keys, layers) or ()
    sparse = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    name = "num_attention_heads_per_layer"
    own = each_layer(keys, name, 1, 1 << 14, layers) if keys.raw(name) is not None else ()
    slides, bias = "sliding_attention" in kinds and window > 0, keys.flag("attention_bias", False)
    return ModelConfig(
        **shape, activation=hf_activation(keys), attention_bias=bias, output_bias=bias, mlp_bias=False,
        rope=rope_from_hf(keys, dim, share=1.0, layer_type="full_attention"),
        rope_local=rope_from_hf(keys, dim, share=1.0, layer_type="sliding_attention") if slides else None,
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds) if slides else (),
        layer_queries=own, qk_norm="head", output_gate=_GATES[gating], gate_activation="softplus",
        experts=hf_experts(
            keys, [at for at in range(layers) if (sparse[at] == "sparse" if sparse else at)], count=count,
            used="num_experts_per_tok", width=keys.integer("moe_intermediate_size", 1, 1 << 22),
            normalise=True, scores="sigmoid", corrected=True,
            scale=keys.number("moe_routed_scaling_factor", 0.0, 1e6, 1.0),
            shared_width=keys.integer("shared_expert_intermediate_size", 1, 1 << 22),
            router_cap=keys.number("moe_router_logit_softcapping", 0.0, 1e6, 0.0),
        ),
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`laguna`."""
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    heads = each_layer(keys, "attention.head_count", 1, 1 << 14, layers)
    shape: dict[str, Any] = gguf_decoder(
        keys.replaced("attention.head_count", max(heads)), tensors, "laguna", handled=GGUF_EXPERT_KEYS
    )
    window = keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    gate = tensors.get("blk.0.attn_gate.weight")  # files do not state its kind
    return ModelConfig(
        **shape, qk_norm="head", gate_activation="softplus",
        output_gate="head" if gate is None or gate.shape[0] == heads[0] else "row",
        layer_queries=heads if len({*heads}) > 1 else (),
        windows=gguf_windows(keys, layers, window, 4, full_first=True),
        rope_local=gguf_unscaled_rope(keys, shape["head_dim"]) if window else None,
        experts=gguf_experts(
            keys, shape, scores="sigmoid", layers=gguf_layers_with(tensors, "ffn_gate_inp", layers),
            router_cap=keys.number("router_logit_softcapping", 0.0, 1e6, 0.0),
        ),
    )  # fmt: skip


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original names, where the file has them."""
    published = replace(PUBLISHED, embed=names.embed, norm=names.norm, head=names.head, layer=names.layer)
    if any(name.endswith(PUBLISHED.correction) for name in tensors):
        return published
    if any(".mlp.shared_expert." in name for name in tensors):  # as mlx-lm has them
        return replace(published, correction=names.correction)
    return names


LAGUNA = Architecture(
    ("laguna",), ("LagunaForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, adapt=adapted
)
