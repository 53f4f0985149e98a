"""Grids of tiles that a picture is cut into."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from engine.tensors import Bytes
from engine.vision.pictures.images import resized


@cache
def grids(least: int, most: int, longest: int = 0) -> tuple[tuple[int, int], ...]:
    """All grids (columns, rows) of `least` to `most` tiles, the smaller ones first, with sides of at most
    `longest` (0: any number).
    """
    longest = min(longest or most, most)
    found = [
        (wide, high)
        for wide in range(1, longest + 1)
        for high in range(1, min(longest, most // wide) + 1)
        if wide * high >= least
    ]
    return tuple(sorted(found, key=lambda grid: grid[0] * grid[1]))


def best_grid(width: int, height: int, side: int, least: int, most: int, longest: int = 0) -> tuple[int, int]:
    """The grid (columns, rows) of `grids` whose shape is closest to the picture's; of equally close ones the
    larger, as long as its tiles of `side` pixels square hold fewer than twice the picture's pixels (InternVL
    1.5, arXiv 2404.16821, section 3.3).
    """
    ratio, best, least_distance = width / height, (1, 1), float("inf")
    for wide, high in grids(least, most, longest):
        distance = abs(ratio - wide / high)
        large = width * height > 0.5 * side * side * wide * high
        if distance < least_distance or (distance == least_distance and large):
            best, least_distance = (wide, high), distance
    return best


def covering_grid(
    width: int, height: int, side: int, most: int, dtype: type[np.floating[Any]] = np.float64
) -> tuple[int, int]:
    """The grid (columns, rows) of at most `most` tiles of `side` pixels square that holds the picture with
    the least enlargement, or else with the least reduction; of equal ones the smallest. Scales are numbers of
    this type (the image processors of Llama 4 and Command A Vision, in `transformers`).
    """
    sides = np.array(grids(1, most), dtype) * dtype(side)
    scales = (sides / np.array([width, height], dtype)).min(axis=1)
    enlarged = scales[scales >= 1]
    best = enlarged.min() if len(enlarged) else scales.max()
    return grids(1, most)[int(np.argmax(scales == best))]


def tiles_of(
    picture: Bytes, wide: int, high: int, side: int | tuple[int, int], filter: int
) -> tuple[Bytes, ...]:
    """The tiles of a picture (H, W, 3) that is made to fit, from left to right and from top to bottom. They
    are squares, or have this width and height.
    """
    width, height = (side, side) if isinstance(side, int) else side
    whole = resized(picture, wide * width, high * height, filter)
    return tuple(
        whole[height * row : height * (row + 1), width * column : width * (column + 1)]
        for row in range(high)
        for column in range(wide)
    )
