"""Granite 3: Llama with multipliers on embeddings, attention, residuals and logits; also with experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    gguf_decoder,
    gguf_windows,
    hf_architecture,
    hf_decoder,
    layer_kinds,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_hf
from engine.models.names import GGUF, HF, TensorNames, with_experts
from engine.tensors import RawTensor
from engine.words import _

MIXTURE_NAMES = replace(
    HF, router="block_sparse_moe.router.layer", expert_gate_up="block_sparse_moe.input_linear",
    expert_down="block_sparse_moe.output_linear", shared_gate_up="shared_mlp.input_linear",
    shared_down="shared_mlp.output_linear",
)  # fmt: skip
GGUF_MULTIPLIERS = ("attention.scale", "logit_scale", "embedding_scale", "residual_scale")
_SMALLEST, _LARGEST = 1e-6, 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`GraniteForCausalLM`."""
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    return ModelConfig(**hf_decoder(keys, bias=bias, mlp_bias=mlp_bias), **hf_multipliers(keys))


def from_hf_mixture(keys: Keys) -> ModelConfig:
    """`GraniteMoeForCausalLM`, and `GraniteMoeSharedForCausalLM` with a shared expert."""
    keys = keys.over({"num_local_experts": 8})
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False))
    shares = hf_architecture(keys.source) == "GraniteMoeSharedForCausalLM"
    shared = keys.integer("shared_intermediate_size", 0, 1 << 22, 0)
    return ModelConfig(
        **shape, **hf_multipliers(keys), experts=hf_granite_experts(keys, shape, shared if shares else 0)
    )


def from_hf_sliding(keys: Keys) -> ModelConfig:
    """`GraniteSWAForCausalLM`, and `GraniteMoeSWAForCausalLM` with experts: attention sinks, windows in three
    of four layers, and a rope for each kind of layer, or none (0).
    """
    sparse = hf_architecture(keys.source) == "GraniteMoeSWAForCausalLM"
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    given = sparse or keys.has("num_key_value_heads")
    absent: dict[str, Any] = {} if given else {"num_key_value_heads": 4}
    shape = hf_decoder(
        keys, bias=bias, mlp_bias=mlp_bias and not sparse, rms_norm_eps=1e-6 if sparse else 1e-5,
        tie_word_embeddings=not sparse, max_position_embeddings=2048 if sparse else 8192, **absent,
    )  # fmt: skip
    layers = shape["layers"]
    kinds = layer_kinds(keys, layers) or [
        "sliding_attention" if layer % 4 else "full_attention" for layer in range(layers)
    ]
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0 if keys.has("sliding_window") else 128)
    windows = tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    bases = keys.numbers("layer_rope_theta", 0.0, 1e12) or (shape["rope"].base,) * layers
    if len(bases) != layers:
        raise BadCheckpoint(
            _(
                "config.json: layer_rope_theta has {bases} numbers for {layers} layers; the file is damaged.",
                bases=len(bases),
                layers=layers,
            )
        )
    own = [
        sorted({base for base, slides in zip(bases, windows, strict=True) if base and bool(slides) == local})
        for local in (False, True)
    ]
    if any(len(each) > 1 for each in own):
        raise UnsupportedModel(
            _(
                "The model's layers have several bases of rope (layer_rope_theta), which is not supported. "
                "Choose another model."
            )
        )
    main, local = (
        rope_from_hf(_based(keys, each[0]), shape["head_dim"]) if each else shape["rope"] for each in own
    )
    shared = keys.integer("shared_intermediate_size", 0, 1 << 22, 0)
    keys = keys.over({"num_local_experts": 8})
    return ModelConfig(
        **shape | {"rope": main}, **hf_multipliers(keys), sinks=True, windows=windows, rope_local=local,
        nope_layers=frozenset(layer for layer, base in enumerate(bases) if not base),
        experts=hf_granite_experts(keys, shape, shared) if sparse else None,
    )  # fmt: skip


def _based(keys: Keys, base: float) -> Keys:
    """The same keys with another base of rope."""
    table = keys.raw("rope_parameters")
    keys = keys.replaced("rope_theta", base)
    return keys.replaced("rope_parameters", {**table, "rope_theta": base}) if table else keys


def from_hf_clova(keys: Keys) -> ModelConfig:
    """`HyperCLOVAXForCausalLM`: Granite with norms after each half, too, whose logits are multiplied."""
    bias, mlp_bias = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    shape: dict[str, Any] = hf_decoder(keys, bias=bias, mlp_bias=mlp_bias)
    scales = hf_multipliers(keys.over({"attention_multiplier": None}))
    if keys.raw("attention_multiplier") is None:
        scales["attention_scale"] = 0.0
    scales["logit_scale"] = 1 / scales["logit_scale"]
    both = keys.flag("use_post_norm", True)
    return ModelConfig(**shape, **scales, placement="both" if both else "before")


