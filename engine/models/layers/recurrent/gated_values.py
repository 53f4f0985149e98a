"""Convolved values with gates of queries and convolved keys (Gear), and how they are built.

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import norm
from engine.models.config import ModelConfig
from engine.models.config.convolved import GatedValues
from engine.models.layers.parts import Linear, Norm, RopeTables
from engine.models.layers.recurrent.parts import Convolution, RecurrentSource


@dataclass(frozen=True, slots=True, eq=False)
class GatedValuesMixer:
    """output(sigmoid(q * k) * v): queries (T, H * D) are normed, keys (T, G * D) normed and then convolved,
    values (T, G * D) convolved. Each head of a group has the same keys and values.
    """

    kind: GatedValues
    query: Linear
    key: Linear
    value: Linear
    query_norm: Norm
    key_norm: Norm
    convolutions: tuple[Convolution, Convolution]
    output: Linear

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        of_keys, of_values = self.convolutions
        q = self.query_norm(ops, self.query(ops, x))
        k = self._of_heads(ops, of_keys(ops, self.key_norm(ops, self.key(ops, x))))
        v = self._of_heads(ops, of_values(ops, self.value(ops, x)))
        return self.output(ops, ops.gated(ops.gated(q, k, "identity"), v, "sigmoid"), residual)

    def _of_heads(self, ops: Ops, x: Array) -> Array:
        """The numbers (T, G * D) of each group as often as it has heads."""
        repeated = x
        for _unused in range(self.kind.heads // self.kind.groups - 1):
            repeated = ops.join(repeated, x, self.kind.groups)
        return repeated


def gated_values(
    layer: RecurrentSource, config: ModelConfig, kind: GatedValues, part: int
) -> GatedValuesMixer:
    """The mixer of one layer, whose first part of a state is number `part`."""
    names, width, keys = layer.names, config.width, kind.groups * kind.dim

    def normed(name: str, heads: int) -> Norm:
        made = norm(
            layer.source, layer.at + name, kind.dim, config.norm_eps, layer_norm=False, bias=False,
            offset=config.norm_offset,
        )  # fmt: skip
        return Norm(made.weight, made.eps, heads=heads)

    first, second = (
        layer.convolution(part + at, keys, kind.taps, name) for at, name in enumerate(names.convolutions)
    )
    return GatedValuesMixer(
        kind, layer.linear(names.query, kind.heads * kind.dim, width), layer.linear(names.key, keys, width),
        layer.linear(names.value, keys, width), normed(names.query_norm, kind.heads),
        normed(names.key_norm, kind.groups), (first, second),
        layer.linear(names.output, width, kind.heads * kind.dim),
    )  # fmt: skip
