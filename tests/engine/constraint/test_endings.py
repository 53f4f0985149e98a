"""The known end of a reply, alone: what it is after any steps, in how few tokens, and when it narrows what
may be drawn.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.constraint.budget import Budget
from engine.constraint.filter import Filter
from engine.constraint.grammar import GrammarFilter
from engine.constraint.prefix import PrefixFilter
from engine.constraint.select import SelectFilter
from engine.constraint.vocabulary import vocabulary_of
from tests.engine.constraint.fakes import bytes_of, ids, some_words, text_of, tokenizer_of

LETTERS = tokenizer_of(bytes_of("abcd"))
WORDS = tokenizer_of([*bytes_of("abcd"), b"ab", b"bcd", b"abcabc", b"dd"])


def token_of(data: bytes) -> int:
    return vocabulary_of(WORDS).texts.index(data)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_the_ending_is_that_of_the_text_after_any_steps(data: st.DataObject) -> None:
    """Whatever was asked, taken, tried and not taken, and taken back: the known ending completes just this
    text, token by token.
    """
    pattern = data.draw(st.sampled_from(["(ab){3,}d", "a(bcd)*|d+c", "(a|b|cd){4,9}", "(ab|abcabc)+dd"]))
    one = GrammarFilter.regex(WORDS, pattern)
    budget, taken = Budget([one]), list[int]()
    for _ in range(data.draw(st.integers(1, 20))):
        if one.ended:
            break
        allowed = [token for token in ids(one.mask()) if token not in WORDS.stop_token_ids]
        if not allowed:
            break
        for token in data.draw(st.lists(st.sampled_from(allowed), max_size=2)):
            budget.fits(token, 1000)
        token = data.draw(st.sampled_from(allowed))
        one.accept(token)
        budget.accept(token)
        taken.append(token)
        back = data.draw(st.integers(0, len(taken))) if data.draw(st.integers(0, 3)) == 0 else 0
        one.rollback(back)
        budget.rollback(back)
        del taken[len(taken) - back :]
        ending = budget.ending()
        assert ending is not None
        assert one.completion(ending.data) == b""
        assert text_of(WORDS, ending.tokens) == ending.data
    budget.begin()
    one.begin(b"")
    assert budget.ending() == Budget([one]).ending()


@settings(max_examples=100)
@given(
    words=some_words("abcabd", 12),
    text=st.text("abcd", min_size=1, max_size=12),
    banned=st.sets(st.integers(2, 13)),
)
def test_no_other_tokens_are_fewer(words: list[bytes], text: str, banned: set[int]) -> None:
    tokenizer = tokenizer_of(list(dict.fromkeys([*bytes_of("abcd"), *words])))
    vocabulary = vocabulary_of(tokenizer)
    drawable = [token for token in range(tokenizer.vocab_size) if token not in banned]
    fewest: list[int | None] = [0]
    for end in range(1, len(text) + 1):
        parts = {vocabulary.texts[token] for token in drawable}
        before = [fewest[start] for start in range(end) if text[start:end].encode() in parts]
        fewest.append(min((count + 1 for count in before if count is not None), default=None))
    ending = Budget([SelectFilter(tokenizer, [text])], vocabulary.mask_of(drawable)).ending()
    assert (None if ending is None else len(ending.tokens)) == fewest[-1]
    if ending is not None:
        assert text_of(tokenizer, ending.tokens) == text.encode()
        assert not banned.intersection(ending.tokens)


def test_letters_that_are_tried_later_are_tried() -> None:
    """Of many letters some are tried first, which lead to a long ending here."""
    one = GrammarFilter.regex(tokenizer_of(bytes_of("abcdefghijklmnopqrstuvwxyz")), "[a-z]b{300}|q")
    assert one.completion(b"") == b"q"


def test_an_ending_has_control_characters_only_where_nothing_else_ends() -> None:
    every = tokenizer_of(bytes_of("".join(map(chr, range(128)))))
    assert GrammarFilter.regex(every, "- [^\n]+\n").completion(b"") == b"- !\n"
    assert GrammarFilter.regex(every, "[^x]*\x00").completion(b"") == b"\x00"


def test_long_tokens_are_used_and_nothing_that_only_one_filter_completes_is_an_ending() -> None:
    long = tokenizer_of([*bytes_of("ab"), b"a" * 32])
    ending = Budget([SelectFilter(long, ["a" * 32 + "b"])]).ending()
    assert ending is not None
    assert len(ending.tokens) == 2
    ending = Budget([SelectFilter(tokenizer_of([*bytes_of("abcd"), b"ab", b"bcd"]), ["abcd"])]).ending()
    assert ending is not None
    assert len(ending.tokens) == 2  # the longer first token would leave two more
    for texts in (["ab", "abc"], ["abc", "ab"], ["ab", "ab"]):
        both = Budget([SelectFilter(LETTERS, [text]) for text in texts])
        assert (both.ending() is None) == (len(set(texts)) == 2)


@pytest.mark.parametrize("seed", range(6))
def test_a_token_fits_where_the_rest_has_room(seed: int) -> None:
    """Of single letters, so that the shortest text has the fewest tokens."""
    draw = random.Random(seed)
    texts = ["".join(draw.choices("abc", k=draw.randrange(1, 7))) for _ in range(6)]
    one = SelectFilter(LETTERS, texts)
    budget, written = Budget([one]), ""
    while not one.ended:
        allowed = [token for token in ids(one.mask()) if token != 0]
        for token in allowed:
            begun = written + text_of(LETTERS, [token]).decode()
            shortest = min(len(text) - len(written) for text in texts if text.startswith(begun))
            assert [budget.fits(token, remaining) for remaining in range(shortest + 2)] == [
                False
            ] * shortest + [True] * 2
        if one.may_end:
            assert budget.fits(0, 0)  # it ends the text, and takes none of what remains
        token = draw.choice(allowed)
        one.accept(token)
        budget.accept(token)
        written += text_of(LETTERS, [token]).decode()


def test_a_mask_is_narrowed_only_where_little_is_left() -> None:
    words = tokenizer_of([*bytes_of('[]",ab1'), b'"]'])
    one = GrammarFilter.json(words)
    for text in (b"[", b'"', b"a"):
        one.accept(vocabulary_of(words).texts.index(text))
    budget, mask = Budget([one]), one.mask()
    ending = budget.ending()
    assert ending is not None
    assert text_of(words, ending.tokens) == b'"]'
    assert len(ending.tokens) == 1
    hastened, forced = ids(one.hastened(mask)), list(ending.tokens)
    assert len(forced) < len(hastened) < len(ids(mask))
    for remaining, expected in (
        (100, ids(mask)),
        (18, ids(mask)),
        (17, hastened),
        (3, hastened),
        (2, forced),
        (1, forced),
    ):
        assert ids(budget.narrowed(mask, remaining)) == expected
    assert ids(budget.forced(mask)) == list(ending.tokens)
    other = vocabulary_of(words).mask_of([vocabulary_of(words).texts.index(b"b")])
    assert budget.forced(other) is other  # what is not allowed is not forced


def test_what_is_complete_or_has_no_known_end_is_left_alone() -> None:
    full = np.full_like(vocabulary_of(WORDS).text, 0xFFFFFFFF)
    complete = Budget([PrefixFilter(WORDS, "a")])
    complete.accept(token_of(b"a"))
    contradiction: list[Filter] = [SelectFilter(WORDS, ["ab"]), SelectFilter(WORDS, ["cd"])]
    for budget in (Budget([]), Budget(contradiction)):
        assert budget.ending() is None
        assert budget.narrowed(full, 1) is full
        assert budget.forced(full) is full
        assert budget.fits(token_of(b"d"), 0)
    one = PrefixFilter(WORDS, "a")
    one.accept(token_of(b"a"))
    finished = Budget([one])
    ending = finished.ending()
    assert ending is not None
    assert (ending.data, ending.tokens) == (b"", ())
    assert finished.narrowed(full, 1) is full
    assert finished.forced(full) is full
    assert finished.fits(token_of(b"d"), 1)
    assert not finished.fits(token_of(b"d"), 0)
