"""What templates are given: texts as parts of a list, or no None, where they take nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.core import Message
from engine.errors import BadTemplate
from engine.text.template.template import ChatTemplate
from tests.engine.text.template.chat_templates import CHATML, GEMMA, MISTRAL

GOLDEN = Path(__file__).parents[3] / "golden" / "templates"
PARTS = (
    "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}{% if part.type == 'image' %}<image>"
    "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""As SmolVLM's and LLaVA's."""
EITHER = PARTS.replace(
    "{% for part", "{% if m.content is string %}{{ m.content }}{% else %}{% for part"
).replace("{% endfor %}</", "{% endfor %}{% endif %}</")
CHAT = (Message("user", "Hi"), Message("assistant", "Hello"))
LISTED: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Hi"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B "}]},
]


@pytest.mark.parametrize("source", [PARTS, EITHER, PARTS.replace("part.text", "part['text']")])
def test_texts_become_parts_where_a_template_shows_nothing_else(source: str) -> None:
    template = ChatTemplate(source, None, None)
    assert template.render(CHAT[:1]) == "<user>Hi</user><assistant>"
    assert template.render(CHAT, continue_last=True) == "<user>Hi</user><assistant>Hello"
    assert template.render(LISTED[:1]) == "<user><image>Hi</user><assistant>"


def test_a_template_without_texts_gets_them_as_they_are() -> None:
    assert ChatTemplate("{{ messages[0].content is string }}{# text #}", None, None).render(CHAT) == "True"


def test_thoughts_become_parts_where_a_template_shows_nothing_else() -> None:
    source = (GOLDEN / "mistralai-Ministral-3-14B-Reasoning-2512.jinja").read_text("utf-8")
    template, asked = ChatTemplate(source, "<s>", "</s>"), [Message("system", "Be brief."), CHAT[0]]
    for reply, shown in (
        (Message("assistant", "Hello", reasoning="Hm."), "[THINK]Hm.[/THINK]Hello"),
        (Message("assistant", "", reasoning="Hm."), "[THINK]Hm.[/THINK]"),
        (CHAT[1], "Hello"),
    ):
        expected = f"<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]{shown}</s>"
        assert template.render([*asked, reply]) == expected


def test_the_last_part_is_continued_as_transformers_does() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    (expected,), _ = render_jinja_template(
        conversations=[LISTED], chat_template=EITHER, continue_final_message=True
    )
    assert ChatTemplate(EITHER, None, None).render(LISTED, continue_last=True) == expected
    assert expected.endswith("AB ")
    picture = {"role": "assistant", "content": [{"type": "image"}]}
    with pytest.raises(BadTemplate, match="no text"):
        ChatTemplate(EITHER, None, None).render([*LISTED[:1], picture], continue_last=True)


def test_what_is_none_is_left_out_where_a_template_fails_with_it() -> None:
    turn = {"role": "assistant", "content": None, "tool_calls": None}
    shown = "{% for m in messages %}{{ m.content }}{{ 'tool_calls' in m }}{% endfor %}"
    assert ChatTemplate(shown, None, None).render([turn]) == "NoneTrue"
    looks = shown.replace("{{ m.content }}", "{% if 'content' in m and 'x' in m.content %}{% endif %}")
    assert ChatTemplate(looks, None, None).render([turn]) == "False"
    with pytest.raises(BadTemplate):  # it needs a text
        ChatTemplate(CHATML, None, None).render([turn])


CALL: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call12345", "type": "function", "function": {"name": "f", "arguments": {}}}],
}
RESULT = {"role": "tool", "tool_call_id": "call12345", "name": "f", "content": "R"}
USER, MORE = {"role": "user", "content": "A"}, {"role": "user", "content": "B"}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("mistralai-Mistral-Nemo-Instruct-2407", "</s>"),
        ("Mistral-Small-3.2-24B-Instruct-2506", "</s>"),
        ("mistralai-Ministral-3-14B-Reasoning-2512", "...</s>"),
    ],
)
def test_a_message_after_the_result_of_a_tool_is_shown_where_the_template_refuses_it(
    name: str, answer: str
) -> None:
    template = ChatTemplate((GOLDEN / f"{name}.jinja").read_text("utf-8"), "<s>", "</s>")
    for turns in ([USER, CALL, RESULT, MORE], [USER, CALL, RESULT, {**CALL}, RESULT, MORE]):
        assert template.render(turns).endswith(f"[/TOOL_RESULTS]{answer}[INST]B[/INST]")
        after = [*turns, {"role": "assistant", "content": "C"}, USER]
        assert template.render(after).endswith(f"[/TOOL_RESULTS]{answer}[INST]B[/INST]C</s>[INST]A[/INST]")
    assert template.render([USER, CALL, MORE]).endswith(f"{answer}[INST]B[/INST]")
    assert template.render([USER, CALL, RESULT]).endswith("[/TOOL_RESULTS]")


