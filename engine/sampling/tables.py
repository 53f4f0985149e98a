"""What the sampler must know of particular tokens, as ids. Another part looks the ids up in the tokenizer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TokenTables:
    """Fixed for a sequence.

    Ids from `vocabulary` on can never be drawn: they are padding of the model's head; 0 means all can.

    `bias` pairs an id with what is added to its score (twice the same id: the sum; -inf bans it); `allowed`
    are the only tokens that may be drawn, None for all; `banned` never are. A repeated passage ends at
    `dry_breakers`; `xtc_protected` tokens (line breaks, special tokens) are never dropped by XTC. Ids that
    the model does not have are ignored.
    """

    vocabulary: int = 0
    bias: tuple[tuple[int, float], ...] = ()
    allowed: frozenset[int] | None = None
    banned: frozenset[int] = frozenset()
    dry_breakers: frozenset[int] = frozenset()
    xtc_protected: frozenset[int] = frozenset()
