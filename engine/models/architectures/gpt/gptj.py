"""GPT-J: one layer norm for both halves of a block, interleaved rope on a part of each head, biases of the
feed-forward part and of the head alone. CodeGen is the same with queries, values and keys in one matrix.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.config import ModelConfig
from engine.models.headers.decoder import hf_activation, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import not_a_multiple
from engine.models.layers.positions.rope import RopeConfig
from engine.models.names import HF

HF_NAMES = replace(
    HF, embed="transformer.wte", norm="transformer.ln_f", layer="transformer.h.{}.", attention_norm="ln_1",
    query="attn.q_proj", key="attn.k_proj", value="attn.v_proj", output="attn.out_proj", gate="",
    up="mlp.fc_in", down="mlp.fc_out",
)  # fmt: skip
_DEFAULTS = {"vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16}


_SHARDS = 4
"""The parts of CodeGen's matrix of queries, values and keys, from the four devices of its training."""


def from_hf_codegen(keys: Keys) -> ModelConfig:
    """`CodeGenForCausalLM`."""
    config = from_hf(keys)
    if config.heads % _SHARDS:
        raise not_a_multiple(config.heads, _SHARDS)
    return config


def from_hf(keys: Keys) -> ModelConfig:
    """`GPTJForCausalLM`."""
    keys = keys.over(_DEFAULTS).renamed(
        hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head",
        max_position_embeddings="n_positions",
    )  # fmt: skip
    width = keys.integer("hidden_size", 1, 1 << 20)
    keys = keys.replaced("intermediate_size", keys.integer("n_inner", 1, 1 << 22, 4 * width))
    shape = hf_shape(keys.without("num_key_value_heads"), "layer_norm_epsilon", layer_norm_epsilon=1e-5)
    whole = keys.has("rotary_dim") and keys.raw("rotary_dim") is None
    dim = shape["head_dim"] if whole else keys.integer("rotary_dim", 2, shape["head_dim"], 64)
    return ModelConfig(
        **shape,
        activation=hf_activation(keys, "activation_function", "gelu_new"),
        rope=RopeConfig(10000.0, dim, True, (1.0,) * (dim // 2)),
        attention_bias=False,
        output_bias=False,
        mlp_bias=True,
        head_bias=True,
        norm="layer",
        norm_bias=True,
        gated=False,
        placement="parallel",
    )


GPT_J = Architecture((), ("GPTJForCausalLM",), from_hf, None, HF_NAMES, None, prefixes=("", "-"))
CODEGEN = Architecture(
    (), ("CodeGenForCausalLM",), from_hf_codegen, None,
    replace(HF_NAMES, query="", key="", value="", query_key_value="attn.qkv_proj", shards=_SHARDS), None,
    prefixes=("", "-"),
)  # fmt: skip
