"""The events of a stream as text, thoughts, tokens and usage.

Sources: the chunk objects of https://platform.openai.com/docs/api-reference/chat-streaming and
https://platform.openai.com/docs/api-reference/completions; `reasoning` of vLLM (`reasoning_content` in older
versions, SGLang and DeepSeek), `stop_reason` of vLLM, content in typed parts of Mistral.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from engine.json_value import json_value
from engine.remote.trouble import error_text
from engine.words import _

REASONING_FIELDS = ("reasoning", "reasoning_content")


class Usage(NamedTuple):
    """Tokens that the server has counted; `cached` of those of the prompt were not read again."""

    prompt: int
    completion: int
    cached: int = 0


class Scored(NamedTuple):
    """A token as bytes, its log-probability, and the likeliest tokens in its place."""

    data: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()


class CallPart(NamedTuple):
    """A part of a call of a tool; `number` is None where the server does not number calls."""

    number: int | None
    id: str
    name: str
    arguments: str


class Chunk(NamedTuple):
    """What one event says. `thought_field` is the name of the field that `thought` came in; `finish` is
    `finish_reason`, `stop` the text or token that vLLM names as `stop_reason`; `error` the message of one.
    """

    text: str = ""
    thought: str = ""
    thought_field: str = ""
    tokens: tuple[Scored, ...] = ()
    finish: str = ""
    stop: str | int | None = None
    names_stop: bool = False
    usage: Usage | None = None
    error: str | None = None
    choices: int = 0
    calls: tuple[CallPart, ...] = ()


def read_chunk(data: str) -> Chunk | None:
    """The chunk in the text of an event, or in a whole answer; None if it is not JSON of that form."""
    found = json_value(data)
    if not isinstance(found, dict):
        return None
    if found.get("error") or found.get("object") == "error":
        return Chunk(error=error_text(found) or _("an error without a message"))
    choices = found.get("choices")
    listed = [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []
    usage = _usage(found.get("usage"))
    choice = next((each for each in listed if each.get("index", 0) == 0), None)
    if choice is None:
        return Chunk(usage=usage, choices=len(listed))
    return _chunk(choice, usage, len(listed))


def _chunk(choice: Mapping[str, Any], usage: Usage | None, count: int) -> Chunk:
    delta = choice.get("delta") or choice.get("message")
    text, thought, name = "", "", ""
    if isinstance(delta, dict):
        text, thought = _content(delta.get("content"))
        if not text and isinstance(delta.get("refusal"), str):
            text = delta["refusal"]
        for field in REASONING_FIELDS:
            if isinstance(delta.get(field), str) and delta[field] and not thought:
                thought, name = delta[field], field
    elif isinstance(choice.get("text"), str):
        text = choice["text"]
    finish, stop = choice.get("finish_reason"), choice.get("stop_reason")
    return Chunk(
        text, thought, name, _tokens(choice.get("logprobs")),
        finish if isinstance(finish, str) else "",
        stop if isinstance(stop, str | int) and not isinstance(stop, bool) else None,
        "stop_reason" in choice, usage, None, count,
        _calls(delta.get("tool_calls")) if isinstance(delta, dict) else (),
    )  # fmt: skip


def _calls(found: object) -> tuple[CallPart, ...]:
    """Parts of calls; arguments are a JSON text, of some servers the object itself."""
    parts = []
    for each in found if isinstance(found, list) else ():
        function = each.get("function") if isinstance(each, dict) else None
        if not isinstance(function, dict):
            continue
        index, id, name = each.get("index"), each.get("id"), function.get("name")
        arguments = function.get("arguments")
        parts.append(
            CallPart(
                index if isinstance(index, int) and not isinstance(index, bool) else None,
                id if isinstance(id, str) else "",
                name if isinstance(name, str) else "",
                arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else "",
            )
        )
    return tuple(parts)


def _content(content: object) -> tuple[str, str]:
    """Text and thoughts of a message's content: a text, or a list of typed parts."""
    if isinstance(content, str):
        return content, ""
    text, thought = "", ""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            text += part["text"]
        elif isinstance(part, dict) and part.get("type") == "thinking":
            inner = part.get("thinking")
            thought += inner if isinstance(inner, str) else _content(inner)[0]
    return text, thought


def _usage(found: object) -> Usage | None:
    if not isinstance(found, dict):
        return None
    details = found.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    prompt, completion = _count(found.get("prompt_tokens")), _count(found.get("completion_tokens"))
    return Usage(prompt, completion, min(cached, prompt)) if prompt or completion else None


def _count(value: object) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
    return value if fits and isinstance(value, int) else 0


def _tokens(found: object) -> tuple[Scored, ...]:
    if not isinstance(found, dict):
        return ()
    if isinstance(content := found.get("content"), list):
        return tuple(token for each in content if (token := _scored(each)) is not None)
    tokens, logprobs, tops = (found.get(name) for name in ("tokens", "token_logprobs", "top_logprobs"))
    if not isinstance(tokens, list) or not isinstance(logprobs, list):
        return ()
    return tuple(_plain_tokens(tokens, logprobs, tops if isinstance(tops, list) else ()))


def _plain_tokens(
    tokens: Sequence[object], logprobs: Sequence[object], tops: Sequence[object]
) -> list[Scored]:
    """Tokens of `/completions`: three lists side by side."""
    found = []
    for place, (text, logprob) in enumerate(zip(tokens, logprobs, strict=False)):
        top = tops[place] if place < len(tops) else None
        others = (
            [(_data(other, None), _logprob(p)) for other, p in top.items()] if isinstance(top, dict) else []
        )
        if isinstance(text, str) and (token := _named(_data(text, None), _logprob(logprob), others)):
            found.append(token)
    return found


def _scored(found: object) -> Scored | None:
    if not isinstance(found, dict) or not isinstance(found.get("token"), str):
        return None
    others = found.get("top_logprobs")
    data = _data(found["token"], found.get("bytes"))
    top = [
        (_data(each["token"], each.get("bytes")), _logprob(each.get("logprob")))
        for each in (others if isinstance(others, list) else ())
        if isinstance(each, dict) and isinstance(each.get("token"), str)
    ]
    return _named(data, _logprob(found.get("logprob")), top)


def _named(data: bytes, logprob: float, top: Iterable[tuple[bytes, float]]) -> Scored | None:
    """A token; None if the server does not say which: llama-cpp-python sends "" for a part of a character."""
    return Scored(data, logprob, tuple(other for other in top if other[0])) if data else None


def _data(text: str, data: object) -> bytes:
    """The bytes of a token, which may be a part of a character."""
    if isinstance(data, list) and all(isinstance(each, int) and 0 <= each < 256 for each in data):
        return bytes(data)
    return text.encode("utf-8", "replace")


def _logprob(value: object) -> float:
    """A log-probability, at most 0; minus infinity for none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return -math.inf
    return min(0.0, float(value))
