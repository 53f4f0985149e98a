"""Calls in forms that are not the model's own: several objects in one tag, Python's quotes, tags that name
the tool, names before the arguments, and answers that are nothing but calls of Python.
"""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from engine.core import CallPiece, Tool
from engine.text.template.template import ChatTemplate
from engine.text.tools.detect import tool_style
from engine.text.tools.form import CHANNEL_FORMS, HERMES, CallForm
from engine.text.tools.parser import ToolParser
from tests.engine.text.tools.test_loose_calls import (
    BARE,
    CODER,
    FORMS,
    JSON_NONE,
    JSON_OSLO,
    KIMI,
    LFM,
    NONE,
    OSLO,
    PYTHON,
    _read,
    read,
)

GLM = FORMS["<arg_key>"]
PYTHON_OSLO, DICT_OSLO = 'weather(city="Oslo")', "{'name': 'weather', 'arguments': {'city': 'Oslo'}}"
INVOKED = '<invoke name="weather">\n<parameter name="city">Oslo</parameter>\n</invoke>'
STEP = "<｜tool_call_begin｜>{}<｜tool_call_end｜>"


@pytest.mark.slow_after(15)
@pytest.mark.parametrize("form", [HERMES, CODER, GLM], ids=["json", "tagged", "glm"])
@pytest.mark.parametrize(
    ("inside", "calls"),
    [
        (f"{JSON_OSLO}\n{JSON_NONE}", [OSLO, NONE]),
        (f"{JSON_OSLO}{JSON_NONE}", [OSLO, NONE]),
        (f"{JSON_OSLO}, {JSON_NONE};{JSON_OSLO}", [OSLO, NONE, OSLO]),
        (f"{JSON_OSLO[:-1]}", [OSLO]),
        (f"{JSON_OSLO}}}", [OSLO]),
        (JSON_OSLO.replace('"}', '",}'), [OSLO]),
        (DICT_OSLO, [OSLO]),
        (f"[{DICT_OSLO}, {JSON_NONE},]", [OSLO, NONE]),
        (PYTHON_OSLO, [OSLO]),
        (f"clock()\n{PYTHON_OSLO}", [NONE, OSLO]),
        (f"[{PYTHON_OSLO}, clock()]", [OSLO, NONE]),
        ('weather\n{"city": "Oslo"}', [OSLO]),
        ('weather{"city": "Oslo"}', [OSLO]),
        ("weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>", [OSLO]),
        ("<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>", [OSLO]),
        ('<function=weather>{"city": "Oslo"}</function>', [OSLO]),
        (f"{INVOKED}\n{INVOKED}", [OSLO, OSLO]),
        ("<tool_call>\nclock()", [NONE]),
    ],
)
def test_what_a_tag_of_calls_may_hold(form: CallForm, inside: str, calls: list[tuple[str, Any]]) -> None:
    reply = f"Look:\n<tool_call>\n{inside}\n</tool_call>"
    assert read(form, reply) == ("Look:", calls)
    text, found = read(form, f"{reply}\nDone.")
    assert (text.split(), found) == (["Look:", "Done."], calls)