def hf_granite_experts(keys: Keys, shape: dict[str, Any], shared: int) -> Experts | None:
    """Experts in all layers, and one of `shared` features beside them."""
    return hf_experts(
        keys.over({"num_experts_per_tok": 2}),
        range(shape["layers"]),
        count="num_local_experts",
        used="num_experts_per_tok",
        width=keys.integer("intermediate_size", 1, 1 << 22),
        normalise=True,
        shared_width=shared,
    )


def hf_multipliers(keys: Keys) -> dict[str, Any]:
    """The multipliers of config.json; that of embeddings multiplies pictures, too."""
    embed = keys.number("embedding_multiplier", _SMALLEST, _LARGEST, 1.0)
    return {
        "embed_scale": embed,
        "picture_scale": embed,
        "residual_scale": keys.number("residual_multiplier", _SMALLEST, _LARGEST, 1.0),
        "attention_scale": keys.number("attention_multiplier", _SMALLEST, _LARGEST, 1.0),
        "logit_scale": 1 / keys.number("logits_scaling", _SMALLEST, _LARGEST, 1.0),
    }


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`granite` and `granitemoe`, whose logits are divided by `logit_scale`; without rope if
    `rope.scaling.finetuned` says so.
    """
    architecture = keys.source["general.architecture"]
    handled = (*GGUF_MULTIPLIERS, *(GGUF_EXPERT_KEYS if architecture == "granitemoe" else ()))
    shape = gguf_decoder(keys, tensors, architecture, interleaved=True, handled=handled)
    return ModelConfig(
        **shape,
        **gguf_multipliers(keys),
        nope_layers=gguf_nope_layers(keys, shape["layers"]),
        experts=gguf_experts(keys, shape),
    )


def from_gguf_sliding(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`granite_swa`, with experts and without; `attention.rope_pattern` has the layers with rope."""
    handled = (*GGUF_MULTIPLIERS, *GGUF_EXPERT_KEYS)
    shape = gguf_decoder(keys, tensors, "granite_swa", interleaved=True, handled=handled)
    layers = shape["layers"]
    rotated = keys.flags("attention.rope_pattern", layers)
    return ModelConfig(
        **shape, **gguf_multipliers(keys), sinks=True, experts=gguf_experts(keys, shape),
        windows=gguf_windows(keys, layers, keys.integer("attention.sliding_window", 0, MAX_CONTEXT), 0),
        nope_layers=frozenset(layer for layer, rotates in enumerate(rotated) if not rotates),
    )  # fmt: skip


def gguf_nope_layers(keys: Keys, layers: int) -> frozenset[int]:
    """All layers if `rope.scaling.finetuned` is false."""
    return frozenset() if keys.flag("rope.scaling.finetuned", True) else frozenset(range(layers))


def gguf_multipliers(keys: Keys) -> dict[str, Any]:
    """The multipliers of GGUF metadata; 0 for none."""
    embed = keys.number("embedding_scale", 0.0, _LARGEST, 0.0) or 1.0
    return {
        "embed_scale": embed,
        "picture_scale": embed,
        "residual_scale": keys.number("residual_scale", 0.0, _LARGEST, 0.0) or 1.0,
        "attention_scale": keys.number("attention.scale", 0.0, _LARGEST, 0.0),
        "logit_scale": 1 / (keys.number("logit_scale", 0.0, _LARGEST, 0.0) or 1.0),
    }


GRANITE = Architecture(
    ("granite",), ("GraniteForCausalLM",), from_hf, from_gguf, HF, GGUF, interleaved_rows=True
)


def _in_stacks(names: TensorNames) -> TensorNames:
    at = "block_sparse_moe."
    return replace(
        names, router=at + "router", expert_gate_up=at + "experts.gate_up_proj", expert_down_stack="",
        expert_down=at + "experts.down_proj", stack_ends=("", "_bias"),
    )  # fmt: skip


GRANITE_SLIDING = Architecture(
    ("granite_swa",), ("GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM"), from_hf_sliding,
    from_gguf_sliding,
    replace(_in_stacks(MIXTURE_NAMES), sinks="self_attn.sinks"),
    replace(GGUF, shared_gate_up="ffn_up_shexp"), interleaved_rows=True,
)  # fmt: skip
HYPER_CLOVA = Architecture(
    (), ("HyperCLOVAXForCausalLM",), from_hf_clova, None,
    replace(HF, attention_post="post_norm1", mlp_post="post_norm2"), None,
)  # fmt: skip


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """mlx-lm has the gates and what they multiply apart; transformers 5 has stacks as other models do."""
    if any(".block_sparse_moe.experts.gate_up_proj" in name for name in tensors):
        names = _in_stacks(names)
    if any(".block_sparse_moe.experts.w1." in name for name in tensors):
        names = with_experts(names, "block_sparse_moe.experts", "w1", "w3", "w2")
    if any(".mlp.gate_proj." in name for name in tensors):
        names = replace(names, gate=HF.gate, up=HF.up, gate_up="", down=HF.down)
    return names


GRANITE_MIXTURE = Architecture(
    ("granitemoe",), ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"), from_hf_mixture, from_gguf,
    MIXTURE_NAMES, GGUF, interleaved_rows=True, adapt=adapted,
)  # fmt: skip
