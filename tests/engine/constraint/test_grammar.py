"""Grammar filters against languages by derivatives, and what becomes of grammars that cannot be followed."""

from __future__ import annotations

import gc
import json
import random
import re
import threading
import time
import weakref
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.constraint.grammar import GrammarFilter
from engine.constraint.grammar_source import lark_source, regex_source, schema_source
from engine.constraint.llguidance_tokens import llguidance_tokenizer
from engine.constraint.vocabulary import vocabulary_of
from engine.errors import BadSetting
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.constraint.fakes import allowed_ids, bytes_of, ids, some_words, text_of, tokenizer_of, walk
from tests.engine.constraint.languages import (
    EMPTY,
    NONE,
    Expression,
    Node,
    after_all,
    complete,
    expressions,
    literal,
    then,
)
from tests.engine.text.tokenizer.vocabularies import byte_level_folder, sentencepiece_metadata

ALPHABET = "abé漢"


def expected(tokenizer: Tokenizer, language: Node) -> list[int]:
    words = ((i, tokenizer.token_bytes(i)) for i in range(2, tokenizer.vocab_size))
    return [0] * complete(language) + [
        i for i, word in words if word and len(word) < 1000 and after_all(language, word) != NONE
    ]


@pytest.mark.slow
@settings(max_examples=60)
@given(
    words=some_words("abé漢.ba\nbb", 20),
    expression=expressions(ALPHABET),
    prefix=st.binary(max_size=4),
    seed=st.integers(0, 99),
)
def test_masks_are_those_of_the_language(
    words: list[bytes], expression: Expression, prefix: bytes, seed: int
) -> None:
    pattern, language = expression
    tokenizer = tokenizer_of([*words, prefix[:2], prefix + b"a", prefix + "é".encode()])
    try:
        one = GrammarFilter.regex(tokenizer, pattern)
    except BadSetting:
        assert expected(tokenizer, language) == []
        return
    for start in (b"", prefix, b""):
        one.begin(start)
        here = then(literal(start), language)
        draw = random.Random(seed)
        for _ in range(8):
            allowed = expected(tokenizer, here)
            assert ids(one.mask()) == allowed
            assert one.may_end == complete(here)
            assert one.ended == (here == EMPTY)
            with pytest.raises(ValueError, match="not allowed"):
                one.accept(draw.choice([i for i in range(tokenizer.vocab_size) if i not in allowed]))
            assert ids(one.mask()) == allowed
            tokens = [i for i in allowed if i]
            if not tokens:
                break
            token = draw.choice(tokens)
            one.accept(token)
            here = after_all(here, tokenizer.token_bytes(token))


@pytest.mark.slow
@settings(max_examples=100)
@given(
    words=some_words("abé漢.ba\nbb"),
    expression=expressions(ALPHABET),
    prefix=st.binary(max_size=3),
    seed=st.integers(0, 99),
)
def test_what_is_taken_back_never_happened(
    words: list[bytes], expression: Expression, prefix: bytes, seed: int
) -> None:
    tokenizer = tokenizer_of(
        [*words, *bytes_of(ALPHABET), *(prefix[i : i + 1] for i in range(len(prefix))), prefix + b"a"]
    )
    one = GrammarFilter.regex(tokenizer, expression[0])
    one.begin(prefix)
    draw = random.Random(seed)
    states = [(one.mask().tolist(), one.may_end, one.ended)]
    for _ in range(25):
        allowed = ids(one.mask())
        if draw.random() < 0.3 or not allowed or one.ended:
            back = draw.randrange(len(states))
            one.rollback(back)
            del states[len(states) - back :]
        else:
            one.accept(draw.choice(allowed))
            states.append(
                (one.mask().tolist(), one.may_end, one.ended)
                if draw.random() < 0.8
                else (None, one.may_end, one.ended)
            )
        mask, *rest = states[-1]
        assert (rest, True) == ([one.may_end, one.ended], mask is None or mask == one.mask().tolist())
    with pytest.raises(ValueError, match="cannot be taken back"):
        one.rollback(len(states))


