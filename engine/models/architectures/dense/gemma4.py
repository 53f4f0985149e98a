"""Gemma 4, text only: dense, with a second embedding for every layer (E2B, E4B), with experts beside a
plain feed-forward part (26B-A4B), and dense without one in a class of its own (12B).

Norms do not add 1 to their weights, attention is not scaled, values are normed. Layers without a window have
heads of their own, whose values may be their keys, and rotate a part of each head. The last layers may share
the keys and values of earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.architecture import Architecture
from engine.models.architectures.dense.gemma import FOUR_NORMS
from engine.models.config import ModelConfig
from engine.models.config.experts import Experts
from engine.models.config.gemma import PerLayer
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    MAX_LAYERS,
    gguf_shape,
    gguf_windows,
    hf_activation,
    hf_architecture,
    hf_shape,
    layer_kinds,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.rope import gguf_magnitude, rope_from_gguf, rope_from_hf
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import GGUF
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    FOUR_NORMS,
    router="router.proj", router_norm="router.scale", expert_scales="router.per_expert_scale",
    expert_gate_up="experts.gate_up_proj", expert_down="experts.down_proj", stack_ends=("", "_bias"),
    beside_post="post_feedforward_layernorm_1", experts_norm="pre_feedforward_layernorm_2",
    experts_post="post_feedforward_layernorm_2", per_layer_table="model.embed_tokens_per_layer",
    per_layer_projection="model.per_layer_model_projection",
    per_layer_norm="model.per_layer_projection_norm", layer_gate="per_layer_input_gate",
    layer_projection="per_layer_projection", layer_post="post_per_layer_input_norm",
    layer_scale="layer_scalar",
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF,
    router_norm="ffn_gate_inp.scale", expert_scales="ffn_down_exps.scale", beside_post="post_ffw_norm_1",
    experts_norm="pre_ffw_norm_2", experts_post="post_ffw_norm_2", per_layer_table="per_layer_token_embd",
    per_layer_projection="per_layer_model_proj", per_layer_norm="per_layer_proj_norm", layer_gate="inp_gate",
    layer_projection="proj", layer_post="post_norm", layer_scale="layer_output_scale.weight",
)  # fmt: skip
PREFIXES = ("", "-model.language_model.", "language_model.", "-")
_DEFAULTS = {
    "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "sliding_window": 512, "global_head_dim": 512,
    "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
}  # fmt: skip
"""The defaults of transformers' class, for keys that config.json leaves out."""
_UNIFIED_DEFAULTS = _DEFAULTS | {"max_position_embeddings": 262144, "sliding_window": 1024}
_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}
_UNIFIED = (
    "Gemma4UnifiedForCausalLM", "Gemma4UnifiedForConditionalGeneration", "Gemma4UnifiedAssistantForCausalLM",
)  # fmt: skip
_MOST_WIDTH = 1 << 20
SHARED: dict[str, Any] = {
    "activation": "gelu_tanh", "mlp_bias": False, "placement": "both", "qk_norm": "head", "value_norm": True,
    "attention_scale": 1.0,
}  # fmt: skip
"""The fields that are the same in all models of Gemma 3n and 4; folders may name another activation."""


