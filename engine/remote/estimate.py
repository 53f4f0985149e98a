"""How many tokens a text has, where the server is not asked: estimated, and corrected by what it counted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.core import Message

_ASCII, _OTHER = 4.0, 1.5
"""Characters of a token: of English text, and of others on average."""
_PER_MESSAGE = 4
"""Tokens that templates add to a message."""
_PIXELS, _LEAST_OF_PICTURE, _MOST_OF_PICTURE = 750, 64, 1600
"""Pixels of a token of a picture, and the fewest and most tokens of one."""
_LEAST, _MOST = 0.25, 4.0
_ENOUGH = 32
"""Tokens from which on a count of the server says something about the next text."""


def picture_tokens(width: int, height: int) -> int:
    """About how many tokens a picture of this many pixels has: what they are differs from model to model.

    Source of the rule: https://docs.anthropic.com/en/docs/build-with-claude/vision
    """
    return min(_MOST_OF_PICTURE, max(_LEAST_OF_PICTURE, width * height // _PIXELS))


class TokenEstimate:
    """Counts by characters, and by pixels if the model takes `pictures`. `correct` it with what a server
    counted for the same messages.
    """

    def __init__(self, pictures: bool = False) -> None:
        self.factor = 1.0
        self._pictures = pictures

    def text(self, text: str) -> int:
        """Tokens of a text; at least 1 for any."""
        return math.ceil(self.factor * _weight(text)) if text else 0

    def messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a prompt."""
        return sum(self.shares(messages))

    def shares(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of each message with what a template adds."""
        return tuple(
            math.ceil(self.factor * (_weight(message.content) + _PER_MESSAGE)) + self._seen(message)
            for message in messages
        )

    def correct(self, messages: Sequence[Message], counted: int) -> None:
        """Take a count of the server for these messages as the measure, unless they have pictures."""
        if any(map(self._seen, messages)):
            return
        expected = sum(_weight(message.content) + _PER_MESSAGE for message in messages)
        if counted >= _ENOUGH and expected >= _ENOUGH:
            self.factor = min(_MOST, max(_LEAST, counted / expected))

    def _seen(self, message: Message) -> int:
        """Tokens of its pictures."""
        if not self._pictures:
            return 0
        return sum(picture_tokens(picture.width, picture.height) for picture in message.pictures)


def _weight(text: str) -> float:
    others = 0 if text.isascii() else sum(not character.isascii() for character in text)
    return (len(text) - others) / _ASCII + others / _OTHER


def shares_of(total: int, parts: Sequence[int]) -> tuple[int, ...]:
    """`total` divided like `parts`, so that it adds up."""
    whole, given, found = sum(parts) or 1, 0, []
    used = 0
    for part in parts:
        given += part
        share = round(total * given / whole) - used
        used += share
        found.append(share)
    return tuple(found)