@settings(max_examples=60)
@given(words=some_words("ab12 .-é"), seed=st.integers(0, 999))
def test_walks_end_in_matches(words: list[bytes], seed: int) -> None:
    pattern = r"(?:[ab]{1,3}é?|\d+(?:\.\d{1,2})?)(?: - [a-f0-9]{2,4}){0,2}"
    tokenizer = tokenizer_of([*words, *bytes_of("abé12 .-")])
    one = GrammarFilter.regex(tokenizer, f"^{pattern}$")
    tokens = walk(one, tokenizer, random.Random(seed), 400)
    if one.may_end:
        assert re.fullmatch(pattern, text_of(tokenizer, tokens).decode())
    else:
        assert len(tokens) == 400


def test_lark_grammar() -> None:
    tokenizer = tokenizer_of([*bytes_of("0123456789+-*() "), b"12", b" + ", b"((", b"))", b") *"])
    sums = (
        'start: sum\nsum: part (/ ?[-+*] ?/ part)*\npart: NUMBER | "(" sum ")"\nNUMBER: /[1-9][0-9]{0,2}/\n'
    )
    one = GrammarFilter.lark(tokenizer, sums)
    ended = 0
    for seed in range(60):
        one.begin(b"")
        tokens = walk(one, tokenizer, random.Random(seed), 300)
        if one.may_end:
            ended += 1
            assert isinstance(eval(text_of(tokenizer, tokens)), int)
    assert ended > 30


def test_digits_are_those_of_ascii() -> None:
    one = GrammarFilter.regex(tokenizer_of([b"1", "٣".encode(), b"a", "é".encode()]), r"\d|\w{2}")
    assert ids(one.mask()) == [2, 3, 4, 5]
    assert ids(GrammarFilter.regex(tokenizer_of([b"1", "٣".encode()]), r"\d+").mask()) == [2]


def test_the_stop_tokens_end() -> None:
    tokenizer = tokenizer_of(bytes_of("ab"))
    one = GrammarFilter.regex(tokenizer, "a+b?")
    one.accept(2)
    assert (ids(one.mask()), one.may_end, one.ended) == ([0, 2, 3], True, False)
    one.accept(0)
    assert (ids(one.mask()), one.may_end, one.ended) == ([0], True, True)
    with pytest.raises(ValueError, match="not allowed"):
        one.accept(0)
    one.rollback(1)
    one.accept(3)
    assert (ids(one.mask()), one.may_end, one.ended) == ([0], True, True)
    one.rollback(2)
    with pytest.raises(ValueError, match="not allowed"):
        one.accept(0)


def test_what_completes_a_text_follows_what_is_there_and_what_is_to_come() -> None:
    tokenizer = tokenizer_of([*bytes_of("abcd"), b"bc"])
    one = GrammarFilter.regex(tokenizer, "abcd")
    assert [one.completion(after) for after in (b"", b"a", b"abcd", b"x")] == [b"abcd", b"bcd", b"", None]
    one.begin(b"ab")  # the first token repeats this
    assert [one.completion(after) for after in (b"", b"a", b"ab", b"aba", b"b", b"xbc")] == [
        b"ababcd", b"babcd", b"abcd", b"bcd", None, None,
    ]  # fmt: skip
    one.begin(b"")
    for token in bytes_of("abcd"):
        one.accept(next(id for id in range(tokenizer.vocab_size) if tokenizer.token_bytes(id) == token))
    one.accept(tokenizer.stop_token_ids[0])
    assert (one.completion(b""), one.completion(b"a")) == (b"", None)
    with pytest.raises(ValueError, match="6 tokens cannot be taken back, 5 were accepted"):
        one.rollback(6)
    one.rollback(3)
    assert one.completion(b"") == b"cd"


def test_a_dead_end_can_be_taken_back() -> None:
    tokenizer = tokenizer_of([b"a", b"b"])
    one = GrammarFilter.regex(tokenizer, "ab|aac|b")
    for token in (2, 2):
        one.accept(token)
    assert (ids(one.mask()), one.may_end, one.ended) == ([], False, False)
    one.rollback(1)
    assert ids(one.mask()) == [2, 3]
    one.accept(3)
    assert one.ended


