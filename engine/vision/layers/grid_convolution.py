"""Layers that mix the patches of a grid by a gated convolution of each channel (LFM3-VL, the code of
`transformers`), in place of attention.

With x of the states before and [a, b, c] = inputs(norm(x)): y = x + output(b * convolution(a * c)), then
y + mlp(norm(y)). The convolution is done on the host: it is few operations.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.layers.parts import FeedForward, Linear, Norm
from engine.tensors import Floats
from engine.vision.layers.convolution import of_each_channel
from engine.vision.layers.grid import GridOrder
from engine.vision.layers.grid_passes import After
from engine.vision.passes import Pieces


@dataclass(frozen=True, slots=True, eq=False)
class ConvolutionBlock:
    """Such a layer with its weights: `inputs` make (T, 3 E), `kernels` are (size, size, E)."""

    before: Norm
    inputs: Linear
    kernels: Floats
    output: Linear
    before_mlp: Norm
    mlp: FeedForward


class ConvolutionStage:
    """Runs one. `after` norms the states after it. Used by one thread."""

    def __init__(self, backend: Backend, block: ConvolutionBlock, after: After | None) -> None:
        self._kernels = block.kernels
        width = block.kernels.shape[2]

        def first(ops: Ops, x: Array) -> Array:
            made = block.inputs(ops, block.before(ops, x))
            gate, other, values = (ops.columns(made, part * width, width) for part in range(3))
            return ops.join(ops.gated(gate, values, "identity"), other, 1)

        def last(ops: Ops, convolved: Array, gate: Array, x: Array) -> Array:
            x = block.output(ops, ops.gated(gate, convolved, "identity"), x)
            x = block.mlp(ops, block.before_mlp(ops, x), x)
            return after(ops, x) if after else x

        self._first = Pieces(backend, first, (width,))
        self._last = Pieces(backend, last, (width, width, width))
        self.runs = self._first.run, self._last.run

    def states(
        self, states: Floats, angles: Floats, order: GridOrder
    ) -> Generator[Waiting, None, tuple[Floats, list[Floats]]]:
        """As `Stage.states`; nothing is rotated, and none are kept."""
        gated, gate = np.split((yield from self._first.rows(states)), 2, axis=1)
        grid = np.empty_like(states)
        grid[order.patches] = gated
        found = of_each_channel(grid.reshape(-1, order.columns, grid.shape[1]), self._kernels)
        yield Waiting()
        convolved = found.reshape(grid.shape)[order.patches]
        return (yield from self._last.rows(convolved, gate, states)), []
