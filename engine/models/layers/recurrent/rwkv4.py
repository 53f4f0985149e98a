"""RWKV-4 (arXiv 2305.13048): weighted means of each channel alone in place of attention.

Shape letters as in `engine.models.layers.parts`; C channels.
"""

from __future__ import annotations

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear
from engine.models.config import ModelConfig
from engine.models.config.recurrent import Rwkv4
from engine.models.layers.parts import Linear, RopeTables
from engine.models.layers.recurrent.parts import Convolution
from engine.models.layers.recurrent.rwkv6 import share_of
from engine.models.layers.recurrent.rwkv7 import shifting
from engine.models.names import TensorNames
from engine.tensors import Floats


@dataclass(frozen=True, slots=True)
class MeanMixing:
    """output(sigmoid(receptance) * the weighted mean of values by keys), each made of a mixture with the row
    before by `shifts`. `decay` and `first` are those of `Ops.weighted_mean`.
    """

    shifts: tuple[Convolution, Convolution, Convolution]
    key: Linear
    value: Linear
    receptance: Linear
    part: int
    decay: Floats
    first: Floats
    output: Linear

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        made = self.key, self.value, self.receptance
        k, v, r = (each(ops, shift(ops, x)) for each, shift in zip(made, self.shifts, strict=True))
        y = ops.weighted_mean(self.part, k, v, self.decay, self.first)
        return self.output(ops, ops.gated(r, y, "sigmoid"), residual)


def rwkv_4_mixing(
    source: WeightSource, config: ModelConfig, names: TensorNames, kind: Rwkv4, layer: int
) -> MeanMixing:
    """The mixing of one layer."""
    own, at, width, part = (
        names.shifted,
        names.layer.format(layer),
        config.width,
        config.first_state_part(layer),
    )
    assert own is not None
    of_key, of_value, of_receptance = (
        shifting(part + 1 + i, share_of(source, own, at + name, width)) for i, name in enumerate(own.shares)
    )
    key, value, receptance = (
        linear(source, at + name, kind.channels, width, False)
        for name in (names.key, names.value, names.query)
    )
    return MeanMixing(
        (of_key, of_value, of_receptance), key, value, receptance, part,
        -np.exp(source.vector(at + own.decay[0], kind.channels)),
        source.vector(at + own.bonus, kind.channels),
        linear(source, at + names.output, width, kind.channels, False),
    )  # fmt: skip
