"""Gemma 1, 2 and 3, text only: norms multiply by 1 + weight, embeddings are scaled by sqrt(width), heads are
tied.

Gemma 2 (arXiv 2408.00118): norms before and after each half of a block, soft caps, a sliding window in every
second layer. Gemma 3 (arXiv 2503.19786): qk norm instead of soft caps, and a sliding window in five of six
layers, which have their own rope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    gguf_shape,
    gguf_windows,
    hf_activation,
    hf_decoder,
    hf_shape,
    layer_kinds,
)
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import uneven
from engine.models.headers.rope import gguf_magnitude, rope_from_gguf, rope_from_hf
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor
from engine.words import _

FOUR_NORMS = replace(
    HF,
    mlp_norm="pre_feedforward_layernorm",
    attention_post="post_attention_layernorm",
    mlp_post="post_feedforward_layernorm",
)
_GEMMA = {
    "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
}  # fmt: skip
"""The defaults of transformers' classes, for keys that config.json leaves out."""
_GEMMA_2 = _GEMMA | {
    "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "sliding_window_pattern": 2, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0,
}  # fmt: skip
_GEMMA_3 = _GEMMA_2 | {
    "vocab_size": 262208, "max_position_embeddings": 131072, "sliding_window_pattern": 6, "rope_theta": 1e6,
    "rope_local_base_freq": 1e4, "final_logit_softcapping": None, "attn_logit_softcapping": None,
}  # fmt: skip
_LARGEST = {"gemma2": 46, "gemma3": 62}
"""Layers of the 27B models. Only they scale attention by width / heads, which GGUF metadata does not say."""


def from_hf(keys: Keys) -> ModelConfig:
    """`GemmaForCausalLM`."""
    keys = keys.over(_GEMMA)
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False), activation="gelu")
    if shape["activation"] == "gelu":  # the first files mean its approximation
        shape["activation"] = "gelu_tanh"
    return ModelConfig(**shape, norm_offset=1.0, embed_scale=shape["width"] ** 0.5)


def from_hf_2(keys: Keys) -> ModelConfig:
    """`Gemma2ForCausalLM`."""
    keys = keys.over(_GEMMA_2)
    shape = _hf_shape(keys)
    return ModelConfig(**shape, **_later(keys, shape["layers"]), rope=rope_from_hf(keys, shape["head_dim"]))


def from_hf_3(keys: Keys) -> ModelConfig:
    """`Gemma3ForCausalLM`, and the text part of `Gemma3ForConditionalGeneration`."""
    keys = keys.inner("text_config").over(_GEMMA_3).without("attn_logit_softcapping")  # which has no effect
    encoder = keys.flag("use_bidirectional_attention", False)
    shape = _hf_shape(keys)
    table = keys.table("rope_parameters")
    if table is not None and table.raw("sliding_attention") is not None:
        local = rope_from_hf(keys, shape["head_dim"], base=1e4, layer_type="sliding_attention")
    else:
        local = _plain(keys.number("rope_local_base_freq", 1.0, 1e12), shape["head_dim"])
    rope = rope_from_hf(keys, shape["head_dim"], layer_type="full_attention")
    later = _later(keys, shape["layers"])
    if encoder:
        later["windows"] = to_both_sides(later["windows"])
    return ModelConfig(
        **shape, **later, qk_norm="head", rope=rope, rope_local=local, bidirectional=encoder, headless=encoder
    )