def from_hf(keys: Keys) -> ModelConfig:
    """`Gemma4ForCausalLM`, `Gemma4UnifiedForCausalLM` and the text models of those with pictures."""
    unified = hf_architecture(keys.source) in _UNIFIED
    keys = keys.inner("text_config")
    if unified:
        keys = keys.without("enable_moe_block").replaced("hidden_size_per_layer_input", 0)
    keys = keys.over(_UNIFIED_DEFAULTS if unified else _DEFAULTS)
    if keys.raw("rope_parameters") is None:
        keys = keys.replaced("rope_parameters", _ROPE)
    shape = hf_shape(keys)
    layers = shape["layers"]
    refuse_bidirectional(keys)
    windows = hf_windows_of(keys, layers, 6, last_is_full=True)
    full = frozenset(layer for layer in range(layers) if not windows[layer])
    values_are_keys = full if keys.flag("attention_k_eq_v", False) else frozenset[int]()
    heads = _hf_heads(keys, layers, full)
    shared = keys.integer("num_kv_shared_layers", 0, layers - 1, 0)
    double = keys.flag("use_double_wide_mlp", False)
    inner = shape["ffn_width"]
    width = keys.integer("hidden_size_per_layer_input", 0, _MOST_WIDTH)
    bias = keys.flag("attention_bias", False)
    global_dim = next((heads[layer][1] for layer in sorted(full)), shape["head_dim"])
    return ModelConfig(
        **shape,
        **SHARED | {"activation": hf_activation(keys, "hidden_activation", "gelu_pytorch_tanh")},
        embed_scale=shape["width"] ** 0.5,
        attention_bias=bias,
        output_bias=bias,
        windows=windows,
        layer_heads=heads,
        shared_kv=shared,
        keys_as_values=values_are_keys,
        ffn_widths=(inner,) * (layers - shared) + (2 * inner,) * shared if double else (),
        rope=rope_from_hf(keys, global_dim, layer_type="full_attention"),
        rope_local=rope_from_hf(keys, shape["head_dim"], layer_type="sliding_attention"),
        logit_cap=keys.optional("final_logit_softcapping", 0.0, 1e6),
        per_layer=PerLayer(width, keys.integer("vocab_size_per_layer_input", 1, 1 << 24)) if width else None,
        layer_scale=True,
        experts=_hf_mixture(keys, layers) if keys.flag("enable_moe_block", False) else None,
    )


def refuse_bidirectional(keys: Keys) -> None:
    """Raises `UnsupportedModel` for an encoder. Images alone may be seen as a whole."""
    if keys.raw("use_bidirectional_attention") not in (None, False, "vision"):
        raise UnsupportedModel(
            _(
                "This is an encoder model with bidirectional attention; it cannot generate text. Choose "
                "another model."
            )
        )


def hf_windows_of(keys: Keys, layers: int, step: int, *, last_is_full: bool) -> tuple[int, ...]:
    """`sliding_window` in the layers that `layer_types` names, or in all except every `step`-th."""
    window = keys.integer("sliding_window", 1, MAX_CONTEXT)
    kinds = layer_kinds(keys, layers)
    slides = [
        (layer + 1) % step != 0 if kinds is None else kinds[layer] == "sliding_attention"
        for layer in range(layers)
    ]
    slides[-1] = slides[-1] and not last_is_full
    return tuple(window if one else 0 for one in slides)


