"""Work that embeds texts: one vector of the model's last hidden states for each text.

Texts are read in short steps between the steps of replies, on pages of their own that return at the end.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from engine.chat import LocalChat
from engine.chat.embedding import Vector, checked_pooling, embedded, unit
from engine.core import Waiting
from engine.errors import BadSetting
from engine.generator.decode import check_prompt
from engine.lazy_dataclass import dataclass
from engine.server.host import Work
from engine.server.http.exchange import Exchange
from engine.server.service import Service
from engine.server.texts.scoring import prompt_ids
from engine.text.tokenizer.aside import encoded_aside

_DIGITS = 9
"""Decimal digits of a number: more than those of float32 in vectors of length 1."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vector of the next text, as JSON, and the number of its tokens."""

    json: bytes
    tokens: int

    @property
    def weight(self) -> int:
        """About its bytes of memory."""
        return 128 + len(self.json)


def embedding_work(
    texts: Sequence[str | Sequence[int | str]],
    pooling: str,
    dimensions: int,
    *,
    as_base64: bool = False,
    cut: bool = False,
) -> Work:
    """The work of embedding texts, or token ids, in order; yields `Embedded`.

    `pooling` is one of `POOLINGS`, or "" for the model's own, else "mean". Vectors are cut to `dimensions`
    numbers, 0 for all, and have length 1. Of a text that is too long, `cut` takes the beginning.
    """

    def work(chat: LocalChat, stop: threading.Event) -> Generator[Any, None, None]:
        config = chat.generator.cache.model.config
        width = len(chat.dense[-1].weight) if chat.dense else config.width
        if dimensions > width:
            raise BadSetting(
                f"dimensions is {dimensions}, but the model's vectors have {width} numbers; ask "
                "for as many at most."
            )
        own = checked_pooling(chat, pooling)
        all_ids, most = [], chat.context_length
        for text in texts:
            make = partial(_ids, chat, text, most if cut else None)
            all_ids.append((yield from encoded_aside(chat.tokenizer, make, 0 if cut else most)))
            check_prompt(all_ids[-1], chat.vocabulary, most)
            yield Waiting()  # thousands of long texts take seconds
        for ids in all_ids:
            vector = yield from embedded(chat, ids, own)
            yield Embedded(_json(unit(vector[: dimensions or None]), as_base64=as_base64), len(ids))

    return work


async def embeddings_of(
    service: Service,
    exchange: Exchange,
    texts: Sequence[str | Sequence[int | str]],
    pooling: str,
    dimensions: int,
    *,
    as_base64: bool = False,
    cut: bool = False,
) -> list[Embedded]:
    """The vectors of these texts, in order, on the server's thread; the rest as `embedding_work`. Raises
    `ApiError`.
    """
    service.start(exchange, [embedding_work(texts, pooling, dimensions, as_base64=as_base64, cut=cut)])
    found: list[Embedded] = []
    while events := await exchange.channel.take():
        new = [event for _, event in events if event is not None]
        exchange.memory.take(sum(event.weight for event in new))
        found += new
    return found


def _ids(chat: LocalChat, text: str | Sequence[int | str], most: int | None) -> list[int]:
    """The ids of a text, with the token that the model's authors put at the end; ids are as they are. With
    `most` they are the first ones of too many.
    """
    ids, end = prompt_ids(chat, text), chat.tokenizer.end_id
    if isinstance(text, str) and end is not None:
        return [*ids[: None if most is None else most - 1], end]
    return ids[:most]


def _json(vector: Vector, *, as_base64: bool) -> bytes:
    """A list of numbers, or the Base64 text of float32 numbers in little-endian order."""
    if as_base64:
        return b'"' + base64.b64encode(vector.astype("<f4").tobytes()) + b'"'
    return json.dumps(vector.round(_DIGITS).tolist(), separators=(",", ":")).encode()
