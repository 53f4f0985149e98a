"""Filters from settings, and what the window says while a format is typed."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time

import pytest

from engine.constraint import check_constraint, make_filters
from engine.constraint.filter_set import FilterSet
from engine.constraint.grammar_source import json_source
from engine.constraint.roomy import with_room
from engine.errors import BadSetting
from engine.settings import ConstraintSettings
from tests.engine.constraint.fakes import bytes_of, text_of, tokenizer_of, walk

TOKENIZER = tokenizer_of(
    [*bytes_of('{}[]":, abcdefghijklmnopqrstuvwxyz0123456789'), b'{"', b'":', b"yes", b"true"]
)

FINE = [
    ("none", ""),
    ("json", ""),
    ("json", "{"),
    ("json_schema", "{}"),
    ("json_schema", "true"),
    ("json_schema", '{"type": "integer"}'),
    ("regex", "a+"),
    ("regex", "^a$"),
    ("regex", "[/]\n"),
    ("grammar", 'start: "a"'),
    ("grammar", 'start: %json {"type": "object"} # x'),
    ("choices", "yes\nno"),
]
WRONG = [
    ("json_schema", "", "There is no text for the JSON schema; enter it, or choose another format."),
    (
        "json_schema",
        '{"a":\n 1,}',
        "The JSON schema is not valid JSON at line 2, column 4: expecting property name enclosed in double "
        "quotes.",
    ),
    (
        "json_schema",
        "[1]",
        'The JSON schema is not an object in braces; it should look like {"type": "object", ...}.',
    ),
    (
        "json_schema",
        "false",
        'The JSON schema is not an object in braces; it should look like {"type": "object", ...}.',
    ),
    ("json_schema", '{"type": "objekt"}', "The JSON schema cannot be used: invalid type: objekt."),
    (
        "json_schema",
        '{"pattern": "(a", "type": "string"}',
        "The JSON schema has a pattern '(a' that is not valid: unclosed group.",
    ),
    (
        "json_schema",
        '{"if": {}, "then": {}}',
        'uses "if", "then", which cannot be enforced while a reply is written; remove it.',
    ),
    ("json_schema", '{"oneOf": [{"type": "string"}, {"minLength": 3}]}', 'cannot be enforced; use "anyOf".'),
    (
        "json_schema",
        '{"$ref": "http://x.y/z"}',
        'refers to another document with "$ref", which is not loaded; put it under "$defs".',
    ),
    (
        "json_schema",
        '{"type": "integer", "minimum": 5, "maximum": 3}',
        "minimum (5) is greater than maximum (3).",
    ),
    ("json_schema", '{"minimum": NaN}', "NaN is not a JSON number"),
    ("json_schema", '{"minimum": 1e999}', "The JSON schema cannot be written as JSON"),
    ("json_schema", '{"minimum": ' + "1" * 5000 + "}", "The JSON schema has a number that cannot be used"),
    ("json_schema", "[" * 100_000, "The JSON schema is nested too deeply"),
    (
        "json_schema",
        '{"items":' * 400 + "{}" + "}" * 400,
        "The JSON schema cannot be used: recursion limit exceeded",
    ),
    ("json_schema", '{"const": "\\ud800"}', "The JSON schema cannot be used"),
    (
        "json_schema",
        json.dumps({"$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(2001)}}),
        "more than 2,000 rules or",
    ),
    ("regex", " ", "There is no text for the regular expression"),
    ("regex", "ab(c", "The regular expression is not valid at character 3: unclosed group."),
    (
        "regex",
        "(a)\\1",
        "The regular expression is not valid at character 4: backreferences are not supported.",
    ),
    ("regex", "a\\", "The regular expression ends in the middle of an escape"),
    ("regex", "a\\b", "The regular expression has \\b, or ^ or $ elsewhere than at its ends"),
    ("regex", "a" * 200_001, "The regular expression has 200,001 characters; at most 200,000 are allowed."),
    ("grammar", 'start: a\na: "x" b', 'The grammar is not valid at line 2, column 4: unknown name: "b".'),
    ("grammar", 'start: "a', "The grammar is not valid at line 1, column"),
    (
        "grammar",
        "start: /(/",
        "The grammar is not valid at line 1, column 8: a regular expression is not valid, unclosed group.",
    ),
    ("grammar", 'a: "a"', "The grammar cannot be used: no start rule found."),
    ("grammar", "start: <|im_end|>", "The grammar names tokens in angle brackets"),
    ("grammar", "start: <[5]>", "The grammar names tokens in angle brackets"),
    (
        "grammar",
        "start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(9000)),
        "The grammar has more than 2,000 rules",
    ),
    ("choices", " \n\n", "There are no choices for the reply; write one per line."),
    ("yaml", "a: b", "'yaml' is not a reply format"),
]


@pytest.mark.parametrize(("format", "pattern"), FINE)
def test_nothing_is_wrong(format: str, pattern: str) -> None:
    assert check_constraint(format, pattern) == ""


@pytest.mark.parametrize(
    ("format", "pattern", "sentence"), WRONG, ids=[f"{case[0]}-{case[2][-30:]}" for case in WRONG]
)
def test_what_is_wrong_is_one_sentence(format: str, pattern: str, sentence: str) -> None:
    said = check_constraint(format, pattern)
    assert sentence in said
    assert said.endswith(".")
    assert "\n" not in said
    assert said[0].isupper() or said[0] == "'"
    if format in ("json_schema", "regex", "grammar", "choices"):
        with pytest.raises(BadSetting) as raised:
            make_filters(ConstraintSettings(format=format, pattern=pattern), TOKENIZER)
        assert str(raised.value) == said


def test_it_is_said_while_typing() -> None:
    schema = json.dumps({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(200)}})
    check_constraint("json", "")
    for format, pattern in [*FINE, ("json_schema", schema), ("regex", r"(\p{L}{1,30} ){5,100}\.")]:
        start = time.process_time()
        assert check_constraint(format, pattern) == ""
        assert time.process_time() - start < 0.2  # of the processor; measured: 0.03 at most


def test_filters_of_the_settings() -> None:
    cases = [
        (ConstraintSettings(), 0, None),
        (ConstraintSettings(format="choices", pattern=" yes \n\nno\n"), 1, r"yes|no"),
        (ConstraintSettings(begin_with="abc"), 1, r"(?s)abc.*"),
        (ConstraintSettings(format="regex", pattern="[a-c]{2,4}"), 1, r"[a-c]{2,4}"),
        (ConstraintSettings(format="grammar", pattern='start: "a" | "b" start'), 1, r"b*a"),
        (ConstraintSettings(format="json_schema", pattern='{"enum": [1, "a"]}'), 1, r'1|"a"'),
        (ConstraintSettings(format="json", begin_with='{"abc": tr'), 2, r'(?s)\{"abc": true.*\}'),
        (ConstraintSettings(format="choices", pattern="yes\nyellow\nno", begin_with="ye"), 2, r"yes|yellow"),
    ]
    for constraint, count, expected in cases:
        filters = make_filters(constraint, TOKENIZER)
        assert len(filters) == count
        both = FilterSet(filters)
        if expected is None:
            continue
        for seed in range(10):
            both.begin()
            tokens = walk(both, TOKENIZER, random.Random(seed), 400)  # type: ignore[arg-type]
            if both.may_end:
                assert re.fullmatch(expected, text_of(TOKENIZER, tokens).decode(errors="replace"))
            else:
                assert len(tokens) == 400


def test_a_beginning_that_the_format_does_not_allow() -> None:
    for format, pattern in (("json", ""), ("regex", "a+"), ("choices", "yes\nno"), ("grammar", 'start: "a"')):
        with pytest.raises(
            BadSetting,
            match=r"^The reply must start with 'sure', which its format does not allow; change one of "
            r"them\.$",
        ):
            make_filters(ConstraintSettings(format=format, pattern=pattern, begin_with="sure"), TOKENIZER)
    with pytest.raises(BadSetting, match="no tokens for characters"):
        make_filters(ConstraintSettings(begin_with="漢"), TOKENIZER)


def test_the_package_is_light() -> None:
    code = "import sys, engine.constraint, engine.constraint.filter_set; print('llguidance' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "False"
    )


def test_a_call_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    before, real, sizes = threading.stack_size(), threading.stack_size, []
    monkeypatch.setattr(threading, "stack_size", lambda *size: sizes.extend(size) or real(*size))
    assert with_room(lambda: threading.current_thread().name) == "grammar"
    with pytest.raises(BadSetting, match="inside"):
        with_room(lambda: (_ for _ in ()).throw(BadSetting("inside")))
    with pytest.raises(KeyboardInterrupt):  # as a Rust library's panic is no Exception
        with_room(lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert sizes == [64 << 20, before] * 3
    assert real() == before
    assert json_source().name == "JSON"
