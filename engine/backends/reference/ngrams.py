"""The reference backend's rows of a table that belong to the n-grams of tokens."""

from __future__ import annotations

import torch

from engine.backends.ngrams import NGrams


def hashed_rows(last: torch.Tensor, ngrams: NGrams) -> torch.Tensor:
    """Rows int64 (T, heads) of the last tokens (T, size), the latest first, -1 before the text."""
    before = last[:, 1:]
    # From the first reset on, going back, none counts as itself.
    over = ((before < 0) | (before == ngrams.reset)).cummax(1).values
    tokens = torch.cat([last[:, :1], torch.where(over, ngrams.outside, before)], dim=1)
    products, found = tokens * torch.tensor(ngrams.multipliers), []
    for length, count, offset in zip(ngrams.lengths, ngrams.counts, ngrams.offsets, strict=True):
        mixed = products[:, 0]
        for n in range(1, length):
            mixed = (
                mixed + products[:, n] * pow(ngrams.base, n, count) if ngrams.base else mixed ^ products[:, n]
            )
        found.append(mixed % count + offset)
    return torch.stack(found, dim=1)
