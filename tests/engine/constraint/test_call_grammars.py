"""Grammars of calls: what they allow is read as calls whose arguments fit; what models write is allowed."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.constraint import format_source
from engine.constraint.calls.filter import LazyCalls
from engine.constraint.calls.grammar import MOST_CALLS, CallGrammar
from engine.constraint.calls.schema import argument_schema
from engine.constraint.grammar import GrammarFilter
from engine.constraint.grammar_source import GrammarSource
from engine.constraint.vocabulary import Mask, allows
from engine.core import CallPiece, Tool
from engine.errors import BadSetting
from engine.settings import ConstraintSettings
from engine.text.template.template import ChatTemplate
from engine.text.tools.detect import tool_style
from engine.text.tools.form import CDATA, HERMES, KNOWN, CallForm
from engine.text.tools.parser import ToolParser
from engine.text.tools.writing import written_calls
from tests.engine.generator.fakes import tokenizer

FOLDER = Path(__file__).parents[2] / "golden" / "templates"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 4},
        "days": {"type": "integer", "minimum": 1, "maximum": 500},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 2}, "maxItems": 2},
        "opt": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
        "deep": {"$ref": "#/$defs/Deep"},
        "kind": {"enum": ["a", "b c"]},
        "ok": {"type": "boolean"},
        "mix": {"type": ["integer", "string"], "maxLength": 3},
        "when": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[ab]{2,3}$"},
    },
    "required": ["city", "days", "deep"],
    "$defs": {
        "Deep": {
            "type": "object",
            "properties": {
                "x": {"type": "number", "minimum": 0, "maximum": 9},
                "k": {"enum": [1, "z", None]},
            },
            "required": ["x"],
            "additionalProperties": False,
        }
    },
    "additionalProperties": False,
}
TOOLS = (Tool("weather-now.v2", "Tells it.", json.dumps(SCHEMA)), Tool("clock"))
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("weather-now.v2", {"city": "<b> ", "days": 3, "tags": ["x", "ÿ"], "deep": {"x": 1.5, "k": None},
                        "kind": "b c", "ok": True, "mix": "x", "when": "2024-02-29", "code": "aba"}),
    ("clock", {}),
    ("weather-now.v2", {"city": "", "days": 500, "deep": {"x": 0}}),
]  # fmt: skip


ELEMENTS = CallForm(
    "elements", ("<calls>", "\n:</calls>"), ('\n:<call of="', ":</call>"), after_name=('">', ""),
    parameter=(":<", ">", ":</"),
)  # fmt: skip
"""As MiniMax M3 writes calls."""


@cache
def forms() -> dict[str, CallForm]:
    """All different forms of the published templates, and the known ones."""
    found: dict[CallForm, str] = {form: text for text, form in KNOWN} | {ELEMENTS: "elements"}
    for path in sorted(FOLDER.glob("*.jinja")):
        template = ChatTemplate(path.read_text("utf-8"), "<s>", "</s>")
        found.setdefault(tool_style(template, stops=("</s>", "<｜end▁of▁sentence｜>")).form, path.stem)
    return {name: form for form, name in found.items()}


NAMES = (
    *dict(KNOWN), "elements", "Apertus-8B-Instruct",
    "Apriel-1.6-15b-Thinker-fixed", "Bielik-11B-v3.0-Instruct",
    "ByteDance-Seed-OSS", "GLM-4.6", "GLM-4.7-Flash", "GigaChat3-10B-A1.8B", "MiniMax-M1", "MiniMax-M2",
    "Mistral-Small-3.2-24B-Instruct-2506", "Qwen-Qwen3-0.6B", "Qwen3-Coder", "Qwen3.5-4B", "StepFun3.5-Flash",
    "deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2", "google-gemma-4-31B-it",
    "inclusionai-ling-3.0-flash", "meetkai-functionary-medium-v3.2",
    "mistralai-Ministral-3-14B-Reasoning-2512", "openai-gpt-oss-120b",
    "openbmb-MiniCPM5-1B",
)  # fmt: skip
"""Those of `forms`, which takes seconds, so that it is made only where a test needs it."""


@pytest.mark.slow
def test_every_form_has_its_cases() -> None:
    assert list(forms()) == list(NAMES)


def read(form: CallForm, text: str) -> tuple[str, list[tuple[str, Any]]]:
    """The rest of a text, and its calls."""
    parser = ToolParser(form, TOOLS)
    rest, calls = "", list[tuple[str, str]]()
    for piece in parser.feed(text) + parser.finish():
        if not isinstance(piece, CallPiece):
            rest += piece
        elif piece.name:
            calls.append((piece.name, piece.arguments))
        else:
            calls[-1] = calls[-1][0], calls[-1][1] + piece.arguments
    return rest, [(name, json.loads(arguments)) for name, arguments in calls]


def walk(filter: GrammarFilter, seed: int) -> str | None:
    """A text of random tokens that the filter allows; None for one without an end."""
    rng, words = random.Random(seed), tokenizer()
    ids: list[int] = []
    while len(ids) < 400:
        if filter.ended or (filter.may_end and rng.random() < 0.6):
            return words.decode(ids, skip_special=False)
        mask = filter.mask()
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        token = int(rng.choice([id for id in allowed if id not in words.stop_token_ids]))
        filter.accept(token)
        ids.append(token)
    return None


@pytest.mark.slow_after(10)
@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_allowed_is_read_as_calls_that_fit(name: str) -> None:
    grammar, ended = CallGrammar(forms()[name], TOOLS), 0
    for seed in range(4):
        text = walk(GrammarFilter(tokenizer(), grammar.whole()), seed)
        if text is None:
            continue
        ended += 1
        rest, calls = read(forms()[name], text)
        assert not rest.strip(), text
        assert calls
        for tool, arguments in calls:
            if tool == "clock":
                assert arguments == {}
            else:
                jsonschema.validate(arguments, SCHEMA)
    assert ended


@pytest.mark.parametrize("name", NAMES)
def test_calls_as_templates_write_them_are_allowed(name: str) -> None:
    form = forms()[name]
    filter = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS).whole())
    assert not filter.may_end
    assert filter.follow(written_calls(form, CALLS).strip().encode())
    assert filter.may_end
    filter = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS).rest(after_marker=False))
    assert filter.follow(written_calls(form, CALLS[:1]).strip().encode())
    assert filter.ended


def test_what_closes_all_calls_may_stand_on_a_line_of_its_own() -> None:
    form = CallForm("object", ("<calls>[", "]</calls>"), between=", ")
    for end in ("]</calls>", "\n]</calls>"):
        filter = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS).rest(after_marker=False))
        written = written_calls(form, CALLS[:1]).removesuffix("]</calls>") + end
        assert filter.follow(written.encode())
        assert filter.ended


@pytest.mark.parametrize("name", NAMES)
def test_only_one_call_where_only_one_may_be_made(name: str) -> None:
    form = forms()[name]
    filter = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS, several=False).whole())
    assert filter.follow(written_calls(form, CALLS[:1]).strip().encode())
    assert filter.ended
    filter = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS, several=False).whole())
    assert not filter.follow(written_calls(form, CALLS[:2]).strip().encode())


WRONG: list[dict[str, Any]] = [
    {"city": "abcde", "days": 1, "deep": {"x": 0}},
    {"city": "a", "days": 0, "deep": {"x": 0}},
    {"city": "a", "days": 501, "deep": {"x": 0}},
    {"city": "a", "days": 1},
    {"city": "a", "days": 1, "deep": {}},
    {"city": "a", "days": 1, "deep": {"x": 10}},
    {"city": "a", "days": 1, "deep": {"x": 0}, "kind": "c"},
    {"city": "a", "days": 1, "deep": {"x": 0}, "ok": 1},
    {"city": "a", "days": 1, "deep": {"x": 0}, "more": 1},
    {"city": "a", "days": 1, "tags": ["a", "b", "c"], "deep": {"x": 0}},
    {"city": "a", "days": 1, "deep": {"x": 0}, "when": "2024-13-01"},
    {"city": "a", "days": 1, "deep": {"x": 0}, "code": "abab"},
]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_that_do_not_fit_are_not_allowed(name: str) -> None:
    form = forms()[name]
    filter = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS).whole())
    for arguments in WRONG:
        assert not filter.follow(written_calls(form, [(TOOLS[0].name, arguments)]).strip().encode()), (
            arguments
        )
    assert not filter.follow(written_calls(form, [("weather-now.v3", CALLS[0][1])]).strip().encode())


@pytest.mark.slow
def test_hundreds_of_tools_can_be_offered() -> None:
    properties = {f"p{n}": {"enum": ["a", n]} for n in range(12)}
    tools = tuple(Tool(f"tool-{n}", "", json.dumps({"properties": properties})) for n in range(200))
    for form in (HERMES, dict(KNOWN)["<arg_key>"], dict(KNOWN)["<start_function_call>"]):
        filter = GrammarFilter(tokenizer(), CallGrammar(form, tools).rest(after_marker=False))
        assert filter.follow(written_calls(form, [("tool-199", {"p11": 11})]).strip().encode())


def test_a_form_without_a_marker_has_one_call() -> None:
    form = CallForm("object", arguments_key="parameters")
    filter = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS).whole())
    assert filter.follow(b'{"name": "clock", "parameters": {}}')
    assert filter.ended


QWEN = (
    "<tool_call>\n<function=set>\n<parameter=on>\n{}\n</parameter>\n<parameter=off>\n{}\n</parameter>\n"
    "</function>\n</tool_call>"
)


@pytest.mark.parametrize(
    ("form", "call", "arguments"),
    [
        ("<function=", QWEN.format("True", "None"), {"on": True, "off": None}),
        ("<function=", QWEN.format("false", "False"), {"on": False, "off": False}),
        ("<|tool_call_start|>", """<|tool_call_start|>[set(on=True, more=[{'a': "x", "b": None}, """
         """{"c": null, "d": false}])]<|tool_call_end|>""",
         {"on": True, "more": [{"a": "x", "b": None}, {"c": None, "d": False}]}),
        ("<|tool_call_start|>", "<|tool_call_start|>[set(on=True, more=['a\n\tb', 'c'])]<|tool_call_end|>",
         {"on": True, "more": ["a\n\tb", "c"]}),
        ("<|tool_call_start|>", "<|tool_call_start|>[set(on=True, mode='fast')]<|tool_call_end|>",
         {"on": True, "mode": "fast"}),
        ("<start_function_call>", "<start_function_call>call:set{on:true,off:None}<end_function_call>",
         {"on": True, "off": None}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("on", [{"type": "boolean"}, {"enum": [True, False]}])
def test_words_of_python_are_allowed_where_templates_write_them(
    form: str, call: str, arguments: dict[str, Any], on: dict[str, Any]
) -> None:
    off = {"anyOf": [{"const": False}, {"type": ["integer", "null"]}]}
    properties = {"on": on, "off": off, "mode": {"enum": ["fast", "slow"]}}
    schema = {"properties": {**properties, "more": {"type": "array"}}, "required": ["on"]}
    tools = (Tool("set", "", json.dumps(schema)),)
    grammar = CallGrammar(dict(KNOWN)[form], tools)
    assert GrammarFilter(tokenizer(), grammar.whole()).follow(call.encode())
    parser = ToolParser(dict(KNOWN)[form], tools)
    pieces = [one for one in parser.feed(call) + parser.finish() if isinstance(one, CallPiece)]
    assert json.loads("".join(one.arguments for one in pieces)) == arguments
    wrong = (
        call.replace("off>\nNone", "off>\nTrue").replace("on=True", "on=None").replace("on:true", "on:None")
    )
    if wrong != call:
        assert not GrammarFilter(tokenizer(), grammar.whole()).follow(wrong.encode())


# -- control tokens


def marked(form: CallForm) -> tuple[tuple[str, int], ...]:
    found = tokenizer().marker_ids("\n".join(form.texts))
    return tuple(sorted(found.items()))


def test_markers_that_are_tokens_are_written_as_these_tokens() -> None:
    start, end = "<|im_start|>", "<|endoftext|>"
    form = CallForm("object", call=(f"{start}\n", f"\n{end}"))
    tokens = marked(form)
    assert dict(tokens).keys() == {start, end}
    ids, words = dict(tokens), tokenizer()
    filter = GrammarFilter(words, CallGrammar(form, TOOLS, tokens).whole())
    mask = filter.mask()
    assert np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist() == [ids[start]]
    assert not filter.follow(start.encode())
    filter.accept(ids[start])
    for id in words.encode('{"name": "clock", "arguments": {'):
        assert not allows(filter.mask(), ids[end])
        filter.accept(id)
    for id in words.encode("}}"):
        filter.accept(id)
    filter.accept(ids[end])
    assert filter.may_end
    filter.rollback(1)
    assert not filter.may_end
    assert allows(filter.mask(), ids[end])


def test_a_marker_token_is_not_allowed_inside_strings() -> None:
    form = CallForm("object", call=("<|im_start|>", ""))
    filter = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS, marked(form)).whole())
    token = dict(marked(form))["<|im_start|>"]
    filter.accept(token)
    filter.follow(b'{"name": "weather-now.v2", "arguments": {"city": "')
    assert not allows(filter.mask(), token)


# -- thoughts and formats


def test_a_thought_may_come_first() -> None:
    tags = (("<think>", "</think>"),)
    call = written_calls(HERMES, CALLS[1:2]).encode()
    grammar = CallGrammar(HERMES, TOOLS)
    for text, fits in (
        (call, True),
        (b"<think>\nHm " + call + b"</think>\n\n" + call, True),
        (b"Hm" + call, False),
    ):
        filter = GrammarFilter(tokenizer(), grammar.whole(tags))
        assert filter.follow(text) == fits
        assert filter.may_end == fits
    filter = GrammarFilter(tokenizer(), grammar.whole(tags, "</think>"))
    assert not filter.follow(call) or not filter.may_end  # it is still a thought
    assert GrammarFilter(tokenizer(), grammar.whole(tags, "</think>")).follow(b"Hm</think>" + call)


@pytest.mark.parametrize(
    ("format", "pattern", "text"),
    [
        ("json_schema", '{"type": "integer"}', "12"), ("json", "", '{"a": 1}'), ("regex", "[0-9]{2}", "42"),
        ("grammar", 'start: "yes" | "no"', "no"), ("choices", "red\nblue", "blue"),
    ],
)  # fmt: skip
def test_a_reply_is_a_call_or_has_the_format(format: str, pattern: str, text: str) -> None:
    content = format_source(ConstraintSettings(format=format, pattern=pattern))
    grammar = CallGrammar(HERMES, TOOLS)
    for reply in (text, written_calls(HERMES, CALLS[1:2])):
        filter = GrammarFilter(tokenizer(), grammar.whole((), "", content))
        assert filter.follow(reply.encode())
        assert filter.may_end
    assert not GrammarFilter(tokenizer(), grammar.whole((), "", content)).follow(b"Well")
    assert format_source(ConstraintSettings()) is None


# -- schemas


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"a": {"type": "nonsense"}}}, "cannot be used"),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, "cannot be used"),
        ({"properties": {"a": {"type": "string", "pattern": "("}}}, "not valid"),
        ({"properties": {"a": {"not": {"type": "string"}}}}, "cannot be enforced"),
        ({"properties": {"a": {"allOf": 3}}}, "cannot be used"),
        ({"properties": {"a": {"anyOf": [{"properties": {"b": {}}}], "properties": "b"}}}, "cannot be used"),
        ({"properties": {"a": {"properties": True, "minProperties": 1}}}, "cannot be used"),
        ({"properties": {"a": {"properties": {"b": {}}, "required": [{}]}}}, "cannot be used"),
        ({"properties": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}, "required": ["a"]},
         "cannot be used"),
    ],
)  # fmt: skip
def test_schemas_that_cannot_be_enforced_get_one_sentence(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSetting, match=words) as caught:
        argument_schema(Tool("look", parameters=json.dumps(schema)), lenient=False)
    assert "schema of the tool 'look'" in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_leniently_what_cannot_be_enforced_is_ignored() -> None:
    schema = {"properties": {"a": {"type": "integer", "not": {"const": 3}}}, "required": ["a"]}
    tool = Tool("look", parameters=json.dumps(schema))
    filter = GrammarFilter(tokenizer(), CallGrammar(HERMES, (tool,), lenient=True).whole())
    assert not filter.follow(written_calls(HERMES, [("look", {"a": "x"})]).encode())
    assert filter.follow(written_calls(HERMES, [("look", {"a": 3})]).encode())


def test_notes_change_nothing_and_properties_may_have_their_names() -> None:
    schema = {
        "title": "Look", "$schema": "x",
        "properties": {"title": {"type": "string", "title": "T"}, "default": {"const": 1, "default": 1},
                       "any": {"type": "array", "uniqueItems": True, "items": {"type": "string"}}},
    }  # fmt: skip
    found = argument_schema(Tool("look", parameters=json.dumps(schema)), lenient=False)
    assert found["properties"] == {
        "title": {"type": "string"}, "default": {"const": 1},
        "any": {"type": "array", "items": {"type": "string"}},
    }  # fmt: skip
    assert found["additionalProperties"] is False
    assert "title" not in found


def test_other_members_are_allowed_where_the_schema_says_so() -> None:
    tool = Tool("look", parameters='{"properties": {}, "additionalProperties": true}')
    for form in (HERMES, dict(KNOWN)["<start_function_call>"], dict(KNOWN)["<|tool_call_start|>"]):
        filter = GrammarFilter(tokenizer(), CallGrammar(form, (tool,)).whole())
        assert filter.follow(
            written_calls(form, [("look", {"a": [1, {"b": "c"}], "d": None})]).strip().encode()
        )


def test_a_schema_may_refer_to_itself() -> None:
    schema = {"properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"],
              "$defs": {"Node": {"type": "object",
                                 "properties": {"next": {"$ref": "#/$defs/Node"}}}}}  # fmt: skip
    tool = Tool("look", parameters=json.dumps(schema))
    for form in (
        HERMES,
        *(dict(KNOWN)[key] for key in ("<start_function_call>", "<|tool_call_start|>", "<arg_key>")),
    ):
        filter = GrammarFilter(tokenizer(), CallGrammar(form, (tool,)).whole())
        text = written_calls(form, [("look", {"next": {"next": {"next": {}}}})]).strip()
        assert filter.follow(text.encode()), text


# -- calls in free text


def lazy(form: CallForm = HERMES, **more: Any) -> LazyCalls:
    return LazyCalls(tokenizer(), CallGrammar(form, TOOLS, **more), (("<think>", "</think>"),))


def feed(filter: LazyCalls, text: str) -> list[Mask | None]:
    """The masks before each token of a text, which is accepted."""
    masks = []
    for id in tokenizer().encode(text, special=True):
        mask = filter.mask()
        assert mask is None or allows(mask, id), text
        masks.append(mask)
        filter.accept(id)
    return masks


def test_free_text_is_not_constrained_and_calls_are() -> None:
    filter = lazy()
    assert all(mask is None for mask in feed(filter, "A tag: <tool_call> {} {x"))
    assert filter.may_end
    feed(filter, '<tool_call>\n{"name": "clock"')
    mask = filter.mask()
    assert mask is not None
    assert not filter.may_end
    assert not any(allows(mask, id) for id in tokenizer().stop_token_ids)
    feed(filter, ', "arguments": {}}\n</tool_call>')
    assert filter.mask() is None
    assert filter.may_end
    assert not filter.ended
    feed(filter, ' and <tool_call>{"name": "weather-now.v2"')
    assert filter.mask() is not None


def test_an_unknown_tool_is_free_text() -> None:
    filter = lazy()
    assert all(mask is None for mask in feed(filter, '<tool_call>\n{"name": "clocks", "arguments": 7}'))


def test_nothing_in_a_thought_is_a_call() -> None:
    text = '<tool_call>\n{"name": "clock", "arguments": '
    filter = lazy()
    feed(filter, f"<think>{text}</think>")
    assert filter.mask() is None
    feed(filter, text)
    assert filter.mask() is not None
    filter = LazyCalls(tokenizer(), CallGrammar(HERMES, TOOLS), (("[T]", "[/T]"), ("<think>", "</think>")))
    feed(filter, "<thi")
    feed(filter, f"nk>{text}")
    assert filter.mask() is None
    filter = LazyCalls(tokenizer(), CallGrammar(HERMES, TOOLS), (), "</think>")
    feed(filter, f"{text} </thi")
    assert filter.mask() is None
    feed(filter, f"nk></think>{text}")
    assert filter.mask() is not None


def test_after_the_only_call_the_reply_ends() -> None:
    filter = lazy(several=False)
    feed(filter, "Look: " + written_calls(HERMES, CALLS[1:2]))
    assert filter.ended
    filter.rollback(1)
    assert not filter.ended


def test_calls_are_compiled_once_and_each_is_taken_back_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    call, filter = written_calls(HERMES, CALLS[1:2]), lazy()
    monkeypatch.setattr(GrammarSource, "matcher", None)
    masks = [feed(filter, call) for _ in range(3)]
    filter.rollback(2 * len(masks[0]))
    again = [feed(filter, call) for _ in range(2)]
    for mine, other in zip((*masks[1:], *again), (masks[1], masks[1], *masks[1:]), strict=True):
        assert [None if mask is None else mask.tolist() for mask in mine] == [
            None if mask is None else mask.tolist() for mask in other
        ]


def test_a_model_that_calls_without_end_is_stopped() -> None:
    call, filter = written_calls(HERMES, CALLS[1:2]), lazy()
    feed(filter, call * (MOST_CALLS - 1))
    assert not filter.ended
    feed(filter, call)
    assert filter.ended
    for form in (HERMES, dict(KNOWN)["[TOOL_CALLS]"]):
        for count in (MOST_CALLS, MOST_CALLS + 1):
            whole = GrammarFilter(tokenizer(), CallGrammar(form, TOOLS).whole())
            text = written_calls(form, CALLS[1:2] * count).strip()
            assert whole.follow(text.encode()) == (count == MOST_CALLS)


def test_a_marker_token_alone_shows_a_call() -> None:
    form = CallForm("object", call=("<|im_start|>\n", "\n"))
    filter = lazy(form, tokens=marked(form))
    feed(filter, "Well <|im_start|>")
    assert filter.mask() is not None
    feed(filter, '\n{"name": "clock", "arguments": {}}')
    assert filter.mask() is None


@pytest.mark.parametrize("before", ["Well ", "<think>Well "])
def test_a_token_may_be_a_part_of_the_marker_that_ends_a_thought(before: str) -> None:
    form = CallForm("object", call=("<|x|calls>\n", "\n"))
    filter = lazy(form, tokens=(("|x|", tokenizer().marker_ids("<|im_start|>")["<|im_start|>"]),))
    feed(filter, f'{before}<|x|calls>\n{{"name": "clock"')
    assert filter.mask() is not None
    feed(filter, ', "arguments": {}}')
    assert filter.mask() is None


def test_a_form_without_marker_begins_the_reply_only() -> None:
    form = CallForm("object", arguments_key="parameters")
    filter = lazy(form)
    feed(filter, '{"name": "clock"')
    assert filter.mask() is not None
    for text in ('{"name": "Ann"} {"name": "clock"', 'So {"name": "clock"', " " * 4100 + '{"name": "clock"'):
        filter.begin(b"")
        feed(filter, text)
        if text.strip() != '{"name": "clock"':
            assert filter.mask() is None


REPLY = (
    '<think>a</think>Hm <tool_call>{"name": "clock", "arguments": {}}</tool_call> so <tool_call>\n'
    '{"name": "weather-now.v2", "arguments": {"city": "ab", "days": 3, "deep": {"x": 1}}}\n</tool_call>!'
)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.data())
def test_going_back_leads_to_the_same_state(data: st.DataObject) -> None:
    ids, filter = tokenizer().encode(REPLY), lazy()
    masks = feed(filter, REPLY)
    at = len(ids)
    for _ in range(4):
        back = data.draw(st.integers(0, at))
        filter.rollback(back)
        at -= back
        on = data.draw(st.integers(0, len(ids) - at))
        for place in range(at, at + on):
            mask, expected = filter.mask(), masks[place]
            assert (mask is None) == (expected is None)
            assert mask is None or expected is None or np.array_equal(mask, expected)
            filter.accept(ids[place])
        at += on


def test_a_healed_token_is_not_read_twice() -> None:
    filter = lazy()
    words, begun = tokenizer(), "<tool_call>"
    first = words.encode(begun)
    filter.begin(words.token_bytes(first[0]))
    for id in (*first, *words.encode('\n{"name": "clock"')):
        filter.accept(id)
    assert filter.mask() is None  # the first letters belong to the prompt


def test_more_cannot_be_taken_back_than_came() -> None:
    filter = lazy()
    with pytest.raises(ValueError, match="0 were accepted"):
        filter.rollback(1)


@pytest.mark.parametrize("city", ["", "a & b", "<b>", "</param>", "x ]] > y", "<![CDATA["])
def test_wrapped_strings_are_allowed(city: str) -> None:
    form = CallForm(
        "tagged", call=('<function name="', "</function>"), after_name=('">', ""),
        parameter=('<param name="', '">', "</param>"), wrapped=CDATA,
    )  # fmt: skip
    tool = Tool("look", parameters='{"properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}')
    for given_ in ({"city": city}, {"city": city, "n": 3}):
        filter = GrammarFilter(tokenizer(), CallGrammar(form, (tool,)).whole())
        assert filter.follow(written_calls(form, [("look", given_)]).encode())
        assert filter.may_end


@pytest.mark.parametrize("schema", [
    {"x-guidance": 7}, {"required": 7}, {"properties": {"a": {"x-guidance": "x", "required": {"a": 1}}}},
    {"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": True, "b": {}}}, {"properties": []},
    {"properties": {"a b": {}, 'c"d': {"type": "string"}, "": {}}, "required": ["a b", "none"]},
])  # fmt: skip
def test_odd_schemas_are_enforced_or_refused_in_a_sentence(schema: dict[str, Any]) -> None:
    tool = Tool("look", parameters=json.dumps(schema))
    for form in forms().values():
        with suppress(BadSetting):
            LazyCalls(tokenizer(), CallGrammar(form, (tool,), lenient=True))


@pytest.mark.parametrize("levels", [40, 150, 800])
def test_deeply_nested_schemas_are_enforced_or_refused(levels: int) -> None:
    parameters = '{"type": "object", "properties": {"a": ' * levels + '{"type": "string"}' + "}}" * levels
    tool = Tool("look", parameters=parameters)
    for form in (HERMES, dict(KNOWN)["<start_function_call>"]):
        if levels > 40:
            with pytest.raises(BadSetting, match=r"[Tt]he schema of the tool 'look'"):
                CallGrammar(form, (tool,)).whole()
            continue
        filter = GrammarFilter(tokenizer(), CallGrammar(form, (tool,)).whole())
        assert filter.follow(written_calls(form, [("look", {"a": {"a": {"a": {}}}})]).strip().encode())


def test_a_string_may_have_any_character_as_an_escape() -> None:
    tool = Tool("weather", "", json.dumps({"properties": {"city": {"type": "string"}}, "required": ["city"]}))
    for city, fits in (("K\\u00f6ln \\u6f22", True), ("\\ud83d\\ude00", True), ("\\ud83d", False)):
        filter = GrammarFilter(tokenizer(), CallGrammar(HERMES, (tool,)).whole())
        call = f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'
        assert filter.follow(call.encode()) == fits
