"""The cutting of Molmo's pictures (arXiv 2409.17146, section 2): crops that overlap, so that each patch but
those at the picture's edges is seen with others around it, and the whole picture as one more crop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.tensors import Bytes, Floats
from engine.vision.pictures.interpolation import linear, resized_grid
from engine.vision.pictures.tiling import grids


@dataclass(frozen=True, slots=True)
class Overlapping:
    """Crops of `side` pixels square, of which `before` patches at the left and the top and `after` at the
    right and the bottom are those of their neighbours, too. Squares of `pool` patches become one token.
    """

    side: int
    patch: int
    most: int
    before: int
    after: int
    pool: tuple[int, int]

    @property
    def patches(self) -> int:
        """Of a crop's side."""
        return self.side // self.patch

    @property
    def step(self) -> int:
        """Patches from one crop to the next."""
        return self.patches - self.before - self.after

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """The columns and rows of crops: those that need the least enlargement of the picture without its
        margins, or else the least reduction; 32-bit numbers, as in the code of `transformers`.
        """
        margin = (self.before + self.after) * self.patch
        found = sorted(grids(1, self.most), key=lambda grid: (grid[0] * grid[1], grid[1]))
        sides = np.array(found, np.float32) * np.float32(self.step * self.patch)
        with np.errstate(divide="ignore"):
            scales = (sides / np.array([width - margin, height - margin], np.float32)).min(axis=1)
        if (scales < 1).all():
            return found[int(scales.argmax())]
        return found[int(np.where(scales < 1, np.float32(10e9), scales).argmin())]

    def cells(self, width: int, height: int) -> tuple[int, int]:
        """The columns and rows of patches of a picture's crops without what overlaps."""
        wide, high = (count * self.step + self.before + self.after for count in self.grid(width, height))
        return wide, high

    def pooled(self, rows: int, columns: int) -> tuple[int, int]:
        """The rows and columns of tokens of this many patches."""
        return -(-rows // self.pool[0]), -(-columns // self.pool[1])

    def crops(self, picture: Bytes) -> tuple[Floats, ...]:
        """The crops of a picture (H, W, 3), (`side`, `side`, 3) of whole numbers: all of it, then from left
        to right and from top to bottom.
        """
        height, width = picture.shape[:2]
        wide, high = self.grid(width, height)
        columns, rows = self.cells(width, height)
        canvas = _resized(picture, columns * self.patch, rows * self.patch)
        side, step = self.side, self.step * self.patch
        return (
            _resized(picture, side, side),
            *(
                canvas[row * step : row * step + side, column * step : column * step + side]
                for row in range(high)
                for column in range(wide)
            ),
        )

    def joined(self, crops: Sequence[Floats], width: int, height: int) -> Floats:
        """What a tower made of the crops of a picture, each (`patches`^2, E), as one grid (rows, columns, E):
        of overlapping patches those that are farther from a crop's edge.
        """
        wide, high = self.grid(width, height)
        columns, rows = self.cells(width, height)
        found = np.empty((rows, columns, crops[0].shape[-1]), np.float32)
        for at, crop in enumerate(crops):
            square = crop.reshape(self.patches, self.patches, -1)
            (row, down), (column, across) = (
                self._own(number, count) for number, count in ((at // wide, high), (at % wide, wide))
            )
            found[_moved(down, row * self.step), _moved(across, column * self.step)] = square[down, across]
        return found

    def _own(self, number: int, count: int) -> tuple[int, slice]:
        """The patches of a crop's side that count, of `count` crops in a line."""
        start = self.before if number else 0
        return number, slice(start, self.patches - (self.after if number + 1 < count else 0))

    def squares(self, grid: Floats) -> tuple[Floats, Floats]:
        """The patches (n, k, E) of each token of a grid (rows, columns, E), with zeros beyond its edges, and
        which of them are there, (n, k) of 1 and 0.
        """
        rows, columns, width = grid.shape
        high, wide = self.pooled(rows, columns)
        down, across = self.pool
        top, left = (high * down - rows) // 2, (wide * across - columns) // 2
        whole = np.zeros((high * down, wide * across, width + 1), np.float32)
        whole[top : top + rows, left : left + columns, :width] = grid
        whole[top : top + rows, left : left + columns, width] = 1
        parts = whole.reshape(high, down, wide, across, -1).transpose(0, 2, 1, 3, 4)
        parts = parts.reshape(high * wide, down * across, -1)
        return np.ascontiguousarray(parts[:, :, :width]), np.ascontiguousarray(parts[:, :, width])


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def _resized(picture: Bytes, width: int, height: int) -> Floats:
    """The picture in another size, linear between the two nearest pixels, in whole numbers."""
    found: Floats = np.rint(resized_grid(picture.astype(np.float32), height, width, linear))
    return np.clip(found, 0, 255)
