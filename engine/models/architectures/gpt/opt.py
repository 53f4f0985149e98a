"""OPT (arXiv 2205.01068), also Galactica: GPT-2 with separate matrices, relu, and a table of positions that
begins with two spare rows. OPT 350M has norms after the sums, and narrower embeddings. BioGPT and XGLM are
alike with scaled embeddings; XGLM's table of positions is computed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_activation, hf_shape
from engine.models.headers.keys import Keys
from engine.models.names import HF

HF_NAMES = replace(
    HF, embed="model.decoder.embed_tokens", norm="model.decoder.final_layer_norm",
    layer="model.decoder.layers.{}.", positions="model.decoder.embed_positions",
    project_in="model.decoder.project_in", project_out="model.decoder.project_out",
    attention_norm="self_attn_layer_norm", output="self_attn.out_proj", mlp_norm="final_layer_norm", gate="",
    up="fc1", down="fc2", attention_post="self_attn_layer_norm", mlp_post="final_layer_norm",
)  # fmt: skip
_DEFAULTS = {"vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}


def from_hf(keys: Keys) -> ModelConfig:
    """`OPTForCausalLM`."""
    keys = keys.over(_DEFAULTS)
    keys = keys.replaced("intermediate_size", keys.integer("ffn_dim", 1, 1 << 22, 3072))
    shape = hf_shape(
        keys.without("num_key_value_heads", "head_dim"), "", tie_word_embeddings=True, **{"": 1e-5}
    )
    bias, before = keys.flag("enable_bias", True), keys.flag("do_layer_norm_before", True)
    affine, width = keys.flag("layer_norm_elementwise_affine", True), shape["width"]
    return ModelConfig(
        **shape,
        activation=hf_activation(keys, "activation_function", "relu"),
        rope=None,
        learned_positions=shape["context_length"],
        learned_offset=2,
        embed_width=keys.integer("word_embed_proj_dim", 1, 1 << 20, width),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        norm="layer",
        norm_bias=affine,
        norm_weights=affine,
        final_norm=before and not keys.flag("_remove_final_layer_norm", False),
        gated=False,
        placement="before" if before else "after_sum",
    )


OPT = Architecture((), ("OPTForCausalLM",), from_hf, None, HF_NAMES, None, prefixes=("", "-"))


def from_hf_biogpt(keys: Keys) -> ModelConfig:
    """`BioGptForCausalLM`."""
    keys = keys.over({
        "vocab_size": 42384, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096, "max_position_embeddings": 1024,
    })  # fmt: skip
    shape = _scaled(keys, "hidden_act")
    return ModelConfig(**shape, learned_positions=shape["context_length"])


def from_hf_xglm(keys: Keys) -> ModelConfig:
    """`XGLMForCausalLM`."""
    own = {"d_model": 1024, "ffn_dim": 4096, "num_layers": 24, "attention_heads": 16, "vocab_size": 256008}
    keys = keys.over(own).renamed(
        hidden_size="d_model", intermediate_size="ffn_dim", num_hidden_layers="num_layers",
        num_attention_heads="attention_heads",
    )  # fmt: skip
    # The table is computed as long as this says.
    keys.integer("max_position_embeddings", 1, 1 << 14, 2048)
    return ModelConfig(**_scaled(keys, "activation_function"), sinusoids="closed")


def _scaled(keys: Keys, activation: str) -> dict[str, Any]:
    shape = hf_shape(
        keys.without("num_key_value_heads", "head_dim"), "", tie_word_embeddings=True, **{"": 1e-5}
    )
    return shape | {
        "activation": hf_activation(keys, activation, "gelu"), "rope": None, "learned_offset": 2,
        "embed_scale": math.sqrt(shape["width"]) if keys.flag("scale_embedding", True) else 1.0,
        "attention_bias": True, "output_bias": True, "mlp_bias": True, "norm": "layer", "norm_bias": True,
        "gated": False,
    }  # fmt: skip


_ALIKE = replace(
    HF_NAMES, embed="biogpt.embed_tokens", norm="biogpt.layer_norm", head="output_projection",
    layer="biogpt.layers.{}.", positions="biogpt.embed_positions", project_in="", project_out="",
)  # fmt: skip
BIO_GPT = Architecture((), ("BioGptForCausalLM",), from_hf_biogpt, None, _ALIKE, None, prefixes=("", "-"))
XGLM = Architecture(
    (), ("XGLMForCausalLM",), from_hf_xglm, None,
    replace(
        _ALIKE, embed="model.embed_tokens", norm="model.layer_norm", head="lm_head",
        layer="model.layers.{}.", positions="",
    ),
    None, prefixes=("", "-"),
)  # fmt: skip
