"""The reference backend's choice of the keys that attention looks at."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from engine.backends.indexer import IndexerShape


def chosen_positions(
    q: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor | None, own: torch.Tensor, shape: IndexerShape
) -> torch.Tensor:
    """Whether each position is chosen, bool (T, lists, S), by q (T, H * D) and weights (T, H) over keys (S,
    D), for rows at the positions `own` (T,).
    """
    places, block, own = torch.arange(len(keys), device=q.device), shape.block, own[:, None]
    scores = torch.einsum("thd,sd->ths", q.reshape(len(q), shape.heads, -1), keys)
    if not shape.each:
        scores = scores.clamp(min=0) * (1 if weights is None else weights[:, :, None])
        scores = scores.sum(1, keepdim=True)
    scores = scores.masked_fill((places > own)[:, None], -torch.inf)
    blocks = pad(scores, (0, -len(keys) % block), value=-torch.inf).reshape(*scores.shape[:2], -1, block)
    best = blocks[..., -1] if shape.pooled else blocks.amax(3)  # (T, lists, blocks)
    seen, age = best > -torch.inf, own // block - torch.arange(best.shape[2], device=q.device)
    best = best.masked_fill((seen & (age < shape.local)[:, None]), torch.inf)
    order = best.sort(dim=2, descending=True, stable=True).indices[:, :, : shape.count]
    chosen = torch.zeros_like(seen).scatter(2, order, True) & seen
    if shape.ends:
        return chosen.repeat_interleave(block, 2)[:, :, : len(keys)] & block_ends(own[:, 0], len(keys), block)
    listed: torch.Tensor = chosen.repeat_interleave(block, 2)[:, :, : len(keys)]
    if shape.pooled:
        listed = listed | (places >= (own + 1) // block * block)[:, None]
    listed &= (places <= own)[:, None]
    return listed


def block_ends(own: torch.Tensor, length: int, block: int) -> torch.Tensor:
    """Whether each of the first `length` positions is the last of a block and none later than the row's own
    (T,): bool (T, 1, length).
    """
    places = torch.arange(length, device=own.device)
    ends: torch.Tensor = ((places + 1) % block == 0) & (places <= own[:, None])
    return ends[:, None]
