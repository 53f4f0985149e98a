"""Channels of other families than gpt-oss: thoughts, answers and calls, as the models write them."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any

import pytest

from engine.chat import LocalChat
from engine.core import CallPiece, ChatRequest, Message, Text, Tool
from engine.settings import ConstraintSettings, SamplerSettings, StopSettings
from engine.text.template.channels import FORMATS, HARMONY, KIMI, MUSE, SOLAR, ChannelFormat
from engine.text.template.reasoning import PLAIN_TAG
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.detokenizer import Detokenizer
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.generator import fakes
from tests.engine.test_tool_calls import INFO, Says
from tests.engine.text.template.test_reasoning import tokenizer_with

TOOLS = (
    Tool("weather", "", '{"properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}'),
    Tool("now"),
)
CALLS = [("weather", {"city": "Köln <b>", "n": 2}), ("now", {})]
ATEM = '<atem:function_calls>\n<atem:invoke name="{}">\n{}</atem:invoke>\n</atem:function_calls>'
GIVEN = '<atem:parameter name="city">Köln <b></atem:parameter>\n<atem:parameter name="n">2</atem:parameter>\n'
NEXT = "<|eom|><|start|>assistant to="


@dataclasses.dataclass(frozen=True)
class Family:
    """A format with further control tokens, the end of a prompt, and parts of replies."""

    format: ChannelFormat
    more: tuple[str, ...]
    prompt: str
    thought: str
    answer: str
    calls: str
    end: str = ""


FAMILIES = {
    "muse": Family(
        MUSE, (), "<|start|>assistant", " to=self<|message|>Hm é." + NEXT.removesuffix(" to="),
        " to=user<|message|>Hi ☺.",
        " to=weather<|message|>" + ATEM.format("weather", GIVEN) + NEXT + "now<|message|>"
        + ATEM.format("now", ""),
    ),
    "solar": Family(
        SOLAR, ("<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"),
        "<|begin|>assistant", "<|think|>Hm é.<|end|><|begin|>assistant", "<|content|>Hi ☺.",
        '<|tool_calls|><|tool_call:begin|>a1-b<|tool_call:name|>weather<|tool_call:args|>{"city": '
        '"Köln <b>", "n": 2}<|tool_call:end|><|tool_call:begin|>c2<|tool_call:name|>now<|tool_call:args|>{}'
        "<|tool_call:end|>",
    ),
    "kimi": Family(
        KIMI, (), '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>',
        "Hm é.<|close|>think<|sep|>", "<|open|>response<|sep|>Hi ☺.<|close|>response<|sep|>",
        '<|open|>tools<|sep|><|open|>call tool="weather" index="1"<|sep|><|open|>argument key="city" '
        'type="string"<|sep|>Köln <b><|close|>argument<|sep|><|open|>argument key="n" type="number"<|sep|>2'
        '<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool="now" index="2"<|sep|><|close|>call'
        "<|sep|><|close|>tools<|sep|>", "<|close|>message<|sep|>",
    ),
}  # fmt: skip


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Family:
    found: Family = FAMILIES[request.param]
    tokenizer = tokenizer_with(*found.format.tokens, *found.more)
    monkeypatch.setattr(fakes, "tokenizer", lambda: tokenizer)
    monkeypatch.setattr("tests.engine.test_tool_calls.tokenizer", lambda: tokenizer)
    return found


def ask(family: Family, answer: str, **fields: Any) -> tuple[str, list[tuple[str, Any]]]:
    source = "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}" + family.prompt
    template = ChatTemplate(source, None, None)
    generator, _ = fakes.make_dynamic(Says(answer), 4096)
    info = dataclasses.replace(INFO, thinking=template.thinking(generator.tokenizer)[0])
    chat = LocalChat(info, generator, template)
    request = ChatRequest(
        (Message("user", "Hi"),), SamplerSettings(temperature=0.0), StopSettings(max_tokens=400), tools=TOOLS
    )
    text, calls = "", list[tuple[str, str]]()
    for event in chat.stream(dataclasses.replace(request, **fields), threading.Event()):
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, CallPiece) and event.name:
            calls.append((event.name, event.arguments))
        elif isinstance(event, CallPiece):
            calls[-1] = calls[-1][0], calls[-1][1] + event.arguments
    return text, [(name, json.loads(arguments)) for name, arguments in calls]


def expected(family: Family, thought: bool = True) -> str:
    """The text of a thought, which a prompt may have opened."""
    begins = "" if family.format.opens else "<think>\n"
    return f"{begins}Hm é.\n</think>" if thought else "\n</think>" if family.format.opens else ""


def test_each_vocabulary_has_its_format() -> None:
    for format in FORMATS:
        tokens = tokenizer_with(*format.tokens).channels
        assert tokens is not None
        assert tokens.format is format
    assert tokenizer_with("<|start|>", "<|message|>").channels is None
    assert [format for format in FORMATS if format.named] == [HARMONY]


def test_a_thought_and_an_answer_wherever_the_reply_is_taken_up(family: Family) -> None:
    tokenizer: Tokenizer = fakes.tokenizer()
    prompt = tokenizer.encode(family.prompt, special=True)
    ids = tokenizer.encode(family.thought + family.answer + family.end, special=True)
    detokenizer = Detokenizer(tokenizer, prompt_ids=prompt)
    chunks = [detokenizer.add(id) for id in ids]
    assert "".join(chunks) == f"{expected(family)}\n\nHi ☺."
    for at in range(len(ids)):
        later = Detokenizer(tokenizer, prompt_ids=prompt + ids[:at])
        assert "".join([*chunks[:at], *map(later.add, ids[at:])]) == "".join(chunks), at


def test_replies_without_tools(family: Family) -> None:
    reply = family.thought + family.answer + family.end
    assert ask(family, reply, tools=()) == (f"{expected(family)}\n\nHi ☺.", [])


@pytest.mark.slow_after(1)
def test_calls_after_a_thought_and_an_answer(family: Family) -> None:
    joint = {MUSE: "<|eom|><|start|>assistant", SOLAR: "<|end|><|begin|>assistant"}.get(family.format, "")
    whole = family.thought + family.answer + joint + family.calls + family.end
    assert ask(family, whole) == (f"{expected(family)}\n\nHi ☺.", CALLS)
    for choice in ("auto", "required"):
        assert ask(family, family.thought + family.calls, tool_choice=choice) == (expected(family), CALLS)
    assert ask(family, family.thought + family.calls, tool_choice="weather") == (expected(family), CALLS[:1])


def test_calls_in_a_thought_are_none(family: Family) -> None:
    quoted = ATEM.format("now", "")
    thought = family.thought.replace("Hm é.", quoted)
    text, calls = ask(family, thought + family.answer + family.end)
    assert (quoted in text, text.endswith("Hi ☺."), calls) == (True, True, [])


@pytest.mark.slow_after(1)
def test_an_answer_has_the_format_that_is_asked_for(family: Family) -> None:
    constraint = ConstraintSettings(format="json_schema", pattern='{"const": 12}')
    reply = family.thought + family.answer.replace("Hi ☺.", "Twelve")
    for tools in ((), TOOLS):
        text, calls = ask(family, reply, constraint=constraint, tools=tools)
        assert (text, calls) == (f"{expected(family)}\n\n12", [])


def test_a_prompt_may_end_inside_a_thought() -> None:
    tokenizer = tokenizer_with(*KIMI.tokens)
    template = ChatTemplate("{{ messages[0].content }}" + KIMI.start, None, None)
    tags = template.thinking(tokenizer)[0]
    assert tags[:2] == (PLAIN_TAG, (KIMI.start, "</think>"))
    assert template.opens(tags) == "</think>"
