"""Which layers attend to chosen positions alone, and how these are chosen."""

from __future__ import annotations

from engine.backends.indexer import IndexerShape
from engine.backends.states import ConvolutionShape, PoolShape, StateShape
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Indexer:
    """The indexers of a model: see `IndexerShape`.

    The layers of `layers` have one of their own, those of `sharing` use what the last layer before them has
    chosen. Their keys follow those of attention in the cache.
    """

    shape: IndexerShape
    layers: frozenset[int]
    sharing: frozenset[int] = frozenset()
    interleaved: bool = False
    """Whether its rope is interleaved, whatever that of attention is."""
    rope_last: bool = False
    """Whether the last numbers of its queries and keys have rope, instead of the first."""
    norm_eps: float = 1e-6
    """Of the norm of keys, by default as in DeepSeek's reference code whatever that of the layers is."""
    pooling: str = ""
    """How the key of a block is made of those of its positions: "mean" (Qwen 4), before norm and rope, by
    "gates" of them (GLM-5 next), or with those of the block before, too, by "overlapping" gates before norm
    and rope (DeepSeek V4); "" where a block has one position or no key.
    """

    @property
    def pools(self) -> bool:
        """Whether the keys of several positions are pooled."""
        return self._gated or (bool(self.pooling) and self.shape.block > 1)

    @property
    def parts(self) -> tuple[tuple[int, StateShape], ...]:
        """What layers' indexers keep of a sequence besides keys: the last positions that they pool."""
        dim, block = self.shape.head_dim, self.shape.block
        part: StateShape = (
            PoolShape(dim, block, self.pooling == "overlapping")
            if self._gated
            else ConvolutionShape(dim, block)
        )
        return tuple((layer, part) for layer in self.layers if self.pools)

    @property
    def _gated(self) -> bool:
        """Whether they are pooled by gates."""
        return self.pooling in ("gates", "overlapping")


@dataclass(frozen=True, slots=True)
class IndexerNames:
    """The names of an indexer's tensors, after those of `TensorNames.layer`."""

    query: str
    key: str
    """The same as `query` where they are in one matrix."""
    key_norm: str
    weights: str = ""
    query_norm: str = ""
    input_norm: str = ""
    """The norm of what queries are made of."""
    scales: tuple[str, str] = ("", "")
    """As `LatentNames.scales`."""
    gates: str = ""
    """What makes the gates of `Indexer.pooling`, and the next what is added to them; full names."""
    bias: str = ""
