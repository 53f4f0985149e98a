"""Tokens that wait for their text: none is lost, and none is shown before its text."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from engine.core import Alternative, TokenInfo
from engine.core.tuples import maker
from engine.sampling.sampler import Sampled
from engine.tensors import Floats
from engine.text.tokenizer.tokenizer import Tokenizer


class WrittenToken(NamedTuple):
    """A token that may be shown. `logits` (V,) float32 are the model's own, None unless asked for."""

    info: TokenInfo
    logits: Floats | None = None


_alternative, token_info, written_token = maker(Alternative), maker(TokenInfo), maker(WrittenToken)


def alternatives_of(sampled: Sampled, tokenizer: Tokenizer) -> tuple[Alternative, ...]:
    """The alternatives of a sampled token, of which there are some, with their texts."""
    ids, raw, final = zip(*sampled.alternatives, strict=True)
    return tuple(map(_alternative, zip(ids, map(tokenizer.piece, ids), raw, final, strict=True)))


class TokenBuffer:
    """A queue of tokens; `release(text)` returns those whose text is out completely."""

    def __init__(self) -> None:
        self.queue: deque[WrittenToken] = deque()
        """The tokens that wait, oldest first; without any, no released text belongs to a later one."""
        self._credit = 0  # released characters that belong to tokens still held

    def add(self, token: WrittenToken) -> None:
        """Append a token."""
        self.queue.append(token)

    def lengthen_last(self, text: str) -> None:
        """Count `text`, which came out at the very end, as part of the last token's."""
        if text and self.queue:
            last = self.queue.pop()
            self.queue.append(last._replace(info=last.info._replace(text=last.info.text + text)))

    def release(self, text: str, *, keep_last: bool = False) -> tuple[WrittenToken, ...]:
        """The tokens whose text is out with `text`; a token without text goes with the next one that has
        some.

        With `keep_last` the newest one stays: it began a character whose text is still to come.
        """
        if (
            len(self.queue) == 1
            and not self._credit
            and not keep_last
            and len(text) == len(self.queue[0].info.text) > 0
        ):
            return (self.queue.popleft(),)  # as nearly always
        self._credit += len(text)
        out: list[WrittenToken] = []
        count = self._first_with_text()
        while (
            count is not None
            and self._credit >= len(self.queue[count].info.text)
            and count < len(self.queue) - keep_last
        ):
            self._credit -= len(self.queue[count].info.text)
            out.extend(self.queue.popleft() for _ in range(count + 1))
            count = self._first_with_text()
        return tuple(out)

    def cut(self, text: str) -> tuple[WrittenToken, ...]:
        """The last tokens, after `text`: one of which only a part is out is shortened, those after it go."""
        tokens = self.release(text)
        if self._credit:
            count = self._first_with_text()
            assert count is not None
            part = [self.queue.popleft() for _ in range(count + 1)]
            part[-1] = part[-1]._replace(info=part[-1].info._replace(text=part[-1].info.text[: self._credit]))
            tokens += tuple(part)
        self.queue.clear()
        self._credit = 0
        return tokens

    def all(self) -> tuple[WrittenToken, ...]:
        """Every token that is left."""
        tokens = tuple(self.queue)
        self.queue.clear()
        self._credit = 0
        return tokens

    def drop_last(self, count: int) -> None:
        """Forget the newest tokens, none of whose text is out."""
        for _ in range(count):
            self.queue.pop()

    def _first_with_text(self) -> int | None:
        return next((i for i, token in enumerate(self.queue) if token.info.text), None)
