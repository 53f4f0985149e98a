"""Llama 4: chunks of attention in most layers, scaled queries without rope in the others, and in some or all
layers a mixture whose input is weighed, with a shared expert. Pictures are read by `engine.vision`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.headers.decoder import MAX_CONTEXT, MAX_LAYERS, gguf_decoder, hf_decoder, hf_layer_types
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import GGUF, HF, with_shared
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    with_shared(HF, "feed_forward.shared_expert"), gate="feed_forward.gate_proj", up="feed_forward.up_proj",
    down="feed_forward.down_proj", router="feed_forward.router",
    expert_gate_up="feed_forward.experts.gate_up_proj", expert_down="feed_forward.experts.down_proj",
    expert_gate="feed_forward.experts.gate_proj", expert_up="feed_forward.experts.up_proj",
    stack_ends=("", "_bias"), stacks_transposed=True,
)  # fmt: skip
_CHUNK, _FLOOR, _SCALE, _STEP = 8192, 8192, 0.1, 4
_UNNORMED_EXPERTS = 128
"""GGUF files do not say that the model with this many experts has no norm of queries and keys."""


def from_hf(keys: Keys) -> ModelConfig:
    """`Llama4ForCausalLM`, and the text model of `Llama4ForConditionalGeneration`."""
    defaults = {"num_experts_per_tok": 1, "num_local_experts": 16, "intermediate_size": 8192}
    keys = keys.inner("text_config").over(defaults)
    width = keys.integer("intermediate_size", 1, 1 << 22)
    dense = keys.integer("intermediate_size_mlp", 1, 1 << 22, 16384)
    absent: dict[str, Any] = {} if keys.has("num_key_value_heads") else {"num_key_value_heads": 8}
    shape: dict[str, Any] = hf_decoder(
        keys.replaced("intermediate_size", dense), bias=keys.flag("attention_bias", False), base=500000.0,
        interleaved=True, rms_norm_eps=1e-5, head_dim=None if keys.has("head_dim") else 128,
        max_position_embeddings=131072, **absent,
    )  # fmt: skip
    layers = shape["layers"]
    nope = _nope_layers(keys, layers)
    own = keys.integers("moe_layers", 0, layers - 1)
    if keys.raw("moe_layers") is None:
        step = keys.integer("interleave_moe_layer_step", 1, MAX_LAYERS, 1)
        own = tuple(range(step - 1, layers, step))
    experts = hf_experts(
        keys, own, count="num_local_experts", used="num_experts_per_tok", width=width, normalise=False,
        scores="sigmoid", shared_width=width, weighs_input=True,
    )  # fmt: skip
    beta = keys.number("attn_scale", 0.0, 1e3, _SCALE)
    return _config(
        shape,
        windows=_windows(keys, layers, nope),
        nope=nope,
        beta=beta if keys.flag("attn_temperature_tuning", True) else 0.0,
        floor=keys.integer("floor_scale", 1, MAX_CONTEXT, _FLOOR),
        normed=keys.flag("use_qk_norm", True),
        experts=experts,
    )


def _nope_layers(keys: Keys, layers: int) -> frozenset[int]:
    """`no_rope_layers` of config.json is, despite its name, 1 for each layer that has rope."""
    roped = keys.integers("no_rope_layers", 0, 1)
    if not roped:
        step = keys.integer("no_rope_layer_interval", 1, MAX_LAYERS, _STEP)
        return frozenset(range(step - 1, layers, step))
    if len(roped) < layers:
        raise BadCheckpoint(
            _(
                "config.json: no_rope_layers has {roped} entries for {layers} layers; the file is damaged.",
                roped=len(roped),
                layers=layers,
            )
        )
    return frozenset(layer for layer in range(layers) if not roped[layer])


def _windows(keys: Keys, layers: int, nope: Iterable[int]) -> tuple[int, ...]:
    """Chunks in the layers that `layer_types` names, or in those with rope; () where there are none."""
    default = 0 if keys.has("attention_chunk_size") else _CHUNK
    chunk = keys.integer("attention_chunk_size", 0, MAX_CONTEXT, default)
    kinds = hf_layer_types(keys, layers, ("full_attention", "chunked_attention"))
    if not chunk:
        return ()
    if kinds is None:
        return tuple(0 if layer in nope else chunk for layer in range(layers))
    return tuple(chunk if kind == "chunked_attention" else 0 for kind in kinds)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`llama4`, whose chunks and scales are not in the file; a sliding window of 0 means that there are none,
    and rope in all layers.
    """
    shape: dict[str, Any] = gguf_decoder(keys, tensors, "llama4", interleaved=True, handled=GGUF_EXPERT_KEYS)
    layers = shape["layers"]
    plain = keys.raw("attention.sliding_window") == 0
    nope = frozenset() if plain else frozenset(range(_STEP - 1, layers, _STEP))
    experts = gguf_experts(
        keys, shape, normalise=False, scores="sigmoid", weighs_input=True,
        shared_width=keys.integer("expert_feed_forward_length", 1, 1 << 22),
    )  # fmt: skip
    return _config(
        shape,
        windows=() if plain else tuple(0 if layer in nope else _CHUNK for layer in range(layers)),
        nope=nope,
        beta=0.0 if plain else _SCALE,
        floor=_FLOOR,
        normed=experts is None or experts.count != _UNNORMED_EXPERTS,
        experts=experts,
    )


def _config(
    shape: dict[str, Any], *, windows: tuple[int, ...], nope: frozenset[int], beta: float, floor: int,
    normed: bool, experts: Experts | None,
) -> ModelConfig:  # fmt: skip
    if experts is not None and experts.used != 1:
        raise UnsupportedModel(
            _(
                "The model uses {used} experts for each token, but only one is supported for Llama "
                "4. Choose another model.",
                used=experts.used,
            )
        )
    rope: RopeConfig = shape["rope"]
    scales = beta != 0.0 and bool(nope)
    if scales:
        rope = replace(rope, query_beta=beta, query_length=floor, query_offset=1)
    return ModelConfig(
        **shape | {"rope": rope},
        windows=windows,
        chunked=bool(windows),
        nope_layers=nope,
        scaled_nope=scales,
        qk_norm="roped" if normed else "none",
        qk_norm_last=True,
        experts=experts,
    )


LLAMA_4 = Architecture(
    ("llama4",), ("Llama4ForCausalLM", "Llama4ForConditionalGeneration"), from_hf, from_gguf, HF_NAMES, GGUF,
    prefixes=("", "language_model.", "-model.language_model.", "-"),
)  # fmt: skip
