"""Gates of what a layer adds to and of what it adds, number by number (Muse Spark).

With b = sigmoid(gate / temperature) and a = sqrt(max((1 - b) (1 + b), 0.001)), a half of a layer makes
a x + b y of its input x and its normed result y.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource
from engine.models.config import ModelConfig
from engine.models.layers.parts import Block, Norm, Normed
from engine.models.names import TensorNames
from engine.tensors import Floats

_LEAST = 1e-3


@dataclass(frozen=True, slots=True)
class WeighedNorm:
    """The norm of x (T, E) times a weight."""

    weight: Norm
    norm: Norm

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.norm(ops, self.weight(ops, x))


def product(weight: Floats) -> Norm:
    """x times the weight (E,): the RMS norm whose epsilon is so large that nothing else counts."""
    return Norm(weight * np.float32(2.0**50), 2.0**100)


def weighed_norm(source: WeightSource, name: str, weight: Floats, eps: float) -> WeighedNorm:
    """The RMS norm of a row times 1 + `name`.weight; `weight` multiplies what comes out."""
    return WeighedNorm(product(1 + source.vector(name + ".weight", weight.size)), Norm(weight, eps))


def with_residual_gates(
    source: WeightSource, config: ModelConfig, names: TensorNames, layer: int, block: Block
) -> Block:
    """The block with the gates and the norms of both halves, if the model has them."""
    if not config.residual_gates:
        return block
    at, eps = names.layer.format(layer), config.post_norm_eps
    (keep, add), (keep_too, add_too) = (
        _gates(source.vector(at + name, config.width), config.residual_gates)
        for name in (names.attention_residual_gate, names.mlp_residual_gate)
    )
    post: Normed = weighed_norm(source, at + names.mlp_post, add_too, eps)
    return replace(
        block, attention_post=Norm(add, eps), mlp_post=post, keeps=(product(keep), product(keep_too))
    )


def _gates(gate: Floats, temperature: float) -> tuple[Floats, Floats]:
    """(a, b), computed in float64."""
    added = 1 / (1 + np.exp(-gate.astype(np.float64) / temperature))
    kept = np.sqrt(np.maximum((1 - added) * (1 + added), _LEAST))
    return kept.astype(np.float32), added.astype(np.float32)
