"""Pictures in prompts: where a chat template has them, and the token ids in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import BadTemplate
from engine.lazy_dataclass import dataclass
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _

Placed = Sequence[str | range]
"""What a picture becomes: texts, whose control tokens count, and ids of its tokens."""


@dataclass(frozen=True, slots=True)
class PictureMarks:
    """Characters that stand for pictures in messages, and what becomes of each.

    `placeholder` is what chat templates write for a picture, `token` the token that stands for one of its
    tokens. `around` stands before and after a picture that a template did not place. A token `joined` that
    follows a picture's last one takes the id after this.
    """

    placeholder: str
    token: str
    placed: Mapping[str, Placed]
    around: tuple[str, str] = ("", "")
    joined: int | None = None

    @property
    def names(self) -> list[object]:
        """What a rendered text depends on."""
        return [self.placeholder, "".join(self.placed)]

    def in_parts(self, turn: Mapping[str, Any]) -> dict[str, Any]:
        """A message whose pictures are parts of a list beside its texts."""
        content = turn.get("content")
        if not isinstance(content, str) or not any(mark in content for mark in self.placed):
            return dict(turn)
        parts: list[dict[str, str]] = []
        for piece in re.split(f"([{''.join(self.placed)}])", content):
            if piece in self.placed:
                parts.append({"type": "image"})
            elif text := piece.strip("\n"):
                parts.append({"type": "text", "text": text})
        return {**turn, "content": parts}

    def marked(self, text: str, turns: Sequence[Mapping[str, Any]]) -> str | None:
        """A rendered text with the marks of the pictures in these turns in place of the placeholders; None if
        there are more or fewer.
        """
        found = [char for turn in turns for char in str(turn.get("content")) if char in self.placed]
        texts = text.split(self.placeholder)
        if not found or len(texts) != len(found) + 1:
            return None
        return texts[0] + "".join(mark + after for mark, after in zip(found, texts[1:], strict=True))

    def surrounded(self, text: str) -> str:
        """A text that was rendered with marks in the messages, with what stands around each picture."""
        before, after = self.around
        return text.translate({ord(mark): before + mark + after for mark in self.placed})

    def encode(self, tokenizer: Tokenizer, text: str, literal: Mapping[int, str]) -> tuple[str, list[int]]:
        """The prompt's text and its token ids; `literal` is as in `Tokenizer.encode_parts`. In the text, each
        span of a picture is one token. Raises `BadTemplate` if there is no control token for that.
        """
        order = [char for char in text if char in self.placed]
        carrier = self._carrier(tokenizer, text)
        written = {
            ord(mark): "".join(piece if isinstance(piece, str) else carrier for piece in pieces)
            for mark, pieces in self.placed.items()
        }
        whole = text.translate(written)
        spans = [piece for mark in order for piece in self.placed[mark] if isinstance(piece, range)]
        (own,) = tokenizer.control_ids(carrier)
        ids, given = list[int](), iter(spans)
        ends = {span[-1] for span in spans} if self.joined is not None else set[int]()
        for id in tokenizer.encode_parts(whole, literal):
            if id == own:
                ids += next(given)
            elif id == self.joined and ids and ids[-1] in ends:
                ids.append(ids[-1] + 1)
            else:
                ids.append(id)
        return whole.translate(literal), ids

    def _carrier(self, tokenizer: Tokenizer, text: str) -> str:
        """A control token that a text does not have, if possible the model's own for pictures."""
        parts = [piece for pieces in self.placed.values() for piece in pieces if isinstance(piece, str)]
        there = set(tokenizer.special_pattern.findall("".join([text, *parts])))
        names = [self.token, *sorted(map(tokenizer.piece, tokenizer.special_ids))]
        for name in names:
            if name and name not in there and len(tokenizer.control_ids(name)) == 1:
                return name
        raise BadTemplate(
            _(
                "The model's tokenizer has no control token that can stand for a picture; choose another "
                "model."
            )
        )
