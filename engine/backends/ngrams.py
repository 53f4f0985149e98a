"""Embeddings of n-grams, whose rows are found by hashing: what they are, and their operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NGrams:
    """How the last tokens of a row become rows of tables, one for each head.

    A head mixes as many tokens as its one of the `lengths` (H,) says, each times the one of the `multipliers`
    (size,) that belongs to its distance: by exclusive or (Qwen 4's reference code) or, with a `base`, as the
    sum of these products times the powers of the base by distance (LongCat, arXiv 2601.21204). The remainder
    by its one of the `counts` (H,), to which its one of the `offsets` (H,) is added, is the row. The last
    `reset` before a row's own token, all tokens before it, and what is before the text, count as `outside`.
    """

    multipliers: tuple[int, ...]
    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    offsets: tuple[int, ...]
    reset: int
    outside: int
    base: int = 0

    @property
    def size(self) -> int:
        """The tokens of the longest n-grams."""
        return len(self.multipliers)

    @property
    def heads(self) -> int:
        """How many rows are looked up for a token."""
        return len(self.counts)

    def share(self, number: int, count: int) -> NGrams:
        """The same of the heads of one of `count` equal shares."""
        own = slice(number * self.heads // count, (number + 1) * self.heads // count)
        return replace(self, lengths=self.lengths[own], counts=self.counts[own], offsets=self.offsets[own])


class NGramOps(Protocol):
    """The operation of `engine.backends.base.Ops` that looks them up."""

    def embed_ngrams(self, part: int, tables: Sequence[Any], ngrams: NGrams) -> list[Any]:
        """The rows of each of the `tables` (V, D) of the n-grams that end in the step's tokens, those of its
        equal share of the heads one after the other: (T, heads * D). Tokens before the step come from part
        number `part` of the sequence's state, a `ConvolutionShape` of `size` channels and taps that holds
        their numbers plus 1, before the text zeros.
        """
        ...
