"""Prefix and select filters against a search over all tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.constraint.prefix import PrefixFilter
from engine.constraint.select import SelectFilter
from engine.constraint.vocabulary import vocabulary_of
from engine.errors import BadSetting
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.constraint.fakes import bytes_of, ids, some_words, text_of, tokenizer_of, walk

ALPHABET = "aabé漢😀"
texts = st.lists(st.text(ALPHABET, max_size=4), min_size=1, max_size=4)
TextFilter = PrefixFilter | SelectFilter


def may_follow(tokenizer: Tokenizer, required: Sequence[bytes], so_far: bytes, *, free: bool) -> list[int]:
    """By trying every token, whether a text can still be completed after it."""
    words = {i: tokenizer.token_bytes(i) for i in range(2, tokenizer.vocab_size) if tokenizer.token_bytes(i)}

    @cache
    def possible(data: bytes) -> bool:
        if data in required or (free and any(data.startswith(text) for text in required)):
            return True
        return any(text.startswith(data) for text in required) and any(
            possible(data + word) for word in words.values()
        )

    allowed = [i for i, word in words.items() if possible(so_far + word)]
    return sorted(allowed + ([0] if so_far in required else []))


def test_select() -> None:
    tokenizer = tokenizer_of([b"y", b"ye", b"yes", b"es", b"s", b"no", b"n", b"o", b" no", b"yes!", b"x"])
    one = SelectFilter(tokenizer, ["yes", "no", "yes!"])
    assert ids(one.mask()) == [2, 3, 4, 7, 8, 11]
    assert not one.may_end
    one.accept(3)
    assert ids(one.mask()) == [6]
    one.accept(6)
    assert (one.may_end, one.ended, ids(one.mask())) == (True, True, [0])  # no token for "!" alone
    one.rollback(1)
    assert (one.may_end, ids(one.mask())) == (False, [6])
    one.begin(b"")
    one.accept(8)
    one.accept(9)
    assert one.ended
    one.accept(0)
    assert (one.may_end, one.ended) == (True, True)
    one.rollback(2)
    one.rollback(0)
    assert ids(one.mask()) == [9]


def test_what_is_not_allowed_is_refused_and_changes_nothing() -> None:
    tokenizer = tokenizer_of([b"y", b"yes", b"no", b""])
    for one in (SelectFilter(tokenizer, ["yes", "no"]), PrefixFilter(tokenizer, "no")):
        before = ids(one.mask())
        # another text, control tokens, a token without text, ids that are none
        for token in (2 if isinstance(one, PrefixFilter) else 0, 1, 5, -1, tokenizer.vocab_size):
            with pytest.raises(ValueError, match=f"token {token} is not allowed here"):
                one.accept(token)
        assert (ids(one.mask()), one.may_end, one.ended) == (before, False, False)
        one.accept(4)
        assert one.may_end


def test_another_reply_repeats_its_own_prefix_or_none() -> None:
    tokenizer = tokenizer_of([b"y", b"yes", b"es", b"no"])
    one = SelectFilter(tokenizer, ["yes", "no"])
    for prefix, allowed in ((b"", [2, 3, 5]), (b"y", [2]), (b"no", [5]), (b"y", [2]), (b"", [2, 3, 5])):
        one.begin(prefix)
        assert ids(one.mask()) == allowed


def test_after_a_stop_token_nothing_completes_a_text() -> None:
    tokenizer = tokenizer_of([b"yes", b"no"])
    one = SelectFilter(tokenizer, ["yes", "no"])
    assert (one.completion(b"y"), one.completion(b"x")) == (b"es", None)
    one.accept(2)
    one.accept(0)
    assert (one.completion(b""), one.completion(b"no")) == (b"", None)


def test_a_longer_choice_may_follow() -> None:
    tokenizer = tokenizer_of([b"maybe", b" not", b" ", b"not"])
    one = SelectFilter(tokenizer, ["maybe", "maybe not"])
    one.accept(2)
    assert (one.may_end, one.ended, ids(one.mask())) == (True, False, [0, 3, 4])
    one.accept(0)
    assert (one.may_end, one.ended, ids(one.mask())) == (True, True, [0])
    with pytest.raises(ValueError, match="not allowed"):
        one.accept(4)
    one.rollback(1)
    one.accept(4)
    assert (one.may_end, one.ended, ids(one.mask())) == (False, False, [5])
    one.accept(5)
    assert (one.may_end, one.ended) == (True, True)


def test_prefix() -> None:
    tokenizer = tokenizer_of([b"S", b"Su", b"Sure", b"re", b"u", b"Surely not", b"x"])
    one = PrefixFilter(tokenizer, "Sure")
    assert ids(one.mask()) == [2, 3, 4, 7]
    one.accept(3)
    assert (ids(one.mask()), one.may_end) == ([5], False)
    one.accept(5)
    assert (one.mask(), one.may_end, one.ended) == (None, True, False)
    for token in (8, 1, 0):  # anything may follow, control tokens too
        one.accept(token)
    one.rollback(4)
    assert (ids(one.mask()), one.may_end) == ([5], False)
    assert PrefixFilter(tokenizer, "").mask() is None


def test_case_insensitive() -> None:
    tokenizer = tokenizer_of(bytes_of("straßeSTRASSEäÄ"))
    one = SelectFilter(tokenizer, ["straße", "Ä"], case_insensitive=True)
    found = {
        text_of(tokenizer, walk(one, tokenizer, random.Random(seed))).decode()
        for seed in range(300)
        if one.begin(b"") is None
    }
    assert {text.casefold() for text in found} == {"strasse", "ä"}
    assert len(found) > 60
    assert {"ä", "Ä"} <= found
    assert any("ß" in text for text in found)
    assert any("SS" in text for text in found)
    plain = SelectFilter(tokenizer, ["straße"])
    assert text_of(tokenizer, walk(plain, tokenizer, random.Random(0))).decode() == "straße"


@pytest.mark.slow
@settings(max_examples=300)
@given(
    words=some_words("aabé漢😀bb"),
    required=texts,
    prefix=st.binary(max_size=3),
    free=st.booleans(),
    seed=st.integers(0, 9),
)
def test_masks_are_those_of_a_search(
    words: list[bytes], required: list[str], prefix: bytes, free: bool, seed: int
) -> None:
    tokenizer = tokenizer_of(words + bytes_of("ab") * (seed % 2))
    try:
        one: TextFilter = PrefixFilter(tokenizer, required) if free else SelectFilter(tokenizer, required)
    except BadSetting:
        assert not set(may_follow(tokenizer, [text.encode() for text in required], b"", free=free)) - {0}
        assert "" not in required
        return
    for start in (b"", prefix):
        complete = [start + text.encode() for text in required]
        one.begin(start)
        data = b""
        draw = random.Random(seed)
        for _ in range(12):
            expected = may_follow(tokenizer, complete, data, free=free)
            mask = one.mask()
            if mask is None:
                assert (free, one.may_end) == (True, True)
                assert any(data.startswith(text) for text in complete)
                break
            assert ids(mask) == expected
            assert one.may_end == (data in complete)
            assert one.ended == (expected == [0])
            refused = [i for i in range(tokenizer.vocab_size) if i not in expected]
            with pytest.raises(ValueError, match="not allowed"):
                one.accept(draw.choice(refused))
            tokens = [i for i in expected if i]
            if not tokens:
                break
            token = draw.choice(tokens)
            one.accept(token)
            data += tokenizer.token_bytes(token)


@settings(max_examples=100)
@given(words=some_words("aabé漢😀bb"), required=texts, free=st.booleans(), seed=st.integers(0, 99))
def test_what_is_taken_back_never_happened(
    words: list[bytes], required: list[str], free: bool, seed: int
) -> None:
    tokenizer = tokenizer_of(words + bytes_of(ALPHABET))
    one: TextFilter = PrefixFilter(tokenizer, required) if free else SelectFilter(tokenizer, required)
    draw = random.Random(seed)
    states = []
    for _ in range(10):
        mask = one.mask()
        states.append((None if mask is None else mask.tolist(), one.may_end, one.ended))
        if one.ended:
            break
        one.accept(draw.choice(ids(mask) if mask is not None else [2]))
    else:
        one.rollback(1)
    while len(states) > 1:
        back = draw.randrange(1, len(states))
        one.rollback(back)
        del states[-back:]
        mask = one.mask()
        assert states[-1] == (None if mask is None else mask.tolist(), one.may_end, one.ended)
    with pytest.raises(ValueError, match="1 tokens cannot be taken back, 0 were accepted"):
        one.rollback(1)


def test_texts_that_cannot_be_written() -> None:
    tokenizer = tokenizer_of([b"a", b"bc"])
    for make in (lambda: SelectFilter(tokenizer, ["ab", "c"]), lambda: PrefixFilter(tokenizer, "acd")):
        with pytest.raises(BadSetting, match="no tokens for characters"):
            make()
    assert (
        text_of(tokenizer, walk(SelectFilter(tokenizer, ["ab", "abc"]), tokenizer, random.Random(0)))
        == b"abc"
    )
    assert ids(PrefixFilter(tokenizer, "ab").mask()) == [2]  # "bc" then goes beyond
    for empty in ([], ()):
        with pytest.raises(BadSetting, match="at least one"):
            SelectFilter(tokenizer, empty)
        with pytest.raises(BadSetting, match="at least one"):
            PrefixFilter(tokenizer, empty)


def test_half_a_surrogate_pair_is_a_replacement_character() -> None:
    tokenizer = tokenizer_of(bytes_of("\ufffd😀"))
    one = SelectFilter(tokenizer, ["\ud83d", "\ud83d\ude00"])
    found = {
        text_of(tokenizer, walk(one, tokenizer, random.Random(seed))).decode()
        for seed in range(20)
        if one.begin(b"") is None
    }
    assert found == {"\ufffd", "😀"}


@pytest.mark.slow
def test_long_texts_and_many_choices() -> None:
    tokenizer = tokenizer_of([*bytes_of("abcdefghij0123456789"), b"aaaa", b"bc"])
    text = "abc" * 3000
    one = PrefixFilter(tokenizer, text)
    assert text_of(tokenizer, walk(one, tokenizer, random.Random(0), 8000)).decode().startswith(text[:8000])
    without_c = tokenizer_of([b"a", b"b", b"bc", b"ab"])
    assert (
        text_of(
            without_c, walk(SelectFilter(without_c, [text]), without_c, random.Random(1), 10_000)
        ).decode()
        == text
    )
    choices = [f"a{i}" for i in range(5000)]
    found = text_of(tokenizer, walk(SelectFilter(tokenizer, choices), tokenizer, random.Random(2))).decode()
    assert found in choices


@pytest.mark.slow
@settings(max_examples=200)
@given(
    words=st.lists(st.lists(st.sampled_from([0, 97, 0xFE, 0xFF]), max_size=4).map(bytes)),
    beginning=st.binary(min_size=1, max_size=2),
)
def test_where_words_with_a_beginning_are(words: list[bytes], beginning: bytes) -> None:
    beginning = bytes([0, 97, 0xFE, 0xFF][byte % 4] for byte in beginning)
    vocabulary = vocabulary_of(tokenizer_of(words))
    low, high = vocabulary.range_of(beginning)
    assert vocabulary.words[low:high] == sorted(word for word in words if word.startswith(beginning))
    assert (
        [vocabulary.texts[i] for i in vocabulary.ids]
        == vocabulary.words
        == sorted(word for word in words if word)
    )


@pytest.mark.slow
def test_vocabularies_are_forgotten_with_their_tokenizer() -> None:
    import gc
    import weakref

    tokenizer = tokenizer_of([b"a"])
    vocabulary = vocabulary_of(tokenizer)
    assert vocabulary_of(tokenizer) is vocabulary
    gone = weakref.ref(vocabulary)
    del tokenizer, vocabulary
    gc.collect()
    assert gone() is None
