"""Embeddings of n-grams, whose rows are found by hashing: what they are, and their operation."""

from __future__ import annotations

from typing import Any, Protocol

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NGrams:
    """How the last 2, 3, ... `size` tokens of a row become rows of a table (Qwen 4's reference code).

    The exclusive or of each token times the one of the `multipliers` (size,) that belongs to its distance is
    hashed several times for each length, by remainders of `counts`, to which `offsets` are added, as many
    for each length in turn. Tokens before the last `reset` before a row's own, and before the text, count as
    that token.
    """

    multipliers: tuple[int, ...]
    counts: tuple[int, ...]
    offsets: tuple[int, ...]
    reset: int

    @property
    def size(self) -> int:
        """The tokens of the longest n-grams."""
        return len(self.multipliers)

    @property
    def heads(self) -> int:
        """How many rows are looked up for a token."""
        return len(self.counts)


class NGramOps(Protocol):
    """The operation of `engine.backends.base.Ops` that looks them up."""

    def embed_ngrams(self, part: int, table: Any, ngrams: NGrams) -> Any:
        """The rows of `table` (V, D) of the n-grams that end in the step's tokens, one after the other: (T,
        heads * D). Tokens before the step come from part number `part` of the sequence's state, a
        `ConvolutionShape` of `size` channels and taps that holds their numbers plus 1, before the text zeros.
        """
        ...
