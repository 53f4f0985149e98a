"""The automaton of several texts over vocabularies of few tokens, some of which lead nowhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.constraint.automaton import TextAutomaton
from engine.constraint.vocabulary import Vocabulary
from tests.engine.constraint.fakes import allowed_ids, tokenizer_of

STOP = b"<stop>"


def automaton(words: Sequence[bytes], texts: Sequence[bytes], *, free: bool = False) -> TextAutomaton:
    units = [[(bytes([byte]),) for byte in text] for text in texts]
    return TextAutomaton(Vocabulary(tokenizer_of(words)), units, free=free)


def following(found: TextAutomaton, words: Sequence[bytes], written: bytes = b"") -> list[bytes]:
    """The words that may follow what is written, in the vocabulary's order; asked twice."""
    state = found.step(found.start, written)
    assert state is not None
    once = allowed_ids(found.mask(state)).tolist()
    assert allowed_ids(found.mask(state)).tolist() == once
    return [[STOP, b"<control>", *words][id] for id in once]


@pytest.mark.parametrize(
    ("words", "texts", "first"),
    [
        ([b"a", b"ab", b"c", b"cd"], [b"abc"], [b"ab"]),
        ([b"a", b"ab", b"c", b"cd"], [b"acd"], [b"a"]),
        ([b"a", b"ab", b"c", b"cd"], [b"abc", b"acd", b"abd"], [b"a", b"ab"]),
        ([b"a", b"ab", b"c", b"cd"], [b"abd"], []),
        ([b"ax", b"bx"], [b"ab"], []),
        ([b"a", b"b", b"c", b"abc", b"abcd"], [b"abc"], [b"a", b"abc"]),
        ([b"abc", b"b", b"a", b"c", b"a"], [b"abc", b"b"], [b"abc", b"b", b"a", b"a"]),
    ],
)
def test_only_tokens_that_lead_to_a_whole_text(
    words: list[bytes], texts: list[bytes], first: list[bytes]
) -> None:
    found = automaton(words, texts)
    assert found.possible() == bool(first)
    assert following(found, words) == first
    assert [word for word in words if found.allows(found.start, word)] == first


def test_a_stop_token_follows_a_whole_text_only() -> None:
    words = [b"a", b"b"]
    found = automaton(words, [b"a", b"ab"])
    assert following(found, words) == [b"a"]
    assert following(found, words, b"a") == [STOP, b"b"]
    assert following(found, words, b"ab") == [STOP]
    assert found.step(found.start, b"b") is None
    assert found.step(found.start, b"aba") is None


def test_anything_may_follow_a_text_that_is_free() -> None:
    words = [b"a", b"b", b"abz", b"ac", b"z"]
    found = automaton(words, [b"ab"], free=True)
    assert following(found, words) == [b"a", b"abz"]
    after = found.step(found.start, b"abz")
    assert after is not None
    assert found.step(after, b"anything") is after
    assert found.shortest(after) == b""


def test_the_shortest_way_to_the_end_of_a_text() -> None:
    vocabulary = Vocabulary(tokenizer_of([b"a", b"b", b"c"]))
    texts = [[(b"a",), (b"ccc", b"bb", b"cc")], [(b"a",), (b"b",), (b"bbb",)]]
    found = TextAutomaton(vocabulary, texts, free=False)
    assert found.shortest(found.start) == b"abb"
    for written, rest in ((b"a", b"bb"), (b"ac", b"c"), (b"acc", b""), (b"abb", b""), (b"abbb", b"b")):
        state = found.step(found.start, written)
        assert state is not None
        assert found.shortest(state) == rest
    found = automaton([b"a", b"b"], [b"aaa", b"b"])
    assert found.shortest(found.start) == b"b"
