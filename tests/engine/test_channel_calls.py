"""Calls of a model that writes in channels, as gpt-oss does: messages to functions."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.chat import LocalChat
from engine.core import CallPiece, ChatRequest, Done, Message, Text, Tool, ToolCall
from engine.settings import ConstraintSettings, SamplerSettings, StopSettings
from engine.text.template.reasoning import PLAIN_TAG
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.generator import fakes
from tests.engine.test_tool_calls import INFO, Says
from tests.engine.text.template.test_reasoning import GPT_OSS, HARMONY, tokenizer_with

SCHEMA = (
    '{"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}, "required": ["city"]}'
)
TOOLS = (Tool("weather", "Tells it.", SCHEMA), Tool("get_clock"))
ASKED = (Message("user", "How is Oslo?"),)
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
OSLO = '{"city": "Oslo"}'


@pytest.fixture
def harmony(monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    found = tokenizer_with(*HARMONY)
    monkeypatch.setattr(fakes, "tokenizer", lambda: found)
    monkeypatch.setattr("tests.engine.test_tool_calls.tokenizer", lambda: found)
    return found


def chat_of(answer: str) -> LocalChat:
    generator, _ = fakes.make_dynamic(Says(answer), 4096)
    template = ChatTemplate(Path(GPT_OSS).read_text("utf-8"), None, None)
    return LocalChat(dataclasses.replace(INFO, thinking=(PLAIN_TAG,)), generator, template)


def ask(chat: LocalChat, **fields: Any) -> tuple[str, list[tuple[str, str]], str]:
    request = ChatRequest(ASKED, SamplerSettings(temperature=0.0), StopSettings(max_tokens=200), tools=TOOLS)
    text, calls, reason = "", list[tuple[str, str]](), ""
    for event in chat.stream(dataclasses.replace(request, **fields), threading.Event()):
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, CallPiece) and event.name:
            calls.append((event.name, event.arguments))
        elif isinstance(event, CallPiece):
            calls[-1] = calls[-1][0], calls[-1][1] + event.arguments
        elif isinstance(event, Done):
            reason = event.reason
    return text, calls, reason


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.weather <|constrain|>json",
        "<|channel|>commentary to=functions.weather",
        " to=functions.weather<|channel|>commentary json",
        " to=functions.weather<|channel|>commentary <|constrain|>json",
    ],
)
@pytest.mark.parametrize("thought", ["", THOUGHT])
def test_a_message_to_a_function_is_a_call(harmony: Tokenizer, header: str, thought: str) -> None:
    for choice in ("auto", "required", "weather"):
        found = ask(chat_of(f"{thought}{header}<|message|>{OSLO}"), tool_choice=choice)
        assert found[:2] == ("<think>\nHm.\n</think>" if thought else "", [("weather", OSLO)])
        assert found[2] in ("stop_token", "end_filter")


def test_arguments_fit_once_a_message_is_to_a_function(harmony: Tokenizer) -> None:
    header = "<|channel|>commentary to=functions."
    _, calls, _ = ask(chat_of(f'{header}wether <|constrain|>json<|message|>{{"town": 7}}'))
    assert calls
    assert calls[0][0] in ("weather", "get_clock")
    assert calls[0][0] == "get_clock" or "city" in json.loads(calls[0][1])


def test_an_answer_is_no_call(harmony: Tokenizer) -> None:
    answer = "<|channel|>final<|message|>Write to=functions.weather{}."
    assert ask(chat_of(THOUGHT + answer))[:2] == (
        "<think>\nHm.\n</think>\n\nWrite to=functions.weather{}.",
        [],
    )
    look = "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant"
    text, calls, _ = ask(chat_of(f"{look}<|channel|>commentary to=functions.weather<|message|>{OSLO}"))
    assert (text, calls) == ("Let me look.", [("weather", OSLO)])


def test_a_reply_in_a_format_is_a_call_or_final(harmony: Tokenizer) -> None:
    constraint = ConstraintSettings(format="json_schema", pattern='{"const": 12}')
    assert ask(chat_of("<|channel|>final<|message|>12"), constraint=constraint)[:2] == ("12", [])
    call = f" to=functions.weather<|channel|>commentary json<|message|>{OSLO}"
    assert ask(chat_of(call), constraint=constraint)[1] == [("weather", OSLO)]


def test_without_tools_such_a_message_is_a_thought(harmony: Tokenizer) -> None:
    call = f"<|channel|>commentary to=functions.weather<|message|>{OSLO}"
    assert ask(chat_of(call), tools=())[:2] == (f"<think>\n{OSLO}", [])


def test_after_results_a_reply_begins_afresh(harmony: Tokenizer) -> None:
    calls = (ToolCall("a", "weather", OSLO), ToolCall("b", "get_clock", "{}"))
    messages = (
        *ASKED, Message("assistant", "Let me see.", calls, reasoning="Both."),
        Message("tool", "rain", tool_call_id="a"), Message("tool", "12:00", tool_call_id="b"),
    )  # fmt: skip
    chat = chat_of("<|channel|>final<|message|>It rains.")
    assert ask(chat, messages=messages)[:2] == ("It rains.", [])
    request = ChatRequest(
        messages, SamplerSettings(), StopSettings(max_tokens=1), tools=TOOLS, report_prompt=True
    )
    rendered = next(
        event for event in chat.stream(request, threading.Event()) if hasattr(event, "vocabulary")
    )
    prompt = chat.tokenizer.decode(rendered.ids, skip_special=False)
    first = prompt.index("to=functions.weather<|channel|>")
    second = prompt.index("to=functions.get_clock<|channel|>")
    assert first < prompt.index('"rain"') < second < prompt.index('"12:00"')
    assert "<|channel|>analysis<|message|>Both.\n\nLet me see.<|end|>" in prompt
