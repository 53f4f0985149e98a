"""Token ids that the sampler treats specially; the caller looks them up in the tokenizer."""

from __future__ import annotations

from engine.lazy_dataclass import dataclass


@dataclass(frozen=True)
class TokenTables:
    """Fixed for a sequence.

    Ids from `vocabulary` on are padding of the output projection and are never sampled; 0 means no padding.
    `bias` pairs an id with an amount added to its score (repeated ids add up; -inf bans). `allowed` are the
    only tokens that may be sampled, None for all; `banned` never are. A repeated passage ends at
    `dry_breakers`. `xtc_protected` tokens (line breaks, special tokens) are never dropped by XTC. Ids outside
    the model's vocabulary are ignored.
    """

    vocabulary: int = 0
    bias: tuple[tuple[int, float], ...] = ()
    allowed: frozenset[int] | None = None
    banned: frozenset[int] = frozenset()
    dry_breakers: frozenset[int] = frozenset()
    xtc_protected: frozenset[int] = frozenset()
