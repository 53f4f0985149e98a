"""Rotary position embedding: reading its settings from a model file, and the table of cosines and sines.

Every supported scaling divides each frequency by a constant of its own: frequency i is base^(-2i / dim) / divisors[i].
Sources: RoFormer, arXiv 2104.09864; position interpolation ("linear"), arXiv 2306.15595; "llama3": the Llama 3.1
model card's reference code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.backends.base import RawTensor, RotaryTable
from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.keys import Keys


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """`dim` leading dimensions of each head are turned; `divisors` has dim / 2 entries, all 1 without scaling.

    `interleaved` as in `RotaryTable`.
    """

    base: float
    dim: int
    interleaved: bool
    divisors: tuple[float, ...]


def rotary_table(rope: RopeConfig, positions: int) -> RotaryTable:
    """Cosines and sines of positions 0 .. positions - 1, computed in double precision."""
    exponents = np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim
    frequencies = rope.base**-exponents / np.array(rope.divisors, np.float64)
    angles = np.outer(np.arange(positions, dtype=np.float64), frequencies)
    return RotaryTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), rope.interleaved)


def rope_from_hf(keys: Keys, head_dim: int) -> RopeConfig:
    """From config.json: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (before).

    Raises `UnsupportedModel` for other scalings than none, linear and llama3.
    """
    scaling = keys.table("rope_parameters") or keys.table("rope_scaling")
    base = keys.number("rope_theta", 1.0, 1e12, 10000.0)
    kind = "default" if scaling is None else scaling.text("rope_type", scaling.raw("type") or "default")
    share = keys.number("partial_rotary_factor", 0.0, 1.0, 1.0)
    if scaling is not None:
        base = scaling.number("rope_theta", 1.0, 1e12, base)
        share = scaling.number("partial_rotary_factor", 0.0, 1.0, share)
    dim = _rotary_dim(int(head_dim * share), head_dim, "config.json: partial_rotary_factor")
    divisors: tuple[float, ...] = (1.0,) * (dim // 2)
    if kind == "linear" and scaling is not None:
        divisors = (scaling.number("factor", 1e-3, 1e6),) * (dim // 2)
    elif kind == "llama3" and scaling is not None:
        divisors = _llama3_divisors(scaling, base, dim, keys)
    elif kind != "default":
        raise _unknown_scaling(kind)
    return RopeConfig(base, dim, False, divisors)


def rope_from_gguf(keys: Keys, head_dim: int, factors: RawTensor | None) -> RopeConfig:
    """From GGUF keys (already under the architecture's prefix); `factors` are the tensor rope_freqs.weight, if there.

    Raises `UnsupportedModel` for other scalings than none, linear and such factors.
    """
    base = keys.number("rope.freq_base", 1.0, 1e12, 10000.0)
    dim = _rotary_dim(keys.integer("rope.dimension_count", 1, 1 << 16, head_dim), head_dim, "rope.dimension_count")
    linear = keys.number("rope.scale_linear", 0.0, 1e6, 0.0) or keys.number("rope.scaling.factor", 0.0, 1e6, 0.0)
    kind = keys.text("rope.scaling.type", "linear" if linear else "none")
    if kind not in ("none", "linear"):
        raise _unknown_scaling(kind)
    divisor = linear if kind == "linear" and linear else 1.0
    if factors is None:
        return RopeConfig(base, dim, True, (divisor,) * (dim // 2))
    values = factors.dequantise() if factors.shape == (dim // 2,) else None
    if values is None or not np.all(np.isfinite(values) & (values > 0)):
        raise BadCheckpoint(f"The tensor rope_freqs.weight has the shape {factors.shape}; {dim // 2} positive numbers were expected.")
    return RopeConfig(base, dim, True, tuple(divisor * float(value) for value in values))


def _rotary_dim(dim: int, head_dim: int, what: str) -> int:
    if dim % 2 or not 2 <= dim <= head_dim:
        raise BadCheckpoint(f"{what} turns {dim} dimensions of a head, but an even number up to {head_dim} was expected.")
    return dim


def _unknown_scaling(kind: str) -> UnsupportedModel:
    return UnsupportedModel(f"The model scales its rotary positions by {kind!r}; only none, linear and llama3 can be run.")


def _llama3_divisors(scaling: Keys, base: float, dim: int, keys: Keys) -> tuple[float, ...]:
    """Long waves are stretched by `factor`, short ones stay, and between the two bounds the frequency goes over smoothly."""
    factor = scaling.number("factor", 1e-3, 1e6)
    low, high = scaling.number("low_freq_factor", 1e-3, 1e6), scaling.number("high_freq_factor", 1e-3, 1e6)
    context = scaling.integer(
        "original_max_position_embeddings", 1, 1 << 30, keys.raw("original_max_position_embeddings") or keys.raw("max_position_embeddings")
    )
    if high <= low:
        raise BadCheckpoint(f"config.json: high_freq_factor is {high:g}, but more than low_freq_factor {low:g} was expected.")
    divisors = []
    for i in range(0, dim, 2):
        turns = context * base ** (-i / dim) / (2 * math.pi)  # whole turns within the original context
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - kept) / factor + kept))
    return tuple(divisors)
