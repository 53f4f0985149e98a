"""Calls in ReAct's lines, as the only member of an object, and with arguments that have no names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.core import CallPiece, Tool
from engine.text.tools.form import CHANNEL_FORMS, HERMES, CallForm
from engine.text.tools.parser import ToolParser
from tests.engine.text.tools.test_loose_calls import (
    BARE,
    CODER,
    JSON_OSLO,
    KIMI,
    LFM,
    NONE,
    OSLO,
    PYTHON,
    read,
)
from tests.engine.text.tools.test_other_forms import GLM

ARGUMENTS = '{"city": "Oslo"}'
ACTION = f"Action: weather\nAction Input: {ARGUMENTS}"
KEYED = f'{{"weather": {ARGUMENTS}}}'
FORMS = [HERMES, CODER, KIMI, BARE, PYTHON, LFM, GLM]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        (ACTION, "", [OSLO]),
        (f"Thought: I must look.\n{ACTION}", "Thought: I must look.", [OSLO]),
        (f"{ACTION}\nObservation:", "\nObservation:", [OSLO]),
        (f"{ACTION}\n\nAction:clock\nAction Input: {{}}", "", [OSLO, NONE]),
        ("Action: `weather`\n Action Input:\n{'city': 'Oslo'}", "", [OSLO]),
        (f"Action: weather\nAction Input: ```json\n{ARGUMENTS}\n```\nSo.", "\nSo.", [OSLO]),
        ('Action: weather\nAction Input: "{\\"city\\": \\"Oslo\\"}"', "", [OSLO]),
        ("Action: clock\nAction Input: null", "", [NONE]),
        (f'Action:\n```\n{{"action": "weather", "action_input": {ARGUMENTS}}}\n```', "", [OSLO]),
        (f'Action:\n{{"action": "weather", "action_input": {ARGUMENTS}}}', "", [OSLO]),
        (f'{{"action": "weather", "action_input": {ARGUMENTS}}}', "", [OSLO]),
        (KEYED, "", [OSLO]),
        (f"So:\n{KEYED}\nDone.", "So:\nDone.", [OSLO]),
        (f"{KEYED}\n{{'clock': {{}},}}", "", [OSLO, NONE]),
        (f"[{KEYED}, {JSON_OSLO}]", "", [OSLO, OSLO]),
        (f"<tool_call>\n{KEYED}\n</tool_call>", "", [OSLO]),
        ('<tool_call>{"weather": {"town": "Oslo"}}</tool_call>', "", [("weather", {"town": "Oslo"})]),
    ],
)
def test_names_before_arguments(form: CallForm, reply: str, text: str, calls: list[tuple[str, Any]]) -> None:
    found = read(form, reply)
    assert ("".join(found[0].split()), found[1]) == ("".join(text.split()), calls)


@pytest.mark.parametrize(
    "text",
    [
        "Action: weather",
        "Action: weather\nAction Input:",
        "Action: weather\nAction Input: Oslo",
        f"Action: other\nAction Input: {ARGUMENTS}",
        f"action: weather\nAction Input: {ARGUMENTS}",
        f"The lines are Action: weather\nAction Input: {ARGUMENTS}",
        f"> {ACTION}",
        f"For example:\n```\n{ACTION}\n```",
        f"For example:\n```text\nThought: Hm.\n{ACTION}\n```\nSo you write it.",
        "Action! Actions speak louder.\nA cat.\nAction:\n1. Go.",
        '{"weather": "fine"}',
        '{"weather": null}',
        '{"weather": {"wind": 3}}',
        '{"weather": {"city": "Oslo"}, "time": 3}',
        '{"weather": {"city": "Oslo"}, "clock": {}}',
        '{"other": {"city": "Oslo"}}',
        '{"id": 1, "weather": {"city": "Oslo"}}',
        f"The file has:\n```json\n{KEYED}\n```",
        f"The file has:\n```json\n// so\n{KEYED}\n```",
        f"It is {KEYED}",
        f'{{"data": {KEYED}}}',
        "Call weather('Oslo')",
        "```python\nprint(1)\nweather('Oslo')\n```",
    ],
)
def test_what_is_quoted_or_data_stays_text(text: str) -> None:
    for form in (HERMES, CODER, KIMI):
        assert read(form, text) == (text, [])
    for form in CHANNEL_FORMS.values():
        for call in (ACTION, KEYED):
            assert read(form, call) == (call, [])


def test_a_block_of_code_ends() -> None:
    assert read(HERMES, f"```\n{ACTION}\n```\n{ACTION}") == (f"```\n{ACTION}\n```", [OSLO])


def test_lines_that_begin_as_reacts_are_not_held_back() -> None:
    parser = ToolParser(HERMES, (Tool("weather"),))
    for text in ("All", "\nA cat", "\nActing", "\nAction: other\n."):
        assert parser.feed(text) == [text]


SCHEMA = {
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("reply", "arguments"),
    [
        ("plan('Oslo', 3)", {"city": "Oslo", "days": 3}),
        ("plan('Oslo', tags=['a'])", {"city": "Oslo", "tags": ["a"]}),
        ("plan('Oslo', 3, ('a', 'b'))", {"city": "Oslo", "days": 3, "tags": ["a", "b"]}),
        ("plan('Oslo', 2.5)", None),
        ("plan('Oslo', '3')", None),
        ("plan('Oslo', 3, [], 4)", None),
        ("plan('Oslo', 3, days=4)", None),
        ('{"plan": {"city": "Oslo", "days": 3}}', {"city": "Oslo", "days": 3}),
        ('{"plan": {"days": 3}}', None),
    ],
)
def test_arguments_by_their_place_are_those_of_the_schema(reply: str, arguments: Any) -> None:
    parser = ToolParser(HERMES, (Tool("plan", "", json.dumps(SCHEMA)),))
    pieces = [*parser.feed(reply), *parser.finish()]
    found = [json.loads(piece.arguments) for piece in pieces if isinstance(piece, CallPiece)]
    assert found == ([] if arguments is None else [arguments])
    assert "".join(piece for piece in pieces if isinstance(piece, str)) == ("" if found else reply)
