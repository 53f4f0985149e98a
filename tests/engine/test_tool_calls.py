"""Calls of tools from a request to its events: the prompt, the reply's pieces, its end."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
from typing import Any

import pytest

from engine.chat import LocalChat
from engine.constraint.calls.filter import LazyCalls
from engine.constraint.calls.grammar import CallGrammar
from engine.core import CallPiece, ChatRequest, Done, Message, ModelInfo, Text, Tool, ToolCall, Waiting
from engine.errors import BadSetting
from engine.generator.job import Job
from engine.generator.request import GenerationRequest
from engine.settings import ConstraintSettings, SamplerSettings, SpeculationSettings, StopSettings
from engine.text.template.template import ChatTemplate
from engine.text.tools.form import HERMES
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


def test_the_opening_of_a_call_that_the_limit_cuts_off_is_no_text() -> None:
    reply = f"Let me look. {CALL}"
    for end in ("<tool_call>", '{"name": "wea'):
        limit = len(tokenizer().encode(reply[: reply.index(end) + len(end)]))
        text, calls, events = ask(fake_chat(reply), stops=StopSettings(max_tokens=limit))
        assert (text.strip(), calls, events[-1].reason) == ("Let me look.", [], "max_tokens")
    text, calls, _ = ask(fake_chat("Let me look. <tool_call>"))  # the model ends it so
    assert (text, calls) == ("Let me look. <tool_call>", [])


def test_a_stop_string_inside_arguments_ends_the_reply() -> None:
    _, calls, events = ask(fake_chat(CALL), stops=StopSettings(stop_strings=("slo",)))
    assert events[-1].reason == "stop_string"
    assert calls == [("weather", '{"city": "O')]


def test_json_without_tags_is_a_call_too_but_only_one_where_no_more_are_wanted() -> None:
    loose = '[{"name": "clock", "arguments": {}}, {"name": "weather", "arguments": {"city": "Oslo"}}]'
    text, calls, _ = ask(fake_chat(f"Look:\n{loose}"))
    assert (text, calls) == ("Look:", [("clock", "{}"), ("weather", '{"city": "Oslo"}')])
    text, calls, _ = ask(fake_chat(loose), parallel_tool_calls=False)
    assert (text, calls) == (loose[loose.index(", {") :], [("clock", "{}")])


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
    with pytest.raises(BadSetting, match=r"is required, but"):
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


# -- constraints

SMALL = json.dumps(
    {"type": "object", "required": ["n"],
     "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "on": {"type": "boolean"}}}
)  # fmt: skip
SMALL_TOOLS = (Tool("count", "Counts.", SMALL), Tool("turn-it.on", "", SMALL))
LONG = StopSettings(max_tokens=200)


def random_chat() -> LocalChat:
    return fake_chat(random_logits)


@pytest.mark.parametrize("seed", range(6))
def test_tools_that_must_be_called_are_called_with_arguments_that_fit(seed: int) -> None:
    sampler = SamplerSettings(temperature=1.0, seed=seed)
    text, calls, events = ask(
        random_chat(), tools=SMALL_TOOLS, tool_choice="required", sampler=sampler, stops=LONG
    )
    assert "<tool_call>".startswith(text.strip()[:11])  # at most the beginning of one more call
    assert events[-1].reason == "max_tokens"  # this model never ends by itself
    assert len(calls) > 1
    for name, arguments in calls[:-1]:
        assert name in ("count", "turn-it.on")
        assert 0 <= json.loads(arguments)["n"] <= 99


def test_the_named_tool_is_called_once() -> None:
    for tool in SMALL_TOOLS:
        text, calls, events = ask(random_chat(), tools=SMALL_TOOLS, tool_choice=tool.name)
        assert (text, [name for name, _ in calls]) == ("", [tool.name])
        assert events[-1].reason == "end_filter"


def test_only_one_call_without_parallel_calls() -> None:
    fields: dict[str, Any] = {"tools": SMALL_TOOLS, "parallel_tool_calls": False}
    assert len(ask(random_chat(), tool_choice="required", **fields)[1]) == 1
    two = '<tool_call>\n{"name": "count", "arguments": {"n": 1}}\n</tool_call>'
    _, calls, events = ask(fake_chat(f"So: {two}\n{two}"), **fields)
    assert calls == [("count", '{"n": 1}')]
    assert events[-1].reason == "end_filter"
    del fields["parallel_tool_calls"]
    assert len(ask(fake_chat(f"So: {two}\n{two}"), **fields)[1]) == 2


def test_arguments_fit_whenever_a_call_is_made() -> None:
    begun = '<tool_call>\n{"name": "count", "arguments": {"n": "many", "off": 1}}\n</tool_call>'
    text, calls, _ = ask(fake_chat(f"So: {begun}"), tools=SMALL_TOOLS, stops=LONG)
    assert text.startswith("So:")
    assert all(0 <= json.loads(arguments)["n"] <= 99 for _, arguments in calls[:-1] or calls)
    assert calls


def test_a_reply_in_a_format_may_be_a_call_instead() -> None:
    constraint = ConstraintSettings(format="json_schema", pattern='{"const": 12}')
    assert ask(fake_chat("12"), constraint=constraint)[:2] == ("12", [])
    assert ask(fake_chat(CALL), constraint=constraint)[:2] == ("", [("weather", '{"city": "Oslo"}')])
    text, calls, _ = ask(fake_chat("Well, I think so."), constraint=constraint)
    assert (text, calls) == ("12", []) or calls
    assert ask(fake_chat("12"), constraint=constraint, tool_choice="clock")[1] == [("clock", "{}")]


def test_a_schema_that_cannot_be_enforced_is_refused_before_anything_runs() -> None:
    tool = Tool("look", parameters='{"properties": {"a": {"type": "nonsense"}}}')
    chat = random_chat()
    for choice in ("auto", "required", "look"):
        request = ChatRequest(ASKED, GREEDY, LONG, tools=(tool,), tool_choice=choice)
        with pytest.raises(BadSetting, match="schema of the tool 'look'"):
            # another thread reads the schema meanwhile
            assert all(isinstance(event, Waiting) for event in chat.stream(request, threading.Event()))


@pytest.mark.slow
def test_drafts_and_neighbours_change_no_call() -> None:
    fields: dict[str, Any] = {"tools": SMALL_TOOLS, "tool_choice": "required", "stops": LONG}
    alone = ask(random_chat(), **fields)[1]
    drafting = SpeculationSettings(method="ngram", draft_tokens=3, adaptive=False)
    assert ask(random_chat(), speculation=drafting, **fields)[1] == alone
    chat = random_chat()
    request = ChatRequest(ASKED, GREEDY, **fields)
    other = ChatRequest(ASKED, SamplerSettings(temperature=1.0, seed=5), LONG)
    beside = [chat.stream(request, threading.Event()), chat.stream(other, threading.Event())]
    found: list[list[Any]] = [[], []]
    for pair in itertools.zip_longest(*beside):
        for events, event in zip(found, pair, strict=True):
            events.append(event)
    arguments = "".join(event.arguments for event in found[0] if isinstance(event, CallPiece))
    assert arguments == "".join(one for _, one in alone)


def test_free_text_is_the_same_with_tools_and_without() -> None:
    ids = tokenizer().encode("Hello there")
    grammar = CallGrammar(HERMES, TOOLS)
    for sampler in (GREEDY, SamplerSettings(temperature=1.0, seed=7)):
        replies = []
        for filters in ((), (LazyCalls(tokenizer(), grammar),)):
            generator, _ = make_dynamic(random_logits, 1024)
            request = GenerationRequest(ids, sampler, StopSettings(max_tokens=40), filters=filters)
            events = list(generator.events(Job(request)))
            replies.append(
                [token.id for event in events if isinstance(event, Text) for token in event.tokens]
            )
        assert replies[0] == replies[1]
