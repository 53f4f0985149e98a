"""Small vocabularies of any bytes, and walks through filters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from engine.constraint.filter import Filter
from engine.constraint.vocabulary import Mask
from engine.text.tokenizer.tokenizer import Tokenizer


class Words:
    """What filters use of a tokenizer: one stop token and one control token, then `words`, which may
    repeat or be empty.
    """

    def __init__(self, words: Sequence[bytes]) -> None:
        self._texts = [b"<stop>", b"<control>", *words]
        self.vocab_size = len(self._texts)
        self.stop_token_ids = (0,)
        self.special_ids = frozenset({0, 1})

    def token_bytes(self, id: int) -> bytes:
        return self._texts[id]


def tokenizer_of(words: Sequence[bytes]) -> Tokenizer:
    return cast(Tokenizer, Words(words))


def some_words(text: str, count: int = 30) -> st.SearchStrategy[list[bytes]]:
    """Vocabularies of pieces of a text's bytes, so of parts of characters too, in any order, with some
    bytes missing.
    """
    data = text.encode()
    pieces = st.builds(
        lambda start, size: data[start : start + size], st.integers(0, len(data) - 1), st.integers(1, 4)
    )
    odd = st.sampled_from([b"", b"\xff", b"\xc3", b"\x80", b"<stop>", b"zz", b"z" * 1500])
    return st.lists(st.one_of(pieces, pieces, pieces, odd), max_size=count)


def bytes_of(text: str) -> list[bytes]:
    """A word for each byte of a text."""
    return [bytes([byte]) for byte in sorted(set(text.encode()))]


def allowed_ids(mask: Mask) -> npt.NDArray[np.int64]:
    """(n,) int64, ascending: the tokens that a mask allows."""
    return np.flatnonzero(np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little"))


def ids(mask: Mask | None) -> list[int]:
    assert mask is not None
    return [int(i) for i in allowed_ids(mask)]


def walk(one: Filter, tokenizer: Tokenizer, draw: random.Random, longest: int = 200) -> list[int]:
    """Random allowed tokens until the filter has ended, a stop token is drawn, or there are `longest`."""
    tokens: list[int] = []
    while not one.ended and len(tokens) < longest:
        mask = one.mask()
        choice = draw.choice(ids(mask) if mask is not None else range(tokenizer.vocab_size))
        one.accept(choice)
        if choice in tokenizer.stop_token_ids:
            break
        tokens.append(choice)
    return tokens


def text_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> bytes:
    return b"".join(tokenizer.token_bytes(token) for token in tokens)
