"""The reference backend's paged key/value cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from engine.backends.base import AttentionShape, KVCache
from engine.backends.cpu.runtime.memory import aligned
from engine.backends.kv_formats import CacheType, cache_type
from engine.backends.states import NO_STATES, States
from engine.core import PAGE_TOKENS
from engine.tensors import Bytes


class ReferenceCache:
    """Keys and values of each layer: (P, 256, G, D), float16 for "fp16", otherwise float32, already rounded.
    Latent attention has no values.

    `state_parts` are (states, numbers) for each of the shapes of `states`.
    """

    cross: KVCache | None = None

    def __init__(
        self, shapes: Sequence[AttentionShape], page_count: int, dtype: str, states: States = NO_STATES
    ) -> None:
        self.kind = cache_type(dtype, automatic="fp32")
        self.dtype = str(self.kind)
        self.page_count = page_count
        sizes = [(page_count, PAGE_TOKENS, shape.kv_heads) for shape in shapes]
        widths = (
            [shape.head_dim for shape in shapes],
            [0 if shape.latent else shape.head_dim for shape in shapes],
        )
        self.keys, self.values = (
            [
                _zeros((*size, width), np.float16 if name == "fp16" else np.float32)
                for size, width in zip(sizes, each, strict=True)
            ]
            for name, each in zip((self.kind.keys, self.kind.values), widths, strict=True)
        )
        self.page_bytes = sum(part.nbytes for part in (*self.keys, *self.values)) // page_count
        self.states = states
        self.state_parts = [_zeros((states.count, part.floats), np.float32) for part in states.shapes]
        self.nbytes = page_count * self.page_bytes + states.count * states.state_bytes

    def close(self) -> None:
        self.keys, self.values, self.state_parts = [], [], []

    def _parts(self) -> list[torch.Tensor]:
        """The keys of all layers, then the values of those that have them."""
        return [part for part in (*self.keys, *self.values) if part.numel()]

    def copy_page(self, source: int, target: int) -> None:
        for part in self._parts():
            part[target] = part[source]

    def read_page(self, page: int) -> Bytes:
        """The keys of all layers, then their values."""
        pages = [part[page].numpy().reshape(-1).view(np.uint8) for part in self._parts()]
        return np.concatenate([np.empty(0, np.uint8), *pages])

    def write_page(self, page: int, data: Bytes) -> None:
        start = 0
        for part in self._parts():
            mine = data[start : start + part[page].nbytes].copy()
            part[page] = torch.from_numpy(mine).view(part.dtype).view(part[page].shape)
            start += mine.size

    def read_state(self, number: int) -> Bytes:
        """All parts one after the other."""
        return np.concatenate([part[number].numpy() for part in self.state_parts]).view(np.uint8)

    def write_state(self, number: int, data: Bytes) -> None:
        start = 0
        for part in self.state_parts:
            mine = data[start : start + part[number].nbytes].copy()
            part[number] = torch.from_numpy(mine).view(torch.float32)
            start += mine.size


def _zeros(shape: tuple[int, ...], dtype: type[np.floating[Any]]) -> torch.Tensor:
    """Zeros that take no memory until they are written."""
    memory = aligned(math.prod(shape) * np.dtype(dtype).itemsize, sparse=True)
    return torch.from_numpy(memory.view(dtype).reshape(shape))


class Kept(Protocol):
    """Keys and values of each layer, (P, 256, G, D), in the formats of `kind` or float32."""

    @property
    def cross(self) -> KVCache | None: ...

    @property
    def kind(self) -> CacheType: ...

    @property
    def keys(self) -> Sequence[torch.Tensor]: ...

    @property
    def values(self) -> Sequence[torch.Tensor]: ...

    @property
    def state_parts(self) -> Sequence[torch.Tensor]: ...