def _hf_heads(keys: Keys, layers: int, full: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """(key/value heads, head dimension) of each layer: `per_layer_config`, or the keys of layers without a
    window.
    """
    usual = {name: keys.integer(name, 1, 1 << 14) for name in ("num_key_value_heads", "head_dim")}
    own = {"head_dim": keys.integer("global_head_dim", 1, 1 << 14)}
    if keys.flag("attention_k_eq_v", False) and keys.raw("num_global_key_value_heads") is not None:
        own["num_key_value_heads"] = keys.integer("num_global_key_value_heads", 1, 1 << 14)
    table, found = keys.table("per_layer_config"), list[tuple[int, int]]()
    # transformers pads the numbers of layers with zeros, to one width.
    entries = {} if table is None else {int(name): name for name in table.source if name.isdecimal()}
    for layer in range(layers):
        change: Mapping[str, Any] = own if table is None and layer in full else {}
        if table is not None and (entry := table.table(entries.get(layer, ""))) is not None:
            change = {name: entry.integer(name, 1, 1 << 14, value) for name, value in usual.items()}
        made = usual | dict(change)
        found.append((made["num_key_value_heads"], made["head_dim"]))
    for kind in (full, frozenset(range(layers)) - full):
        if len({found[layer][1] for layer in kind}) > 1:
            raise BadCheckpoint(
                _(
                    "config.json: per_layer_config gives layers of one kind heads of different sizes; the "
                    "file is damaged."
                )
            )
    return tuple(found)


def _hf_mixture(keys: Keys, layers: int) -> Experts | None:
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    return hf_experts(
        keys, frozenset(range(layers)), count="num_experts", used="top_k_experts", width=width,
        normalise=True, beside=True,
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`gemma4`. `rope_freqs` is about layers without a window alone."""
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    window = keys.integer("attention.sliding_window", 1, MAX_CONTEXT)
    windows = gguf_windows(keys, layers, window, 6)
    kv_heads = gguf_each_layer(keys, "attention.head_count_kv", layers)
    widths = gguf_each_layer(keys, "feed_forward_length", layers)
    dim = keys.integer("attention.key_length", 2, 1 << 12)
    local_dim = keys.integer("attention.key_length_swa", 2, 1 << 12, dim)
    shape = gguf_shape(
        keys.replaced("attention.head_count_kv", kv_heads[0]).replaced("feed_forward_length", widths[0]),
        tensors,
        "gemma4",
        handled=(*GGUF_EXPERT_KEYS, "final_logit_softcapping"),
    )
    mixture = gguf_experts(keys, shape, beside=True)
    return ModelConfig(
        **shape,
        **gguf_shared(keys, tensors, shape),
        windows=windows,
        layer_heads=tuple(
            (heads, local_dim if slides else dim) for heads, slides in zip(kv_heads, windows, strict=True)
        ),
        keys_as_values=frozenset(
            layer
            for layer in range(layers - keys.integer("attention.shared_kv_layers", 0, layers - 1, 0))
            if not any(f"blk.{layer}.attn_{name}.weight" in tensors for name in ("v", "qkv"))
        ),
        ffn_widths=widths,
        rope=rope_from_gguf(keys, dim, tensors, interleaved=False),
        rope_local=gguf_local_rope(keys, local_dim),
        layer_scale=None,
        experts=mixture,
    )


def gguf_shared(keys: Keys, tensors: Mapping[str, RawTensor], shape: dict[str, Any]) -> dict[str, Any]:
    """The fields that Gemma 3n and 4 share."""
    layers = shape["layers"]
    width = keys.integer("embedding_length_per_layer_input", 0, _MOST_WIDTH, 0)
    table = tensors.get("per_layer_token_embd.weight")
    rows = table.shape[0] if table is not None and len(table.shape) == 2 else shape["vocab_size"]
    return SHARED | {
        "embed_scale": shape["width"] ** 0.5,
        "shared_kv": keys.integer("attention.shared_kv_layers", 0, layers - 1, 0),
        "logit_cap": keys.number("final_logit_softcapping", 0.0, 1e6, 0.0),
        "per_layer": PerLayer(width, rows) if width else None,
    }


def gguf_each_layer(keys: Keys, name: str, layers: int) -> tuple[int, ...]:
    """A number for each layer, or one for all. Raises `BadCheckpoint`."""
    if not isinstance(keys.raw(name), list):
        return (keys.integer(name, 1, 1 << 22),) * layers
    found = keys.integers(name, 1, 1 << 22)
    if len(found) < layers:
        raise BadCheckpoint(
            _(
                "{name} has {found} numbers for {layers} layers; the file is damaged.",
                name=name,
                found=len(found),
                layers=layers,
            )
        )
    return found[:layers]


def gguf_local_rope(keys: Keys, head_dim: int) -> RopeConfig:
    """The rope of the layers with a window."""
    dim = keys.integer("rope.dimension_count_swa", 2, head_dim, head_dim)
    if dim % 2:
        raise BadCheckpoint(
            _("A head of the model has {dim} dimensions; an even number was expected.", dim=dim)
        )
    base = keys.number("rope.freq_base_swa", 1.0, 1e12, 1e4)
    return RopeConfig(base, dim, False, (1.0,) * (dim // 2), gguf_magnitude(keys))


GEMMA_4 = Architecture(
    ("gemma4",), ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", *_UNIFIED), from_hf, from_gguf,
    HF_NAMES, GGUF_NAMES, prefixes=PREFIXES,
)  # fmt: skip
