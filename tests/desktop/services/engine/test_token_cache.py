"""The tokens that a reply has when a model begins to write it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from desktop.services.engine.token_cache import STRETCH, TokenCache
from desktop.store.conversations.token_trace import UNKNOWN
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
