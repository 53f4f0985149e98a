"""Norms whose result is gated by two small matrices (A.X K2)."""

from __future__ import annotations

from collections.abc import Callable

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.layers.parts import Linear, Norm, Normed


@dataclass(frozen=True, slots=True)
class GatedNorm:
    """y * sigmoid(up(silu(down(y)))) of normed rows y: x (T, E) -> (T, E)."""

    norm: Norm
    down: Linear
    up: Linear

    def __call__(self, ops: Ops, x: Array) -> Array:
        y = self.norm(ops, x)
        return ops.gated(self.up(ops, ops.activate(self.down(ops, y), "silu")), y, "sigmoid")


def norm_before(
    source: WeightSource,
    config: ModelConfig,
    plain: Callable[[str, int], Norm],
    name: str,
    gated: bool = True,
) -> Normed:
    """The norm before a half of a layer, `gated` if the model has gates and this norm, too."""
    rank, width = config.norm_gate_rank, config.width
    if not rank or not gated:
        return plain(name, width)
    return GatedNorm(
        plain(name + ".norm", width),
        linear(source, name + ".W_down", rank, width, False),
        linear(source, name + ".W_up", width, rank, False),
    )
