"""Memory whose start is on a cache line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LINE = 64


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """`size` zeroed bytes that begin at a multiple of 64. Pages that are never touched cost no memory."""
    raw = np.zeros(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size]
