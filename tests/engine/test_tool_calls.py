"""Calls of tools from a request to its events: the prompt, the reply's pieces, its end."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any

import pytest

from engine.chat import LocalChat
from engine.core import CallPiece, ChatRequest, Done, Message, ModelInfo, Text, Tool, ToolCall
from engine.errors import BadSetting
from engine.settings import SamplerSettings, StopSettings
from engine.text.template.template import ChatTemplate
from tests.engine.generator.fakes import make_dynamic, random_logits, tokenizer
from tests.engine.text.template.chat_templates import CHATML

GREEDY = SamplerSettings(temperature=0.0)
INFO = ModelInfo(
    "", "fake", "fake", "gguf", 1, 32.0, 4, 1, 4096, 700, 8, (2,), True, thinking=(("<think>", "</think>"),)
)
SCHEMA = json.dumps(
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
     "required": ["city"]}
)  # fmt: skip
TOOLS = (Tool("weather", "Tells the weather.", SCHEMA), Tool("clock"))
ASKED = (Message("user", "How is Oslo?"),)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


class Says:
    """Writes a text after any prompt, then ends its turn, in so far as it may."""

    def __init__(self, text: str) -> None:
        self._ids = [*tokenizer().encode(text, special=True), tokenizer().stop_token_ids[0]]

    def __call__(self, sequence: list[int]) -> Any:
        logits, ids = random_logits(sequence), self._ids
        said = next(n for n in range(len(ids) - 1, -1, -1) if sequence[len(sequence) - n :] == ids[:n])
        logits[ids[said]] = 30.0
        return logits


def fake_chat(answer: Any, template: str = CHATML) -> LocalChat:
    """A chat whose model writes `answer`, then ends its turn."""
    if isinstance(answer, str):
        answer = Says(answer)
    generator, _ = make_dynamic(answer, 1024)
    return LocalChat(INFO, generator, ChatTemplate(template, None, None))


def ask(chat: LocalChat, **fields: Any) -> tuple[str, list[tuple[str, str]], list[Any]]:
    """The text, the calls (name, arguments) and all events of a reply."""
    request = ChatRequest(ASKED, GREEDY, StopSettings(max_tokens=200), tools=TOOLS)
    events = list(chat.stream(dataclasses.replace(request, **fields), threading.Event()))
    text, calls = "", list[tuple[str, str]]()
    for event in events:
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, CallPiece) and event.name:
            assert event.index == len(calls)
            calls.append((event.name, event.arguments))
        elif isinstance(event, CallPiece):
            calls[-1] = calls[-1][0], calls[-1][1] + event.arguments
    assert isinstance(events[-1], Done)
    return text, calls, events


def test_a_reply_is_divided_into_text_and_calls() -> None:
    text, calls, events = ask(fake_chat(f"Let me look.\n{CALL}"))
    assert (text, calls) == ("Let me look.", [("weather", '{"city": "Oslo"}')])
    assert events[-1].reason == "stop_token"
    tokens = [token.id for event in events if isinstance(event, Text) for token in event.tokens]
    assert tokens == tokenizer().encode(f"Let me look.\n{CALL}")  # those of the call are reported too


def test_arguments_come_while_they_are_written() -> None:
    _, calls, events = ask(fake_chat(CALL))
    pieces = [event for event in events if isinstance(event, CallPiece)]
    assert len(pieces) > 2
    assert pieces[0].name == "weather"
    assert len({piece.id for piece in pieces}) == 2  # its own, and none
    assert pieces[0].id.startswith("call_")
    assert calls == [("weather", '{"city": "Oslo"}')]


def test_no_call_is_looked_for_inside_a_thought() -> None:
    text, calls, _ = ask(fake_chat(f"<think>{CALL}</think>{CALL}"))
    assert text == f"<think>{CALL}</think>"
    assert calls == [("weather", '{"city": "Oslo"}')]


def test_a_call_that_the_limit_cuts_off_stays_incomplete() -> None:
    whole = len(tokenizer().encode(CALL))
    for limit in (whole - 1, len(tokenizer().encode(CALL[: CALL.index("slo")]))):
        _, calls, events = ask(fake_chat(CALL), stops=StopSettings(max_tokens=limit))
        assert events[-1].reason == "max_tokens"
        assert all('{"city": "Oslo"}'.startswith(arguments) for _, arguments in calls)
    assert calls[0][1] != '{"city": "Oslo"}'


def test_a_stop_string_inside_arguments_ends_the_reply() -> None:
    _, calls, events = ask(fake_chat(CALL), stops=StopSettings(stop_strings=("slo",)))
    assert events[-1].reason == "stop_string"
    assert calls == [("weather", '{"city": "O')]


def test_without_tools_nothing_changes() -> None:
    plain = ask(fake_chat(random_logits), tools=())[2]
    assert ask(fake_chat(random_logits), tool_choice="none")[0] == "".join(
        event.text for event in plain if isinstance(event, Text)
    )
    text, calls, _ = ask(fake_chat(CALL), tool_choice="none")
    assert (text, calls) == (CALL, [])


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": (), "tool_choice": "required"},
        {"tools": (), "tool_choice": "clock"},
        {"tool_choice": "unknown"},
    ],
)
def test_a_choice_that_is_no_tool_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=r"must be called, but"):
        ask(fake_chat(CALL), **fields)


def test_a_continued_reply_may_call() -> None:
    begun = Message("assistant", "Let me look.")
    text, calls, _ = ask(fake_chat(CALL), messages=(*ASKED, begun), continue_last=True)
    assert (text, calls) == ("", [("weather", '{"city": "Oslo"}')])
    begun = Message("assistant", "<think>Hm")
    text, calls, _ = ask(fake_chat(f"{CALL}</think>{CALL}"), messages=(*ASKED, begun), continue_last=True)
    assert (text, len(calls)) == (f"{CALL}</think>", 1)


def prompt_of(chat: LocalChat, *messages: Message, **fields: Any) -> str:
    request = ChatRequest(messages, GREEDY, StopSettings(max_tokens=1), report_prompt=True, **fields)
    rendered = next(
        event for event in chat.stream(request, threading.Event()) if hasattr(event, "vocabulary")
    )
    return chat.tokenizer.decode(rendered.ids, skip_special=False)


def test_a_template_without_tools_gets_them_in_the_system_message() -> None:
    calls = (ToolCall("call_1", "clock", "{}"), ToolCall("call_2", "weather", '{"city": "Oslo"}'))
    prompt = prompt_of(
        fake_chat("ok"),
        Message("system", "Be brief."),
        *ASKED,
        Message("assistant", "Well.", calls),
        Message("tool", "12:00", tool_call_id="call_1"),
        Message("tool", "rain", tool_call_id="call_2"),
        tools=TOOLS,
    )
    assert prompt.count("<|im_start|>system") == 1
    assert "Be brief.\n\nYou may call" in prompt
    assert '"name": "weather", "description": "Tells the weather."' in prompt
    assert "Well.\n<tool_call>\n" + '{"name": "clock", "arguments": {}}\n</tool_call>\n' + CALL in prompt
    assert (
        "<|im_start|>user\n<tool_response>\n12:00\n</tool_response>\n<tool_response>\nrain\n</tool_response>"
        in prompt
    )
    alone = prompt_of(fake_chat("ok"), *ASKED, tools=TOOLS)
    assert "<|im_start|>system\nYou may call" in alone


@pytest.mark.parametrize("arguments", ["", "{}", '{"city": "Os', "[1]"])
def test_calls_of_earlier_turns_need_no_valid_arguments(arguments: str) -> None:
    call = ToolCall("call_1", "weather", arguments)
    prompt = prompt_of(fake_chat("ok"), *ASKED, Message("assistant", "", (call,)), *ASKED)
    assert '<tool_call>\n{"name": "weather", "arguments": {' in prompt
