"""Reads the settings of latent attention from config.json and from GGUF metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint
from engine.models.config.latent import LatentAttention
from engine.models.headers.decoder import hf_activation, hf_shape
from engine.models.headers.keys import Keys
from engine.models.headers.rope import gguf_factor, rope_from_hf
from engine.models.layers.positions.rope import RopeConfig, yarn_magnitude
from engine.words import _

_MOST = 1 << 14
_WIDEST = 1 << 12
"""The largest key of the cache, as of other heads."""


def hf_latent_decoder(
    keys: Keys, ranks: tuple[int, int], dims: tuple[int, int, int], *, interleaved: bool = True,
    rotated: bool = True, share: float | None = None, **defaults: Any,
) -> dict[str, Any]:  # fmt: skip
    """The fields that folders with latent attention have: as `headers.hf_decoder`, with `latent`.

    `ranks` are the class's defaults of kv_lora_rank and q_lora_rank, `dims` those of qk_nope_head_dim,
    qk_rope_head_dim and v_head_dim (0: width / heads); `share` is as in `rope_from_hf`, `defaults` are as in
    `headers.hf_shape`. Unless it is `rotated`, there is no rope, and no part of a key for it. Raises
    `BadCheckpoint` and `UnsupportedModel`.
    """
    shape = hf_shape(keys, head_dim=2, **defaults)
    rope_dim = keys.integer("qk_rope_head_dim", *((2, _MOST) if rotated else (0, 0)), dims[1])
    kind = LatentAttention(
        keys.integer("kv_lora_rank", 1, _MOST, ranks[0]),
        keys.integer("qk_nope_head_dim", 1, _MOST, dims[0]),
        rope_dim,
        keys.integer("v_head_dim", 1, _MOST, dims[2] or shape["width"] // shape["heads"]),
        keys.integer("q_lora_rank", 1, _MOST, ranks[1]) if _has_query_rank(keys) else 0,
    )
    rope = rope_from_hf(keys, rope_dim, share=share, interleaved=interleaved) if rotated else None
    bias = keys.flag("attention_bias", False)
    return shape | cache_shape(kind) | {
        "rope": rope, "activation": hf_activation(keys), "attention_bias": bias, "output_bias": bias,
        "mlp_bias": False, "attention_scale": kind.query_dim**-0.5 * _hf_scale(keys),
    }  # fmt: skip


def _has_query_rank(keys: Keys) -> bool:
    """Whether queries have a latent: an absent rank is the class's default, a null means none."""
    return not keys.has("q_lora_rank") or keys.raw("q_lora_rank") is not None


def cache_shape(kind: LatentAttention) -> dict[str, Any]:
    """The fields of `ModelConfig` that latent attention of this kind determines."""
    width = kind.rank + kind.rope_dim
    if width > _WIDEST:
        raise BadCheckpoint(
            _(
                "The model's latent attention has keys of {width} numbers, but at most {widest} "
                "were expected; the file is damaged.",
                width=width,
                widest=_WIDEST,
            )
        )
    return {"latent": kind, "kv_heads": 1, "head_dim": width}


def _hf_scale(keys: Keys) -> float:
    """What scaled rope multiplies scores by: mscale_all_dim counts twice, for queries and for keys."""
    scaling = keys.table("rope_parameters") or keys.table("rope_scaling")
    if scaling is None or (scaling.raw("rope_type") or scaling.raw("type") or "default") == "default":
        return 1.0
    weight = scaling.number("mscale_all_dim", 0.0, 1e3, 0.0)
    return yarn_magnitude(scaling.number("factor", 1e-3, 1e6), weight) ** 2 if weight else 1.0


def gguf_scale(keys: Keys, rope: RopeConfig) -> tuple[RopeConfig, float]:
    """The rope of a `deepseek2` file, and what its scaling multiplies scores by.

    The file gives a tenth of mscale_all_dim, and not mscale, which is the same in all models: together they
    leave cosines and sines without a scale of their own, where the scaling is yarn's.
    """
    weight, factor = 10 * keys.number("rope.scaling.yarn_log_multiplier", 0.0, 1e3, 0.0), gguf_factor(keys)
    kind = keys.text("rope.scaling.type", "linear" if factor else "none")
    if not weight or kind == "none":
        return rope, 1.0
    rope = replace(rope, magnitude=1.0) if kind == "yarn" else rope
    return rope, yarn_magnitude(factor or 1.0, weight) ** 2


def gguf_latent(keys: Keys, value_dim: int = 0, *, rotated: bool = True) -> tuple[Keys, LatentAttention]:
    """The latent attention of a GGUF file, and the keys with the shape of its cache in place of their own.

    Newer files have the sizes of heads under keys of their own. `value_dim` stands for an absent one. Unless
    it is `rotated`, no part of a key need have rope. Raises `BadCheckpoint`.
    """
    newer = keys.raw("attention.key_length_mla") is not None
    ends = ("_mla", "_mla") if newer else ("", "")
    rope_dim = keys.integer("rope.dimension_count", 2 if rotated else 0, _MOST)
    query_dim = keys.integer("attention.key_length" + ends[0], rope_dim + 1, 2 * _MOST)
    kind = LatentAttention(
        keys.integer("attention.kv_lora_rank", 1, _MOST),
        query_dim - rope_dim,
        rope_dim,
        keys.integer("attention.value_length" + ends[1], 1, _MOST, *((value_dim,) if value_dim else ())),
        keys.integer("attention.q_lora_rank", 0, _MOST, 0),
    )
    width = cache_shape(kind)["head_dim"]
    for name, value in (("key_length", width), ("value_length", width), ("head_count_kv", 1)):
        keys = keys.replaced(f"attention.{name}", value)
    return keys, kind
