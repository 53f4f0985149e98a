"""MiMo-V2-Flash: windows with attention sinks and more key/value heads in five of six layers, values shorter
than keys, and experts as DeepSeek V3 has them.
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
    shorter_values,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts, hf_groups
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import unsupported
from engine.models.headers.rope import rope_from_gguf, rope_from_hf
from engine.models.names import GGUF, MIXTURE, TensorNames
from engine.tensors import RawTensor

HF_NAMES = replace(MIXTURE, correction="mlp.gate.e_score_correction_bias", sinks="self_attn.sinks")
PUBLISHED_SINKS = "self_attn.attention_sink_bias"
_STEP, _SHARE, _BASE, _LOCAL_BASE, _VALUE_SCALE = 6, 0.334, 5e6, 1e4, 0.707
_DEFAULTS = {
    "num_key_value_heads": 4, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "attention_value_scale": _VALUE_SCALE,
}  # fmt: skip


def from_hf(keys: Keys) -> ModelConfig:
    """`MiMoV2FlashForCausalLM`, with the keys of the original config.json or of transformers'."""
    keys = keys.over(_DEFAULTS).over({"rms_norm_eps": keys.raw("layernorm_epsilon")})
    _refuse_other_heads(keys)
    shape: dict[str, Any] = hf_shape(keys, head_dim=192, rms_norm_eps=1e-5, max_position_embeddings=131072)
    layers, dim, kv_heads = shape["layers"], shape["head_dim"], shape["kv_heads"]
    windows = _hf_windows(keys, layers)
    kinds = hf_layer_types(keys, layers, ("dense", "sparse"), "mlp_layer_types")
    sparse = keys.flags("moe_layer_freq", layers) if kinds is None else [kind == "sparse" for kind in kinds]
    sparse = sparse or [layer > 0 for layer in range(layers)]
    of_windows = keys.integer("swa_num_key_value_heads", 1, 1 << 14, 2 * kv_heads)
    local = keys.replaced("rope_theta", keys.number("swa_rope_theta", 1.0, 1e12, _LOCAL_BASE))
    bias = keys.flag("attention_bias", False)
    return ModelConfig(
        **shape, **shorter_values(keys.integer("v_head_dim", 1, 1 << 12, 128), dim),
        activation=hf_activation(keys), attention_bias=bias, output_bias=False, mlp_bias=False,
        rope=rope_from_hf(keys, dim, base=_BASE, share=_SHARE, layer_type="full_attention"),
        rope_local=rope_from_hf(
            local, dim, base=_LOCAL_BASE, share=_SHARE, layer_type="sliding_attention"
        ),
        layer_heads=tuple((of_windows if window else kv_heads, dim) for window in windows),
        windows=windows, sinks=_hf_sinks(keys, windows),
        value_scale=keys.number("attention_value_scale", 0.0, 1e6, 1.0),
        experts=hf_experts(
            keys, [layer for layer in range(layers) if sparse[layer]], count="n_routed_experts",
            used="num_experts_per_tok", width=keys.integer("moe_intermediate_size", 1, 1 << 22),
            normalise=keys.flag("norm_topk_prob", True), scores="sigmoid", corrected=True,
            scale=keys.number("routed_scaling_factor", 0.0, 1e6, 1.0), **hf_groups(keys),
        ),
    )  # fmt: skip


def _hf_windows(keys: Keys, layers: int) -> tuple[int, ...]:
    """The original window leaves the token itself out."""
    window = keys.integer("sliding_window_size", 0, MAX_CONTEXT - 1, 0) + 1
    if window == 1:
        window = keys.integer("sliding_window", 1, MAX_CONTEXT, 129)
    kinds, pattern = layer_kinds(keys, layers), keys.flags("hybrid_layer_pattern", layers)
    if kinds is not None:
        pattern = tuple(kind == "sliding_attention" for kind in kinds)
    slides = pattern or tuple(layer > 0 and (layer + 1) % _STEP > 0 for layer in range(layers))
    return tuple(window if slide else 0 for slide in slides)


def _hf_sinks(keys: Keys, windows: tuple[int, ...]) -> frozenset[int]:
    """The layers with attention sinks: those with windows, unless the original keys say otherwise."""
    of_windows = keys.flag("add_swa_attention_sink_bias", True)
    of_others = keys.flag("add_full_attention_sink_bias", False)
    return frozenset(layer for layer, window in enumerate(windows) if (of_windows if window else of_others))


def _refuse_other_heads(keys: Keys) -> None:
    """Raises `UnsupportedModel` for heads of other sizes in layers with a window."""
    same = ("num_attention_heads", None), ("head_dim", 192), ("v_head_dim", 128)
    for name, default in same:
        own = keys.raw("swa_" + name)
        if own is not None and own != (keys.raw(name) or default):
            raise unsupported("swa_" + name, own)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`mimo2`."""
    # The last layers may predict further tokens; they are no part of the decoder.
    layers = keys.integer("block_count", 1, MAX_LAYERS)
    layers -= keys.integer("nextn_predict_layers", 0, layers - 1, 0)
    counts = each_layer(keys, "attention.head_count_kv", 1, 1 << 14, layers)
    keys = keys.replaced("block_count", layers).replaced("attention.head_count_kv", max(counts))
    shape: dict[str, Any] = gguf_decoder(
        keys, tensors, "mimo2", handled=(*GGUF_EXPERT_KEYS, "attention.value_length")
    )
    dim = shape["head_dim"]
    local = keys.replaced("rope.freq_base", keys.number("rope.freq_base_swa", 1.0, 1e12, _LOCAL_BASE))
    return ModelConfig(
        **shape, **shorter_values(keys.integer("attention.value_length", 1, 1 << 12, dim), dim),
        rope_local=rope_from_gguf(local, dim, tensors, interleaved=False),
        layer_heads=tuple((count, dim) for count in counts), sinks=None,
        windows=gguf_windows(keys, layers, keys.integer("attention.sliding_window", 1, MAX_CONTEXT), 1),
        value_scale=keys.number("attention.value_scale", 0.0, 1e6, 0.0) or 1.0,
        experts=gguf_experts(
            keys, shape, scores="sigmoid", layers=gguf_layers_with(tensors, "ffn_gate_inp", layers)
        ),
    )  # fmt: skip


def adapted(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The original name of the sinks, where the file has it."""
    published = any(name.endswith(PUBLISHED_SINKS) for name in tensors)
    return replace(names, sinks=PUBLISHED_SINKS) if published else names


MIMO_V2_FLASH = Architecture(
    ("mimo2",),
    ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"),
    from_hf,
    from_gguf,
    HF_NAMES,
    GGUF,
    adapt=adapted,
)
