"""Mamba whose channels are heads with matrices of their own (Zamba, arXiv 2405.16712), and how it is built.

Shape letters as in `engine.models.layers.parts`; N numbers of a state.
"""

from __future__ import annotations

import numpy as np

from engine.backends.base import Array, Ops, Weight
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View
from engine.models.config import ModelConfig
from engine.models.config.recurrent import HeadedScan, headed_scan_shape
from engine.models.layers.parts import Linear, RopeTables
from engine.models.layers.recurrent.parts import Convolution, Recurrence, RecurrentSource


@dataclass(frozen=True, slots=True)
class HeadedScanMixer:
    """As `ScanMixer`, with matrices `mixed` (rank + 2 N, D) and `step` (D, rank) of each head."""

    values: Linear
    gate: Linear
    convolution: Convolution
    mixed: tuple[Weight, ...]
    step: tuple[Weight, ...]
    recurrence: Recurrence
    output: Linear

    def __call__(self, ops: Ops, x: Array, tables: RopeTables, residual: Array | None = None) -> Array:
        shape = self.recurrence.shape
        heads, keys, rank = shape.key_heads, shape.key_dim, self.step[0].shape[1]
        v, gate = self.values(ops, x), self.gate(ops, x)
        v = ops.activate(self.convolution(ops, v), "silu")
        mixed = ops.head_linear(v, self.mixed)
        steps = ops.head_linear(ops.columns(mixed, 0, rank, heads), self.step)
        k, q = (ops.columns(mixed, rank + part * keys, keys, heads) for part in range(2))
        y = self.recurrence(ops, (q, k, v), steps, None)
        return self.output(ops, ops.gated(gate, y, "silu"), residual)


def headed_scan(layer: RecurrentSource, config: ModelConfig, kind: HeadedScan, part: int) -> HeadedScanMixer:
    """The mixer of one layer, whose first part of a state is number `part`."""
    names, source, heads, dim = layer.names, layer.source, kind.heads, kind.dim
    channels, wide = heads * dim, kind.rank + 2 * kind.state
    rows = np.arange(2 * channels)
    values, gate = layer.parts(names.input, (rows[::2], rows[1::2]), config.width, None)
    shape = headed_scan_shape(kind)
    rate = source.vector(layer.at + names.rate, heads, dim, kind.state).reshape(channels, kind.state)
    views = [View(head, heads) for head in range(heads)]
    return HeadedScanMixer(
        values, gate, layer.convolution(part, channels, kind.taps),
        tuple(source.matrix(layer.at + names.mixed, wide, dim, view) for view in views),
        tuple(source.matrix(layer.at + names.step, dim, kind.rank, view) for view in views),
        Recurrence(
            part + 1, shape, np.ascontiguousarray(-np.exp(rate).T),
            source.vector(layer.at + names.shift, heads, dim).reshape(-1),
            source.vector(layer.at + names.skip, heads, dim).reshape(-1),
        ),
        layer.linear(names.output, config.width, channels),
    )  # fmt: skip
