"""What the cache holds for an indexer."""

from __future__ import annotations

from engine.backends.base import AttentionShape
from engine.backends.indexer import IndexerShape


def cached_keys(shape: IndexerShape) -> AttentionShape:
    """A layer of keys alone, which its queries read."""
    return AttentionShape(shape.heads, 1, shape.head_dim, 1.0, latent=shape.head_dim)
