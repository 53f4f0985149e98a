"""The real-gated linear recurrent unit (Griffin, arXiv 2402.19427), and how it is built.

Shape letters as in `engine.models.layers.parts`; C channels.
"""

from __future__ import annotations

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View
from engine.models.config import ModelConfig
from engine.models.config.recurrent import GatedUnit, gated_unit_shape
from engine.models.layers.parts import Linear, RopeTables
from engine.models.layers.recurrent.parts import Convolution, Recurrence, RecurrentSource
from engine.models.layers.vectors import same_rows
from engine.tensors import Floats

_RATE = -8.0
"""What a rate is multiplied by. Source: section 2.4."""


@dataclass(frozen=True, slots=True, eq=False)
class GatedUnitMixer:
    """output(activation(gate(x)) * unit(convolution(values(x)))). The unit's step comes of the matrices
    `step` (D, D) of each head, and what gates its input of those of `input_gate`, plus `input_shift` (C,).
    """

    values: Linear
    gate: Linear
    convolution: Convolution
    step: tuple[Weight, ...]
    input_gate: tuple[Weight, ...]
    input_shift: Floats
    recurrence: Recurrence
    output: Linear
    activation: str

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        gate, v = self.gate(ops, x), self.convolution(ops, self.values(ops, x))
        admitted = ops.head_linear(v, self.input_gate)
        admitted = ops.add(admitted, same_rows(ops, v, self.input_shift))
        one = same_rows(ops, ops.columns(v, 0, 1), np.ones(1, np.float32))
        steps = ops.head_linear(v, self.step)
        y = self.recurrence(ops, (one, one, ops.gated(admitted, v, "sigmoid")), steps, None)
        return self.output(ops, ops.gated(gate, y, self.activation), residual)


def gated_unit(layer: RecurrentSource, config: ModelConfig, kind: GatedUnit, part: int) -> GatedUnitMixer:
    """The mixer of one layer, whose first part of a state is number `part`."""
    names, source, at, channels = layer.names, layer.source, layer.at, kind.channels
    heads, dim = kind.heads, kind.channels // kind.heads
    views = [View(head, heads, transposed=True) for head in range(heads)]
    rate = np.logaddexp(np.float32(0), source.vector(at + names.rate, channels))
    return GatedUnitMixer(
        layer.linear(names.input, channels, config.width, True),
        layer.linear(names.gate, channels, config.width, True),
        layer.convolution(part, channels, kind.taps),
        tuple(source.matrix(at + names.decay, dim, dim, view) for view in views),
        tuple(source.matrix(at + names.beta, dim, dim, view) for view in views),
        source.vector(at + names.beta_shift, heads, dim).reshape(-1),
        Recurrence(
            part + 1, gated_unit_shape(kind), np.float32(_RATE) * rate.reshape(1, channels),
            source.vector(at + names.shift, heads, dim).reshape(-1),
        ),
        layer.linear(names.output, config.width, channels, True),
        config.activation,
    )  # fmt: skip
