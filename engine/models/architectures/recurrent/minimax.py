"""MiniMax-Text-01 (arXiv 2501.08313): Mixtral with lightning attention in most layers, halves that are added
to their normed input, and factors of what is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.models.architecture import Architecture
from engine.models.architectures.mixtures.mixtral import NAMES as MIXTRAL_NAMES
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Lightning
from engine.models.headers.decoder import (
    MAX_LAYERS,
    gguf_decoder,
    hf_architecture,
    hf_decoder,
    hf_layer_types,
    hf_windows,
)
from engine.models.headers.experts import GGUF_EXPERT_KEYS, gguf_experts, hf_experts
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.names import GGUF, RecurrentNames, experts_in_mlp
from engine.tensors import RawTensor

_AT = "self_attn."
HF_NAMES = replace(
    MIXTRAL_NAMES,
    recurrent=RecurrentNames(
        _AT + "qkv_proj", _AT + "out_proj", "", _AT + "output_gate", norm=_AT + "norm"
    ),
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF, recurrent=RecurrentNames("attn_qkv", "attn_output", "", "attn_gate", norm="attn_norm_2")
)
_PUBLISHED = "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"
_KINDS = "full_attention", "linear_attention"
_NORM_EPS = 1e-6
"""Of the norm in lightning attention, whatever that of the layers is."""


def from_hf(keys: Keys) -> ModelConfig:
    """`MiniMaxForCausalLM`, which its authors call `MiniMaxText01ForCausalLM` and `MiniMaxM1ForCausalLM`."""
    share = None
    if hf_architecture(keys.source) in _PUBLISHED:
        keys, share = _as_transformers_has_them(keys)
    keys = keys.over(
        {"num_local_experts": 8, "num_experts_per_tok": 2, "num_key_value_heads": 8, "rms_norm_eps": 1e-5}
    )
    shape = hf_decoder(keys, bias=False, base=1e6, share=share, max_position_embeddings=1 << 17)
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, _KINDS) or tuple(
        "linear_attention" if layer % 2 else "full_attention" for layer in range(layers)
    )
    return ModelConfig(
        **shape,
        placement="kept",
        half_scales=tuple(
            (_factor(keys, f"{part}_alpha_factor"), _factor(keys, f"{part}_beta_factor"))
            for part in ("full_attn", "linear_attn", "mlp")
        ),
        windows=hf_windows(keys, layers),
        recurrent=Lightning(shape["heads"], shape["head_dim"], _NORM_EPS),
        recurrent_layers=frozenset(at for at, kind in enumerate(kinds) if kind == "linear_attention"),
        experts=hf_experts(
            keys, range(layers), count="num_local_experts", used="num_experts_per_tok",
            width=shape["ffn_width"], normalise=True,
        ),
    )  # fmt: skip


def _as_transformers_has_them(keys: Keys) -> tuple[Keys, float]:
    """The keys for the authors' own, and the part of each head that has rope."""
    refuse_other(keys, "postnorm", True)
    if keys.raw("shared_intermediate_size") != 0:  # a number, or a list of one
        refuse_other(keys, "shared_intermediate_size", [0])
    parts = {"full_attn": "full_attention", "linear_attn": "linear_attention", "mlp": "mlp"}
    for short, long in parts.items():
        for end in ("alpha", "beta"):
            keys = keys.renamed(**{f"{short}_{end}_factor": f"layernorm_{long}_{end}"})
    kinds = keys.integers("attn_type_list", 0, 1)
    keys = keys.replaced("layer_types", [_KINDS[1 - kind] for kind in kinds] or None)
    dim = keys.integer("head_dim", 2, 1 << 12, 128)
    return keys.over({"head_dim": dim}), keys.integer("rotary_dim", 2, dim, dim) / dim


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`minimax-01`, whose files have one factor for all that is added, and nothing for results."""
    shape: dict[str, Any] = gguf_decoder(
        keys, tensors, "minimax-01", handled=(*GGUF_EXPERT_KEYS, "residual_scale")
    )
    layers, name = shape["layers"], "attention.recurrent_layers"
    every = keys.integer("full_attention_interval", 1, MAX_LAYERS, 8)
    linear = keys.flags(name, layers) if isinstance(keys.raw(name), list) else ()
    linear = linear or tuple((layer + 1) % every != 0 for layer in range(layers))
    return ModelConfig(
        **shape, placement="kept",
        half_scales=((keys.number("residual_scale", -1e6, 1e6, 1.0), 1.0),) * 3,
        recurrent=Lightning(shape["heads"], shape["head_dim"], _NORM_EPS),
        recurrent_layers=frozenset(layer for layer in range(layers) if linear[layer]),
        experts=gguf_experts(keys, shape),
    )  # fmt: skip


def _factor(keys: Keys, name: str) -> float:
    found: float = keys.number(name, -1e6, 1e6, 1.0)
    return found


MINIMAX = Architecture(
    ("minimax-01",), ("MiniMaxForCausalLM", *_PUBLISHED), from_hf, from_gguf, HF_NAMES, GGUF_NAMES,
    adapt=experts_in_mlp,
)  # fmt: skip
