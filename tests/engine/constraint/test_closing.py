"""Where a JSON text stands, and what brings it to its end."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from engine.constraint.closing import JsonCloser, JsonPlace, closer_of
from engine.constraint.vocabulary import vocabulary_of
from tests.engine.constraint.fakes import allowed_ids
from tests.engine.generator.fakes import tokenizer

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
)


@given(VALUES, st.integers(0, 60))
def test_the_place_after_any_cut(value, cut):
    data = json.dumps(value, ensure_ascii=False).encode()
    place = JsonPlace().after(data[:cut]).after(data[cut:])
    assert place == JsonPlace().after(data)
    assert (place.depth, place.in_string, place.escaped, place.last) == (0, False, False, data[-1])
    inside = JsonPlace().after(b'[{"a": "' + json.dumps(json.dumps(value))[1:-1].encode())
    assert (inside.depth, inside.in_string) == (2, True)


def test_the_path_tells_where_a_value_stands():
    def path(text):
        return JsonPlace().after(text).path

    assert path(b'{"a": [1, {"b') == (b'a"', 1, ("", b""))
    assert path(b'{"a": [1, {"b": 2, ') == (b'a"', 1, ("", b'b"'))
    assert path(b'{"a": [1, {"b": 2}, 3], "c": ') == (b'c"',)
    assert path(b'[",:[]{}\\"", [') == (1, 0)
    assert JsonPlace().after(b'["ab').key != JsonPlace().after(b'["a').key
    assert JsonPlace().after(b'["ab", 1').key == JsonPlace().after(b'["c", 2').key
    assert JsonPlace().after(b'{"ab').key != JsonPlace().after(b'{"cd').key


def test_what_comes_first():
    vocabulary = vocabulary_of(tokenizer())
    closer = JsonCloser(vocabulary)
    everything = vocabulary.text

    def texts(place, mask=everything):
        return {vocabulary.texts[i] for i in allowed_ids(closer.narrowed(mask, place))}

    assert all(text.startswith(b'"') for text in texts(JsonPlace().after(b'["abc')))
    only = vocabulary.mask_of(i for i, text in enumerate(vocabulary.texts) if text in (b"a", b"\\"))
    assert texts(JsonPlace().after(b'["abc'), only) == {b"a"}
    assert all(set(text) <= set(b"]} \n\t\r") for text in texts(JsonPlace().after(b'["abc"')))
    only = vocabulary.mask_of(i for i, text in enumerate(vocabulary.texts) if text in (b"{", b"1", b" "))
    assert texts(JsonPlace().after(b"["), only) == {b"1"}
    only = vocabulary.mask_of(i for i, text in enumerate(vocabulary.texts) if text in (b"{", b" "))
    assert texts(JsonPlace().after(b"["), only) == {b"{"}
    only = vocabulary.mask_of(i for i, text in enumerate(vocabulary.texts) if text in (b"2", b"."))
    assert texts(JsonPlace().after(b"[1"), only) == {b"2", b"."}
    only = vocabulary.mask_of(i for i, text in enumerate(vocabulary.texts) if text in (b"2", b","))
    assert texts(JsonPlace().after(b"[1"), only) == {b","}  # a number can go on for ever
    assert texts(JsonPlace().after(b"[true"), only) == {b"2", b","}


def test_the_size_counts_the_bytes_of_what_is_under_way():
    sizes = {
        b'["ab': 3,
        b'["ab"': 0,
        b"[12": 2,
        b"[ 12 ": 2,
        b"[tru": 3,
        b"[12,": 0,
        b'{"ab"': 4,
        b'{"ab":': 0,
    }
    assert {text: JsonPlace().after(text).size for text in sizes} == sizes


def test_a_vocabulary_has_one_closer():
    vocabulary = vocabulary_of(tokenizer())
    assert isinstance(closer_of(vocabulary), JsonCloser)
    assert closer_of(vocabulary) is closer_of(vocabulary)
