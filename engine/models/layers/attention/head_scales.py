"""Queries that are scaled head by head, by their positions (Mistral Large 4)."""

from __future__ import annotations

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource
from engine.models.layers.parts import Norm, RopeTables
from engine.models.layers.residual.residual_gates import product

_NOTHING = product(np.zeros(1, np.float32))


@dataclass(frozen=True, slots=True)
class HeadScales:
    """Multiplies queries (T, H * D) of head h at position p by slope_h ln(p + 1) + shift_h."""

    slope: Norm
    shift: Norm

    def __call__(self, ops: Ops, query: Array, tables: RopeTables) -> Array:
        assert tables.logs is not None
        logs = ops.add_positions(_NOTHING(ops, ops.columns(query, 0, 1)), tables.logs)
        return ops.mix([self.slope(ops, query)], logs, 0, self.shift(ops, query))


def head_scales(source: WeightSource, at: str, names: tuple[str, str], heads: int, dim: int) -> HeadScales:
    """Of `heads` heads of `dim` numbers; the `names` of slopes and shifts (H,) follow `at`."""
    slope, shift = (product(np.repeat(source.vector(at + name, heads), dim)) for name in names)
    return HeadScales(slope, shift)
