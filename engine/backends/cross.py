"""Cross-attention (arXiv 1706.03762, section 3.2.3): rows attend to keys and values that are not those of
their own text, such as a picture's. These lie in a cache of their own, `KVCache.cross`.
"""

from __future__ import annotations

from typing import Any, Protocol

from engine.backends.attention_shape import AttentionShape
from engine.lazy_dataclass import dataclass
from engine.tensors import Ints

Array = Any


@dataclass(frozen=True, slots=True)
class CrossKeys:
    """What all rows of one sequence attend to: the first `length` positions, at least 1, of the block table
    `pages`, int32, in `KVCache.cross`.
    """

    pages: Ints
    length: int


class CrossOps(Protocol):
    """The operations of cross-attention."""

    def kv_write(self, layer: int, k: Array, v: Array, shape: AttentionShape) -> Array:
        """Write k and v (T, G * D) to the cache, without attention: k. For the pass that fills a cache which
        others have as `KVCache.cross`.
        """
        ...

    def cross_attention(self, layer: int, q: Array, shape: AttentionShape) -> Array:
        """Attention of q (T, H * D) over the layer's keys and values in `KVCache.cross`, of which each row
        sees all that its sequence has (`Step.cross`): (T, H * D).
        """
        ...
