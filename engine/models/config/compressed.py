"""What compressed attention is, as read from a model's headers."""

from __future__ import annotations

from collections.abc import Container

from engine.backends.states import PoolShape, StateShape
from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """Attention to a window and to keys of blocks of positions, of one head whose keys are its values
    (DeepSeek V4). Queries come from a latent of `query_rank` numbers; the last `rope_dim` numbers of queries
    and keys have rope, which attention's result loses again. Its heads are projected in `groups` to
    `output_rank` numbers each, and these together.
    """

    query_rank: int
    rope_dim: int
    groups: int
    output_rank: int
    blocks: tuple[int, ...]
    """The positions of a block in each layer; 0: the layer looks at its window alone. Layers with an indexer
    look at chosen blocks, which overlap with those before them, the others at all.
    """

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers with keys of blocks."""
        return tuple(layer for layer, block in enumerate(self.blocks) if block)

    def parts(self, dim: int, choosing: Container[int]) -> tuple[tuple[int, StateShape], ...]:
        """What keys of blocks of `dim` numbers keep of a sequence: the number of each layer, of which those
        `choosing` have an indexer, and its part of a state.
        """
        blocks = enumerate(self.blocks)
        return tuple((layer, PoolShape(dim, block, layer in choosing)) for layer, block in blocks if block)


@dataclass(frozen=True, slots=True)
class CompressedNames:
    """The names of compressed attention's tensors, after those of `TensorNames.layer`, besides those of
    queries, keys and the output projection.
    """

    query_down: str
    query_norm: str
    groups: str
    """What projects each group of heads, all groups in one matrix."""
    keys: str
    """What makes keys of blocks, the next their gates; `bias` is a full name."""
    gates: str
    bias: str
    norm: str
