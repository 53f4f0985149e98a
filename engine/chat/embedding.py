"""Vectors of texts: what a model makes of its last hidden states.

Texts are read in short steps between the steps of replies, on pages of their own that return at the end.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.chat.local import LocalChat
from engine.chat.own_pages import own_pages
from engine.core import Waiting
from engine.errors import BadSetting
from engine.words import _

__all__ = ["POOLINGS", "Vector", "checked_pooling", "embedded", "text_vector", "unit"]

POOLINGS = ("mean", "last", "cls")

Vector = npt.NDArray[np.float64]


def text_vector(
    chat: LocalChat, text: str, role: Literal["query", "document"]
) -> Generator[Waiting, None, Vector]:
    """The vector of a text, of length 1; (E,), or (N,) behind dense layers of N outputs.

    The prompt that the model's authors put before queries or documents comes first (`LocalChat.prompts`). Of
    a text that is longer than the context, the beginning is read. Yields between steps. Raises `BadSetting`
    where the model's files ask for a pooling that is not supported.
    """
    pooling, most, tokenizer = checked_pooling(chat), chat.context_length, chat.tokenizer
    whole, end = chat.prompts[role == "document"] + text, tokenizer.end_id
    last = [] if end is None else [end]
    ids = [*tokenizer.encode(whole, add_bos=tokenizer.add_bos)[: most - len(last)], *last]
    if not ids:  # an empty text without marks around it
        return np.zeros(len(chat.dense[-1].weight) if chat.dense else chat.generator.cache.model.config.width)
    return unit((yield from embedded(chat, ids, pooling)))


def checked_pooling(chat: LocalChat, asked: str = "") -> str:
    """The pooling that is `asked` for, or else the model's own, or else "mean". Raises `BadSetting` if it is
    none of `POOLINGS`.
    """
    own = asked or chat.info.pooling or "mean"
    if own not in POOLINGS:
        raise BadSetting(
            _(
                "The model's files ask for the pooling “{pooling}”, which is not supported; ask for one of "
                "{poolings} as pooling, or use another model.",
                pooling=own,
                poolings=", ".join(POOLINGS),
            )
        )
    return own


def embedded(chat: LocalChat, ids: Sequence[int], pooling: str) -> Generator[Waiting, None, Vector]:
    """The mean of the last hidden states of all ids, or that of the first ("cls") or the last one; (E,), and
    what the model's dense layers make of it.

    Yields between steps. An encoder's text is one step.
    """
    cache = chat.generator.cache
    total: Vector = np.zeros(cache.model.config.width)
    with own_pages(chat, len(ids)) as ready:
        lease = yield from ready
        while lease.length < len(ids):
            at = lease.length
            states = cache.hidden_states(lease, ids[at : at + cache.rows])
            if pooling == "mean":
                total += states.sum(axis=0, dtype=np.float64) / len(ids)
            elif pooling == "last":
                total[:] = states[-1]
            elif not at:
                total[:] = states[0]
            yield Waiting()
    for layer in chat.dense:
        total = layer(total)
    return total


def unit(vector: Vector) -> Vector:
    """The vector with length 1; zeros as they are."""
    length = float(np.sqrt((vector * vector).sum()))
    return vector / length if length else vector
