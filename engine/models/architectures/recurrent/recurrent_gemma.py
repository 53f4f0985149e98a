"""RecurrentGemma (arXiv 2404.07839): Griffin's gated recurrent units in most layers, attention with a window
in the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.config.recurrent import GatedUnit
from engine.models.headers.decoder import MAX_CONTEXT, hf_activation, hf_layer_types, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import uneven
from engine.models.headers.rope import rope_from_hf
from engine.models.names import HF, RecurrentNames

_AT, _UNIT = "temporal_block.", "temporal_block.rg_lru."
HF_NAMES = replace(
    HF, norm="model.final_norm", attention_norm="temporal_pre_norm", mlp_norm="channel_pre_norm",
    query=_AT + "q_proj", key=_AT + "k_proj", value=_AT + "v_proj", output=_AT + "o_proj",
    gate="mlp_block.gate_proj", up="mlp_block.up_proj", down="mlp_block.down_proj",
    recurrent=RecurrentNames(
        _AT + "linear_x", _AT + "linear_out", _AT + "conv_1d", _AT + "linear_y",
        _UNIT + "recurrent_gate_weight", _UNIT + "input_gate_weight", _UNIT + "input_gate_bias",
        rate=_UNIT + "recurrent_param", shift=_UNIT + "recurrent_gate_bias",
    ),
)  # fmt: skip
_DEFAULTS = {
    "vocab_size": 256_000, "hidden_size": 2560, "intermediate_size": 7680, "num_hidden_layers": 26,
    "num_attention_heads": 10, "tie_word_embeddings": True,
}  # fmt: skip
_KINDS = ("recurrent", "recurrent", "attention")


def from_hf(keys: Keys) -> ModelConfig:
    """`RecurrentGemmaForCausalLM`."""
    keys = keys.over(_DEFAULTS).without("max_position_embeddings")
    shape = hf_shape(keys, max_position_embeddings=MAX_CONTEXT)
    layers, width, heads = shape["layers"], shape["width"], shape["heads"]
    channels = keys.integer("lru_width", 1, 1 << 20, width)
    if channels % heads:
        raise uneven(heads, channels)
    blocks = _KINDS if keys.raw("block_types") is None else keys.raw("block_types")
    if isinstance(blocks, list | tuple):  # of which the rest is repetition
        blocks = [*blocks] * layers
        keys = keys.replaced("block_types", blocks[:layers])
    kinds = hf_layer_types(keys, layers, _KINDS, "block_types") or ()
    window = keys.integer("attention_window_size", 1, MAX_CONTEXT, 2048)
    bias = keys.flag("attention_bias", False)
    return ModelConfig(
        **shape | {"ffn_width": shape["ffn_width"] // 2},
        activation=hf_activation(keys, "hidden_activation", "gelu_pytorch_tanh"),
        rope=rope_from_hf(keys, shape["head_dim"], share=0.5), windows=(window,) * layers,
        attention_bias=bias, output_bias=True, mlp_bias=True, norm_offset=1.0,
        embed_scale=as_bf16(width**0.5), logit_cap=keys.number("logits_soft_cap", 1e-3, 1e6, 30.0),
        recurrent=GatedUnit(channels, heads, keys.integer("conv1d_width", 1, 64, 4)),
        recurrent_layers=frozenset(i for i in range(layers) if kinds[i] == "recurrent"),
    )  # fmt: skip


def as_bf16(value: float) -> float:
    """The nearest bfloat16, which transformers multiplies embeddings by."""
    bits = int(np.float32(value).view(np.uint32))
    return float(np.uint32((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32))


RECURRENT_GEMMA = Architecture((), ("RecurrentGemmaForCausalLM",), from_hf, None, HF_NAMES, None)
