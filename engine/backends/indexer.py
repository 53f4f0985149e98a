"""Attention over keys that an indexer chooses: what the indexer is, and its operation."""

from __future__ import annotations

from typing import Any, Protocol

from engine.lazy_dataclass import dataclass

UNUSED = 0x7FFFFFFF
"""Ends a list of chosen positions that is not full; lists are int32, in rising order."""


@dataclass(frozen=True, slots=True)
class IndexerShape:
    """One layer's indexer: `heads` queries of `head_dim` numbers score one key for each position.

    Positions are chosen in blocks of `block`, at most `count` of them, that of the lower number where scores
    are equal. A score is the sum over heads of a weight times relu(q k) (DeepSeek V3.2, arXiv 2512.02556). If
    `pooled`, the key of a block is that of its last position, and the positions after the last whole block
    are chosen in any case; the keys of other positions do not matter. With `each`, every head chooses for as
    many of attention's heads, a block's score is the largest q k in it, and the `local` latest blocks
    are always among its choice (MiniMax-M3's model card). With `ends`, what is chosen of blocks that are
    `pooled` is their last position alone, and no position after the last whole block (DeepSeek V4).
    """

    heads: int
    head_dim: int
    count: int
    block: int = 1
    pooled: bool = False
    each: bool = False
    local: int = 0
    ends: bool = False

    @property
    def lists(self) -> int:
        """Lists of chosen positions of a row."""
        return self.heads if self.each else 1

    @property
    def width(self) -> int:
        """The most positions in a list."""
        if self.ends:
            return self.count
        return self.block * self.count + (self.block - 1 if self.pooled else 0)


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Keys of blocks of positions that latent attention looks at besides those of its window, in one softmax
    (DeepSeek V4): the `keys` (T, D) are written to another `layer` of the cache. That of a block is at its
    last position; those at other positions do not matter.
    """

    layer: int
    keys: Any
    block: int


class IndexerOps(Protocol):
    """The operation of `engine.backends.base.Ops` that chooses keys."""

    def top_keys(self, layer: int, q: Any, k: Any, weights: Any | None, shape: IndexerShape) -> Any:
        """Write k (T, D) to the cache's `layer`, then choose the positions that attention looks at from each
        row, by q (T, H * D) and `weights` (T, H), all 1 if there are none, and none if `shape.each`: for
        `Ops.attention`.
        """
        ...
