"""The CPU's paged key/value cache. `kernels/attention/attention.py` describes its layout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.backends.base import AttentionShape, KVCache
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.kv_formats import CacheType, bytes_per_position, key_bytes, value_bytes
from engine.backends.states import NO_STATES, States
from engine.core import PAGE_TOKENS
from engine.tensors import Bytes


class CpuCache:
    """Keys and values of all layers, and states, zeroed; the system allocates memory when it is first
    written.
    """

    cross: KVCache | None = None

    def __init__(
        self, shapes: Sequence[AttentionShape], page_count: int, kind: CacheType, states: States = NO_STATES
    ) -> None:
        self.page_count = page_count
        self.kind = kind
        self.dtype = str(kind)
        heads = [page_count * PAGE_TOKENS * shape.kv_heads for shape in shapes]
        self._keys = [
            aligned(count * key_bytes(kind.keys, shape.head_dim), sparse=True)
            for count, shape in zip(heads, shapes, strict=True)
        ]
        self._values = [
            aligned(0 if shape.latent else count * value_bytes(kind.values, shape.head_dim), sparse=True)
            for count, shape in zip(heads, shapes, strict=True)
        ]
        self.page_bytes = PAGE_TOKENS * sum(
            bytes_per_position(kind, shape.kv_heads, shape.head_dim, shape.latent > 0) for shape in shapes
        )
        self.states = states
        self._parts = [aligned(states.count * 4 * part.floats, sparse=True) for part in states.shapes]
        self.nbytes = page_count * self.page_bytes + states.count * states.state_bytes

    def addresses(self, layer: int) -> tuple[int, int]:
        """Addresses of a layer's keys and values, which are the same for latent attention."""
        keys = int(self._keys[layer].ctypes.data)
        return keys, int(self._values[layer].ctypes.data) if self._values[layer].size else keys

    @property
    def crossed(self) -> CpuCache:
        """`cross`, which there is."""
        assert isinstance(self.cross, CpuCache)
        return self.cross

    def state_address(self, part: int) -> int:
        """Address of a part of the first state; the same part of the others follows it."""
        return int(self._parts[part].ctypes.data)

    def _pages(self) -> list[Bytes]:
        return [array.reshape(self.page_count, -1) for array in [*self._keys, *self._values]]

    def close(self) -> None:
        self._keys, self._values, self._parts = [], [], []

    def copy_page(self, source: int, target: int) -> None:
        for pages in self._pages():
            pages[target] = pages[source]

    def read_page(self, page: int) -> Bytes:
        """The keys of all layers, then their values."""
        return np.concatenate([np.empty(0, np.uint8), *(pages[page] for pages in self._pages())])

    def write_page(self, page: int, data: Bytes) -> None:
        start = 0
        for pages in self._pages():
            size = pages.shape[1]
            pages[page] = data[start : start + size]
            start += size

    def read_state(self, number: int) -> Bytes:
        """All parts one after the other."""
        return np.concatenate([part.reshape(self.states.count, -1)[number] for part in self._parts])

    def write_state(self, number: int, data: Bytes) -> None:
        start = 0
        for part in self._parts:
            mine = part.reshape(self.states.count, -1)[number]
            mine[:] = data[start : start + mine.size]
            start += mine.size
