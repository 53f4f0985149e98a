"""Tokens of a stream: which part of the text each one is, and how likely it was."""

from __future__ import annotations

import codecs
import math
from collections import deque
from collections.abc import Iterable, Sequence

from engine.core import Alternative, TokenInfo
from engine.remote.chunks import Scored

UNKNOWN_ID = -1
"""The id of text whose tokens are not known."""
_MOST_WAITING = 1024


class TokenNumbers:
    """Servers tell the texts of tokens, not their ids: each text gets a number below `UNKNOWN_ID`, so that
    equal tokens can be recognised.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def of(self, data: bytes) -> int:
        """The number of a token."""
        return self._numbers.setdefault(data, UNKNOWN_ID - 1 - len(self._numbers))


class Aligner:
    """Divides the text of one reply among its tokens: the texts of all tokens that it gives are the text.

    A server may send tokens before their text, as vLLM does while a stop string is possible: they wait. Text
    that no token accounts for is a token of id `UNKNOWN_ID`; a token whose text does not come (a control
    token) is left out.
    """

    def __init__(self, numbers: TokenNumbers) -> None:
        self._numbers = numbers
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._queue: deque[Scored] = deque(maxlen=_MOST_WAITING)
        self._text = ""
        self._begun = False

    def divide(self, text: str, scored: Sequence[Scored], seconds: float) -> tuple[TokenInfo, ...]:
        """The tokens of the next piece of text; `seconds` from the request."""
        self._queue.extend(scored)
        self._text += text
        found: list[TokenInfo] = []
        while self._queue and self._text:
            before = self._decoder.getstate()
            part = self._decoder.decode(self._queue[0].data)
            if not self._begun and not self._text.startswith(part):
                part = part.lstrip()  # the first word of a text may lack its blank
            if not self._text.startswith(part):
                if part.startswith(self._text):  # the rest of this token's text is still to come
                    self._decoder.setstate(before)
                    break
                self._decoder.reset()
                self._queue.popleft()
                continue
            self._text = self._text[len(part) :]
            self._begun = True
            found.append(self._info(self._queue.popleft(), part, seconds))
        if not self._queue:
            found += self.finish(seconds)
        return tuple(found)

    def finish(self, seconds: float) -> tuple[TokenInfo, ...]:
        """The text that waits for a token."""
        text, self._text = self._text, ""
        self._begun = self._begun or bool(text)
        return (TokenInfo(UNKNOWN_ID, text, 0.0, 0.0, seconds=seconds),) if text else ()

    def _info(self, token: Scored, text: str, seconds: float) -> TokenInfo:
        own = math.exp(token.logprob)
        others = {data: math.exp(logprob) for data, logprob in token.top}
        others.setdefault(token.data, own)
        ranked = sorted(others.items(), key=lambda each: -each[1]) if token.top else []
        alternatives = tuple(
            Alternative(self._numbers.of(data), _shown(data), chance, chance) for data, chance in ranked
        )
        return TokenInfo(
            self._numbers.of(token.data), text, own, own, (), alternatives,
            _entropy(others.values()) if token.top else 0.0, seconds=seconds,
        )  # fmt: skip


def _entropy(chances: Iterable[float]) -> float:
    """The least entropy, in nats, of a distribution of which these are the likeliest probabilities: the rest
    counts as one token.
    """
    known = [chance for chance in chances if chance > 0]
    rest = 1.0 - sum(known)
    parts = [*known, rest] if rest > 1e-9 else known
    return max(0.0, -sum(part * math.log(part) for part in parts))


def _shown(data: bytes) -> str:
    """A token's text; bytes that are no character as the vocabularies write them."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in data)
