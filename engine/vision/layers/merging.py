"""Fewer tokens of a picture: neighbouring patches become one row. NumPy on the host, since it only moves
numbers; shapes are those of a grid of rows * columns patches, from left to right and from top to bottom.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.tensors import Floats

Merge = Callable[[Floats, int, int, int], Floats]
"""states (rows * columns, E), rows, columns, factor -> (rows / factor * columns / factor, N)."""


def joined(states: Floats, rows: int, columns: int, factor: int) -> Floats:
    """Each square of factor * factor patches as one row of factor^2 * E numbers, patch by patch: "pixel
    shuffle" in the words of Idefics3 (arXiv 2408.12637, section 3.1) and InternVL 1.5 (arXiv 2404.16821).
    """
    cells = states.reshape(rows // factor, factor, columns // factor, factor, -1)
    return np.ascontiguousarray(cells.transpose(0, 2, 1, 3, 4)).reshape(rows * columns // factor**2, -1)


def averaged(states: Floats, rows: int, columns: int, factor: int) -> Floats:
    """The mean of each square of factor * factor patches (Gemma 3, arXiv 2503.19786, section 2.2)."""
    cells = states.reshape(rows // factor, factor, columns // factor, factor, -1)
    mean: Floats = cells.mean(axis=(1, 3), dtype=np.float32)
    return mean.reshape(rows * columns // factor**2, -1)
