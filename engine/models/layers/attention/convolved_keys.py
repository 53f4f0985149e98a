"""Attention whose keys and values are convolved over time before rope (Baichuan M1).

Shape letters as in `engine.models.layers.parts`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention, Inputs
from engine.models.building.source import WeightSource
from engine.models.config import ModelConfig
from engine.models.config.convolved import ConvolvedKeys
from engine.models.layers.recurrent.parts import Convolution
from engine.models.names import TensorNames


@dataclass(frozen=True, slots=True)
class WithConvolutions:
    """What `inputs` make, the keys and the values (T, G * D) of it convolved."""

    inputs: Inputs
    keys: Convolution
    values: Convolution

    def __call__(self, ops: Ops, x: Array) -> tuple[Array, Array, Array]:
        q, k, v = self.inputs(ops, x)
        assert k is not None
        assert v is not None
        return q, self.keys(ops, k), self.values(ops, v)


def with_convolutions(
    source: WeightSource, config: ModelConfig, names: TensorNames, layer: int, attention: Attention
) -> Attention:
    """The attention of a layer with the convolutions of a file, where a head's numbers have the same taps."""
    kind, own, part = config.recurrent, names.recurrent, config.first_state_part(layer)
    assert isinstance(kind, ConvolvedKeys)
    assert own is not None
    groups, dim = attention.shape.kv_heads, attention.shape.head_dim

    def convolution(number: int) -> Convolution:
        name = names.at(layer) + own.convolutions[number]
        taps = source.vector(name, 1, 1, groups, 1, kind.taps).reshape(groups, kind.taps)
        return Convolution(part + number, np.ascontiguousarray(taps.repeat(dim, 0).T), None)

    return replace(
        attention, inputs=WithConvolutions(attention.inputs, convolution(0), convolution(1))
    )  # fmt: skip
