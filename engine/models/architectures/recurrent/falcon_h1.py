"""Falcon-H1 (arXiv 2507.22448): attention and Mamba-2 side by side in each layer, with many multipliers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.errors import BadCheckpoint
from engine.models.architecture import Architecture
from engine.models.architectures.recurrent.granite_hybrid import gguf_mamba, least_step
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Mamba, Multipliers
from engine.models.headers.decoder import gguf_decoder, hf_decoder, refuse_other_than_silu
from engine.models.headers.keys import Keys
from engine.models.names import GGUF, HF, MAMBA_GGUF, mamba_names
from engine.tensors import RawTensor
from engine.words import _

HF_NAMES = replace(
    HF, norm="model.final_layernorm", mlp_norm="pre_ff_layernorm", gate="feed_forward.gate_proj",
    up="feed_forward.up_proj", down="feed_forward.down_proj",
    recurrent=mamba_names("mamba"),
)  # fmt: skip
GGUF_NAMES = replace(
    GGUF,
    recurrent=MAMBA_GGUF,
)  # fmt: skip
_MOST = 1 << 14
_LARGEST = 1e6


def from_hf(keys: Keys) -> ModelConfig:
    """`FalconH1ForCausalLM`."""
    refuse_other_than_silu(keys)
    if not keys.has("num_key_value_heads"):
        keys = keys.over({"num_key_value_heads": 8})
    bias = keys.flag("attention_bias", False)
    shape = hf_decoder(
        keys,
        bias=bias,
        mlp_bias=keys.flag("mlp_bias", False),
        rms_norm_eps=1e-5,
        max_position_embeddings=8192,
    )
    heads, groups = keys.integer("mamba_n_heads", 1, _MOST, 128), keys.integer("mamba_n_groups", 1, _MOST, 1)
    if keys.has("mamba_d_ssm") and keys.raw("mamba_d_ssm") is None:
        inner = keys.integer("mamba_expand", 1, 64, 2) * shape["width"]
    else:
        inner = keys.integer("mamba_d_ssm", heads, 1 << 24, 1024)
    normed = keys.flag("mamba_rms_norm", False)
    mamba = Mamba(
        heads,
        inner // heads,
        groups,
        keys.integer("mamba_d_state", 1, _MOST, 256),
        keys.integer("mamba_d_conv", 1, 64, 4),
        norm_groups=groups,
        least_step=least_step(keys),
        norm=normed,
        norm_first=normed and keys.flag("mamba_norm_before_gate", True),
    )
    return ModelConfig(
        **shape,
        embed_scale=_factor(keys, "embedding_multiplier"),
        logit_scale=_factor(keys, "lm_head_multiplier"),
        multipliers=_multipliers(keys),
        recurrent=mamba,
        recurrent_layers=frozenset(range(shape["layers"])),
        beside_attention=True,
    )


def _factor(keys: Keys, name: str) -> float:
    return keys.number(name, -_LARGEST, _LARGEST, 1.0)


def _multipliers(keys: Keys) -> Multipliers:
    gate, output = _factors(keys, "mlp_multipliers", 2)
    return Multipliers(
        attention_input=_factor(keys, "attention_in_multiplier"),
        attention_output=_factor(keys, "attention_out_multiplier"),
        keys=_factor(keys, "key_multiplier"),
        mamba_input=_factor(keys, "ssm_in_multiplier"),
        mamba_output=_factor(keys, "ssm_out_multiplier"),
        mamba_parts=_factors(keys, "ssm_multipliers", 5),
        mlp_gate=gate,
        mlp_output=output,
    )


def _factors(keys: Keys, name: str, count: int) -> tuple[float, ...]:
    values = keys.raw(name)
    if values is None:
        return (1.0,) * count
    if (
        not isinstance(values, list)
        or len(values) != count
        or any(type(value) not in (int, float) or not abs(value) <= _LARGEST for value in values)
    ):
        raise BadCheckpoint(
            _(
                "config.json: {name} is not a list of {count} numbers; the file is damaged.",
                name=name,
                count=count,
            )
        )
    return tuple(float(value) for value in values)


def from_gguf(keys: Keys, tensors: Mapping[str, RawTensor]) -> ModelConfig:
    """`falcon-h1`, whose weights hold all multipliers."""
    shape = gguf_decoder(keys, tensors, "falcon-h1")
    return ModelConfig(
        **shape,
        recurrent=replace(gguf_mamba(keys), norm=None),
        recurrent_layers=frozenset(range(shape["layers"])),
        beside_attention=True,
    )


FALCON_H1 = Architecture(
    ("falcon-h1",), ("FalconH1ForCausalLM",), from_hf, from_gguf, HF_NAMES, GGUF_NAMES, gguf_scaled=True
)
