"""Entries cut out of JSON, compared with `json.loads` for any chunks; after damage, all entries but the
damaged ones.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from desktop.store.transfer.importers import json_entries as module
from desktop.store.transfer.importers.json_entries import Entry, Flaw, json_entries

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
OBJECTS = st.dictionaries(
    st.text(),
    st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6),
)
DOCUMENTS: list[Any] = [
    {
        "title": f't{number} "q" {{[ \\ é',
        "numbers": [1, 2.5, -3e4, None, True, {"a": []}],
        "messages": [{"id": number, "x": "y" * 50}],
    }
    for number in range(20)
]


def entries(data: bytes, chunk: int = 1 << 18, most_bytes: int = 1 << 27) -> list[Entry | Flaw]:
    stream = io.BytesIO(data)
    found = json_entries(
        lambda count: stream.read(min(count, chunk)), lambda value: "messages" in value, most_bytes
    )
    return [entry for entry in found if not isinstance(entry, int)]


def values(found: list[Entry | Flaw]) -> list[Any]:
    return [entry.value for entry in found if isinstance(entry, Entry)]


@pytest.mark.slow
@settings(
    max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)  # a loaded machine generates examples slowly
@given(
    st.lists(OBJECTS, max_size=5),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
    st.sampled_from([1, 2, 3, 7, 64, 1 << 18]),
    st.booleans(),
)
def test_the_same_as_parsing_the_whole_file(
    expected: list[Any], indent: int | None, is_ascii: bool, chunk: int, as_lines: bool
) -> None:
    if as_lines:
        text = "\n".join(json.dumps(value, ensure_ascii=is_ascii) for value in expected)
    else:
        text = json.dumps(expected, indent=indent, ensure_ascii=is_ascii)
    found = entries(text.encode("utf-8", "surrogatepass"), chunk)
    if "surrogate" not in repr(found):
        assert values(found) == expected


@pytest.mark.parametrize("chunk", [1, 5, 1 << 18])
def test_small_buffers_make_no_difference(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)  # the buffer is emptied more often
    assert values(entries(json.dumps(DOCUMENTS).encode())) == DOCUMENTS
    found = entries(b"\xef\xbb\xbf" + "\n".join(map(json.dumps, DOCUMENTS)).encode())
    assert values(found) == DOCUMENTS
    assert found[-1].place == "line 20"


def test_one_byte_wrong_costs_at_most_two_entries() -> None:
    """At every 17th place a byte is removed or replaced by one of five; a bracket between two entries merges
    them.
    """
    good = json.dumps(DOCUMENTS).encode()
    starts = {place for place in range(len(good)) if good.startswith(b'{"title"', place)}
    for place in range(1, len(good) - 1, 17):
        between = any(abs(place - start) <= 2 for start in starts)
        for byte in (b"", b'"', b"}", b"\xff", b"\n", b"[") if not between else (b"", b"\xff"):
            found = values(entries(good[:place] + byte + good[place + 1 :]))
            assert sum(value in DOCUMENTS for value in found) >= len(DOCUMENTS) - 2


def test_places() -> None:
    found = entries(b'[{"a": 1}, {"a": nul}, {"a": "\x01"}, {"a": 4, "messages": 0}]x')
    assert [(entry.place, entry.end) for entry in found][:2] == [
        ("entry 1 (byte 1)", 9),
        ("entry 2 (byte 11)", 17),
    ]
    assert [type(entry) for entry in found] == [Entry, Flaw, Entry, Flaw]
    assert values(found)[1] == {"a": 4, "messages": 0}
    assert isinstance(found[-1], Flaw)
    assert found[-1].place == "line 1"


def test_a_bracket_that_does_not_match_is_named() -> None:
    found = entries(b'[{"a": [1}, {"messages": 2}]')
    assert isinstance(found[0], Flaw)
    assert found[0].reason == "a “}” does not match the open bracket (byte 9)"
    assert values(found) == [{"messages": 2}]


def test_what_is_too_large_or_too_deep() -> None:
    large = json.dumps([{"messages": 1}, {"x": "y" * 3_000_000}, {"messages": 2}]).encode()
    found = entries(large, most_bytes=1 << 20)
    assert values(found) == [{"messages": 1}, {"messages": 2}] or values(found) == [{"messages": 1}]
    assert "larger than 1.05 MB" in str(found)
    deep = b'[{"messages": ' + b"[" * 1000 + b"]" * 1000 + b'}, {"messages": 3}]'
    found = entries(deep)
    assert "nested more than" in str(found)
    assert values(found) == [{"messages": 3}]