def test_vocabularies_without_a_stop_token_and_with_long_tokens() -> None:
    tokenizer = tokenizer_of([b"a" * 3000, b"a", b"\xff", b"a\xffb"])
    tokenizer.stop_token_ids = ()
    one = GrammarFilter.regex(tokenizer, "(?s:.){1,3}")
    assert ids(one.mask()) == [3]
    for _ in range(3):
        one.accept(3)
    assert one.ended
    assert ids(one.mask()) == []


@pytest.mark.parametrize("kind", ["byte level", "sentencepiece"])
def test_real_kinds_of_vocabularies(kind: str, tmp_path: Path) -> None:
    if kind == "sentencepiece":
        tokenizer = Tokenizer.from_gguf(sentencepiece_metadata())
    else:
        tokenizer = Tokenizer.from_folder(byte_level_folder(tmp_path))
    texts = ["the quick größte über 漢字 12", '{"a": [1, 2]}', "😀 naïve\n\n"]
    for text in texts:
        one = GrammarFilter.regex(tokenizer, re.escape(text).replace("\\\n", "\\n"))
        one.begin(b"")
        for token in _encoded(tokenizer, text):
            assert token in ids(one.mask())
            one.accept(token)
        assert one.ended
    one = GrammarFilter.regex(tokenizer, "(?s:.)*")
    allowed = set(ids(one.mask()))
    assert allowed.isdisjoint(tokenizer.special_ids - set(tokenizer.stop_token_ids))
    utf8 = [
        i
        for i in range(tokenizer.vocab_size)
        if i not in tokenizer.special_ids and _utf8(tokenizer.token_bytes(i))
    ]
    assert set(utf8) <= allowed
    assert set(tokenizer.stop_token_ids) <= allowed


