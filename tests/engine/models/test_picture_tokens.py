"""Where passes over pictures begin and end, and the rotary positions after them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.models.picture_tokens import MOST_BETWEEN, borders_in, shift_after, spans_in
from engine.vision import Positions, VisionSpec
from engine.vision.encoder_cache import EncoderCache
from tests.engine.vision.tiny.fakes import FakeEncoder, picture

SPEC = VisionSpec("fake", "<image>", "<image>")
SECTIONS = replace(SPEC, positions=Positions((1, 1, 1)))


def store_of(spec: VisionSpec) -> EncoderCache:
    encoder = FakeEncoder(spec)
    return EncoderCache(encoder, encoder.load)


def ids_of(store: EncoderCache, between: int) -> list[int]:
    """Five tokens of text, a picture of six tokens, some text, and a picture of four, before another text."""
    first, second = (
        next(piece for piece in store.placed(each) if isinstance(piece, range))
        for each in (picture(3, 2), picture(1, 4))
    )
    return [*range(5), *first, *range(between), *second, 7, 8]


@pytest.mark.parametrize(
    ("between", "joined"), [(0, True), (1, True), (MOST_BETWEEN, True), (MOST_BETWEEN + 1, False)]
)
def test_a_little_text_is_read_with_the_pictures_around_it(between: int, joined: bool) -> None:
    store = store_of(SPEC)
    ids = ids_of(store, between)
    end = 15 + between
    assert borders_in(ids, store) == ([5, end] if joined else [5, 11, 11 + between, end])
    assert borders_in(ids[: 13 + between], store)[-1] == 13 + between
    assert borders_in(ids[7:], store)[0] == 0
    assert borders_in(ids[:5], store) == []


@pytest.mark.parametrize(
    "spec",
    [replace(SPEC, bidirectional=True), SECTIONS, replace(SPEC, deep=1)],
    ids=["both ways", "sections", "deep"],
)
def test_each_span_is_read_apart_where_passes_depend_on_its_beginning(spec: VisionSpec) -> None:
    store = store_of(spec)
    assert borders_in(ids_of(store, 0), store) == [5, 11, 11, 15]
    assert borders_in(ids_of(store, 2), store) == [5, 11, 13, 17]


def test_spans_with_counted_positions_are_read_together() -> None:
    store = store_of(replace(SPEC, positions=Positions((1, 1, 1), counted=True)))
    assert borders_in(ids_of(store, 2), store) == [5, 17]


def test_spans_are_found_in_parts_of_a_text() -> None:
    store = store_of(SPEC)
    ids = ids_of(store, 2)
    (begin, end, first, span), (last, *_rest) = spans_in(ids[7:], store)
    assert (begin, end, first, span.rows, span.columns) == (0, 4, ids[5], 2, 3)
    assert last == 6


def test_only_spans_that_begin_in_a_part_shift_what_follows() -> None:
    store = store_of(SECTIONS)
    ids = ids_of(store, 2)
    assert shift_after(ids[:5], store) == 0
    assert shift_after(ids, store) == (6 - 3) + (4 - 4)
    assert shift_after(ids[:7], store) == 3
    assert shift_after(ids[7:], store) == 0
