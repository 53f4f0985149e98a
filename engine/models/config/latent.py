"""What latent attention is, as read from a model's headers."""

from __future__ import annotations

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (arXiv 2405.04434): every head's key and value come from one latent of
    `rank` numbers, and all heads share the part of the key that has rope, of `rope_dim` numbers.
    """

    rank: int
    nope_dim: int
    """Numbers of a head's query and key without rope."""
    rope_dim: int
    value_dim: int
    query_rank: int = 0
    """The rank of the queries' own latent; 0: they have none."""
    scales: tuple[float, float] = (1.0, 1.0)
    """What the normed latents of queries and of keys and values are multiplied by."""
    key_norm: bool = False
    """Whether the part of the key with rope is normed before it."""
    score_scale: float = 1.0
    """Multiplies scores, besides 1 / sqrt(query_dim)."""
    head_scales: bool = False
    """Whether queries are multiplied as `HeadScales` says, those of an indexer included."""
    norm_eps: float = 1e-6
    """Of the norms of latents, by default as in DeepSeek's reference code whatever that of the layers is."""

    @property
    def query_dim(self) -> int:
        """Numbers of a head's query."""
        return self.nope_dim + self.rope_dim
