"""GPT-2: learned positions, layer norms, biases, one matrix for query, key and value; folders store the
matrices transposed.
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
    MAX_VOCAB,
    gguf_shape,
    hf_activation,
    hf_architecture,
    hf_name,
)
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import GGUF, TensorNames
from engine.tensors import RawTensor

HF_NAMES = TensorNames(
    embed="transformer.wte", norm="transformer.ln_f", head="lm_head", layer="transformer.h.{}.",
    positions="transformer.wpe", attention_norm="ln_1", query="", key="", value="",
    query_key_value="attn.c_attn", output="attn.c_proj", mlp_norm="ln_2", gate="", up="mlp.c_fc",
    down="mlp.c_proj", transposed=True,
)  # fmt: skip
_QUIRKS: dict[str, Any] = {"norm": "layer", "norm_bias": True, "gated": False, "rope": None}


def from_hf(keys: Keys) -> ModelConfig:
    """`GPT2LMHeadModel`."""
    width, heads = keys.integer("n_embd", 1, 1 << 20), keys.integer("n_head", 1, 1 << 14)
    refuse_other(keys, "add_cross_attention", False)
    context = keys.integer("n_positions", 1, MAX_CONTEXT, 1024)
    return ModelConfig(
        architecture=hf_architecture(keys.source),
        name=hf_name(keys),
        layers=keys.integer("n_layer", 1, MAX_LAYERS),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_dim=max(1, width // heads),
        ffn_width=keys.integer("n_inner", 1, 1 << 22, 4 * width),
        vocab_size=keys.integer("vocab_size", 1, MAX_VOCAB),
        context_length=context,
        learned_positions=context,
        norm_eps=keys.number("layer_norm_epsilon", 0.0, 1.0, 1e-5),
        tied=keys.flag("tie_word_embeddings", True),
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        activation=hf_activation(keys, "activation_function", "gelu_new"),
        attention_scale=0.0 if keys.flag("scale_attn_weights", True) else 1.0,
        scaled_by_layer=keys.flag("scale_attn_by_inverse_layer_idx", False),
        **_QUIRKS,
    )


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`gpt2`."""
    shape = gguf_shape(keys, tensors, "gpt2", layer_norm=True)
    return ModelConfig(**shape, **_QUIRKS, activation="gelu_tanh", learned_positions=shape["context_length"])


def from_hf_1(keys: Keys) -> ModelConfig:
    """`OpenAIGPTLMHeadModel`: norms after the sums, and none before the head."""
    if "afn" in keys.source:
        name = keys.text("afn")
        # Its "gelu" is what others call "gelu_new".
        keys = keys.replaced("activation_function", "gelu_new" if name == "gelu" else name)
    config = from_hf(keys.over(_DEFAULTS_1).without("n_inner"))
    return replace(config, placement="after_sum", final_norm=False)


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """Quantising tools turn the matrices over."""
    first = tensors.get(names.layer.format(0) + names.query_key_value + ".weight")
    upright = first is not None and len(first.shape) == 2 and first.shape[0] == 3 * first.shape[1]
    return replace(names, transposed=False) if upright else names


_DEFAULTS_1 = {"vocab_size": 40478, "n_positions": 512, "n_embd": 768, "n_layer": 12, "n_head": 12}
GPT_1 = Architecture(
    (), ("OpenAIGPTLMHeadModel",), from_hf_1, None,
    replace(
        HF_NAMES, embed="transformer.tokens_embed", norm="", positions="transformer.positions_embed",
        attention_norm="", mlp_norm="", attention_post="ln_1", mlp_post="ln_2",
    ),
    None, prefixes=("", "-"), adapt=_adapt,
)  # fmt: skip
GPT2 = Architecture(
    ("gpt2",), ("GPT2LMHeadModel",), from_hf, from_gguf, HF_NAMES, GGUF, prefixes=("", "-"), adapt=_adapt
)