@pytest.mark.slow_after(30)
@pytest.mark.parametrize("form", [HERMES, CODER, KIMI, BARE, PYTHON, LFM, GLM], ids=lambda form: form.kind)
@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (DICT_OSLO, [OSLO]),
        (f"```json\n[{DICT_OSLO}]\n```", [OSLO]),
        ("{'name': \"weather\", 'arguments': {'city': 'Oslo', }}", [OSLO]),
        ('<function=weather>{"city": "Oslo"}</function>', [OSLO]),
        ('<function=weather>\n{"city": "Oslo"}\n</function>\n<function=clock></function>', [OSLO, NONE]),
        ('<function name="weather"><param name="city">Oslo</param></function>', [OSLO]),
        ("<function name='weather'><param name=city><![CDATA[Oslo]]></param></function>", [OSLO]),
        (f"<function_calls>\n{INVOKED}\n{INVOKED}\n</function_calls>", [OSLO, OSLO]),
        (f"<minimax:tool_call>\n{INVOKED}</minimax:tool_call>", [OSLO]),
        (f"<｜tool_calls_begin｜>{STEP.format(INVOKED)}<｜tool_calls_end｜>", [OSLO]),
        (
            f"<｜tool_calls_begin｜>{STEP.format(INVOKED)}<｜tool_sep｜>{STEP.format(INVOKED)}<｜tool_calls_end｜>",
            [OSLO, OSLO],
        ),
        (INVOKED.replace("invoke", "steptml:invoke").replace("parameter", "steptml:parameter"), [OSLO]),
        ('<tool name="weather"><city>Oslo</city></tool>', [OSLO]),
        (f"<function_calls>{PYTHON_OSLO}\nclock()</function_calls>", [OSLO, NONE]),
        (f"<|python_tag|>{PYTHON_OSLO}; clock()", [OSLO, NONE]),
        ('<|python_tag|>weather.call(city="Oslo")', [OSLO]),
    ],
)
def test_a_tag_may_name_the_tool(form: CallForm, reply: str, calls: list[tuple[str, Any]]) -> None:
    assert read(form, reply) == ("", calls)
    assert read(form, f"So:\n{reply}") == ("So:", calls)


@pytest.mark.slow_after(20)
@pytest.mark.parametrize("form", [HERMES, CODER, KIMI, BARE, PYTHON, LFM, GLM], ids=lambda form: form.kind)
@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (PYTHON_OSLO, [OSLO]),
        (f"{PYTHON_OSLO}\n", [OSLO]),
        ("clock()", [NONE]),
        (f"{PYTHON_OSLO}\nclock()\n\n{PYTHON_OSLO}", [OSLO, NONE, OSLO]),
        (f"{PYTHON_OSLO}, clock(); clock();", [OSLO, NONE, NONE]),
        (f"[{PYTHON_OSLO}, clock()]", [OSLO, NONE]),
        (f"[ {PYTHON_OSLO},\n]", [OSLO]),
        (f"```python\n{PYTHON_OSLO}\nclock()\n```\n", [OSLO, NONE]),
        ("```tool_code\nclock()```", [NONE]),
        ("weather(city='O' 'slo')", [OSLO]),
        ("weather('Oslo')", [OSLO]),
        ("[weather('Oslo',), clock()]", [OSLO, NONE]),
    ],
)
def test_an_answer_may_be_nothing_but_calls_of_python(
    form: CallForm, reply: str, calls: list[tuple[str, Any]]
) -> None:
    assert read(form, reply) == ("", calls)
    text, found = read(form, f"<think>Hm\nclock()</think>\n\n{reply}")
    assert (text.strip(), found) == ("<think>Hm\nclock()</think>", calls)


@pytest.mark.parametrize(
    "reply",
    [
        f"{PYTHON_OSLO} tells the weather.",
        f"{PYTHON_OSLO}\nother()",
        f"Call {PYTHON_OSLO}",
        "weather",
        "weather(city=",
        "weather(7)",
        "weather('Oslo', 'Bergen')",
        "weather('Oslo', city='Bergen')",
        "weather(*['Oslo'])",
        "weather(Oslo)",
        "clock('Oslo')",
        "`weather('Oslo')` tells it.",
        "weather (city='Oslo')",
        "weather(the one of Oslo) is good.",
        "clock();;",
        "[]",
        "[clock(), other()]",
        "[clock(), 1]",
        "```python\nclock()\n```\nThis tells the time.",
        "```python\nclock()",
        "```bash\nclock()\n```",
        "other()",
        "clocks()",
        "",
    ],
)
def test_prose_that_begins_as_calls_of_python_stays_text(reply: str) -> None:
    for form in (HERMES, CODER, GLM):
        assert read(form, reply) == (reply, [])


def test_prose_after_calls_is_not_lost() -> None:
    for more in ("Done.", "weather is next.", "</b>"):
        assert read(HERMES, f"<tool_call>clock()\n{more}") == (f"\n{more}", [NONE])


