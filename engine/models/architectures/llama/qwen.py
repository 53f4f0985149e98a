"""Qwen 2 and 2.5 (biases of queries, keys and values), Qwen 3 (qk norm), and both as mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    gguf_decoder,
    gguf_layers_with,
    gguf_windows,
    hf_activation,
    hf_decoder,
    hf_layer_types,
    hf_shape,
    hf_sliding,
    layer_kinds,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.rope import gguf_unscaled_rope, rope_from_hf
from engine.models.names import GGUF, HF, MIXTURE, with_shared
from engine.tensors import RawTensor

QWEN_2_NAMES = replace(
    with_shared(MIXTURE, "mlp.shared_expert"), shared_router="mlp.shared_expert_gate"
)  # fmt: skip


def from_hf_2(keys: Keys) -> ModelConfig:
    """`Qwen2ForCausalLM`."""
    shape = _hf_decoder(keys, True, num_key_value_heads=32) | {"output_bias": False}
    return ModelConfig(**shape, windows=_windows(keys, shape["layers"]))


def from_hf_3(keys: Keys) -> ModelConfig:
    """`Qwen3ForCausalLM`."""
    shape = _hf_decoder(keys, keys.flag("attention_bias", False), num_key_value_heads=32, head_dim=128)
    return ModelConfig(**shape, qk_norm="head", windows=_windows(keys, shape["layers"]))


def from_hf_mixture(keys: Keys) -> ModelConfig:
    """`Qwen3MoeForCausalLM`: experts in every `decoder_sparse_step`-th layer except `mlp_only_layers`."""
    shape = _hf_decoder(keys, keys.flag("attention_bias", False), num_key_value_heads=4)
    layers = shape["layers"]
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0 if keys.has("sliding_window") else 4096)
    slides = keys.flag("use_sliding_window", False) and window
    return ModelConfig(
        **shape, qk_norm="head", windows=(window,) * layers if slides else (),
        experts=hf_qwen_experts(keys, layers, {"num_experts_per_tok": 8, "moe_intermediate_size": 768}),
    )  # fmt: skip


def from_hf_mixture_2(keys: Keys) -> ModelConfig:
    """`Qwen2MoeForCausalLM`: one more expert that every token uses, gated."""
    shape = _hf_decoder(keys, keys.flag("qkv_bias", True), num_key_value_heads=16) | {"output_bias": False}
    usual = {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
    return ModelConfig(
        **shape,
        windows=_windows(keys, shape["layers"], every_other=True),
        experts=hf_qwen_experts(keys, shape["layers"], usual, shared=5632),
    )


def from_hf_mellum(keys: Keys) -> ModelConfig:
    """`MellumForCausalLM`: experts in the layers that `mlp_layer_types` names, and windows with a rope of
    their own.
    """
    keys = keys.over({"num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 131072})
    shape: dict[str, Any] = hf_shape(keys)
    layers, dim, bias = shape["layers"], shape["head_dim"], keys.flag("attention_bias", False)
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    count = "num_experts" if keys.raw("num_local_experts") is None else "num_local_experts"
    experts = hf_experts(
        keys.over({count: 64, "num_experts_per_tok": 8}),
        [layer for layer in range(layers) if kinds is None or kinds[layer] == "sparse"],
        count=count, used="num_experts_per_tok",
        width=keys.integer("moe_intermediate_size", 1, 1 << 22, 896),
        normalise=keys.flag("norm_topk_prob", True),
    )  # fmt: skip
    return ModelConfig(
        **shape, activation=hf_activation(keys), attention_bias=bias, output_bias=bias, mlp_bias=False,
        qk_norm="head", windows=hf_sliding(keys, layers, 1024, 1), experts=experts,
        rope=rope_from_hf(keys, dim, base=5e5, share=1.0, layer_type="full_attention"),
        rope_local=rope_from_hf(keys, dim, base=1e4, share=1.0, layer_type="sliding_attention"),
    )  # fmt: skip


def hf_qwen_experts(
    keys: Keys, layers: int, usual: Mapping[str, int], *, shared: int = 0, normalise: bool = False
) -> Experts | None:
    """Experts in every `decoder_sparse_step`-th layer except `mlp_only_layers`; `usual` are the class's
    defaults, `shared` that of the features inside the shared expert, 0 where there is none.
    """
    # transformers 5 writes the count under Mixtral's name.
    count = "num_experts" if keys.raw("num_experts") is not None else "num_local_experts"
    keys = keys.over({count: usual.get("num_experts", 128), **usual})
    step, plain = (
        keys.integer("decoder_sparse_step", 1, MAX_LAYERS, 1),
        keys.integers("mlp_only_layers", 0, MAX_LAYERS),
    )
    sparse = [layer for layer in range(layers) if (layer + 1) % step == 0 and layer not in plain]
    return hf_experts(
        keys,
        [] if keys.raw(count) == 0 else sparse,
        count=count,
        used="num_experts_per_tok",
        width=keys.integer("moe_intermediate_size", 1, 1 << 22),
        normalise=keys.flag("norm_topk_prob", normalise),
        shared_width=keys.integer("shared_expert_intermediate_size", 1, 1 << 22, shared) if shared else 0,
        shared_gate=shared > 0,
    )


def _hf_decoder(keys: Keys, bias: bool, **defaults: Any) -> dict[str, Any]:
    # For `num_key_value_heads` null means as many as query heads; an absent key, the class's default.
    absent = {} if keys.has("num_key_value_heads") else defaults
    others = {"max_position_embeddings": 32768, "head_dim": defaults.get("head_dim")}
    return hf_decoder(keys, bias=bias, **absent | others)


def _windows(keys: Keys, layers: int, *, every_other: bool = False) -> tuple[int, ...]:
    """If `use_sliding_window` is set: `layer_types`, or all layers from `max_window_layers` on; where windows
    are in `every_other` layer, the first, third ... before it.
    """
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0 if keys.has("sliding_window") else 4096)
    if not keys.flag("use_sliding_window", False) or not window:
        return ()
    first, kinds = keys.integer("max_window_layers", 0, MAX_LAYERS, 28), layer_kinds(keys, layers)
    slide = (
        [kind == "sliding_attention" for kind in kinds]
        if kinds is not None
        else [layer < first and layer % 2 == 0 if every_other else layer >= first for layer in range(layers)]
    )
    return tuple(window if slides else 0 for slides in slide)


def from_gguf_2(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen2`, and the text model of `qwen2vl`."""
    return ModelConfig(**gguf_decoder(keys, tensors, keys.source["general.architecture"]))


