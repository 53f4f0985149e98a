"""ZAYA1: attention whose queries and keys are convolved (arXiv 2510.04476), and one expert for each token, or
none, as a network chooses.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.building.decoder import Builder
from engine.models.config import ModelConfig
from engine.models.config.convolved import ConvolvedHeads
from engine.models.config.experts import Experts
from engine.models.headers.decoder import MAX_CONTEXT, hf_activation, hf_layer_types, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other, unsupported
from engine.models.headers.rope import rope_from_hf
from engine.models.layers.whole import Stack
from engine.models.names import MIXTURE, NetworkNames, RecurrentNames

_OWN, _GATE = "self_attn.qkv_proj.", "mlp.gate."
NAMES = replace(
    MIXTURE, query=_OWN + "q_proj", key=_OWN + "k_proj", value=_OWN + "v_proj_current",
    router=_GATE + "router_mlp.out_proj", correction=_GATE + "balancing_biases",
    embed_norm="model.input_hidden_states", attention_residual_gate="post_attention_residual_scale",
    mlp_residual_gate="post_mlp_residual_scale",
    recurrent=RecurrentNames(
        "", "", _OWN + "conv_qk_depthwise", value=_OWN + "v_proj_delayed", mixed=_OWN + "conv_qk_grouped",
        rate="self_attn.qk_norm.temp",
    ),
    router_network=NetworkNames(
        _GATE + "down_proj", _GATE + "router_states_scale", _GATE + "router_mlp.norm",
        _GATE + "router_mlp.fc1", _GATE + "router_mlp.fc2",
    ),
)  # fmt: skip
_KINDS = "hybrid", "hybrid_sliding"
_DEFAULTS = {
    "vocab_size": 262272, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 128, "moe_intermediate_size": 2048, "num_experts": 16,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip
_MOST, _MOST_TAPS = 1 << 10, 32


def from_hf(keys: Keys) -> ModelConfig:
    """`ZayaForCausalLM`."""
    refuse_other(keys, "num_experts_per_tok", 1)
    keys = keys.over(_DEFAULTS).renamed(intermediate_size="moe_intermediate_size")
    keys = keys.over({"intermediate_size": _DEFAULTS["moe_intermediate_size"]})
    shape, bias = hf_shape(keys), keys.flag("attention_bias", False)
    layers, dim, groups = shape["layers"], shape["head_dim"], shape["kv_heads"]
    if groups * dim % 2:
        raise unsupported("head_dim", dim)
    kinds = hf_layer_types(keys, layers, _KINDS) or _KINDS[:1] * layers
    window, everywhere = keys.integer("sliding_window", 0, MAX_CONTEXT, 0), frozenset(range(layers))
    main, local = (
        rope_from_hf(keys, dim, base=base, share=0.5, layer_type=kind)
        for kind, base in zip(_KINDS, (5e6, 1e4), strict=True)
    )
    idle = 1
    experts = Experts(
        keys.integer("num_experts", 1, _MOST) + idle, 1, shape["ffn_width"], False, everywhere,
        corrected=True, idle=idle, router_width=keys.integer("router_hidden_size", 1, 1 << 16, 256),
    )  # fmt: skip
    taps = (keys.integer(name, 1, _MOST_TAPS, 2) for name in ("cca_time0", "cca_time1"))
    return ModelConfig(
        **shape, activation=hf_activation(keys), attention_bias=bias, output_bias=bias, mlp_bias=False,
        head_bias=keys.flag("lm_head_bias", False), rope=main, rope_local=local, experts=experts,
        windows=tuple(window if kind == _KINDS[1] else 0 for kind in kinds),
        recurrent=ConvolvedHeads(shape["heads"], groups, dim, (next(taps), next(taps))),
        recurrent_layers=everywhere, beside_attention=True,
    )  # fmt: skip


def _stack(builder: Builder) -> Generator[int, None, Stack]:
    from engine.models.layers.attention.convolved_heads import convolved_layers

    return convolved_layers(builder)


ZAYA = Architecture((), ("ZayaForCausalLM",), from_hf, None, NAMES, None, layers=_stack)