def test_nothing_of_a_text_is_lost_or_moved() -> None:
    for form in (HERMES, PYTHON, BARE):
        for text in (
            "<",
            "<thi",
            "\n",
            "[ ]]>",
            "[ 1]",
            "So <",
            "x < ",
            "``",
            "[ clock",
            "<call> [ ]",
            "<call>clock </b>",
            "<tool_call>clock\n</call>",
        ):
            assert read(form, text) == (text, [])


def test_no_more_is_held_than_may_be_calls() -> None:
    """Text comes as soon as it cannot be calls of Python alone."""
    for begun, rest in (
        ("", "Wea"), ("w", "e."), ("weather", "."), ("weather(city", ") is"), ("", "[1"), ("clock()", " t"),
        ("```python\n", "p"),
    ):  # fmt: skip
        parser = ToolParser(HERMES, (Tool("weather"), Tool("clock")))
        assert parser.feed(begun) == []
        assert parser.feed(rest) == [begun + rest], (begun, rest)


def test_calls_of_python_count_when_the_reply_has_ended() -> None:
    tools = (Tool("weather"), Tool("clock"))
    parser = ToolParser(HERMES, tools)
    assert parser.feed("clock()\nweather()") == []
    assert [piece.name for piece in parser.finish() if isinstance(piece, CallPiece)] == ["clock", "weather"]
    assert parser.calls == 2
    cut = ToolParser(HERMES, tools)
    cut.feed("clock()")
    assert cut.finish(cut=True) == ["clock()"]  # it might have gone on
    one = ToolParser(HERMES, tools, several=False)
    assert [*one.feed("clock()\nclock()"), *one.finish()] == ["clock()\nclock()"]
    for parser in (
        ToolParser(HERMES, tools, continued=True),
        ToolParser(next(iter(CHANNEL_FORMS.values())), tools),
    ):
        assert [*parser.feed("clock()"), *parser.finish()] == ["clock()"]


@pytest.mark.parametrize(
    "text",
    [
        "<function=other>{}</function>",
        "<function name>",
        "<function",
        "<div name='weather'><city>Oslo</city></div>",
        "<p class='clock'>It is late.</p>",
        "<invoke name='weather'>Oslo</invoke>",
        "<invoke name='weather'><b>Oslo</b></invoke>",
        "<tool_sep><tool_sep><tool_sep><tool_sep>",
        "<tools>weather is a tool</tools>",
        "<call>\nclock tells the time",
        "{'tis}",
        "{'name': 'Ann', 'arguments': {}}",
    ],
)
def test_other_tags_stay_text(text: str) -> None:
    for form in (HERMES, KIMI, BARE):
        assert read(form, text) == (text, [])
        assert read(form, f"So:\n{text}") == (f"So:\n{text}", [])


SCHEMA = {
    "properties": {
        "days": {"type": "integer"}, "share": {"type": "number"}, "all": {"type": "boolean"},
        "when": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "tags": {"type": "array"},
        "deep": {"type": "object"}, "level": {"enum": [1, 2, "max"]}, "text": {"type": "string"},
    }
}  # fmt: skip


def test_values_in_tags_become_what_the_schema_says() -> None:
    values = {
        "days": ("3", 3), "share": (" 2.5\n", 2.5), "all": ("True", True), "when": ("null", None),
        "tags": ("['a', 1]", ["a", 1]), "deep": ('{"x": null}', {"x": None}), "level": ("2", 2),
        "text": ("12", "12"), "more": ("7", 7),
    }  # fmt: skip
    tags = "".join(f'<param name="{key}">{text}</param>' for key, (text, _value) in values.items())
    parser = ToolParser(HERMES, (Tool("plan", "", json.dumps(SCHEMA)),))
    pieces = parser.feed(f'<function name="plan">{tags}</function>') + parser.finish()
    (call,) = (piece for piece in pieces if isinstance(piece, CallPiece))
    assert json.loads(call.arguments) == {key: value for key, (_text, value) in values.items()}
    typed = '<param name="when" type="string">7</param><param name="level" string="true">2</param>'
    parser = ToolParser(HERMES, (Tool("plan", "", json.dumps(SCHEMA)),))
    (piece,) = parser.feed(f'<function name="plan">{typed}</function>')
    assert isinstance(piece, CallPiece)
    assert json.loads(piece.arguments) == {"when": "7", "level": "2"}


