"""Matrices whose products take something more: factors of each number, or what two thin matrices make."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.backends.base import Array, Ops
from engine.models.layers.parts import Linear
from engine.models.layers.vectors import by_number
from engine.tensors import Floats


@dataclass(frozen=True, slots=True, eq=False)
class ScaledLinear(Linear):
    """A matrix whose product is multiplied by `factors` (N,)."""

    factors: Floats = field(kw_only=True)

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        return by_number(ops, Linear.__call__(self, ops, x), self.factors, residual)


@dataclass(frozen=True, slots=True)
class AddedLinear(Linear):
    """A matrix to whose product up(down(x)) is added."""

    down: Linear = field(kw_only=True)
    up: Linear = field(kw_only=True)

    def __call__(self, ops: Ops, x: Array, residual: Array | None = None) -> Array:
        return self.up(ops, self.down(ops, x), Linear.__call__(self, ops, x, residual))
