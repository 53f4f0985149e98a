"""The tokens that a reply has when a model begins to write it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from desktop.services.engine.token_cache import STRETCH, TokenCache, model_key
from desktop.store.conversations.records import CHAT, NOTEBOOK
from desktop.store.conversations.token_trace import UNKNOWN
from tests.desktop.fakes import ECHO_INFO
from tests.desktop.store.conversations.test_tokens import traced, word


def message(id: int, text: str, **stats: Any) -> Any:
    return SimpleNamespace(id=id, text=text, stats=stats, role="assistant")


@pytest.fixture
def cache() -> TokenCache:
    """It knows the tokens of reply 1, of which the last one is broken in 2."""
    stores: Any = None
    made = TokenCache(stores)
    made.put(1, traced(word(1, "one"), word(2, " two")))
    made.put(2, traced(word(1, "one"), word(2, " \ufffd")))
    return made


@pytest.mark.parametrize(
    ("continued", "ids"),
    [
        (message(1, "one two"), [1, 2]),
        (message(1, "one two", reason="stop_string"), [1, UNKNOWN]),
        (message(1, "one two", reason="stop_token"), [1, 2]),
        (message(2, "one \ufffd"), [1, UNKNOWN]),
        (message(1, "one two", reason="stop_string", **{STRETCH: [0, 7]}), [1, 2]),
        (message(1, ""), []),
    ],
)
def test_a_continued_reply_has_its_tokens_but_one_that_was_cut(
    cache: TokenCache, continued: Any, ids: list[int]
) -> None:
    made = cache.begin(continued, continued, (), "m")
    assert (list(made.ids), made.text) == (ids, continued.text)
    assert cache.trace(continued) is made


def test_a_text_of_unknown_tokens_is_one_unknown_piece(cache: TokenCache) -> None:
    made = cache.begin(message(3, "by hand"), None, (), "m")
    assert (list(made.ids), made.text, made.model) == ([UNKNOWN], "by hand", "m")


def test_tokens_of_two_models_are_of_no_model(cache: TokenCache) -> None:
    reply = message(1, "one two")
    first = cache.trace(reply)
    assert first is not None
    first.model = "a"
    assert cache.begin(reply, reply, (), "a").model == "a"
    assert cache.begin(reply, reply, (), "b").model == ""


def test_what_writes_next_to_unknown_text_is_of_its_model(cache: TokenCache) -> None:
    assert cache.begin(message(4, ""), None, (), "m").model == "m"
    branched = cache.begin(message(5, "one"), message(1, "one two"), (1,), "")
    assert (list(branched.ids), branched.text) == ([1], "one")


def test_the_rest_of_a_document_has_the_tokens_after_the_place(cache: TokenCache) -> None:
    document = message(1, "one two")
    rest = cache.rest_of(document, "one", " two")
    assert (list(rest.ids), rest.text) == ([2], " two")
    inside = cache.rest_of(document, "on", "e two")
    assert (list(inside.ids), inside.text) == ([UNKNOWN, 2], "e two")
    other = cache.rest_of(document, "one two", " three")
    assert (list(other.ids), other.text) == ([UNKNOWN], " three")


class Store:
    """Stored tokens of messages; conversation 9 is a notebook."""

    def __init__(self, data: dict[int, bytes]) -> None:
        self.data, self.reads = data, list[int]()

    def of(self, _number: int) -> Store:
        return self

    def tokens(self, number: int) -> bytes:
        self.reads.append(number)
        return self.data.get(number, b"")

    def get(self, number: int) -> Any:
        return SimpleNamespace(kind=NOTEBOOK if number == 9 else CHAT)


def stored(id: int, text: str, role: str = "assistant", chat: int = 1) -> Any:
    return SimpleNamespace(id=id, text=text, stats={}, role=role, conversation_id=chat)


def test_stored_tokens_are_read_once_and_only_of_replies() -> None:
    store: Any = Store({1: traced(word(1, "one")).pack()})
    cache = TokenCache(store)
    for _ in range(2):
        found = cache.trace(stored(1, "one"))
        assert found is not None
        assert list(found.ids) == [1]
        assert cache.trace(stored(2, "two")) is None
        assert cache.trace(stored(3, "hi", role="user")) is None
    assert store.reads == [1, 2]


def test_the_latest_sixteen_stay_in_memory() -> None:
    store: Any = Store({})
    cache = TokenCache(store)
    for number in range(1, 17):
        cache.trace(stored(number, ""))
    cache.trace(stored(1, ""))  # used again: 2 is the oldest now
    cache.trace(stored(17, ""))
    store.reads.clear()
    for number in (1, 17, 3, 2):
        cache.trace(stored(number, ""))
    assert store.reads == [2]


def test_tokens_of_another_text_are_kept_of_documents_alone() -> None:
    data = traced(word(1, "one"), word(2, " two")).pack()
    store: Any = Store({1: data, 2: data})
    cache = TokenCache(store)
    longer = cache.trace(stored(1, "one two three"))
    assert longer is not None
    assert list(longer.ids) == [1, 2]  # a reply that goes on
    assert cache.trace(stored(1, "another")) is None
    edited = cache.trace(stored(2, "one, two", chat=9))
    assert edited is not None
    assert (edited.text, list(edited.ids)) == ("one, two", [1, UNKNOWN, 2])
    assert cache.trace(stored(2, "one, two", chat=9)) is edited


def test_models_with_other_tokens_have_other_keys() -> None:
    keys = {
        model_key(dataclasses.replace(ECHO_INFO, **change))
        for change in ({}, {"name": "B"}, {"architecture": "b"}, {"parameters": 7}, {"vocab_size": 7})
    }
    assert len(keys) == 5
    assert model_key(dataclasses.replace(ECHO_INFO, path="/elsewhere")) in keys
    assert model_key(None) == ""
