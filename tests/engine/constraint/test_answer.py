"""Constraints on the answer after a thought, against the texts that may come of it."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.constraint.answer import AnswerFilter, tag_end
from engine.constraint.filter_set import FilterSet
from engine.constraint.grammar import GrammarFilter
from engine.constraint.prefix import PrefixFilter
from engine.constraint.select import SelectFilter
from tests.engine.constraint.fakes import bytes_of, ids, text_of, tokenizer_of, walk

TAGS = (("<t>", "</t>"),)
WORDS = tokenizer_of([
    *bytes_of('<t>/ab \n"{}:1'), b"<t", b"<t>", b"</", b"</t", b"t>", b">a", b"> ", b">\n\n", b"</t>",
    b"</t>a", b"</t> ", b"x</t>b", b"ab", b"  ", b" a", b"a</", b'{"',
])  # fmt: skip
STOP = WORDS.stop_token_ids[0]


def make(pattern: str, opened: bool) -> AnswerFilter:
    inner = GrammarFilter.regex(WORDS, pattern)
    return AnswerFilter(WORDS, inner, tag_end("</t>") if opened else None, () if opened else TAGS)


def token_of(data: bytes) -> int:
    return next(id for id in range(WORDS.vocab_size) if WORDS.token_bytes(id) == data)


def answer_of(text: str, opened: bool) -> str | None:
    """The answer in a reply; None if its thought does not end."""
    if not opened:
        if not text.startswith("<t>"):
            return text
        text = text[3:]
    _, closing, answer = text.partition("</t>")
    return answer if closing else None


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("pattern", ["a(ba)*", "(a|b){2,5}", "<a|ab"])
def test_every_walk_ends_in_an_answer_that_fits(pattern: str, opened: bool) -> None:
    whole = 0
    for seed in range(150):
        one = make(pattern, opened)
        tokens = walk(one, WORDS, random.Random(seed), 400)
        answer = answer_of(text_of(WORDS, tokens).decode(), opened)
        if one.may_end:
            assert answer is not None
            assert re.fullmatch(rf"[ \n]{{0,8}}(?:{pattern})", answer)
            whole += 1
    assert whole > 100


def test_in_a_thought_everything_is_allowed_but_its_end_and_the_answer_in_one_token() -> None:
    one = make("ab", opened=True)
    forbidden = {STOP, token_of(b"</t>a"), token_of(b"x</t>b")}
    assert set(ids(one.mask())) == set(range(WORDS.vocab_size)) - forbidden
    for data in (b"a", b"</", b"t"):
        one.accept(token_of(data))
    assert set(ids(one.mask())) == set(range(WORDS.vocab_size)) - forbidden - {token_of(b">a")}
    with pytest.raises(ValueError, match="the answer begins in the token"):
        one.accept(token_of(b">a"))
    with pytest.raises(ValueError, match=f"token {STOP} is not allowed here"):
        one.accept(STOP)
    with pytest.raises(ValueError, match="4 tokens cannot be taken back, 3 were accepted"):
        one.rollback(4)
    assert one.completion(b"") == b">ab"
    assert [one.completion(after) for after in (b">", b"> \n", b">a")] == [b"ab", b"ab", None]
    one.accept(token_of(b">\n\n"))
    blanks = [token_of(data) for data in (b" ", b"\n", b"  ")]
    assert set(ids(one.mask())) == {token_of(b"a"), token_of(b"ab"), *blanks}
    one.accept(token_of(b"ab"))
    assert (one.may_end, one.ended) == (True, True)


def test_a_thought_may_open_where_the_answer_may_begin() -> None:
    one = make("ab", opened=False)
    assert set(ids(one.mask())) == {token_of(data) for data in (b"a", b"ab", b"<", b"<t", b"<t>")}
    one.accept(token_of(b"<"))
    assert set(ids(one.mask())) == {token_of(b"t"), token_of(b"t>")}
    assert not one.may_end
    assert one.completion(b"") == b"t></t>ab"
    with pytest.raises(ValueError, match="is not allowed here"):
        one.accept(token_of(b"a"))
    one.rollback(1)
    assert [one.completion(after) for after in (b"", b"a", b"<t>x")] == [b"ab", b"b", b"</t>ab"]
    one.accept(token_of(b"ab"))
    assert one.ended


def test_what_may_be_either_is_not_decided_early() -> None:
    one = make("<t(b|>)b", opened=False)
    one.accept(token_of(b"<t"))
    assert {token_of(b"b"), token_of(b">"), token_of(b"> ")} <= set(ids(one.mask()))
    one.accept(token_of(b">"))  # now it is a thought
    assert STOP not in ids(one.mask())
    one.accept(token_of(b"</t>"))
    one.rollback(2)  # back to where it was not yet
    one.accept(token_of(b"b"))
    one.accept(token_of(b"b"))
    assert one.ended


def test_a_thought_that_opens_as_an_answer_might_is_completed() -> None:
    one = make("<a|ab", opened=False)
    one.accept(token_of(b"<t"))
    assert one.completion(b"") == b"></t>ab"
    one = make("<a|ab", opened=False)
    for data in (b"<", b"t"):
        one.accept(token_of(data))
    assert one.completion(b"") == b"></t>ab"
    one.rollback(1)
    assert one.completion(b"") == b"a"
    one.accept(token_of(b"a"))
    assert one.ended


def test_going_back_from_an_answer_to_before_its_thought() -> None:
    one = make("<a|ab", opened=False)
    for data in (b"<", b"t>", b"</t> ", b"ab"):
        one.accept(token_of(data))
    assert one.ended
    one.rollback(3)
    assert set(ids(one.mask())) == {token_of(data) for data in (b"a", b"t", b"t>")}
    one.accept(token_of(b"a"))
    assert one.ended


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data(), st.booleans(), st.sampled_from(["a(ba)*", "(a|b){2,5}", "<a|ab", "<t>?a"]))
def test_going_back_leads_to_the_same_state(data: st.DataObject, opened: bool, pattern: str) -> None:
    one, taken = make(pattern, opened), list[int]()
    for _ in range(data.draw(st.integers(1, 25))):
        allowed = [token for token in ids(one.mask()) if token != STOP]
        if one.ended or not allowed:
            break
        taken.append(data.draw(st.sampled_from(allowed)))
        one.accept(taken[-1])
        back = data.draw(st.integers(0, len(taken))) if data.draw(st.integers(0, 3)) == 0 else 0
        one.rollback(back)
        del taken[len(taken) - back :]
        fresh = make(pattern, opened)
        for token in taken:
            fresh.accept(token)
        assert ids(one.mask()) == ids(fresh.mask())
        assert (one.may_end, one.ended) == (fresh.may_end, fresh.ended)
        assert one.completion(b"") == fresh.completion(b"")


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("limit", [12, 14, 20, 60])
def test_a_thought_ends_in_time_for_the_answer(opened: bool, limit: int) -> None:
    """However random the tokens are: with a limit, the answer is whole within it."""
    letters = tokenizer_of([*bytes_of('<t>/ab \n"{}:1'), b"</t>", b"<t>", b'{"', b'":', b"ab"])
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    thoughts = 0
    for seed in range(20):
        inner = GrammarFilter.json_schema(letters, schema)
        end = tag_end("</t>") if opened else None
        one = FilterSet([AnswerFilter(letters, inner, end, () if opened else TAGS)])
        one.begin()
        draw, tokens = random.Random(seed), list[int]()
        while not one.ended:
            one.remaining = limit - len(tokens)
            mask = one.mask()
            token = draw.choice([token for token in ids(mask) if one.fits(token)] or ids(one.forced()))
            if token in letters.stop_token_ids:
                break
            one.accept(token)
            tokens.append(token)
            assert len(tokens) <= limit
        answer = answer_of(text_of(letters, tokens).decode(), opened)
        assert answer is not None
        assert json.loads(answer) == {"a": 1}
        thoughts += len(answer) < len(text_of(letters, tokens)) - 3
        one.close()
    assert thoughts


def test_a_beginning_and_choices_come_after_the_thought_too() -> None:
    for inner in (PrefixFilter(WORDS, "ab"), SelectFilter(WORDS, ["ab", "aba"])):
        one = AnswerFilter(WORDS, inner, tag_end("</t>"))
        for data in (b"b", b"</t>", b"\n", b"a", b"b"):
            assert token_of(data) in ids(one.mask())
            assert not one.may_end
            one.accept(token_of(data))
        assert one.may_end


def test_a_healed_reply_has_no_thought() -> None:
    one = make("ab", opened=True)
    one.begin(b"b")
    assert ids(one.mask()) == [token_of(b"b")]
    one.begin(b"")
    assert token_of(b"</") in ids(one.mask())