def test_text_in_tags_keeps_its_white_space_and_comes_as_it_is_written() -> None:
    parser = ToolParser(HERMES, (Tool("plan", "", json.dumps(SCHEMA)),))
    begun = parser.feed('<invoke name="plan"><parameter name="text">\n  a < b </p')
    assert [piece.arguments for piece in begun if isinstance(piece, CallPiece)] == ['{"text": "  a < b ']
    rest = parser.feed("\n\n</parameter></invoke>")
    assert [piece.arguments for piece in rest if isinstance(piece, CallPiece)] == ['</p\\n"}']


@pytest.mark.parametrize("form", [HERMES, CODER, KIMI, BARE, PYTHON, LFM, GLM], ids=lambda form: form.kind)
@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        (f"So<tool_calls>{INVOKED}</tool_calls>", "So", [OSLO]),
        (f"So <dots_function_call>{JSON_OSLO}</dots_function_call> it is.", "So it is.", [OSLO]),
        (f"So: <|python_start|>[{PYTHON_OSLO}]<|python_end|>", "So:", [OSLO]),
        (f"a < b, List<Tool> x {INVOKED}", "a < b, List<Tool> x", [OSLO]),
        (f"Write `{INVOKED}`", f"Write `{INVOKED}`", []),
        (f"`<call>{JSON_OSLO}</call>` calls", f"`<call>{JSON_OSLO}</call>` calls", []),
        (f"See <b> {JSON_OSLO}", f"See <b> {JSON_OSLO}", []),
    ],
)
def test_a_tag_counts_within_a_line_but_not_in_code(
    form: CallForm, reply: str, text: str, calls: list[tuple[str, Any]]
) -> None:
    found = read(form, reply)
    assert (found[0].strip(), found[1]) == (text, calls)


GEMMA = FORMS["<start_function_call>"]
BRACES = "weather{city:<escape>Oslo<escape>}"


@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        (f"<start_function_call>call:{BRACES}<end_function_call>", "", [OSLO]),
        (f"call:{BRACES}<end_function_call>", "", [OSLO]),
        (f"<think>Hm</think>call:{BRACES}", "<think>Hm</think>", [OSLO]),
        (f"Look:\ncall:{BRACES}", "Look:", [OSLO]),
        (f"<call>{BRACES}", "", [OSLO]),
        ("I call: weather {city}", "I call: weather {city}", []),
        ("call:other{a:1}", "call:other{a:1}", []),
    ],
)
def test_calls_in_braces_may_lack_their_tag(reply: str, text: str, calls: list[tuple[str, Any]]) -> None:
    assert read(GEMMA, reply) == (text, calls)


ARGUED = '{"city": "Oslo"}'


@pytest.mark.parametrize("form", [HERMES, CODER, BARE, PYTHON], ids=["json", "tagged", "bare", "python"])
@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (f'{{"tool_calls": [{JSON_OSLO}, {JSON_NONE}]}}', [OSLO, NONE]),
        (f'{{"tool_calls": [{{"id": "1", "type": "function", "function": {JSON_OSLO}}}]}}', [OSLO]),
        (f'{{"function_call": {JSON_OSLO}}}', [OSLO]),
        (f'```json\n{{"tool_call": {JSON_OSLO}}}\n```', [OSLO]),
        (f'{{"tool": "weather", "args": {ARGUED}}}', [OSLO]),
        (f'{{"type": "tool_use", "id": "a", "name": "weather", "input": {ARGUED}}}', [OSLO]),
        (f"```tool_code\n{PYTHON_OSLO}\nclock()\n```", [OSLO, NONE]),  # as Gemma 3's makers show it
        (f"<tool_call>weather({ARGUED})</tool_call>", [OSLO]),
        ('{"tool_calls": []}', []),
        ('{"tool_calls": [1]}', []),
        ('{"tool_calls": {"name": "Ann"}}', []),
        ('{"tool": "hammer", "args": {}}', []),
        ("```tool_code\nprint(1)\n```", []),
        ("```tool_code\nclock\n```", []),
    ],
)
def test_calls_as_messages_of_an_api_have_them_and_in_blocks_for_them(
    form: CallForm, reply: str, calls: list[tuple[str, Any]]
) -> None:
    text = "Let me look.\n"
    assert read(form, text + reply) == ((text.rstrip() if calls else text + reply), calls)