def from_gguf_3(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen3`, the text model of `qwen3vl`, and `maincoder`, whose interleaved rope is before norms."""
    architecture = keys.source["general.architecture"]
    early = architecture == "maincoder"
    shape = gguf_decoder(keys, tensors, architecture, interleaved=early)
    return ModelConfig(**shape, qk_norm="head", qk_norm_last=early)


def from_gguf_mixture(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen3moe`, and the text model of `qwen3vlmoe`."""
    shape = gguf_decoder(keys, tensors, keys.source["general.architecture"], handled=("expert_count",))
    return ModelConfig(**shape, qk_norm="head", experts=gguf_experts(keys, shape))


def from_gguf_mellum(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`mellum`."""
    shape = gguf_decoder(keys, tensors, "mellum", handled=("expert_count",))
    layers, window = shape["layers"], keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    return ModelConfig(
        **shape, qk_norm="head", windows=gguf_windows(keys, layers, window, 4),
        rope_local=gguf_unscaled_rope(keys, shape["head_dim"]) if window else None,
        experts=gguf_experts(keys, shape, layers=gguf_layers_with(tensors, "ffn_gate_inp", layers)),
    )  # fmt: skip


def from_gguf_mixture_2(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`qwen2moe`."""
    shape = gguf_decoder(keys, tensors, "qwen2moe", handled=GGUF_EXPERT_KEYS)
    return ModelConfig(**shape, experts=gguf_qwen_experts(keys, shape, normalise=False))


def gguf_qwen_experts(keys: Keys, shape: dict[str, Any], *, normalise: bool = True) -> Experts | None:
    """Experts with a shared one, whose features are those of a plain part where the file does not say."""
    keys = keys.over({"expert_shared_feed_forward_length": shape["ffn_width"]})
    return gguf_experts(keys, shape, normalise=normalise, shared_gate=True)


QWEN_2 = Architecture(
    ("qwen2", "qwen2vl"),
    ("Qwen2ForCausalLM", "MiMoForCausalLM"),
    from_hf_2,
    from_gguf_2,
    HF,
    GGUF,
    prefixes=("", "-"),
)
QWEN_3 = Architecture(
    ("qwen3", "qwen3vl", "maincoder"),
    ("Qwen3ForCausalLM",),
    from_hf_3,
    from_gguf_3,
    HF,
    GGUF,
    prefixes=("", "-"),
)
QWEN_3_MIXTURE = Architecture(
    ("qwen3moe", "qwen3vlmoe"), ("Qwen3MoeForCausalLM",), from_hf_mixture, from_gguf_mixture, MIXTURE, GGUF
)
MELLUM = Architecture(("mellum",), ("MellumForCausalLM",), from_hf_mellum, from_gguf_mellum, MIXTURE, GGUF)
QWEN_2_MIXTURE = Architecture(
    ("qwen2moe",), ("Qwen2MoeForCausalLM",), from_hf_mixture_2, from_gguf_mixture_2, QWEN_2_NAMES, GGUF
)
