"""Turns with calls and results as templates take them: the same prompts as transformers renders."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from engine.core import Message, Tool, ToolCall
from engine.errors import BadTemplate
from engine.text.template.template import ChatTemplate
from engine.text.tools.detect import ToolStyle, tool_style
from engine.text.tools.form import HERMES
from engine.text.tools.messages import conversation, has_tools, offered_tools
from tests.engine.text.template.test_real_templates import changing_lists

FOLDER = Path(__file__).parents[3] / "golden" / "templates"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "Where."}}}
TOOLS = (Tool("weather", "Tells it.", json.dumps(SCHEMA)), Tool("clock", "The time.", json.dumps(SCHEMA)))
IDS = ("call00001", "call00002")
MESSAGES = (
    Message("user", "Hi"),
    Message("assistant", "", (ToolCall(IDS[0], "weather", '{"city": "Köln"}'),)),
    Message("tool", "rain", tool_call_id=IDS[0], name="weather"),
    Message("assistant", "It rains."),
    Message("user", "And now?"),
)


def by_transformers(source: str, *, as_text: bool) -> str:
    """The same conversation, rendered by transformers."""
    from transformers.utils.chat_template_utils import render_jinja_template

    given: Any = {"city": "Köln"}
    call = {"id": IDS[0], "type": "function",
            "function": {"name": "weather", "arguments": json.dumps(given, ensure_ascii=False) if as_text
                         else given}}  # fmt: skip
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "rain", "tool_call_id": IDS[0], "name": "weather"},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "And now?"},
    ]
    tools = [
        {"type": "function",
         "function": {"name": tool.name, "description": tool.description, "parameters": SCHEMA}}
        for tool in TOOLS
    ]  # fmt: skip
    rendered, _ = render_jinja_template(
        [turns], tools=tools, chat_template=source, add_generation_prompt=True, bos_token="<s>",
        eos_token="</s>",
    )  # fmt: skip
    return str(rendered[0])


@pytest.mark.slow_after(12)
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.jinja")))
def test_tools_calls_and_results_are_rendered_as_transformers_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (FOLDER / f"{name}.jinja").read_text("utf-8")
    template = ChatTemplate(source, "<s>", "</s>")
    style = tool_style(template)
    turns, tools = conversation(MESSAGES, TOOLS, style)
    try:
        text = template.render(turns, tools=tools)
    except BadTemplate:  # such as one that refuses two turns of one role
        assert not (style.offers and style.writes_calls and style.writes_results)
        return
    if style.offers and style.writes_calls and style.writes_results:
        with changing_lists(monkeypatch):
            assert text == by_transformers(source, as_text=style.arguments_as_text)
    for part in ("weather", "Tells it.", "clock", "Köln", "rain", "It rains.", "And now?"):
        assert part in text, part


STYLE = ToolStyle(HERMES, offers=True, writes_calls=True, writes_results=True)


def test_ids_are_of_nine_letters_and_digits_and_stay_the_same() -> None:
    call = ToolCall("call_0123456789abcdef", "clock", "{}")
    messages = [Message("assistant", "", (call,)), Message("tool", "12", tool_call_id=call.id)]
    turns: Any = conversation(messages, (), STYLE)[0]
    found = turns[0]["tool_calls"][0]["id"]
    assert found == turns[1]["tool_call_id"]
    assert len(found) == 9
    assert found.isalnum()
    assert turns[1]["name"] == "clock"  # known from the call
    kept: Any = conversation([Message("tool", "12", tool_call_id="abcdefgh9")], (), STYLE)[0]
    assert kept[0]["tool_call_id"] == "abcdefgh9"


def test_reasoning_is_given_to_the_template() -> None:
    turns: Any = conversation([Message("assistant", "a", reasoning="because")], (), STYLE)[0]
    assert turns == [{"role": "assistant", "content": "a", "reasoning_content": "because"}]


def test_arguments_are_text_where_the_template_takes_text() -> None:
    style = ToolStyle(HERMES, offers=True, writes_calls=True, writes_results=True, arguments_as_text=True)
    call = ToolCall(IDS[0], "clock", '{"a":1}')
    for one, expected in ((style, '{"a":1}'), (STYLE, {"a": 1})):
        turns: Any = conversation([Message("assistant", "", (call,))], (), one)[0]
        assert turns[0]["tool_calls"][0]["function"] == {"name": "clock", "arguments": expected}


def test_what_has_to_do_with_tools() -> None:
    assert not has_tools(MESSAGES[:1])
    assert all(has_tools(MESSAGES[at : at + 1]) for at in (1, 2))
    assert not has_tools([Message("tool", "12")])
    assert not has_tools([Message("assistant", "a", reasoning="because")])
    parameters = offered_tools([Tool("clock")])[0]["function"]["parameters"]
    assert parameters == {"type": "object", "properties": {}}


def test_a_template_for_one_call_gets_each_with_its_result() -> None:
    calls = tuple(
        ToolCall(id, name, "{}") for id, name in zip("abc", ("clock", "weather", "clock"), strict=True)
    )
    messages = [
        Message("assistant", "Let me see.", calls, reasoning="Why."),
        Message("tool", "second", tool_call_id="b"),
        Message("tool", "first", tool_call_id="a"),
        Message("user", "And?"),
    ]
    turns: Any = conversation(messages, (), ToolStyle(HERMES, True, True, True, one_call=True))[0]
    assert [(turn["role"], turn["content"]) for turn in turns] == [
        ("assistant", "Let me see."), ("tool", "first"), ("assistant", ""), ("tool", "second"),
        ("assistant", ""), ("user", "And?"),
    ]  # fmt: skip
    assert [len(turn["tool_calls"]) for turn in turns if turn["role"] == "assistant"] == [1, 1, 1]
    assert [turn.get("reasoning_content") for turn in turns] == ["Why.", None, None, None, None, None]
    whole: Any = conversation(messages, (), STYLE)[0]
    assert len(whole[0]["tool_calls"]) == 3


def test_which_templates_take_one_call() -> None:
    def style(name: str) -> ToolStyle:
        return tool_style(ChatTemplate((FOLDER / f"{name}.jinja").read_text("utf-8"), "<s>", "</s>"))

    assert style("openai-gpt-oss-120b").one_call
    assert not style("Qwen-Qwen3-0.6B").one_call


def test_a_call_without_a_text_is_no_further_empty_message() -> None:
    name = "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"
    template = ChatTemplate((FOLDER / f"{name}.jinja").read_text(encoding="utf-8"), "<s>", "</s>")
    style = tool_style(template)
    assert style.null_content
    turns, tools = conversation(MESSAGES[:3], TOOLS, style)
    text = template.render(turns, tools=tools)
    assert "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather" in text
    assert "<｜Assistant｜><｜end▁of▁sentence｜>" not in text
    said = (MESSAGES[0], dataclasses.replace(MESSAGES[1], content="Let me see."), MESSAGES[2])
    assert "Let me see." in template.render(conversation(said, TOOLS, style)[0])


def test_a_template_that_leaves_out_calls_beside_a_text_has_the_text_before_them() -> None:
    source = (
        "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}:{% if m.content %}{{ m.content }}"
        "{% elif m.tool_calls %}{% for c in m.tool_calls %}<call>"
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
        "</call>{% endfor %}{% endif %}]{% endfor %}"
    )
    template = ChatTemplate(source, None, None)
    style = tool_style(template)
    assert style.calls_alone
    assert style.form.call == ("<call>", "</call>")
    call = dataclasses.replace(MESSAGES[1], content="Let me see.", reasoning="Hm.")
    turns, tools = conversation((MESSAGES[0], call, MESSAGES[2]), TOOLS, style)
    assert template.render(turns, tools=tools).endswith(
        '[user:Hi][assistant:Let me see.][assistant:<call>{"name": "weather", "arguments": '
        '{"city": "Köln"}}</call>][tool:rain]'
    )
    assert [turn.get("reasoning_content") for turn in turns if isinstance(turn, dict)] == [
        None, "Hm.", None, None,
    ]  # fmt: skip


DROPS = (
    "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}:{% if m.reasoning_content %}<plan>"
    "{{ m.reasoning_content }}</plan>{% else %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}<call>"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</call>{% endfor %}]'
    "{% endfor %}"
)
COMMAND = (
    "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}:{% if m.tool_calls %}<plan>{{ m.tool_plan }}"
    "</plan>{% else %}{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}<call>"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</call>{% endfor %}]'
    "{% endfor %}"
)
"""As Command A's."""
GPT_OSS = (FOLDER / "openai-gpt-oss-120b.jinja").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "source", [DROPS, COMMAND, GPT_OSS], ids=["leaves it out", "knows plans only", "refuses it"]
)
def test_a_thought_holds_the_text_that_a_template_takes_no_other_way(source: str) -> None:
    template = ChatTemplate(source, "<s>", "</s>")
    style = tool_style(template)
    call = dataclasses.replace(MESSAGES[1], content="Let me see.", reasoning="Hm.")
    turns, tools = conversation((MESSAGES[0], call, MESSAGES[2]), TOOLS, style)
    assert "Hm.\n\nLet me see." in template.render(turns, tools=tools)
    plain = dataclasses.replace(call, reasoning="")
    turns, tools = conversation((MESSAGES[0], plain, MESSAGES[2]), TOOLS, style)
    text = template.render(turns, tools=tools)
    assert "Let me see." in text
    assert ("<plan>Let me see.</plan>" in text) == (source is COMMAND)
