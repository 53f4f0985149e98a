"""Patches of a picture as a grid: their orders, and what encoders add for their places.

A grid has `rows` * `columns` patches; they are numbered from left to right and from top to bottom.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.lazy_dataclass import dataclass
from engine.tensors import Floats

Order = npt.NDArray[np.int64]


def block_order(rows: int, columns: int, size: int) -> Order:
    """The numbers of all patches, block by block of `size` * `size`, from left to right and from top to
    bottom in a block, too. Rows and columns are multiples of `size`.
    """
    numbers = np.arange(rows * columns).reshape(rows // size, size, columns // size, size)
    return np.ascontiguousarray(numbers.transpose(0, 2, 1, 3).reshape(-1))


class Windows(NamedTuple):
    """The `order` that puts the patches of each window together: those of whole windows come first. `lengths`
    are the patches of one after the other.
    """

    order: Order
    lengths: tuple[int, ...]


def windows(rows: int, columns: int, size: int) -> Windows:
    """Windows of `size` * `size` patches, smaller ones at the right and at the bottom edge."""
    numbers = np.arange(rows * columns).reshape(rows, columns)
    found = [
        numbers[top : top + size, left : left + size].reshape(-1)
        for top in range(0, rows, size)
        for left in range(0, columns, size)
    ]
    found.sort(key=len, reverse=True)
    return Windows(np.concatenate(found), tuple(len(each) for each in found))


@dataclass(frozen=True, slots=True, eq=False)
class Axial:
    """Rotary positions in two dimensions (arXiv 2403.13298, section 3.2): a patch's row times `down` and its
    column times `across` are the angles of the pairs of each head, those of rows first, or in another `order`
    of these. `interleaved` is as in `RotaryTable`.
    """

    down: Floats
    across: Floats
    interleaved: bool = False
    order: Order | None = None

    def angles(self, numbers: Order, columns: int) -> Floats:
        """Those of the patches with these numbers in a grid of this many columns: (T, D / 2) float32."""
        row, column = (part.astype(np.float32)[:, None] for part in np.divmod(numbers, columns))
        found = np.concatenate([row * self.down, column * self.across], axis=1)
        return found if self.order is None else np.ascontiguousarray(found[:, self.order])


def frequencies(count: int, dim: int, base: float) -> Floats:
    """base^(-2 i / dim) of i = 0 .. count - 1 (RoPE, arXiv 2104.09864), float32."""
    return (1.0 / base ** (np.arange(0, 2 * count, 2, dtype=np.float32) / np.float32(dim))).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class GridOrder:
    """The numbers of patches and of tokens in the order in which they are computed. `lengths` are the patches
    of windows one after the other, `columns` those of a line of the grid.
    """

    patches: Order
    tokens: Order
    lengths: tuple[int, ...]
    columns: int
