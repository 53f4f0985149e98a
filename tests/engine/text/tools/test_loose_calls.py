"""Calls as models write them where they do not keep to their form: without the first tag, or in a thought
that never ends.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.core import CallPiece, Tool
from engine.text.template.channels import KIMI as CHANNEL_KIMI
from engine.text.tools.form import CHANNEL_FORMS, HERMES, KNOWN, CallForm
from engine.text.tools.parser import ToolParser

THINK = ("<think>", "</think>")
TOOLS = (Tool("weather", "", json.dumps({"properties": {"city": {"type": "string"}}})), Tool("clock"))
FORMS = dict(KNOWN)
CODER, KIMI = FORMS["<function="], FORMS["<|tool_calls_section_begin|>"]
DEEPSEEK = FORMS["<｜tool▁calls▁begin｜>"]
DEEPSEEK_CLOCK = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜>"
OSLO, NONE = ("weather", {"city": "Oslo"}), ("clock", {})


def read(
    form: CallForm, reply: str, *, opened: str = "", in_thoughts: bool = False
) -> tuple[str, list[tuple[str, Any]]]:
    """The text and the calls of a reply, which are the same wherever it is cut in two."""
    found = [_read(form, pieces, opened, in_thoughts) for pieces in ([reply], list(reply))]
    found += [_read(form, [reply[:at], reply[at:]], opened, in_thoughts) for at in range(len(reply))]
    assert all(one == found[0] for one in found)
    return found[0][0], [(name, json.loads(arguments)) for name, arguments in found[0][1]]


def _read(
    form: CallForm, pieces: list[str], opened: str, in_thoughts: bool
) -> tuple[str, list[tuple[str, str]]]:
    parser = ToolParser(form, TOOLS, (THINK,), opened, in_thoughts=in_thoughts)
    text, calls = "", list[tuple[str, str]]()
    for piece in [one for part in pieces for one in parser.feed(part)] + parser.finish():
        if isinstance(piece, str):
            text += piece
        elif piece.name:
            calls.append((piece.name, piece.arguments))
        elif isinstance(piece, CallPiece):
            calls[-1] = calls[-1][0], calls[-1][1] + piece.arguments
    assert parser.calls == len(calls)
    return text, calls


FUNCTION = "<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>"
BEGIN, END = "<|tool_call_begin|>", "<|tool_call_end|>"
KIMI_OSLO = f'{BEGIN}functions.weather:0<|tool_call_argument_begin|>{{"city": "Oslo"}}'
KIMI_CLOCK = f"{BEGIN}functions.clock:1<|tool_call_argument_begin|>{{}}"
SEARCHED = f"<tool_call>\n{FUNCTION}\n</tool_call>"


@pytest.mark.parametrize(
    ("form", "reply", "text", "calls"),
    [
        (CODER, f"{FUNCTION}\n</tool_call>", "", [OSLO]),
        (CODER, f"Look:\n{FUNCTION}\n</tool_call>\n{SEARCHED}", "Look:", [OSLO, OSLO]),
        (CODER, FUNCTION, "", [OSLO]),
        (CODER, "Write <function=weather> there.", "Write <function=weather> there.", []),
        (CODER, "<function=other>\n</function>", "<function=other>\n</function>", []),
        (KIMI, f"Hm.{KIMI_OSLO}{END}<|tool_calls_section_end|>", "Hm.", [OSLO]),
        (KIMI, f"{KIMI_OSLO}{END}{KIMI_CLOCK}{END}", "", [OSLO, NONE]),
        (KIMI, f"{KIMI_OSLO}{KIMI_CLOCK}", "", [OSLO, NONE]),
        (DEEPSEEK, DEEPSEEK_CLOCK, "", [NONE]),
    ],
)
def test_a_call_may_lack_its_first_tag(
    form: CallForm, reply: str, text: str, calls: list[tuple[str, Any]]
) -> None:
    assert read(form, reply) == (text, calls)


LOOKED = "Let me look.\n"


@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        (f"{LOOKED}{SEARCHED}", LOOKED, [OSLO]),
        (f"{LOOKED}{SEARCHED}\n{SEARCHED}\n", LOOKED, [OSLO, OSLO]),
        (f"{SEARCHED}", "", [OSLO]),
        (f"{LOOKED}{FUNCTION}", LOOKED, [OSLO]),
        (f"{LOOKED}{SEARCHED}</think>", f"{LOOKED}{SEARCHED}</think>", []),
        (f"{LOOKED}{SEARCHED} or\n{SEARCHED}", f"{LOOKED}{SEARCHED} or\n", [OSLO]),
        (f"{LOOKED}{SEARCHED[:-5]}", LOOKED, [OSLO]),
        (f"{LOOKED}<tool_call> is\n</think>{SEARCHED}", f"{LOOKED}<tool_call> is\n</think>", [OSLO]),
        (f"{LOOKED}<tool_call>\nno</think>No.", f"{LOOKED}<tool_call>\nno</think>No.", []),
    ],
)
def test_a_call_may_end_a_thought_that_has_no_end(
    reply: str, text: str, calls: list[tuple[str, Any]]
) -> None:
    assert read(CODER, reply, opened=THINK[1]) == (text, calls)
    assert read(CODER, THINK[0] + reply) == (THINK[0] + text, calls)


def test_a_token_of_calls_ends_a_thought_in_its_short_form_too() -> None:
    assert read(KIMI, f"<think>Hm{KIMI_OSLO}{END}", in_thoughts=True) == ("<think>Hm", [OSLO])
    held = f"<think>Hm{KIMI_OSLO}{END} or"
    assert read(KIMI, held, in_thoughts=True) == ("<think>Hm or", [OSLO])
    assert read(KIMI, held) == (held, [])


def test_a_form_with_one_tag_has_no_short_form() -> None:
    assert HERMES.bare is None
    assert CallForm("object").bare is None
    assert CHANNEL_FORMS[CHANNEL_KIMI].bare is None  # which begins as the whole one does


# -- calls as JSON or Python instead of the form

JSON_OSLO, JSON_NONE = (
    '{"name": "weather", "arguments": {"city": "Oslo"}}',
    '{"name": "clock", "arguments": {}}',
)
BARE = CallForm("object", arguments_key="parameters")
PYTHON = CallForm("python", ("[", "]"), between=", ")
LFM = FORMS["<|tool_call_start|>"]


@pytest.mark.parametrize("form", [HERMES, CODER, KIMI, BARE, PYTHON, LFM], ids=lambda form: form.kind)
@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        (JSON_OSLO, "", [OSLO]),
        (f"Let me look.\n\n{JSON_OSLO}", "Let me look.", [OSLO]),
        (f"{JSON_OSLO}; {JSON_NONE}\n{JSON_OSLO}", "", [OSLO, NONE, OSLO]),
        (f"{JSON_OSLO};\n so", ";\n so", [OSLO]),
        (f"{JSON_OSLO}\n\nDone.", "\n\nDone.", [OSLO]),
        (f"[{JSON_OSLO}, {JSON_NONE}]", "", [OSLO, NONE]),
        (f"```json\n[\n{JSON_OSLO}\n]\n```\nSo.", "\nSo.", [OSLO]),
        (f"```\n{JSON_OSLO}\n{JSON_NONE}\n```", "", [OSLO, NONE]),
        (f"<think>Hm\n{JSON_NONE}</think>\n{JSON_OSLO}", f"<think>Hm\n{JSON_NONE}</think>", [OSLO]),
        (f"<|python_tag|>{JSON_OSLO}", "", [OSLO]),
        (f"<function_call> {JSON_OSLO}\n</function_call>", "", [OSLO]),
        (f'{{"type": "function", "id": "a", "function": {JSON_OSLO}}}', "", [OSLO]),
        ('{"function": "weather", "parameters": "{\\"city\\": \\"Oslo\\"}"}', "", [OSLO]),
        ('{"arguments": {"city": "Oslo"}, "name": "weather"}', "", [OSLO]),
        ('{"name": "clock", "arguments": null, "call_id": 3}', "", [NONE]),
    ],
)
def test_a_call_may_be_json_at_the_beginning_of_a_line(
    form: CallForm, reply: str, text: str, calls: list[tuple[str, Any]]
) -> None:
    found = read(form, reply)
    assert (found[0].rstrip("\n"), found[1]) == (text, calls)


@pytest.mark.parametrize(
    "text",
    [
        f"It is {JSON_OSLO}",
        '{"name": "Ann", "arguments": {}}',
        '{"name": "clock", "version": 1}',
        '{"type": "object", "name": "clock", "arguments": {}}',
        '{"id": {"a": 1}, "name": "clock", "arguments": {}}',
        '{"function": {"function": {"name": "clock", "arguments": {}}}}',
        "[1, 2]",
        "[a](b) [clock](c)",
        "```python\nprint()\n```\n``\n`a`",
        "``` a! {}",
        "<b>{}</b>\n<call\n< 5 <tool>",
        "{\n[\n{",
        '{"name": "clo',
    ],
)
def test_other_json_stays_text(text: str) -> None:
    for form in (HERMES, CODER, BARE):
        if not (form is BARE and text.startswith('{"name": "clock", "v')):
            assert read(form, text) == (text, [])
        assert read(form, f"So:\n{text}") == (f"So:\n{text}", [])


def test_other_json_is_not_held_back() -> None:
    """What a model writes of a package or a schema comes as it is written."""
    for text in ('{"name": "app"', '{"type": "object",', '{"version":', '```json\n{"a":', "<html>"):
        for form in (HERMES, BARE):
            assert ToolParser(form, TOOLS).feed(text) == [text]


def test_calls_nested_without_end_are_text() -> None:
    deep = '{"function": ' * 5000
    assert _read(HERMES, [deep], "", False) == (deep, [])


@pytest.mark.parametrize(
    ("form", "reply", "calls"),
    [
        (HERMES, f"<tool_call>\n[{JSON_OSLO}, {JSON_NONE}]\n</tool_call>", [OSLO, NONE]),
        (HERMES, f'<tool_call>{{"type": "function", "function": {JSON_OSLO}}}</tool_call>', [OSLO]),
        (HERMES, f"<tool_call>\n```json\n{JSON_OSLO}\n```\n</tool_call>", [OSLO]),
        (
            CODER,
            f"<tool_call>\n{JSON_OSLO}\n</tool_call>\n<tool_call>\n{JSON_NONE}\n</tool_call>",
            [OSLO, NONE],
        ),
        (CODER, '<tool_call>{"name": "clock"}</tool_call>', [NONE]),
        (FORMS["[TOOL_CALLS]"], f"[TOOL_CALLS]{JSON_OSLO}", [OSLO]),
        (LFM, f"<|tool_call_start|>[{JSON_OSLO}]<|tool_call_end|>", [OSLO]),
        (PYTHON, 'So:\n[weather(city="Oslo"), clock()]', [OSLO, NONE]),
        (BARE, '<|python_start|>[weather(city="Oslo")]<|python_end|>', [OSLO]),
    ],
)
def test_a_marker_may_begin_json(form: CallForm, reply: str, calls: list[tuple[str, Any]]) -> None:
    text, found = read(form, reply)
    assert (text.strip(), found) == ("So:" if "So" in reply else "", calls)


def test_python_after_text_is_no_call_beside_another_marker() -> None:
    assert read(HERMES, "So:\n[clock()]") == ("So:\n[clock()]", [])


def test_channels_have_no_loose_calls() -> None:
    for form in CHANNEL_FORMS.values():
        assert read(form, JSON_OSLO) == (JSON_OSLO, [])


@pytest.mark.parametrize(
    ("form", "reply"),
    [
        (KIMI, KIMI_OSLO.replace("functions.", "")),
        (KIMI, f"<|tool_calls_section_begin|>{KIMI_OSLO.replace('functions.', '')}{END}"),
        (
            CallForm("named", call=("[TOOL_CALLS]", ""), after_name=("[CALL_ID]", "[ARGS]")),
            '[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}',
        ),
        (
            CallForm("named", call=("[TOOL_CALLS]", ""), after_name=("[CALL_ID]", "[ARGS]")),
            '[TOOL_CALLS]functions.weather{"city": "Oslo"}',
        ),
        (
            CallForm("named", call=("[TOOL_CALLS]", ""), after_name=("[ARGS]", "")),
            '[TOOL_CALLS]weather{"city": "Oslo"}',
        ),
    ],
)
def test_what_stands_around_a_name_may_be_missing(form: CallForm, reply: str) -> None:
    assert read(form, reply) == ("", [OSLO])


def test_quotes_around_a_number_are_no_part_of_it() -> None:
    deep = {"properties": {"share": {"type": "number"}}}
    schema = {"properties": {
        "days": {"type": "integer"}, "all": {"items": {"type": "number"}}, "s": {}, "deep": deep,
    }}  # fmt: skip
    tools = (Tool("plan", "", json.dumps(schema)),)
    parser = ToolParser(FORMS["<start_function_call>"], tools)
    quoted = "days:<escape>3<escape>,all:[<escape>1.5<escape>,2],s:<escape>7<escape>"
    quoted += ",deep:{share:<escape>.5<escape>,s:<escape>7<escape>}"
    pieces = parser.feed(f"<start_function_call>call:plan{{{quoted}}}<end_function_call>")
    written = "".join(piece.arguments for piece in pieces if isinstance(piece, CallPiece))
    assert json.loads(written) == {"days": 3, "all": [1.5, 2], "s": "7", "deep": {"share": 0.5, "s": "7"}}
