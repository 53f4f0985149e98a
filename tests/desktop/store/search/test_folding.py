"""Folded text, tokens, and mapping positions back to the original text."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.store.search.folding import (
    LONGEST_TOKEN,
    _tokens,
    first_place,
    fold,
    index_text,
    places,
    query_terms,
    query_words,
)

SCRIPTS = st.text(
    st.sampled_from('abcXYZ ßéÉøĳﬁ\u0301\u0327日本語がガｶﾞ한국กำไทย👍🏽\u200d\ufe0f_-.\n"*अनुच्छेदЁжԵְ'),
    max_size=30,
)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("HELLO", "hello"),
        ("Straße", "strasse"),
        ("Ärger", "arger"),
        ("A\u0308rger", "arger"),
        ("Łódź", "lodz"),
        ("ﬁne", "fine"),
        ("ＦＵＬＬ", "full"),
        ("İstanbul", "istanbul"),
        ("soft\u00adhy\u200bphen", "softhyphen"),
        ("شَمْس", "شمس"),
        ("Ёлка", "елка"),
        ("Smørrebrød på Đerdap", "smorrebrod pa derdap"),  # as they are typed where there is no such letter
        ("Ħal Æther œuvre", "hal aether oeuvre"),
        ("Sığır, Þórður", "sigir, thordur"),
        ("كتـاب", "كتاب"),
    ],
)
def test_what_counts_as_the_same(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_kana_keep_their_voicing() -> None:
    assert fold("か") != fold("が") == fold("ｶﾞ".translate({0xFF76: "か", 0xFF9E: "\u3099"}))
    assert fold("ガ") == fold("ｶﾞ")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("the cat, the CAT.", "the cat"),
        ("read_file(path)", "read file path"),
        ("中国的", "中国 国的 的"),
        ("iPhone手机x", "iphone 手机 机 x"),
        ("a" * 60, "a" * LONGEST_TOKEN),
        ("--- *** ---", ""),
        ("ok👍", "ok 👍"),
        ("\0\x01", ""),
    ],
)
def test_tokens(text: str, tokens: str) -> None:
    assert index_text(text) == tokens


@given(st.text(max_size=60) | SCRIPTS)
def test_tokens_are_those_of_the_folded_text(text: str) -> None:
    """An import translates each text once, with both tables in one, and splits each word once."""
    assert index_text(text) == " ".join(dict.fromkeys(_tokens(fold(text))))


@pytest.mark.slow
def test_each_character_is_indexed_as_it_is_folded() -> None:
    for first in (*range(0, 0x32000, 256), 0xE0000, 0xE0100, 0xF0000, 0x10FF00):
        text = "b ".join(chr(code) for code in range(first, first + 256) if not 0xD800 <= code < 0xE000)
        assert index_text(text) == " ".join(dict.fromkeys(_tokens(fold(text)))), hex(first)


def test_terms_of_a_query() -> None:
    assert query_terms("cat") == (("cat", True),)
    assert query_terms("cat.") == (("cat", False),)
    assert query_terms("don't") == (("don", False), ("t", True))
    assert query_terms("中") == (("中", True),)
    assert query_terms("中国的") == (("中国", False), ("国的", False))
    assert query_terms("§§") == ()
    assert query_words(" The\0the  Ä\u0301 ") == ("the", "a")


@given(SCRIPTS, SCRIPTS)
def test_a_message_has_the_terms_of_every_word_at_the_start_of_a_word(before: str, word: str) -> None:
    tokens = f" {index_text(before + ' ' + word + ' and more')} "
    for part in query_words(word):
        for term, begins in query_terms(part):
            assert (f" {term}" if begins else f" {term} ") in tokens


@given(st.text(max_size=40) | SCRIPTS)
def test_folding_is_idempotent(text: str) -> None:
    folded = fold(text)
    if all(unicodedata.category(char) != "Cn" for char in folded):
        assert fold(folded) == folded


@given(SCRIPTS, SCRIPTS, SCRIPTS)
def test_places_lead_back_to_the_text(before: str, word: str, after: str) -> None:
    text = before + word + after
    words = query_words(word)
    found = places(text, words)
    assert all(0 <= first < behind <= len(text) for first, behind in found)
    assert all(one[1] <= other[0] for one, other in pairwise(found))
    for part in words:
        assert any(part in fold(text[first:behind]) for first, behind in found)
    if words:
        assert first_place(text, words) == min((first for first, _ in found), default=0)


def test_the_first_place_far_in_a_long_text() -> None:
    text = "é" + "\u0301" * 700 + "ß" * 1000 + "Ünder"
    assert first_place(text, ("under",)) == 1701
    assert (first_place("plain words", ("no",)), first_place("Grüße", ("no",))) == (0, 0)
    assert places("naïve Café\u0301 now", ("cafe",)) == ((6, 11),)
    for count in (255, 256, 300):  # nothing is left of it
        assert first_place("\u0301" * count, ("a",)) == 0


def test_places_that_overlap_or_touch_are_one() -> None:
    assert places("abcde xab", ("bcd", "abc", "b", "de", "x")) == ((0, 5), (6, 7), (8, 9))
