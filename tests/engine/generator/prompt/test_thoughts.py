"""Thoughts of earlier replies in prompts: what the templates of published models make of them when they are
given apart, as transformers renders it.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from engine.core import ChatRequest, Message, Tool, ToolCall
from engine.generator.prompt.prompt import Prompts
from engine.text.template.reasoning import split_thoughts
from engine.text.template.template import ChatTemplate
from tests.engine.text.template.test_real_templates import FOLDER, NAMES, by_transformers, changing_lists
from tests.engine.text.template.test_reasoning import HARMONY, tokenizer_with

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}}}'
OFFERED = (Tool("weather", "The weather.", SCHEMA),)
CALLED = (ToolCall("call12345", "weather", '{"city": "Oslo"}'),)
ASKED, AGAIN = Message("user", "Rain?"), Message("user", "And now?")
RESULT = Message("tool", "sun", tool_call_id="call12345", name="weather")
DONE = Message("assistant", "Sun.")
THOUGHT = "I look.\n\nIn Oslo."
TAGS = {
    "ByteDance-Seed-OSS": ("<seed:think>", "</seed:think>"),
    "google-gemma-4-31B-it": ("<|channel>thought", "<channel|>"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", "[/THINK]"),
    "Apriel-1.6-15b-Thinker-fixed": ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
}
CONTROL = {
    "google-gemma-4-31B-it": ("<|channel>", "<channel|>"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", "[/THINK]"),
    "openai-gpt-oss-120b": HARMONY,
}
REPEAT = (
    "Apriel-1.6-15b-Thinker-fixed", "Bielik-11B-v3.0-Instruct", "ByteDance-Seed-OSS", "GLM-4.6",
    "GLM-4.7-Flash", "Kimi-K2-Thinking", "MiniMax-M2", "Qwen-Qwen3-0.6B", "Qwen3.5-4B", "StepFun3.5-Flash",
    "deepseek-ai-DeepSeek-V3.2", "google-gemma-4-31B-it", "inclusionai-ling-3.0-flash",
    "mistralai-Ministral-3-14B-Reasoning-2512", "openai-gpt-oss-120b", "openbmb-MiniCPM5-1B",
)  # fmt: skip
"""Templates that repeat thoughts in some prompts."""
AS_TEXT = ("mistralai-Ministral-3-14B-Reasoning-2512",)
"""Templates that take arguments as text."""


def source(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


@functools.lru_cache(maxsize=2)
def template(name: str) -> ChatTemplate:
    return ChatTemplate(source(name), "<s>", "</s>")


def written(name: str, messages: list[Message], *, thinking: bool, offered: bool, last: bool = False) -> str:
    """The text of a prompt."""
    prompts = Prompts(tokenizer_with(*CONTROL.get(name, ())), template(name), 100_000)
    variables = '{"thinking": true}' if thinking else ""
    request = ChatRequest(tuple(messages), tools=OFFERED if offered else (), template_variables=variables)
    return prompts.rendered(messages, request, add_generation_prompt=not last, continue_last=last)[0]


def turn(message: Message, name: str) -> dict[str, Any]:
    """A message as its model's template takes it, the thought apart."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_call_id:
        found |= {"tool_call_id": message.tool_call_id, "name": message.name}
    if message.tool_calls:
        given: Any = {"city": "Oslo"} if name not in AS_TEXT else '{"city": "Oslo"}'
        call = {"id": "call12345", "type": "function", "function": {"name": "weather", "arguments": given}}
        found["tool_calls"] = [call]
    if not message.reasoning:
        return found
    if name.startswith("mistralai"):
        text = [{"type": "text", "text": message.content}] if message.content else []
        return {**found, "content": [{"type": "thinking", "thinking": message.reasoning}, *text]}
    names = ("reasoning_content", "thinking")
    return {**found, **dict.fromkeys(names, message.reasoning)}


def expected(name: str, messages: list[Message], *, thinking: bool, offered: bool) -> str:
    tool = {"name": "weather", "description": "The weather.", "parameters": json.loads(SCHEMA)}
    tools = [{"type": "function", "function": tool}] if offered else None
    turns = [turn(message, name) for message in messages]
    variables = {"thinking": True} if thinking else {}
    if not name.startswith("Kimi"):
        return by_transformers(source(name), turns, tools, True, variables)
    with pytest.MonkeyPatch.context() as patch, changing_lists(patch):
        return by_transformers(source(name), turns, tools, True, variables)


