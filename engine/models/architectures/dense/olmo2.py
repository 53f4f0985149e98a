"""OLMo 2 (arXiv 2501.00656): norms after each half of a block instead of before; qk norm over whole rows.
OLMo 3 has windows in three of four layers, whose rope is not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import (
    MAX_CONTEXT,
    gguf_decoder,
    gguf_windows,
    hf_activation,
    hf_decoder,
    hf_shape,
    hf_sliding,
)
from engine.models.headers.keys import Keys
from engine.models.headers.rope import rope_from_hf
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import GGUF, HF
from engine.tensors import RawTensor

HF_NAMES = replace(
    HF,
    attention_norm="",
    mlp_norm="",
    attention_post="post_attention_layernorm",
    mlp_post="post_feedforward_layernorm",
)
_STEP, _BASE = 4, 500_000.0


def from_hf(keys: Keys) -> ModelConfig:
    """`Olmo2ForCausalLM`."""
    shape = hf_decoder(keys, bias=keys.flag("attention_bias", False), rms_norm_eps=1e-5)
    return ModelConfig(**shape, placement="after", qk_norm="row")


def from_hf_3(keys: Keys) -> ModelConfig:
    """`Olmo3ForCausalLM`."""
    shape = hf_shape(keys, rms_norm_eps=1e-5)
    bias, dim = keys.flag("attention_bias", False), shape["head_dim"]
    table = keys.table("rope_parameters")
    if table is not None and table.raw("sliding_attention") is not None:
        local = rope_from_hf(keys, dim, base=_BASE, layer_type="sliding_attention")
    else:
        local = unscaled(rope_from_hf(keys, dim, base=_BASE))
    return ModelConfig(
        **shape, activation=hf_activation(keys), attention_bias=bias, output_bias=bias, mlp_bias=False,
        placement="after", qk_norm="row", windows=hf_sliding(keys, shape["layers"], 4096, _STEP),
        rope=rope_from_hf(keys, dim, base=_BASE, layer_type="full_attention"), rope_local=local,
    )  # fmt: skip


def unscaled(rope: RopeConfig) -> RopeConfig:
    """The same without its scaling."""
    return RopeConfig(rope.base, rope.dim, rope.interleaved, (1.0,) * (rope.dim // 2))


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`olmo2`, which OLMo 3 is, too, with windows."""
    shape = gguf_decoder(keys, tensors, "olmo2")
    window = keys.integer("attention.sliding_window", 0, MAX_CONTEXT, 0)
    return ModelConfig(
        **shape,
        placement="after",
        qk_norm="row",
        windows=gguf_windows(keys, shape["layers"], window, _STEP),
        rope_local=unscaled(shape["rope"]) if window else None,
    )


OLMO2 = Architecture(("olmo2",), ("Olmo2ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF)
OLMO3 = Architecture((), ("Olmo3ForCausalLM",), from_hf_3, None, HF_NAMES, None, gguf_of=OLMO2)
