"""Memory whose start is on a cache line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.errors import NotEnoughMemory

LINE = 64


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """`size` zeroed bytes that begin at a multiple of 64. Pages that are never touched cost no memory.

    Raises `NotEnoughMemory`.
    """
    try:
        raw = np.zeros(size + LINE, np.uint8)
    except MemoryError:
        raise NotEnoughMemory(
            f"The system refused {size / 2**20:.0f} MB of memory; close other programs, or choose a smaller model or context."
        ) from None
    start = -raw.ctypes.data % LINE
    return raw[start : start + size]
