"""A key/value cache as lowering sees it."""

from __future__ import annotations

from typing import Protocol

from engine.backends.kv_formats import CacheType
from engine.lazy_dataclass import dataclass


class CacheAddresses(Protocol):
    """Where a pass finds keys and values, and of which type they are."""

    @property
    def kind(self) -> CacheType: ...

    def addresses(self, layer: int) -> tuple[int, int]:
        """Of the layer's keys and values."""
        ...


class StateAddresses(CacheAddresses, Protocol):
    """Where a pass finds states, too."""

    def state_address(self, part: int) -> int:
        """Of a part of the first state; the same part of the others follows it."""
        ...

    @property
    def crossed(self) -> CacheAddresses:
        """What is read in cross-attention."""
        ...


@dataclass(frozen=True)
class CacheSpec:
    """Stands for a cache that is not allocated, where only the names of kernels matter."""

    kind: CacheType

    def addresses(self, layer: int) -> tuple[int, int]:
        """Different ones for each layer, and none of them real."""
        return 2 * layer + 1, 2 * layer + 2

    def state_address(self, part: int) -> int:
        return -1 - part

    @property
    def crossed(self) -> CacheSpec:
        """One of the type that such caches have."""
        return CacheSpec(CacheType("fp16", "fp16"))
