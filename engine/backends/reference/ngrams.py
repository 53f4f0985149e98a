"""The reference backend's rows of a table that belong to the n-grams of tokens."""

from __future__ import annotations

import torch

from engine.backends.ngrams import NGrams


def hashed_rows(last: torch.Tensor, ngrams: NGrams) -> torch.Tensor:
    """Rows int64 (T, heads) of the last tokens (T, size), the latest first, -1 before the text."""
    before = torch.where(last[:, 1:] < 0, ngrams.reset, last[:, 1:])
    # From the first reset on, going back, all count as that token.
    over = (before == ngrams.reset).cummax(1).values
    tokens = torch.cat([last[:, :1], torch.where(over, ngrams.reset, before)], dim=1)
    mixed, each, found = tokens[:, 0] * ngrams.multipliers[0], ngrams.heads // (ngrams.size - 1), []
    for n in range(1, ngrams.size):
        mixed = mixed ^ (tokens[:, n] * ngrams.multipliers[n])
        own = slice(each * (n - 1), each * n)
        counts, offsets = torch.tensor(ngrams.counts[own]), torch.tensor(ngrams.offsets[own])
        found.append(mixed[:, None] % counts + offsets)
    return torch.cat(found, dim=1)