def reply(name: str, text: str, calls: tuple[ToolCall, ...] = ()) -> tuple[Message, Message]:
    """A reply as it was written, with its tags, and with its thought apart."""
    begin, end = TAGS.get(name, ("<think>", "</think>"))
    whole = f"{begin}\n{THOUGHT}\n{end}\n\n{text}"
    return Message("assistant", whole, calls), Message("assistant", text, calls, reasoning=THOUGHT)


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("name", REPEAT)
def test_thoughts_are_repeated_as_with_their_own_field(name: str, thinking: bool) -> None:
    """Before a call whose result comes last, in earlier turns, and without tools."""
    for text in ("", "Let me look."):
        if text and name == "openai-gpt-oss-120b":
            continue  # takes no text beside a thought, see `conversation`
        as_written, apart = reply(name, text, CALLED)
        for more in ([RESULT], [RESULT, DONE, AGAIN]):
            found = written(name, [ASKED, as_written, *more], thinking=thinking, offered=True)
            assert found == expected(name, [ASKED, apart, *more], thinking=thinking, offered=True)
    as_written, apart = reply(name, "Sun.")
    found = written(name, [ASKED, as_written, AGAIN], thinking=thinking, offered=False)
    assert found == expected(name, [ASKED, apart, AGAIN], thinking=thinking, offered=False)


@pytest.mark.slow_after(10)
@pytest.mark.parametrize("name", NAMES)
def test_which_templates_repeat_thoughts(name: str) -> None:
    assert ChatTemplate(source(name), "<s>", "</s>").repeats_thoughts == (name in REPEAT)


def test_calls_end_a_thought_without_an_end() -> None:
    begun = Message("assistant", f"<think>\n{THOUGHT}", CALLED)
    apart = Message("assistant", "", CALLED, reasoning=THOUGHT)
    for name in ("Qwen-Qwen3-0.6B", "openai-gpt-oss-120b"):
        found = written(name, [ASKED, begun, RESULT], thinking=False, offered=True)
        assert found == expected(name, [ASKED, apart, RESULT], thinking=False, offered=True)


def test_thoughts_that_a_template_does_not_repeat_stay_where_they_are() -> None:
    """Unless they are written in control tokens, which would be mere text."""
    name = "Qwen-Qwen2.5-7B-Instruct"
    as_written, _ = reply(name, "Sun.")
    found = written(name, [ASKED, as_written, AGAIN], thinking=False, offered=False)
    assert f"<think>\n{THOUGHT}\n</think>\n\nSun.<|im_end|>" in found
    source = "{% for m in messages %}{{ m.content }};{{ m.tool_calls }};{% endfor %}<|a|><|b|>"
    tags = ("<|think|>", "<|/think|>")
    prompts = Prompts(tokenizer_with(*tags), ChatTemplate(source + "".join(tags), None, None), 1000)
    for text in (f"{tags[0]}no{tags[1]}", f"{tags[0]}no", f"{tags[0]}no{tags[1]}Sun."):
        called = Message("assistant", text, CALLED)
        assert "no" not in prompts.rendered([ASKED, called, RESULT], ChatRequest((ASKED,)))[0]


def test_the_reply_that_is_continued_keeps_its_thought() -> None:
    as_written, _ = reply("Qwen-Qwen3-0.6B", "Su")
    found = written("Qwen-Qwen3-0.6B", [ASKED, as_written], thinking=False, offered=False, last=True)
    assert found.endswith(f"<|im_start|>assistant\n<think>\n{THOUGHT}\n</think>\n\nSu")


def test_a_thought_that_the_prompt_opened_is_known_by_its_end() -> None:
    apart = Message("assistant", "Sun.", CALLED, reasoning=THOUGHT)
    as_written = Message("assistant", f"{THOUGHT}\n</think>\n\nSun.", CALLED)
    name = "MiniMax-M2"
    found = written(name, [ASKED, as_written, RESULT], thinking=False, offered=True)
    assert found == expected(name, [ASKED, apart, RESULT], thinking=False, offered=True)


def test_several_thoughts_and_a_tag_that_stands_twice() -> None:
    tags = (("<think>", "</think>"),)
    assert split_thoughts("<think>\na\n</think>\n<think>b</think>\n\nc", tags) == ("a\n\nb", "c")
    assert split_thoughts("<think>\n<think>\na</think>c", tags) == ("a", "c")
    assert split_thoughts("<think>\n\n</think>\n\nc", tags) == ("", "c")
    assert split_thoughts("a</think>c", tags, "</think>") == ("a", "c")
    assert split_thoughts("\n a", tags) == ("", "\n a")
    assert split_thoughts("<think>a", tags) == ("", "<think>a")
    assert split_thoughts("<think>a", tags, unclosed=True) == ("a", "")
    assert split_thoughts("say <think>a</think>", tags) == ("", "say <think>a</think>")
