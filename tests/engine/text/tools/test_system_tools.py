"""Templates that look for tools elsewhere than most: in the system message, or under another name."""

from __future__ import annotations

import json

import pytest

from engine.core import Message, Tool, ToolCall
from engine.generator.prompt.tool_calls import ToolCalling
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.text.tools.detect import tool_style
from engine.text.tools.form import HERMES
from engine.text.tools.messages import conversation, offered_tools
from tests.engine.text.tokenizer.vocabularies import byte_level_metadata
from tests.engine.text.tools.test_further_forms import check_cuts

TOOLS = (Tool("weather", "Tells it: é.", '{"properties": {"city": {"type": "string"}}}'), Tool("clock"))
FUNCTIONS = [tool["function"] for tool in offered_tools(TOOLS)]
CALLED = (
    Message("user", "Hi"),
    Message("assistant", "", (ToolCall("a", "weather", '{"city": "Oslo"}'),)),
    Message("tool", "rain", tool_call_id="a"),
)
TURNS = "[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
TEXT = "{% for m in messages %}{% if m.tools %}{{ '<|tool|>' + m.tools + '<|/tool|>' }}{% endif %}" + TURNS
LIST = (
    "{% for m in messages %}{% for tool in m.tools or [] %}{{ '- ' + tool.function.name }}\n{% endfor %}"
    + TURNS
)
TOKENS = ("<|tool_call|>", "<|/tool_call|>")
WRITTEN = '<|tool_call|>[{"name": "weather", "arguments": {"city": "Oslo"}}]<|/tool_call|>'


@pytest.mark.parametrize("system", [(), (Message("system", "Be brief."),)], ids=["none", "one"])
def test_a_template_that_joins_a_text_to_its_system_message(system: tuple[Message, ...]) -> None:
    template = ChatTemplate(TEXT, None, None)
    style = tool_style(template, TOKENS)
    assert (style.offers, style.system_tools, style.writes_calls) == (True, "text", False)
    turns, tools = conversation((*system, *CALLED), TOOLS, style)
    assert tools is None
    prompt = template.render(turns)
    shown, _, rest = prompt.removeprefix("<|tool|>").partition("<|/tool|>")
    assert json.loads(shown) == FUNCTIONS
    assert "é" in shown
    assert rest.startswith(f"[system]{'Be brief.' if system else ''}[user]Hi[assistant]{WRITTEN}[user]")
    assert check_cuts(style.form, WRITTEN) == [("weather", {"city": "Oslo"})]


def test_a_template_that_goes_through_the_tools_of_its_system_message() -> None:
    template = ChatTemplate(LIST, None, None)
    style = tool_style(template, TOKENS)
    assert style.system_tools == "list"
    prompt = template.render(conversation(CALLED[:1], TOOLS, style)[0])
    assert prompt == "- weather\n- clock\n[system][user]Hi[assistant]"


@pytest.mark.parametrize("source", [TEXT, LIST])
def test_where_nothing_tells_the_form_of_calls_the_prompt_explains_it(source: str) -> None:
    template = ChatTemplate(source, None, None)
    style = tool_style(template)
    assert (style.offers, style.system_tools, style.form) == (False, "", HERMES)
    assert '<tool_call>\n{"name": "NAME"' in template.render(conversation(CALLED[:1], TOOLS, style)[0])


@pytest.mark.parametrize("kind", [3, 4], ids=["control", "added"])
def test_the_form_is_known_by_tokens_of_any_kind(kind: int) -> None:
    plain = byte_level_metadata()
    names, types = plain["tokenizer.ggml.tokens"], plain["tokenizer.ggml.token_type"]
    metadata = {
        **plain,
        "tokenizer.ggml.tokens": [*names, *TOKENS],
        "tokenizer.ggml.token_type": [*types, kind, kind],
    }
    tokenizer = Tokenizer.from_gguf(metadata)
    style = ToolCalling(tokenizer, ChatTemplate(TEXT, None, None)).style
    assert (style.system_tools, style.form.section) == ("text", ("<|tool_call|>[", "]<|/tool_call|>"))


def test_a_template_that_knows_tools_as_xml_tools() -> None:
    source = "{% for tool in xml_tools or [] %}<tool_call> {{ tool.function.name }}, {% endfor %}"
    template = ChatTemplate(f"{source}{{% for m in messages %}}{TURNS}", None, None)
    style = tool_style(template)
    assert (style.offers, style.system_tools) == (True, "")
    turns, tools = conversation(CALLED[:1], TOOLS, style)
    assert template.render(turns, tools=tools).startswith("<tool_call> weather, <tool_call> clock, [user]")
    assert template.render(CALLED[:1]) == "[user]Hi[assistant]"
    given = {"xml_tools": [{"function": {"name": "other"}}]}
    assert "other, [user]" in template.render(turns, tools=tools, variables=given)
