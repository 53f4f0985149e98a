"""Convolutions over a grid of rows: the rows around each place side by side, and a linear layer over them; or
of each channel alone.
"""

from __future__ import annotations

import numpy as np

from engine.models.building.source import View, WeightSource, linear
from engine.models.layers.parts import Linear
from engine.tensors import Floats


def beyond(length: int, size: int, step: int, *, centred: bool = False) -> tuple[int, int]:
    """How many zeros are before and after a line of this many places, so that there are squares of `size`
    places around every `step`th of them: as many before as after, or one less; or if they are `centred`, as
    many before as put the middle of the first square on the first place.
    """
    missing = max(0, ((length - 1) // step) * step + size - length)
    before = size // 2 if centred else missing // 2
    return before, max(0, missing - before)


def around(grid: Floats, size: int, step: int = 1, edge: int = 0) -> Floats:
    """The values of each square of `size` places, as a kernel (C, size, size) has them.

    `grid` is (H, W, C), with `edge` places of zeros on each side; squares are `step` places apart. The result
    is (H', W', C * size^2) float32.
    """
    padded = np.pad(grid, ((edge, edge), (edge, edge), (0, 0)))
    squares = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (0, 1))[::step, ::step]
    return np.ascontiguousarray(squares).reshape(*squares.shape[:2], -1)


def convolution(
    source: WeightSource, name: str, outputs: int, inputs: int, size: int, bias: bool | None = False
) -> Linear:
    """The kernels (`outputs`, `inputs`, size, size) as a linear layer over what `around` gives; `bias` is as
    in `ModelConfig`. Raises `BadCheckpoint`.
    """
    view = View(kernel=(inputs, size, size))
    return linear(source, name, outputs, inputs * size * size, bias, view)


def of_each_channel(grid: Floats, kernels: Floats, step: int = 1, *, centred: bool = False) -> Floats:
    """The convolution of each channel of a grid (H, W, C) with its own kernel (size, size, C), `step` places
    apart, with places of zeros as `beyond` has them; line by line, since a line stays in the caches.
    """
    size, (rows, columns) = len(kernels), (-(-side // step) for side in grid.shape[:2])
    edges = (beyond(side, size, step, centred=centred) for side in grid.shape[:2])
    padded = np.pad(grid, (*edges, (0, 0)))
    found = np.zeros((rows, columns, grid.shape[2]), np.float32)
    length, product = (columns - 1) * step + 1, np.empty(found.shape[1:], np.float32)
    for row, line in enumerate(found):
        for down in range(size):
            for across in range(size):
                part = padded[row * step + down, across : across + length : step]
                line += np.multiply(part, kernels[down, across], out=product)
    return found
