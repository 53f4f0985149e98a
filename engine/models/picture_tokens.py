"""What a cache knows of the pictures in its sequences, by the ids of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.core import FIRST_PICTURE_ID
from engine.models.pictures import PictureSpec
from engine.tensors import Floats


class SpanOfPicture(Protocol):
    """Consecutive tokens of a picture: `tokens` are `rows` * `columns`."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def tokens(self) -> int: ...


class RowsOfPicture(Protocol):
    """`states` (tokens, E) float32 in place of the embeddings of a span; `deep` as in
    `engine.vision.PictureRows`.
    """

    @property
    def states(self) -> Floats: ...

    @property
    def deep(self) -> tuple[Floats, ...]: ...


class PictureTokens(Protocol):
    """The pictures of a model's sequences (`engine.vision.store`)."""

    @property
    def spec(self) -> PictureSpec: ...

    def span(self, id: int) -> tuple[int, SpanOfPicture]:
        """The id of the first token of the span that this token belongs to, and the span. Raises
        `BadPicture`.
        """
        ...

    def rows(self, first: int) -> RowsOfPicture:
        """The rows of the span that begins with this id. Raises `BadPicture`."""
        ...


def borders_in(ids: Sequence[int], pictures: PictureTokens) -> list[int]:
    """Where the spans of pictures begin and end in a text, ascending. Raises `BadPicture`."""
    found: list[int] = []
    end = 0
    for at in [place for place, id in enumerate(ids) if id >= FIRST_PICTURE_ID]:
        if at >= end:
            first, span = pictures.span(ids[at])
            end = at + span.tokens - (ids[at] - first)
            found += [at, min(end, len(ids))]
    return found


def shift_after(ids: Sequence[int], pictures: PictureTokens) -> int:
    """By how much less than its position the token after a part of a text is rotated, because of the spans
    that begin in it, where rotary positions have sections (`engine.models.layers.positions.mrope`). Raises
    `BadPicture`.
    """
    found = (pictures.span(ids[at]) + (ids[at],) for at in borders_in(ids, pictures)[::2])
    return sum(span.tokens - max(span.rows, span.columns) for first, span, id in found if id == first)
