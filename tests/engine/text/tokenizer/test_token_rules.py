"""The token bias as text, and tokens that hold certain texts."""

from __future__ import annotations

import math

import pytest

from engine.errors import BadSetting
from engine.text.tokenizer.token_rules import bias_parts, ids_containing, parse_bias
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata, sentencepiece_metadata


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_gguf(byte_level_metadata())


@pytest.fixture(scope="module")
def sentencepiece() -> Tokenizer:
    return Tokenizer.from_gguf(sentencepiece_metadata())


def id_of(tokenizer: Tokenizer, data: bytes) -> int:
    return next(
        id
        for id in range(tokenizer.vocab_size)
        if tokenizer.token_bytes(id) == data and id not in tokenizer.special_ids
    )


@pytest.mark.parametrize(
    ("line", "data", "number"),
    [
        ("a = 1.5", b"a", 1.5),
        ("a=-2", b"a", -2.0),
        ("  a  =  1e-3  ", b"a", 1e-3),
        ("' the' = 2", b" the", 2.0),
        ('" the" = 2', b" the", 2.0),
        ("fox = 2", b" fox", 2.0),  # no token without its space
        ("'7' = 3", b"7", 3.0),
        ("'\\n' = -1", b"\n", -1.0),
        ("\\n = -1", b"\\", None),
        ("'\\\\' = 1", b"\\", 1.0),
        ("= = 1", b"=", 1.0),
        ("'=' = 1", b"=", 1.0),
        ('" = 1', b'"', 1.0),
        ("'\\'' = 1", b"'", 1.0),
        ("a = never", b"a", -math.inf),
        ("a = ban", b"a", -math.inf),
        ("a = -inf", b"a", -math.inf),
        ("ا = 1", "ا".encode(), 1.0),
    ],
)
def test_lines(tokenizer: Tokenizer, line: str, data: bytes, number: float | None) -> None:
    if number is None:
        with pytest.raises(BadSetting, match="which is 2 tokens"):
            parse_bias([line], tokenizer)
        return
    assert parse_bias([line], tokenizer) == ((id_of(tokenizer, data), number),)


def test_ids_control_tokens_and_repeats(tokenizer: Tokenizer) -> None:
    assert parse_bias(["12 = 1", "", "  ", "13 = 2", "12 = 3"], tokenizer) == ((12, 3.0), (13, 2.0))
    assert parse_bias(["<|im_end|> = ban"], tokenizer) == ((2, -math.inf),)
    assert parse_bias([], tokenizer) == ()


def test_sentencepiece_tells_a_word_from_its_middle(sentencepiece: Tokenizer) -> None:
    middle, begin = id_of(sentencepiece, b"nd"), id_of(sentencepiece, b" nd")
    assert parse_bias(["' nd' = 1", "'nd' = 2"], sentencepiece) == ((begin, 1.0), (middle, 2.0))
    newline = parse_bias(["'\\n' = 1"], sentencepiece)[0][0]
    assert sentencepiece.token_bytes(newline) == b"\n"
    with pytest.raises(BadSetting, match="not a token without a space"):
        parse_bias(["'fox' = 1"], sentencepiece)
    assert parse_bias(["fox = 1"], sentencepiece) == ((id_of(sentencepiece, b" fox"), 1.0),)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a", "an equals sign and a number"),
        ("= 1", "cannot be read"),
        ("a = x", "ends in 'x', but a number was expected"),
        ("a =", "ends in ''"),
        ("a = inf", "ends in 'inf'"),
        ("a = nan", "ends in 'nan'"),
        ("999999 = 1", "names token 999999, but ids go from 0 to"),
        ("completely unlikely = 1", r"'completely unlikely', which is \d+ tokens"),
        ("' ' ' = 1", "which is 3 tokens"),
    ],
)
def test_bad_lines(tokenizer: Tokenizer, line: str, words: str) -> None:
    with pytest.raises(BadSetting, match=words) as caught:
        parse_bias([line], tokenizer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["tokenizer", "sentencepiece"])
def test_ids_containing(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    for texts in [("\n",), ("\\n", ":", '"', "*"), ("e", "\\t"), (), ("",), ("é",), ("th", "th")]:
        needles = [text.replace("\\n", "\n").replace("\\t", "\t").encode() for text in texts if text]
        expected = {
            id
            for id in range(tokenizer.vocab_size)
            if any(needle in tokenizer.token_bytes(id) for needle in needles)
        }
        assert ids_containing(tokenizer, texts) == expected | tokenizer.special_ids
    assert ids_containing(tokenizer, ["e", "\t"]) is ids_containing(tokenizer, ["\t", "e"])


def test_parts_of_a_line_need_no_tokenizer() -> None:
    assert bias_parts(" 'a = b' = -2 ") == ("'a = b'", -2.0)
    with pytest.raises(BadSetting, match="an equals sign"):
        bias_parts("a")
