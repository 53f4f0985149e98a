"""Thoughts and calls through the server, in the syntax of each kind of family, whole and as a stream."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Generator
from typing import Any

import pytest

from engine.chat import LocalChat
from engine.core import Loading
from engine.server.model_thread import ModelThread
from engine.server.options import ServerOptions
from engine.server.serving import ApiServer
from engine.text.template.template import ChatTemplate
from tests.engine.generator import fakes
from tests.engine.server.served import LOADING, TOKEN, Collected, ask
from tests.engine.test_channel_formats import FAMILIES
from tests.engine.test_tool_calls import INFO, Says
from tests.engine.text.template.test_reasoning import tokenizer_with

TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "now"}},
]  # fmt: skip
GIVEN = {"city": "Köln <b>", "n": 2}
JSON = json.dumps(GIVEN, ensure_ascii=False)
TALK = "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|im_end|>\n{% endfor %}"
# what the template says of calls, the reply (with its thought), and the control tokens
SYNTAXES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "hermes": (
        "<tool_call>", f'<tool_call>\n{{"name": "weather", "arguments": {JSON}}}\n</tool_call>\n<tool_call>\n'
        '{"name": "now", "parameters": {}}\n</tool_call>', (),
    ),
    "tagged": (
        "<function=", "<tool_call>\n<function=weather>\n<parameter=city>\nKöln <b>\n</parameter>\n"
        "<parameter=n>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n"
        "</tool_call>", (),
    ),
    "python": (
        "<|tool_call_start|>", "<|tool_call_start|>[weather(city='Köln <b>', n=2), now()]<|tool_call_end|>",
        ("<|tool_call_start|>", "<|tool_call_end|>"),
    ),
    "named": (
        "<|tool_calls_section_begin|>", "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
        f"<|tool_call_argument_begin|>{JSON}<|tool_call_end|><|tool_call_begin|>functions.now:1"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
         "<|tool_call_end|>", "<|tool_calls_section_end|>"),
    ),
    "braces": (
        "<start_function_call>", "<start_function_call>call:weather{city:<escape>Köln <b><escape>,n:2}"
        "<end_function_call><start_function_call>call:now{}<end_function_call>",
        ("<start_function_call>", "<end_function_call>", "<escape>"),
    ),
}  # fmt: skip


def cases() -> Generator[Any, None, None]:
    for name, (words, calls, tokens) in SYNTAXES.items():
        start = f"{{# {words} #}}{TALK}<|assistant|><think>\n"
        yield pytest.param((start, f"Hm é.\n</think>\n\n{calls}", tokens), id=name)
    for name, family in FAMILIES.items():
        reply = family.thought + family.calls + family.end
        tokens = (*family.format.tokens, *family.more)
        yield pytest.param((TALK + family.prompt, reply, tokens), id=name)


@pytest.fixture(params=cases())
def port(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Generator[int, None, None]:
    source, reply, tokens = request.param
    tokenizer = tokenizer_with(*tokens)
    monkeypatch.setattr(fakes, "tokenizer", lambda: tokenizer)
    monkeypatch.setattr("tests.engine.test_tool_calls.tokenizer", lambda: tokenizer)

    def opener(stop: threading.Event) -> Generator[Loading, None, LocalChat]:
        yield from ()
        template = ChatTemplate(source, None, None)
        generator, _ = fakes.make_dynamic(Says(reply), 4096)
        info = dataclasses.replace(INFO, thinking=template.thinking(tokenizer)[0])
        return LocalChat(info, generator, template)

    host = ModelThread({"fake": opener})
    outlet = Collected()
    host.load("fake", outlet)
    assert outlet.wait(LOADING) is None
    server = ApiServer(host, ServerOptions(token=TOKEN))
    yield server.port
    server.close()
    host.close()


@pytest.mark.loopback
@pytest.mark.slow_after(2)
def test_calls_and_thoughts_of_each_syntax(port: int) -> None:
    body = {
        "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "temperature": 0, "max_tokens": 400,
    }  # fmt: skip
    (whole,) = ask(port, "/v1/chat/completions", body).json["choices"]
    message = whole["message"]
    assert (whole["finish_reason"], message["content"], message["reasoning_content"]) == (
        "tool_calls", None, "Hm é.",
    )  # fmt: skip
    calls = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message["tool_calls"]
    ]
    assert calls == [("weather", GIVEN), ("now", {})]

    events = ask(port, "/v1/chat/completions", {**body, "stream": True}).events[:-1]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "Hm é."
    # Rust's programs without a name read both names as one field, which must not come twice
    assert not any("reasoning" in one for one in (message, *deltas))
    assert "".join(delta.get("content") or "" for delta in deltas) == ""
    pieces = [call for delta in deltas for call in delta.get("tool_calls", ())]
    for index, (name, given) in enumerate(calls):
        own = [piece for piece in pieces if piece["index"] == index]
        assert (own[0]["function"]["name"], own[0]["type"], bool(own[0]["id"])) == (name, "function", True)
        assert json.loads("".join(piece["function"]["arguments"] for piece in own)) == given
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.loopback
def test_clients_with_a_name_get_thoughts_under_both_names(port: int) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 400, "temperature": 0}
    named = {"User-Agent": "OpenAI/Python 3.57.0"}
    (whole,) = ask(port, "/v1/chat/completions", {**body, "tools": TOOLS}, headers=named).json["choices"]
    assert whole["message"]["reasoning"] == whole["message"]["reasoning_content"] == "Hm é."
