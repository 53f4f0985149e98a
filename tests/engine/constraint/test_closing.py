"""Where a JSON text stands, and what brings it to its end."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.constraint.closing import JsonCloser, JsonPlace
from engine.constraint.grammar import GrammarFilter
from engine.constraint.vocabulary import allowed_ids, vocabulary_of
from tests.engine.generator.fakes import tokenizer

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
)


@given(VALUES, st.integers(0, 60))
def test_the_place_after_any_cut(value, cut):
    data = json.dumps(value, ensure_ascii=False).encode()
    place = JsonPlace().after(data[:cut]).after(data[cut:])
    assert place == JsonPlace(0, False, False, data[-1])
    inside = JsonPlace().after(b'[{"a": "' + json.dumps(json.dumps(value))[1:-1].encode())
    assert (inside.depth, inside.in_string) == (2, True)


def test_what_comes_first():
    vocabulary = vocabulary_of(tokenizer())
    closer = JsonCloser(vocabulary)
    everything = vocabulary.text

    def texts(place, mask=everything):
        return {vocabulary.texts[i] for i in allowed_ids(closer.narrowed(mask, place))}

    assert all(text.startswith(b'"') for text in texts(JsonPlace().after(b'["abc')))
    assert all(set(text) <= set(b"]} \n\t\r") for text in texts(JsonPlace().after(b'["abc"')))
    only = vocabulary.mask_of(i for i, text in enumerate(vocabulary.texts) if text in (b"{", b"1", b" "))
    assert texts(JsonPlace().after(b"["), only) == {b"1"}
    only = vocabulary.mask_of(i for i, text in enumerate(vocabulary.texts) if text in (b"{", b" "))
    assert texts(JsonPlace().after(b"["), only) == {b"{"}
    only = vocabulary.mask_of(i for i, text in enumerate(vocabulary.texts) if text in (b"2", b"."))
    assert texts(JsonPlace().after(b"[1"), only) == {b"2", b"."}


@pytest.mark.parametrize("seed", range(10))
def test_random_walks_end_within_the_reserve(seed):
    draw, constraint = random.Random(seed), GrammarFilter.json(tokenizer())
    constraint.begin(b"")
    vocabulary, left, ids = vocabulary_of(tokenizer()), 140, list[int]()
    while not constraint.ended:
        allowed = allowed_ids(constraint.hasten(constraint.mask(), left))
        token = int(draw.choice(allowed))
        constraint.accept(token)
        ids.append(token)
        left -= 1
        if draw.random() < 0.1 and len(ids) > 3:
            constraint.rollback(2)
            del ids[-2:]
    assert left >= 0
    json.loads(b"".join(vocabulary.texts[i] for i in ids))
