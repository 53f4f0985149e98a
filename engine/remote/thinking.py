"""The switch for a model's thinking that a server takes, and how it is found: by its effect, like all else.

Sources: `chat_template_kwargs` of vLLM and SGLang (documentation, "Reasoning outputs") and of llama.cpp's
server; `reasoning_effort` of OpenAI's API reference, "Create chat completion", and of Ollama.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from engine.core import nearest_level
from engine.json_value import json_value
from engine.remote.chunks import read_chunk
from engine.remote.exchange import Answer
from engine.settings import ThinkingSettings
from engine.settings.thinking import EFFORTS, OFF, ON

BY_TEMPLATE, BY_EFFORT = "chat_template_kwargs", "reasoning_effort"
_TOKENS = 16
_UNKNOWN = "xyzzy"
_REFUSALS = (400, 422)


class Switch(NamedTuple):
    """The parameter by which thinking is switched, "" for none, and the levels that it takes."""

    thinking_by: str = ""
    thinking: tuple[str, ...] = ()


def switched(by: str, level: str) -> dict[str, Any]:
    """The part of a request that asks for a level. Templates have one of two names for their switch."""
    if by == BY_EFFORT:
        return {BY_EFFORT: "none" if level == OFF else level}
    return {BY_TEMPLATE: dict.fromkeys(("enable_thinking", "thinking"), level != OFF)} if by else {}


def thinking_values(settings: ThinkingSettings, by: str, levels: tuple[str, ...]) -> dict[str, Any]:
    """The part of a request for these settings; nothing where the choice is the server's."""
    level = nearest_level(settings.thinking, levels)
    return switched(by, level) if level else {}


def thinking_switch(chat: Callable[..., Answer], thinks: bool) -> Switch:
    """Try both switches with `chat(tokens, **parameters)`; `thinks`: thoughts have been seen.

    A template's switch changes the prompt, or whether there are thoughts. An effort is known to a server that
    objects to one that does not exist, and means something for a model that thinks.
    """
    on, off = (chat(_TOKENS, **switched(BY_TEMPLATE, level)) for level in (ON, OFF))
    if _differ(on, off):
        return Switch(BY_TEMPLATE, (OFF, ON))
    if chat(1, **{BY_EFFORT: _UNKNOWN}).status not in _REFUSALS:
        return Switch()
    answers = {level: chat(_TOKENS, **switched(BY_EFFORT, level)) for level in (OFF, *EFFORTS)}
    taken = [level for level, answer in answers.items() if answer.status == 200]
    if not taken:
        return Switch()
    means = thinks or _thinks(answers[taken[-1]]) or _differ(answers[taken[0]], answers[taken[-1]])
    return Switch(BY_EFFORT, tuple(taken)) if means else Switch()


def _differ(one: Answer, other: Answer) -> bool:
    """Whether two answers have prompts of different lengths, or one alone has thoughts."""
    if one.status != 200 or other.status != 200:
        return False
    counts = [_usage(answer).get("prompt_tokens") for answer in (one, other)]
    return (all(isinstance(count, int) for count in counts) and counts[0] != counts[1]) or (
        _thinks(one) != _thinks(other)
    )


def _thinks(answer: Answer) -> bool:
    """Whether an answer has thoughts, or counts tokens of some that are not sent."""
    chunk = read_chunk(answer.text)
    if chunk is not None and chunk.thought:
        return True
    details = _usage(answer).get("completion_tokens_details")
    hidden = details.get("reasoning_tokens") if isinstance(details, Mapping) else 0
    return isinstance(hidden, int) and hidden > 0


def _usage(answer: Answer) -> Mapping[str, Any]:
    found = json_value(answer.text)
    usage = found.get("usage") if isinstance(found, dict) else None
    return usage if isinstance(usage, dict) else {}
