"""MiniMax-Text-01 (arXiv 2501.08313): Mixtral with lightning attention in most layers, halves that are added
to their normed input, and factors of what is added.
"""

from __future__ import annotations

from dataclasses import replace

from engine.models.architecture import Architecture
from engine.models.architectures.mixtral import NAMES as MIXTRAL_NAMES
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Lightning
from engine.models.headers.decoder import hf_decoder, hf_layer_types, hf_windows
from engine.models.headers.experts import hf_experts
from engine.models.headers.keys import Keys
from engine.models.names import RecurrentNames

_AT = "self_attn."
HF_NAMES = replace(
    MIXTRAL_NAMES,
    recurrent=RecurrentNames(
        _AT + "qkv_proj", _AT + "out_proj", "", _AT + "output_gate", norm=_AT + "norm"
    ),
)  # fmt: skip
_NORM_EPS = 1e-6
"""Of the norm in lightning attention, whatever that of the layers is."""


def from_hf(keys: Keys) -> ModelConfig:
    """`MiniMaxForCausalLM`."""
    keys = keys.over(
        {"num_local_experts": 8, "num_experts_per_tok": 2, "num_key_value_heads": 8, "rms_norm_eps": 1e-5}
    )
    shape = hf_decoder(keys, bias=False, base=1e6, max_position_embeddings=1 << 17)
    layers = shape["layers"]
    kinds = hf_layer_types(keys, layers, ("full_attention", "linear_attention")) or tuple(
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


def _factor(keys: Keys, name: str) -> float:
    found: float = keys.number(name, -1e6, 1e6, 1.0)
    return found


MINIMAX = Architecture((), ("MiniMaxForCausalLM",), from_hf, None, HF_NAMES, None)
