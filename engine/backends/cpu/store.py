"""The CPU's paged key/value store. The layout is described in `attention.py`."""

from __future__ import annotations

import numpy as np

from engine.backends.base import AttentionShape
from engine.backends.cpu.attention import padded
from engine.backends.cpu.memory import aligned
from engine.core import PAGE_TOKENS


class CpuCache:
    """Keys and values of all layers; memory is taken by the system page by page as it is first written."""

    def __init__(self, layers: int, shape: AttentionShape, page_count: int, dtype: str) -> None:
        self.page_count = page_count
        self.dtype = dtype
        size = 2 if dtype == "fp16" else 4
        per_page = shape.kv_heads * PAGE_TOKENS * size
        self._keys = [aligned(page_count * per_page * shape.head_dim) for _ in range(layers)]
        self._values = [aligned(page_count * per_page * padded(shape.head_dim)) for _ in range(layers)]
        self.nbytes = sum(a.nbytes for a in [*self._keys, *self._values])

    def addresses(self, layer: int) -> tuple[int, int]:
        """Of the layer's keys and values."""
        return int(self._keys[layer].ctypes.data), int(self._values[layer].ctypes.data)

    def copy_page(self, source: int, target: int) -> None:
        """See `KVCache.copy_page`."""
        for array in [*self._keys, *self._values]:
            pages: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] = array.reshape(self.page_count, -1)
            pages[target] = pages[source]