def to_both_sides(windows: tuple[int, ...]) -> tuple[int, ...]:
    """Windows of an encoder, of which headers state the positions on both sides together."""
    return tuple(window // 2 + 1 if window else 0 for window in windows)


def from_hf_vault(keys: Keys) -> ModelConfig:
    """`VaultGemmaForCausalLM`: Gemma 2 without the norms after each half."""
    return replace(from_hf_2(keys), placement="before")


def _hf_shape(keys: Keys) -> dict[str, Any]:
    shape = hf_shape(keys)
    return shape | {"embed_scale": shape["width"] ** 0.5}


def _later(keys: Keys, layers: int) -> dict[str, Any]:
    """The fields that Gemma 2 and 3 share."""
    window = keys.integer("sliding_window", 0, MAX_CONTEXT, 0)
    step = keys.integer("sliding_window_pattern", 1, 1 << 12)
    kinds = layer_kinds(keys, layers) or [
        "sliding_attention" if (layer + 1) % step else "full_attention" for layer in range(layers)
    ]
    bias = keys.flag("attention_bias", False)
    return {
        "norm_offset": 1.0,
        "placement": "both",
        "activation": hf_activation(keys, "hidden_activation", "gelu_pytorch_tanh"),
        "attention_bias": bias,
        "output_bias": bias,
        "mlp_bias": False,
        "windows": tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        "attention_scale": keys.number("query_pre_attn_scalar", 1e-3, 1e6) ** -0.5,
        "attention_cap": keys.optional("attn_logit_softcapping", 0.0, 1e6),
        "logit_cap": keys.optional("final_logit_softcapping", 0.0, 1e6),
    }


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`gemma`."""
    shape = gguf_shape(keys, tensors, "gemma")
    rope = rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False)
    return ModelConfig(**shape, embed_scale=shape["width"] ** 0.5, activation="gelu_tanh", rope=rope)


def from_gguf_2(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`gemma2`."""
    shape = _gguf_later(
        keys, tensors, "gemma2", keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 4096), 2
    )
    return ModelConfig(
        **shape,
        attention_cap=keys.number("attn_logit_softcapping", 0.0, 1e6, 50.0),
        logit_cap=_final_cap(keys, 30.0),
    )


def from_gguf_3(keys: Keys, tensors: Mapping[str, RawTensor], architecture: str = "gemma3") -> ModelConfig:
    """`gemma3`."""
    shape = _gguf_later(
        keys, tensors, architecture, keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0), 6
    )
    local = _plain(keys.number("rope.freq_base_swa", 1.0, 1e12, 1e4), shape["head_dim"])
    local = replace(local, magnitude=gguf_magnitude(keys))
    return ModelConfig(**shape, qk_norm="head", rope_local=local, logit_cap=_final_cap(keys, 0.0))


def from_gguf_embedding(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`gemma-embedding`."""
    found = from_gguf_3(keys, tensors, "gemma-embedding")
    return replace(found, windows=to_both_sides(found.windows), bidirectional=True, headless=True)


def _gguf_later(
    keys: Keys, tensors: Mapping[str, RawTensor], architecture: str, window: int, step: int
) -> dict[str, Any]:
    shape = gguf_shape(
        keys, tensors, architecture, handled=("attn_logit_softcapping", "final_logit_softcapping")
    )
    largest = shape["layers"] == _LARGEST.get(architecture)
    scaled_by = shape["width"] // shape["heads"] if largest else shape["head_dim"]
    if not scaled_by:
        raise uneven(shape["heads"], shape["width"])
    return shape | {
        "embed_scale": shape["width"] ** 0.5,
        "activation": "gelu_tanh",
        "placement": "both",
        "rope": rope_from_gguf(keys, shape["head_dim"], tensors, interleaved=False),
        "windows": gguf_windows(keys, shape["layers"], window, step),
        "attention_scale": scaled_by**-0.5,
    }


def _final_cap(keys: Keys, default: float) -> float:
    return keys.number("final_logit_softcapping", 0.0, 1e6, default)


def _plain(base: float, dim: int) -> RopeConfig:
    if dim % 2:
        raise BadCheckpoint(
            _("A head of the model has {dim} dimensions; an even number was expected.", dim=dim)
        )
    return RopeConfig(base, dim, False, (1.0,) * (dim // 2))


GEMMA = Architecture(("gemma",), ("GemmaForCausalLM",), from_hf, from_gguf, HF, GGUF)
GEMMA_2 = Architecture(("gemma2",), ("Gemma2ForCausalLM",), from_hf_2, from_gguf_2, FOUR_NORMS, GGUF)
VAULT_GEMMA = Architecture(
    (), ("VaultGemmaForCausalLM",), from_hf_vault, None, replace(HF, mlp_norm="pre_feedforward_layernorm"),
    None,
)  # fmt: skip
GEMMA_3 = Architecture(
    ("gemma3",), ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), from_hf_3, from_gguf_3, FOUR_NORMS,
    GGUF, prefixes=("", "language_model.", "-model.language_model."),
)  # fmt: skip
GEMMA_EMBEDDING = Architecture(
    ("gemma-embedding",), ("Gemma3TextModel",), from_hf_3, from_gguf_embedding, FOUR_NORMS, GGUF,
    prefixes=("", "-"),
)  # fmt: skip
