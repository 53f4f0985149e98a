"""The reference backend's cross-attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from engine.backends.base import Array, AttentionShape
from engine.backends.cross import CrossKeys
from engine.backends.reference.kv_cache import Kept
from engine.core import PAGE_TOKENS


class CrossOps:
    """The operations of `engine.backends.cross.CrossOps`."""

    _cache: Kept
    _cross: Sequence[CrossKeys]
    """What the step's sequence attends to."""
    _write: Any
    """Writes keys and values of a layer, with queries before them, of an attention's shape."""

    def kv_write(self, layer: int, k: Array, v: Array, shape: AttentionShape) -> Array:
        k = k.to(self._cache.keys[layer].device)
        self._write(layer, k, k, v.to(k.device), shape)
        return k

    def cross_attention(self, layer: int, q: Array, shape: AttentionShape) -> Array:
        assert self._cache.cross is not None
        cache, seen = cast(Kept, self._cache.cross), self._cross[0]
        pages = torch.tensor(seen.pages[: -(-seen.length // PAGE_TOKENS)], dtype=torch.long)
        keys, values = (
            kept[pages.to(kept.device)].flatten(0, 1)[: seen.length].float()
            for kept in (cache.keys[layer], cache.values[layer])
        )  # (S, G, D)
        groups = shape.heads // shape.kv_heads
        queries = q.to(keys.device).reshape(len(q), shape.kv_heads, groups, shape.head_dim)
        weights = torch.softmax(torch.einsum("tghd,sgd->tghs", queries, keys) * shape.scale, dim=-1)
        return torch.einsum("tghs,sgd->tghd", weights, values).reshape(len(q), -1)
