"""What stands around experts that work on a projection of rows. Shape letters as in
`engine.models.layers.parts`; Z features of the projection.
"""

from __future__ import annotations

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, norm
from engine.models.config import ModelConfig
from engine.models.layers.parts import Linear, Normed
from engine.models.layers.residual.residual_gates import weighed_norm
from engine.models.names import TensorNames


@dataclass(frozen=True, slots=True)
class Narrow:
    """What stands around experts of fewer features: x (T, E) is projected and normed (T, Z), each expert's
    result is normed by `each`, and their weighted sum is normed by `last` and projected back.
    """

    down: Linear
    up: Linear
    norm: Normed | None = None
    each: Normed | None = None
    last: Normed | None = None

    def __call__(self, ops: Ops, x: Array) -> Array:
        y = self.down(ops, x)
        return self.norm(ops, y) if self.norm else y


def narrow_of(source: WeightSource, config: ModelConfig, names: TensorNames, width: int, at: str) -> Narrow:
    """That of the layer whose names begin with `at`, for experts of `width` features."""
    own = names.narrow
    assert own is not None
    offset, ones = config.norm_offset, np.ones(width, np.float32)
    first, last = (
        norm(source, at + name, width, config.norm_eps, layer_norm=False, bias=False, offset=offset)
        if name
        else None
        for name in (own.norm, own.last)
    )
    return Narrow(
        linear(source, at + own.down, width, config.width, config.mlp_bias),
        linear(source, at + own.up, config.width, width, config.mlp_bias), first,
        weighed_norm(source, at + own.each, ones, config.post_norm_eps) if own.each else None, last,
    )  # fmt: skip
