"""Positions as sines and cosines (arXiv 1706.03762, section 3.5), all sines first as in tensor2tensor."""

from __future__ import annotations

import numpy as np

from engine.tensors import Floats


def sinusoids(positions: int, width: int, first: int, *, open_end: bool = False) -> Floats:
    """The table (positions, width) that begins at position `first`: sin(p b^-i) and then cos(p b^-i) for i
    from 0 to width / 2 - 1, with b = 10000^(1 / (width / 2 - 1)), or for an `open_end` 10000^(2 / width); a
    last odd number is 0.
    """
    half = width // 2
    frequencies = np.exp(np.arange(half) * (-np.log(10000.0) / max(1, half - (not open_end))))
    angles = np.outer(np.arange(first, first + positions), frequencies)
    table: Floats = np.zeros((positions, width), np.float32)
    table[:, :half], table[:, half : 2 * half] = np.sin(angles), np.cos(angles)
    return table