def _encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text without the space that SentencePiece puts before it."""
    if not tokenizer.strips_leading_space:
        return tokenizer.encode(text)
    before = tokenizer.encode("\n")
    return tokenizer.encode("\n" + text)[len(before) :]


def _utf8(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def test_the_tokenizer_is_made_once_and_forgotten_with_its_own() -> None:
    tokenizer = tokenizer_of([b"a"])
    assert llguidance_tokenizer(tokenizer) is llguidance_tokenizer(tokenizer)
    one = GrammarFilter.regex(tokenizer, "a")
    gone = weakref.ref(tokenizer)
    del tokenizer, one
    gc.collect()
    assert gone() is None


HARD = [
    "(.*a){50}",
    ".*a.{200}",
    "(a{1000}){1000}",
    "((a+)+)+b",
    r"(\p{L}{1,30} ){5,100}\.",
    "([ab]*a[ab]{20}|[ab]*b[ab]{21}c)+",
]


@pytest.mark.parametrize("pattern", HARD)
def test_hard_expressions_take_bounded_time(pattern: str) -> None:
    tokenizer = tokenizer_of([*bytes_of("ab. é"), b"aa", b"ab", b"aaaa"])
    one = GrammarFilter.regex(tokenizer, pattern)
    longest = 0.0
    draw = random.Random(0)
    for _ in range(200):
        start = time.process_time()
        mask = one.mask()
        longest = max(longest, time.process_time() - start)
        assert mask.any()
        if one.ended:
            break
        one.accept(draw.choice([token for token in ids(mask) if token]))
    assert longest < 0.5


def many(one: GrammarFilter, token: int, accepted: list[int]) -> None:
    """The same token on and on."""
    while len(accepted) < 1000:
        one.mask()
        one.accept(token)
        accepted.append(token)


def test_too_complex_a_grammar_is_said_and_can_be_taken_back() -> None:
    tokenizer = tokenizer_of(bytes_of("ab"))
    one = GrammarFilter.regex(tokenizer, "((a{0,100}){0,100}){0,100}b")
    accepted: list[int] = []
    with pytest.raises(BadSetting, match="The regular expression is too complex; simplify it"):
        many(one, 2, accepted)
    assert accepted
    one.begin(b"")
    assert ids(one.mask()) == [2, 3]


def test_grammars_without_texts() -> None:
    tokenizer = tokenizer_of(bytes_of('ab{}":'))
    for make in (
        lambda: GrammarFilter.lark(tokenizer, 'start: a\na: b a\nb: a "a"'),
        lambda: GrammarFilter.json_schema(tokenizer, {"$ref": "#"}),
        lambda: GrammarFilter.regex(tokenizer, "x"),
    ):
        with pytest.raises(BadSetting, match="No text can satisfy"):
            make()


def test_a_long_chain_of_rules_fits_on_the_stack() -> None:
    """Compiled by recursion in native code: on a usual stack of 1 MiB it would end the process."""
    tokenizer = tokenizer_of(bytes_of("xyz"))
    chain = (
        "start: a0\n" + "".join(f'a{i}: "x" a{i + 1} | a{i + 1} "y"\n' for i in range(1990)) + 'a1990: "z"\n'
    )
    found: list[list[int]] = []
    before = threading.stack_size(1 << 20)
    try:
        thread = threading.Thread(
            target=lambda: found.append(ids(GrammarFilter.lark(tokenizer, chain).mask()))
        )
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found == [[2, 4]]


def test_json_of_parsed_and_written_schemas() -> None:
    tokenizer = tokenizer_of(bytes_of('{}[]",:ab10'))
    properties = {"b": {"const": 1}, "a": {"enum": ["a", "b"]}}
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["b", "a"],
        "additionalProperties": False,
    }
    options = {"x-guidance": {"whitespace_flexible": False}}
    for given_schema in ({**schema, **options}, json.dumps({**schema, **options})):
        one = GrammarFilter.json_schema(tokenizer, given_schema)
        found = {
            text_of(tokenizer, walk(one, tokenizer, random.Random(seed)))
            for seed in range(20)
            if one.begin(b"") is None
        }
        assert found == {b'{"b":1,"a":"a"}', b'{"b":1,"a":"b"}'}
    assert "x-guidance" not in schema


def test_the_prefix_of_a_healed_token() -> None:
    tokenizer = tokenizer_of(
        [b" ", b" {", b"{", b'"', b' {"', b"\xe6", b"\xe6\xbc", b"\xa2", b"\xe6\xbc{", b"\xff{", b"\xff"]
    )
    one = GrammarFilter.json(tokenizer)
    for prefix, allowed in ((b" ", [2, 3, 6]), (b"\xe6\xbc", [7, 8, 10]), (b"\xff", [11, 12]), (b"?", [])):
        one.begin(prefix)
        assert ids(one.mask()) == allowed
    one.begin(b" ")
    one.accept(6)
    assert ids(one.mask()) == [2, 3, 4, 5, 6, 7, 8]
    one.rollback(1)
    one.accept(2)
    assert ids(one.mask()) == [4]
    one.begin(b"")
    assert ids(one.mask()) == [4]


def test_a_copy_has_accepted_nothing_and_goes_its_own_way() -> None:
    one = GrammarFilter(tokenizer_of([b"a", b"b"]), regex_source("a?b|bb"))
    one.accept(2)
    other = one.copy()
    assert (one.length, ids(one.mask())) == (1, [3])
    assert (other.length, ids(other.mask())) == (0, [2, 3])
    other.accept(3)
    assert (ids(one.mask()), ids(other.mask()), other.may_end) == ([3], [0, 3], True)
    assert other.completion(b"") == b""
    assert one.completion(b"") == b"b"


def test_a_source_can_be_used_again() -> None:
    source = regex_source("a{2}")
    for words in ([b"a"], [b"b", b"a", b"aa"]):
        one = GrammarFilter(tokenizer_of(words), source)
        assert [vocabulary_of(tokenizer_of(words)).texts[i] for i in allowed_ids(one.mask())] == [
            word for word in words if word != b"b"
        ]


def test_half_a_surrogate_pair_is_the_character_that_stands_for_it() -> None:
    """As in what is written: it has no UTF-8, in which grammars are compiled."""
    assert regex_source("a[\ud800]").text == regex_source("a[\ufffd]").text
    assert lark_source('start: "\ud800"').text == lark_source('start: "\ufffd"').text
    assert schema_source('{"const": "\udfff"}').text == schema_source('{"const": "\ufffd"}').text


def test_an_expression_has_no_references_to_count() -> None:
    """A long one may hold what would be rules of a grammar."""
    assert regex_source("(" + "a: " * 2_001 + ")?").text
    assert regex_source("a*").least == 0
