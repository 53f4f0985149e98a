"""OLMo Hybrid: OLMo 3 without windows, with gated delta nets in three of four layers, which have their norms
before each half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.dense.olmo2 import HF_NAMES as OLMO_NAMES
from engine.models.config import ModelConfig
from engine.models.config.recurrent import SeparateDelta
from engine.models.headers.decoder import hf_decoder, hf_layer_types, refuse_other_than_silu
from engine.models.headers.keys import Keys
from engine.models.names import RecurrentNames, TensorNames, delta_in_memory
from engine.tensors import RawTensor

_AT = "linear_attn."
HF_NAMES = replace(
    OLMO_NAMES, attention_norm="attention_layer_norm", mlp_norm="feedforward_layer_norm",
    other_norms=(
        ("attention_layer_norm", "input_layernorm"), ("feedforward_layer_norm", "post_attention_layernorm"),
        ("post_attention_layernorm", "feedforward_layer_norm"),
    ),  # which folders of transformers 5 have in some layers
    recurrent=RecurrentNames(
        "", _AT + "o_proj", "", _AT + "g_proj", _AT + "a_proj", _AT + "b_proj",
        rate=_AT + "A_log", shift=_AT + "dt_bias", norm=_AT + "o_norm", query=_AT + "q_proj",
        key=_AT + "k_proj", value=_AT + "v_proj",
        convolutions=(_AT + "q_conv1d", _AT + "k_conv1d", _AT + "v_conv1d"),
    ),
)  # fmt: skip
_MOST, _NORM_EPS = 1 << 14, 1e-5


def from_hf(keys: Keys) -> ModelConfig:
    """`OlmoHybridForCausalLM`, without rope if its base is null."""
    refuse_other_than_silu(keys)
    bias = keys.flag("attention_bias", False)
    shape = hf_decoder(keys, bias=bias, max_position_embeddings=65536)
    layers, heads = shape["layers"], shape["heads"]
    kinds = hf_layer_types(keys, layers, ("linear_attention", "full_attention"))
    full = [layer for layer in range(layers) if (kinds[layer][0] == "f" if kinds else layer % 4 == 3)]
    groups = keys.integer("linear_num_key_heads", 1, _MOST, heads)
    key_dim = keys.integer("linear_key_head_dim", 1, _MOST, max(1, int(0.75 * shape["width"] / groups)))
    table = keys.table("rope_parameters")
    bare = keys.raw("rope_theta") is None and (table is None or table.raw("rope_theta") is None)
    return ModelConfig(
        **shape,
        placement="after",
        qk_norm="row",
        nope_layers=frozenset(full) if bare else frozenset(),
        recurrent=SeparateDelta(
            groups, keys.integer("linear_num_value_heads", 1, _MOST, heads), key_dim,
            keys.integer("linear_value_head_dim", 1, _MOST, 2 * key_dim),
            keys.integer("linear_conv_kernel_dim", 1, 64, 4), _NORM_EPS, "silu",
            doubled=keys.flag("linear_allow_neg_eigval", True),
        ),
        recurrent_layers=frozenset(range(layers)) - frozenset(full),
    )  # fmt: skip


def _adapt(names: TensorNames, tensors: Mapping[str, RawTensor]) -> TensorNames:
    """The convolutions of a file: transformers has one, which it cuts into three of one size to save it."""
    own = names.recurrent
    assert own is not None
    own = delta_in_memory(own, tensors)
    sizes = {
        tensor.shape[0]
        for name, tensor in tensors.items()
        for part in own.convolutions
        if name.endswith(f".{part}.weight")
    }
    return replace(names, recurrent=replace(own, convolutions_even=len(sizes) == 1))


OLMO_HYBRID = Architecture((), ("OlmoHybridForCausalLM",), from_hf, None, HF_NAMES, None, adapt=_adapt)