@pytest.mark.parametrize("source", [GEMMA, MISTRAL])
def test_a_greeting_may_come_first_where_the_template_requires_a_question(source: str) -> None:
    template, first = ChatTemplate(source, "<s>", "</s>"), {"role": "user", "content": ""}
    greeting = {"role": "assistant", "content": "Welcome!"}
    system = {"role": "system", "content": "Be brief."}
    assert template.render([greeting, USER]) == template.render([first, greeting, USER])
    text = template.render([system, greeting, USER])
    assert "Be brief." in text
    assert "Welcome!" in text


def test_a_system_message_may_stand_alone_where_the_template_requires_a_question() -> None:
    system = {"role": "system", "content": "Be brief."}
    qwen = ChatTemplate((GOLDEN / "Qwen3.5-4B.jinja").read_text("utf-8"), None, None)
    assert qwen.render([system]) == qwen.render([system, {"role": "user", "content": ""}])
    gemma = ChatTemplate(GEMMA, "<s>", "</s>")
    assert gemma.render([system]) == gemma.render([{"role": "user", "content": "Be brief.\n\n"}])


def test_a_template_that_takes_a_message_after_a_result_gets_no_other() -> None:
    shown = "{% for m in messages %}[{{ m.role }}]{% endfor %}"
    turns = [USER, CALL, RESULT, MORE]
    assert ChatTemplate(shown, None, None).render(turns) == "[user][assistant][tool][user]"
    assert ChatTemplate(shown, None, None).render(turns[1:3]) == "[assistant][tool]"


TYPES = (
    "{% macro name(s) %}{% if s.type == 'string' %}str{% elif s.type == 'object' %}"
    "dict[{{ name(s.additionalProperties) }}]{% elif s.type is string %}{{ name(s) }}"
    "{% elif s.type is iterable %}{% for t in s.type %}{{ name({'type': t}) }}|{% endfor %}"
    "{% else %}Any{% endif %}{% endmacro %}{% for tool in tools or [] %}{{ tool.function.name }}("
    "{% for key, s in tool.function.parameters.properties | items %}{{ key }}: {{ name(s) }} # "
    "{{ s.description + ';' }}{% endfor %}){% endfor %}{{ messages[0].content }}"
)
"""Writes types in Python and, as Hermes 2 Pro's and Command R+'s do, calls itself without end for others."""


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": ["string", "null"], "description": "d"}, "str # d"),
        ({"type": ["string", "null", "string"], "description": "d"}, "str|str| # d"),
        ({"type": "object"}, "dict[] # "),
        ({"type": "string"}, "str # "),
        ({"type": "null"}, " # "),
        ({"type": ["null"]}, " # "),
    ],
)
def test_schemas_that_a_template_fails_with_are_made_plain(schema: dict[str, Any], written: str) -> None:
    parameters = {
        "type": "object",
        "properties": {"type": schema, "other": {"type": "string", "description": "e", "enum": ["null"]}},
    }
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    text = ChatTemplate(TYPES, None, None).render(CHAT[:1], tools=tools)
    assert text == f"f(type: {written};other: str # e;)Hi"
    assert parameters["properties"]["type"] is schema  # what was given stays as it is


def test_schemas_that_a_template_takes_stay_as_they_are() -> None:
    tools = [{"function": {"parameters": {"properties": {"a": {"type": ["string", "null"]}}}}}]
    text = ChatTemplate("{{ tools | tojson }}", None, None).render(CHAT[:1], tools=tools)
    assert '"a": {"type": ["string", "null"]}' in text
    with pytest.raises(BadTemplate, match="No"):
        ChatTemplate("{{ raise_exception('No.') }}", None, None).render(CHAT[:1], tools=tools)


def test_an_empty_system_message_leaves_no_blank_lines_where_a_template_takes_none() -> None:
    asked = Message("user", "Hi")
    silent = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    for source in (GEMMA, silent):
        template = ChatTemplate(source, "<s>", "</s>")
        assert template.render([Message("system", ""), asked]) == template.render([asked])
