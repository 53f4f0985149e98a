"""Filters of scripts and libraries, under the engine's protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.compat.exllamav2.generator.filters.base import ExLlamaV2Filter, WrappedFilter
from engine.constraint.filter import Filter
from engine.constraint.vocabulary import Mask, allows, vocabulary_of
from engine.errors import BadSetting

if TYPE_CHECKING:
    from engine.text.tokenizer.tokenizer import Tokenizer


def engine_filters(filters: Iterable[Any] | None, tokenizer: Tokenizer) -> tuple[Filter, ...]:
    """The engine's filters for those of a script: its own ones as they are, others with begin, feed and next.

    Raises `BadSetting` for anything else, and for one filter given twice.
    """
    made: list[Filter] = []
    given = list(filters or ())
    if len({id(one) for one in given}) < len(given):
        raise BadSetting("A filter is in the list twice; make one for each place.")
    for one in given:
        if isinstance(one, WrappedFilter):
            made.append(one.wrapped)
        elif isinstance(one, ExLlamaV2Filter) or all(
            hasattr(one, name) for name in ("begin", "feed", "next")
        ):
            made.append(FollowedFilter(one, tokenizer))
        elif hasattr(one, "mask") and hasattr(one, "accept"):
            made.append(one)
        else:
            raise BadSetting(
                f"filters holds {type(one).__name__}, but a filter with begin, feed and next was expected, "
                "such as a subclass of ExLlamaV2Filter."
            )
    return tuple(made)


class FollowedFilter:
    """A filter with `begin`, `feed` and `next` under the engine's protocol.

    A token that the filter says ends the reply ends it, and is shown. A reply also ends where nothing but a
    stop token is allowed.
    """

    def __init__(self, filter: Any, tokenizer: Tokenizer) -> None:
        self._filter = filter
        self._vocabulary = vocabulary_of(tokenizer)
        # `mask_logits` never says what ends a reply, so `next` is preferred.
        defined = getattr(type(filter), "next", None) is not ExLlamaV2Filter.next
        self._masks = not defined and filter.can_mask_logits()
        self._prefix = ""
        self._tokens: list[int] = []
        self._known: tuple[Mask | None, frozenset[int]] | None = None
        self._ended = False

    def begin(self, prefix: bytes) -> None:
        """Start a reply; see `Filter.begin`."""
        self._prefix = prefix.decode("utf-8", "replace")
        self._tokens = []
        self._restart()

    def mask(self) -> Mask | None:
        """The tokens allowed next; None allows all."""
        return self._following()[0]

    def accept(self, token: int) -> None:
        """Continue with a token. Raises ValueError, and changes nothing, if it is not allowed."""
        mask, ends = self._following()
        if mask is not None and not allows(mask, token):
            raise ValueError(f"token {token} is not allowed here")
        self._feed(token)
        self._tokens.append(token)
        self._known, self._ended = None, token in ends

    def rollback(self, tokens: int) -> None:
        """Take back the last tokens: begin again, and feed the others."""
        if not tokens:
            return
        kept = self._tokens[: len(self._tokens) - tokens]
        self._restart()
        self._tokens = []
        for token in kept:
            self.accept(token)

    @property
    def may_end(self) -> bool:
        """Whether a stop token is allowed next, or the last token ended the reply."""
        if self._ended:
            return True
        mask = self.mask()
        return mask is None or bool((mask & self._vocabulary.stop).any())

    @property
    def ended(self) -> bool:
        """Whether the filter said that the last token ends the reply."""
        return self._ended

    def _restart(self) -> None:
        self._known, self._ended = None, False
        self._filter.begin(self._prefix)

    def _feed(self, token: int) -> None:
        import torch

        self._filter.feed(torch.tensor([[token]], dtype=torch.int64))

    def _following(self) -> tuple[Mask | None, frozenset[int]]:
        """The mask and the ids that end the reply, once for each place."""
        if self._known is None:
            self._known = self._masked() if self._masks else self._listed()
        return self._known

    def _listed(self) -> tuple[Mask | None, frozenset[int]]:
        allowed, ends = self._filter.next()
        found = frozenset(int(token) for token in _ids(ends))
        if allowed is None:
            return None, found
        ids = np.fromiter((int(token) for token in _ids(allowed)), np.int64)
        ids = ids[(ids >= 0) & (ids < self._vocabulary.size)]
        return self._vocabulary.mask_of(ids), found

    def _masked(self) -> tuple[Mask | None, frozenset[int]]:
        import torch

        if self._filter.prepare_logit_mask() is not True:
            raise BadSetting(f"{type(self._filter).__name__}.prepare_logit_mask() did not return True.")
        left = self._filter.mask_logits(torch.zeros(self._vocabulary.size)).reshape(-1)
        return self._vocabulary.mask_of(np.flatnonzero(left.numpy() > -np.inf)), frozenset()


def _ids(value: Any) -> Sequence[Any]:
    """The ids in a set, list, array or tensor; none in None."""
    return () if value is None else value.tolist() if hasattr(value, "tolist") else value
