"""Random walks through many JSON schemas with the starter's vocabulary: every text is valid, as the
jsonschema package says.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from engine.constraint.grammar import GrammarFilter
from engine.constraint.vocabulary import Mask, Vocabulary, allows, vocabulary_of
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.weights.checkpoint import open_checkpoint
from tests.engine.constraint.fakes import allowed_ids, ids, text_of

SCHEMAS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "schemas.json").read_text(encoding="utf-8")
)
pytestmark = pytest.mark.real_model
FREE_TOKENS = 40
"""After so many tokens a walk takes what leads to the end."""


@pytest.fixture(scope="module")
def tokenizer(starter_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(open_checkpoint(starter_path).metadata)


@cache
def letters(vocabulary: Vocabulary) -> dict[bytes, int]:
    """The tokens of one byte."""
    return {
        word: int(token)
        for word, token in zip(vocabulary.words, vocabulary.ids, strict=True)
        if len(word) == 1
    }


def towards_the_end(vocabulary: Vocabulary, mask: Mask) -> list[int]:
    """Of the allowed tokens the one character that closes something; if there is none, those that open
    nothing.
    """
    allowed = {word: token for word, token in letters(vocabulary).items() if allows(mask, token)}
    for closing in (b'"', b"}", b"]", b",", b":"):
        if closing in allowed:
            return [allowed[closing]]
    return [token for word, token in allowed.items() if word not in b" \n\r[{\\"] or list(allowed.values())


def written(one: GrammarFilter, tokenizer: Tokenizer, draw: random.Random) -> str:
    vocabulary = vocabulary_of(tokenizer)
    tokens: list[int] = []
    one.begin(b"")
    while not one.ended:
        mask = one.mask()
        assert mask.any(), text_of(tokenizer, tokens)
        assert allows(mask, tokenizer.stop_token_ids[0]) == one.may_end
        late = len(tokens) >= FREE_TOKENS
        if one.may_end and (late or draw.random() < 0.5):
            break
        choices = towards_the_end(vocabulary, mask) if late else allowed_ids(mask & ~vocabulary.stop)
        token = int(choices[draw.randrange(len(choices))])
        one.accept(token)
        tokens.append(token)
        assert len(tokens) < 600, text_of(tokenizer, tokens)
    return text_of(tokenizer, tokens).decode()


@pytest.mark.slow_after(20)
@pytest.mark.parametrize("case", SCHEMAS, ids=[case["name"] for case in SCHEMAS])
def test_every_walk_is_valid(tokenizer: Tokenizer, case: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(case["schema"])
    validator = Draft202012Validator(case["schema"], format_checker=FormatChecker())
    one = GrammarFilter.json_schema(tokenizer, json.dumps(case["schema"]))
    for seed in range(6):
        text = written(one, tokenizer, random.Random(seed))
        validator.validate(json.loads(text))


def test_there_are_fifty_of_all_kinds() -> None:
    assert len(SCHEMAS) >= 50
    everything = json.dumps(SCHEMAS)
    keywords = (
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "pattern",
        "format",
        "minLength",
        "maxLength",
        "minimum",
        "exclusiveMaximum",
        "multipleOf",
        "additionalProperties",
        "patternProperties",
        "prefixItems",
        "minItems",
        "maxProperties",
        "definitions",
    )
    assert [key for key in keywords if f'"{key}"' not in everything] == []


ENDLESS = [
    {"type": "number"},
    {"type": "array"},
    {"type": "object"},
    {},
    {"type": "array", "items": {"type": "number", "minimum": -1.5}},
]


@pytest.mark.parametrize("schema", ENDLESS)
def test_endless_values_end_validly(tokenizer: Tokenizer, schema: dict[str, Any]) -> None:
    one = GrammarFilter.json_schema(tokenizer, schema)
    for seed in range(10):
        Draft202012Validator(schema).validate(json.loads(written(one, tokenizer, random.Random(seed))))


def test_any_json(tokenizer: Tokenizer) -> None:
    one = GrammarFilter.json(tokenizer)
    kinds = {type(json.loads(written(one, tokenizer, random.Random(seed)))) for seed in range(20)}
    assert kinds == {dict, list}


def test_blanks_are_never_endless(tokenizer: Tokenizer) -> None:
    """Always the token with the most blanks: a model that loops on them still comes to its next value."""
    vocabulary = vocabulary_of(tokenizer)
    schema = {
        "type": "object",
        "properties": {"a": {"const": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    one = GrammarFilter.json_schema(tokenizer, schema)
    tokens: list[int] = []
    while not one.ended:
        allowed = ids(one.mask())
        blank = [token for token in allowed if not vocabulary.texts[token].strip()]
        tokens.append(max(blank or allowed, key=lambda token: len(vocabulary.texts[token])))
        one.accept(tokens[-1])
    text = text_of(tokenizer, tokens).decode()
    assert json.loads(text) == {"a": 1}
    assert 20 < len(text) < 150