ADJOINING = (
    "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}["
    "{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}"
    "{{ k }}={{ v }}{% if not loop.last %}, {% endif %}{% endfor %}){% if not loop.last %}, {% endif %}"
    "{% endfor %}]{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Writes calls of Python without quotes, right after a text, as templates for Llama 3.2 and ToolACE do."""


@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        ("[weather(city=Oslo)]", "", [OSLO]),
        ("Let me look.[weather(city=Oslo), clock()]", "Let me look.", [OSLO, NONE]),
        ('Look: [weather(city="Oslo")]', "Look:", [OSLO]),
        ("[weather(city=New York, NY (US))]", "", [("weather", {"city": "New York, NY (US)"})]),
        ("[weather(city=75)]", "", [("weather", {"city": "75"})]),
        ('Look: {"name": "clock", "arguments": {}}', "Look:", [NONE]),
        ("Write `[clock()]` [1] or a[clock] {}.", "Write `[clock()]` [1] or a[clock] {}.", []),
        ("```\nx = [clock()]\n```", "```\nx = [clock()]\n```", []),
        ("[weather(place Oslo)]", "[weather(place Oslo)]", []),
    ],
)
def test_calls_without_quotes_right_after_a_text(reply: str, text: str, calls: list[tuple[str, Any]]) -> None:
    form = tool_style(ChatTemplate(ADJOINING, None, None)).form
    assert (form.unquoted, form.within_line, form.marker) == (True, True, "")
    assert read(form, reply) == (text, calls)


def test_a_call_right_after_a_text_counts_where_the_template_writes_it_there() -> None:
    below = ADJOINING.replace("{{ m.content }}", "{{ m.content }}\n")
    form = tool_style(ChatTemplate(below, None, None)).form
    assert not form.within_line
    assert read(form, "Look: [weather(city=Oslo)]") == ("Look: [weather(city=Oslo)]", [])
    assert read(form, "Look:\n[weather(city=Oslo)]") == ("Look:", [OSLO])


_PARTS = (
    "<tool_call>", "</tool_call>", "<function=weather>", "</function>", "<parameter=city>", "</parameter>",
    "weather", "clock", "(", ")", "city", "=", '"Oslo"', "'", '"', "{", "}", "[", "]", ",", ";", "\n", " ",
    "```json\n", JSON_NONE, DICT_OSLO, PYTHON_OSLO, '<invoke name="weather">', "</invoke>", "<think>", "`",
    "Action: ", "weather\nAction Input: ", "```\n", '{"weather": ', '{"city": "Oslo"}', "('Oslo')",
    "</think>", "call:", "<", ">", "Done", "<|python_tag|>", "<arg_key>", "</arg_key>", "<![CDATA[", "\\",
)  # fmt: skip


@pytest.mark.parametrize(
    "form",
    [HERMES, CODER, KIMI, BARE, PYTHON, GLM, GEMMA, replace(PYTHON, unquoted=True, within_line=True)],
    ids=lambda form: form.kind,
)
def test_mixtures_of_parts_lose_nothing_and_are_read_alike_in_all_pieces(form: CallForm) -> None:
    random = Random(7)
    for _ in range(100):
        text = "".join(random.choices(_PARTS, k=random.randint(1, 12)))
        found = _read(form, [text], "", False)
        assert _read(form, [*text], "", False) == found, text
        if not found[1]:
            assert found[0] == text
