"""Calls between control tokens: the tokens are silent in text, but mark calls."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import Any

import pytest

from engine.chat import LocalChat
from engine.core import CallPiece, ChatRequest, Message, Rendered, Text, Tool, ToolCall
from engine.settings import StopSettings
from engine.text.template.template import ChatTemplate
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.generator import fakes
from tests.engine.test_tool_calls import ASKED, GREEDY, INFO, SMALL, Says
from tests.engine.text.template.test_reasoning import tokenizer_with

TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}{% if m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    "{% if not loop.last %}, {% endif %}{% endfor %}][END_CALLS]{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOLS = (Tool("count", "Counts.", SMALL), Tool("clock"))
ONE = '{"name": "count", "arguments": {"n": 7}}'


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    found = tokenizer_with("[TOOL_CALLS]", "[END_CALLS]", "[OTHER]")
    monkeypatch.setattr(fakes, "tokenizer", lambda: found)
    monkeypatch.setattr("tests.engine.test_tool_calls.tokenizer", lambda: found)
    return found


def ask(answer: str, **fields: Any) -> tuple[str, list[tuple[str, str]], list[int]]:
    """The text, the calls and the ids of a reply."""
    generator, _ = fakes.make_dynamic(Says(answer), 2048)
    chat = LocalChat(INFO, generator, ChatTemplate(TEMPLATE, None, None))
    request = ChatRequest(ASKED, GREEDY, StopSettings(max_tokens=120), tools=TOOLS)
    text, calls, ids = "", list[tuple[str, str]](), list[int]()
    for event in chat.stream(dataclasses.replace(request, **fields), threading.Event()):
        if isinstance(event, Text):
            text += event.text
            ids += [token.id for token in event.tokens]
        elif isinstance(event, CallPiece) and event.name:
            calls.append((event.name, event.arguments))
        elif isinstance(event, CallPiece):
            calls[-1] = calls[-1][0], calls[-1][1] + event.arguments
    return text, calls, ids


def test_calls_between_control_tokens_are_read(words: Tokenizer) -> None:
    reply = f'Hm.[OTHER] [TOOL_CALLS][{ONE}, {{"name": "clock", "arguments": {{}}}}][END_CALLS]'
    for choice in ("auto", "required"):
        said = reply if choice == "auto" else reply[reply.index("[TOOL") :]
        text, calls, ids = ask(said, tool_choice=choice)
        assert (text, calls) == ("Hm." * (choice == "auto"), [("count", '{"n": 7}'), ("clock", "{}")])
        assert ids == words.encode(said, special=True)


def test_the_marker_is_the_token_not_its_letters(words: Tokenizer) -> None:
    marker = words.encode("[TOOL_CALLS]", special=True)
    assert len(marker) == 1
    text, calls, ids = ask("Well, let me think.", tool_choice="required")
    assert (text, ids[:1]) == ("", marker)
    assert calls[0][0] in ("count", "clock")


def test_after_the_marker_only_a_call_may_follow(words: Tokenizer) -> None:
    _, calls, _ = ask('[TOOL_CALLS]{"name": "none", "arguments": {"n": "x"}}')
    assert calls
    for name, arguments in calls[:-1]:
        assert name in ("count", "clock")
        assert name == "clock" or 0 <= json.loads(arguments)["n"] <= 99


def test_without_tools_the_tokens_stay_silent(words: Tokenizer) -> None:
    assert ask(f"[TOOL_CALLS][{ONE}][END_CALLS]", tools=())[:2] == (f"[{ONE}]", [])


def test_earlier_calls_that_the_template_does_not_write_have_the_tokens(words: Tokenizer) -> None:
    template = (
        "{# [TOOL_CALLS] #}{{ tools | tojson }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
        "<|im_start|>assistant\n{% endif %}"
    )
    generator, _ = fakes.make_dynamic(Says("ok"), 2048)
    chat = LocalChat(INFO, generator, ChatTemplate(template, None, None))
    call = ToolCall("a", "count", json.dumps({"n": "[TOOL_CALLS]"}))
    messages = (
        Message("user", "[TOOL_CALLS] \U00100000"), Message("assistant", "Hm.", (call,)),
        Message("tool", "7 [TOOL_CALLS]", tool_call_id="a"),
    )  # fmt: skip
    request = ChatRequest(messages, GREEDY, StopSettings(max_tokens=1), tools=TOOLS, report_prompt=True)
    events = list(chat.stream(request, threading.Event()))
    ids = next(event.ids for event in events if isinstance(event, Rendered))
    marker = words.encode("[TOOL_CALLS]", special=True)[0]
    assert ids.count(marker) == 1
    text = words.decode(ids, skip_special=False)
    assert 'Hm.\n[TOOL_CALLS][{"name": "count", "arguments": {"n": "[TOOL_CALLS]"}' in text
    assert text.count("\U00100000") == 1
    assert chat.render(request)[0] == text


@pytest.mark.parametrize("opened", ["", "[THINK]"])
def test_a_thought_between_control_tokens_comes_first(opened: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = (("[THINK]", "[/THINK]"),)
    found = tokenizer_with("[TOOL_CALLS]", "[END_CALLS]", "[THINK]", "[/THINK]")
    found.hear(tags)
    monkeypatch.setattr(fakes, "tokenizer", lambda: found)
    monkeypatch.setattr("tests.engine.test_tool_calls.tokenizer", lambda: found)
    reply = f"[THINK]Hm [{ONE}].[/THINK][TOOL_CALLS][{ONE}][END_CALLS]".removeprefix(opened)
    generator, _ = fakes.make_dynamic(Says(reply), 2048)
    template = ChatTemplate(
        "{# [THINK] [/THINK] #}" + TEMPLATE.replace("assistant\n{%", f"assistant\n{opened}{{%"), None, None
    )
    chat = LocalChat(dataclasses.replace(INFO, thinking=tags), generator, template)
    for choice in ("required", "auto"):
        request = ChatRequest(ASKED, GREEDY, StopSettings(max_tokens=120), tools=TOOLS, tool_choice=choice)
        events = list(chat.stream(request, threading.Event()))
        assert [event.name for event in events if isinstance(event, CallPiece) and event.name] == ["count"]
        written = [token.id for event in events if isinstance(event, Text) for token in event.tokens]
        assert written == found.encode(reply, special=True)


@pytest.mark.parametrize("before", ["", "<think>\nHm ", "<think>\nHm.\n</think>\n\n"])
def test_calls_in_the_vocabularys_own_form_count_though_the_prompt_asks_for_another(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
    own = (begin, end, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>")
    found = tokenizer_with(*own)
    monkeypatch.setattr(fakes, "tokenizer", lambda: found)
    monkeypatch.setattr("tests.engine.test_tool_calls.tokenizer", lambda: found)
    call = f'{own[2]}function{own[4]}count\n```json\n{{"n": 7}}\n```{own[3]}'
    generator, _ = fakes.make_dynamic(Says(f"{before}{begin}{call}{end}"), 2048)
    plain = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tags = (("<think>", "</think>"),)
    info = dataclasses.replace(INFO, thinking=tags)
    chat = LocalChat(info, generator, ChatTemplate(plain, None, None))
    request = ChatRequest(ASKED, GREEDY, StopSettings(max_tokens=120), tools=TOOLS, report_prompt=True)
    events = list(chat.stream(request, threading.Event()))
    ids = next(event.ids for event in events if isinstance(event, Rendered))
    assert "<tool_call>\n" in found.decode(ids, skip_special=False)
    pieces = [event for event in events if isinstance(event, CallPiece)]
    assert [piece.name for piece in pieces if piece.name] == ["count"]
    assert json.loads("".join(piece.arguments for piece in pieces)) == {"n": 7}
    assert "".join(event.text for event in events if isinstance(event, Text)).strip() == before.strip()
