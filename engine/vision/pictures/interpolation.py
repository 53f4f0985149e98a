"""Grids of rows, such as tables of positions, in another size: how much of each old place goes to a new one.

The weights of a line of `side` places for one of `count` are (count, side) float32. Except in `corners`, the
edges of one line are those of the other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.tensors import Floats

Weights = Callable[[int, int], Floats]
"""How many new places there are, and how many old ones -> the weights of a line."""


def resampled(table: Floats, rows: int, columns: int, weights: Weights) -> Floats:
    """A square table (S * S, E) for a grid of another shape: (rows * columns, E)."""
    side = round(len(table) ** 0.5)
    found = resized_grid(table.reshape(side, side, -1), rows, columns, weights)
    return found.reshape(rows * columns, -1)


def resized_grid(states: Floats, rows: int, columns: int, weights: Weights) -> Floats:
    """A grid (H, W, E) of another shape: (rows, columns, E)."""
    down, across = weights(rows, states.shape[0]), weights(columns, states.shape[1])
    lines = np.einsum("rs,ste->rte", down, states, optimize=True)
    return np.ascontiguousarray(np.einsum("ct,rte->rce", across, lines, optimize=True))


def corners(count: int, side: int) -> Floats:
    """Linear between the two nearest places, where both ends stay ends."""
    places = np.arange(count, dtype=np.float32) * np.float32(side - 1) / np.float32(max(count - 1, 1))
    return _triangles(places, side)


def linear(count: int, side: int) -> Floats:
    """Linear between the two nearest places."""
    return _triangles(np.clip(_middles(count, side), 0, side - 1), side)


def smooth_linear(count: int, side: int) -> Floats:
    """As `linear`; of a line that becomes shorter, over all places that become one (antialiasing)."""
    return _smooth(count, side, lambda away: np.maximum(np.float32(0), np.float32(1) - away))


def cubic(count: int, side: int) -> Floats:
    """Of the four nearest places (Keys, 1981, with a = -3/4); those beyond an edge are the one at it."""
    places = _middles(count, side)
    first, out = np.floor(places), np.zeros((count, side), np.float32)
    for offset in range(-1, 3):
        away = np.abs(places - first - np.float32(offset))
        taps = np.clip(first + offset, 0, side - 1).astype(np.int64)
        np.add.at(out, (np.arange(count), taps), _keys(away, -0.75))
    return out


def smooth_cubic(count: int, side: int) -> Floats:
    """Of the four nearest places (Keys, 1981, with a = -1/2), without those beyond an edge; of a line that
    becomes shorter, of as many more (antialiasing).
    """
    return _smooth(count, side, lambda away: _keys(away, -0.5))


def _middles(count: int, side: int) -> Floats:
    """Where the middles of new places are among those of old ones."""
    middles = np.arange(count, dtype=np.float32) + np.float32(0.5)
    places: Floats = middles * np.float32(side / count) - np.float32(0.5)
    return places


def _triangles(places: Floats, side: int) -> Floats:
    away = np.abs(places[:, None] - np.arange(side, dtype=np.float32))
    return np.maximum(np.float32(0), np.float32(1) - away)


def _smooth(count: int, side: int, kernel: Callable[[Floats], Floats]) -> Floats:
    """The kernel, stretched where a line becomes shorter, with a sum of 1."""
    away = np.abs(_middles(count, side)[:, None] - np.arange(side, dtype=np.float32))
    near: Floats = (away / max(1.0, side / count)).astype(np.float32)
    weights = kernel(near)
    found: Floats = weights / weights.sum(axis=1, keepdims=True)
    return found


def _keys(away: Floats, a: float) -> Floats:
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    far = a * (((away - 5) * away + 8) * away - 4)
    return np.where(away <= 1, near, np.where(away < 2, far, 0)).astype(np.float32)
