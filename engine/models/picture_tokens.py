"""What a cache knows of the pictures in its sequences, by the ids of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from engine.core import FIRST_PICTURE_ID
from engine.models.layers.positions.mrope import counted_positions, sequence_positions
from engine.models.pictures import PictureSpec
from engine.tensors import Floats, Ints

MOST_BETWEEN = 16
"""Tokens of text between two spans that are read in one pass with them."""


class SpanOfPicture(Protocol):
    """Consecutive tokens of a picture: `tokens` are `rows` * `columns`. `places` and `extent` are as in
    `engine.vision.Span`.
    """

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    @property
    def places(self) -> tuple[tuple[int, int, int], ...]: ...

    @property
    def extent(self) -> int: ...


class RowsOfPicture(Protocol):
    """`states` (tokens, E) float32 in place of the embeddings of a span; `deep` as in
    `engine.vision.PictureRows`.
    """

    @property
    def states(self) -> Floats: ...

    @property
    def deep(self) -> tuple[Floats, ...]: ...


class PictureTokens(Protocol):
    """The pictures of a model's sequences (`engine.vision.encoder_cache`)."""

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


Spans = list[tuple[int, int, int, SpanOfPicture]]


def spans_in(ids: Sequence[int], pictures: PictureTokens) -> Spans:
    """The spans of pictures in a text, or what is there of them: where each begins and ends, the id of the
    span's first token, and the span. Raises `BadPicture`.
    """
    found: Spans = []
    end = 0
    for at in [place for place, id in enumerate(ids) if id >= FIRST_PICTURE_ID]:
        if at >= end:
            first, span = pictures.span(ids[at])
            end = min(len(ids), at + span.tokens - (ids[at] - first))
            found.append((at, end, first, span))
    return found


def take_rows(
    spans: Spans, ids: Sequence[int], pictures: PictureTokens, targets: Sequence[Floats], scale: float
) -> None:
    """Write the rows of the spans of a text to the first of `targets` (len(ids), E), multiplied by `scale`,
    and their further rows to the others. Raises `BadPicture`.
    """
    for begin, end, first, _span in spans:
        rows, at = pictures.rows(first), ids[begin] - first
        for target, source in zip(targets, [rows.states, *rows.deep], strict=True):
            target[begin:end] = source[at : at + end - begin]
        if scale != 1.0:
            targets[0][begin:end] *= np.float32(scale)


def borders_in(ids: Sequence[int], pictures: PictureTokens) -> list[int]:
    """Where passes over pictures begin and end in a text, ascending. Raises `BadPicture`.

    A few tokens of text between two spans, such as the ends of a picture's lines, are read with these, unless
    passes depend on where a span begins. If the text is a prefix, all of it is one pass.
    """
    spec = pictures.spec
    if spec.prefix:
        return [0, len(ids)] if any(id >= FIRST_PICTURE_ID for id in ids) else []
    shifted = spec.positions is not None and not spec.positions.counted
    apart = spec.bidirectional or shifted or spec.deep > 0 or spec.looked_at is not None
    found: list[int] = []
    for begin, end, _first, _span in spans_in(ids, pictures):
        if found and not apart and begin - found[-1] <= MOST_BETWEEN:
            found[-1] = end
        else:
            found += [begin, end]
    return found


def places_of(
    before: Sequence[int], ids: Sequence[int], pictures: PictureTokens, shift: Callable[[int], int]
) -> Ints | None:
    """The positions (T, axes) int32 of the tokens `ids` of pictures that come after others, for each axis of
    rotary positions with sections; None if these have none. `shift` is by how much less than its position the
    token after this many is rotated. Raises `BadPicture`.
    """
    positions = pictures.spec.positions
    if positions is None:
        return None
    if positions.counted:
        whole = [*before, *ids]
        found = [(begin, span.rows, span.columns) for begin, _end, _id, span in spans_in(whole, pictures)]
        return counted_positions(found, len(before), len(whole), len(positions.sections))
    ((begin, end, first, span),) = spans_in(ids, pictures)
    at = ids[begin] - first
    starts = len(before) + begin - at
    if span.places:
        places: Ints = np.array(span.places[at : at + end - begin], np.int32)
    else:
        places = sequence_positions([(0, span.rows, span.columns)], span.tokens)[0][at : at + end - begin]
    places = places + np.int32(starts - shift(starts))
    return places.clip(0)  # marks of a picture that the text begins with may lie before it


def shift_after(ids: Sequence[int], pictures: PictureTokens) -> int:
    """By how much less than its position the token after a part of a text is rotated, because of the spans
    that begin in it, where rotary positions have sections (`engine.models.layers.positions.mrope`). Raises
    `BadPicture`.
    """
    if pictures.spec.positions is None or pictures.spec.positions.counted:
        return 0
    found = [span for begin, _end, first, span in spans_in(ids, pictures) if ids[begin] == first]
    return sum(span.tokens - span.extent for span in found)
