"""What one event of a stream says, with each field in every form that servers send, and in wrong ones."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from engine.remote.chunks import CallPart, Chunk, Scored, Usage, read_chunk


def read(value: Any) -> Chunk:
    chunk = read_chunk(json.dumps(value))
    assert chunk is not None
    return chunk


def of_choice(**choice: Any) -> Chunk:
    return read({"choices": [choice]})


@pytest.mark.parametrize(
    ("found", "usage"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4}, Usage(3, 4)),
        ({"prompt_tokens": 3}, Usage(3, 0)),
        ({"completion_tokens": 4}, Usage(0, 4)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ({"prompt_tokens": (1 << 31) - 1}, Usage((1 << 31) - 1, 0)),
        ({"prompt_tokens": 1 << 31, "completion_tokens": 1}, Usage(0, 1)),
        ({"prompt_tokens": -1, "completion_tokens": 1}, Usage(0, 1)),
        ({"prompt_tokens": True, "completion_tokens": "9"}, None),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}, Usage(3, 0, 2)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}, Usage(3, 0, 3)),
        ({"prompt_tokens": 3, "prompt_tokens_details": [2]}, Usage(3, 0)),
        ([3, 4], None),
    ],
)
def test_usage(found: object, usage: Usage | None) -> None:
    assert read({"usage": found}) == Chunk(usage=usage)
    assert read({"usage": found, "choices": [{}]}).usage == usage


@pytest.mark.parametrize(
    ("delta", "text", "thought", "field"),
    [
        ({"content": "a"}, "a", "", ""),
        ({"content": "a", "refusal": "no"}, "a", "", ""),
        ({"content": None, "refusal": "no"}, "no", "", ""),
        ({"refusal": 5}, "", "", ""),
        ({"reasoning": "r", "reasoning_content": "c"}, "", "r", "reasoning"),
        ({"reasoning": "", "reasoning_content": "c"}, "", "c", "reasoning_content"),
        ({"reasoning": 5, "content": "a"}, "a", "", ""),
        ({"content": [{"type": "text", "text": "a"}, 5, {"type": "image"}, {"text": "b"}]}, "ab", "", ""),
        ({"content": [{"type": "thinking", "thinking": "t"}, {"text": "a"}]}, "a", "t", ""),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]}, "", "t", ""),
        ({"content": {"text": "a"}}, "", "", ""),
        (["a"], "", "", ""),
    ],
)
def test_text_and_thoughts(delta: object, text: str, thought: str, field: str) -> None:
    for name in ("delta", "message"):
        assert of_choice(**{name: delta})[:3] == (text, thought, field)


def test_the_text_of_a_completion() -> None:
    assert of_choice(text="a").text == "a"
    assert of_choice(text=5).text == ""
    assert of_choice(text="a", delta={"content": "b"}).text == "b"


def test_the_first_choice_counts() -> None:
    others = [{"index": 1, "text": "b"}, "no choice"]
    assert read({"choices": others}) == Chunk(choices=1)
    assert read({"choices": [*others, {"index": 0, "text": "a"}]})[::9] == ("a", 2)
    assert read({"choices": {"text": "a"}}) == Chunk()


@pytest.mark.parametrize(
    ("choice", "end"),
    [
        ({}, ("", None, False)),
        ({"finish_reason": "stop", "stop_reason": None}, ("stop", None, True)),
        ({"finish_reason": 5, "stop_reason": "END"}, ("", "END", True)),
        ({"stop_reason": 7}, ("", 7, True)),
        ({"stop_reason": True}, ("", None, True)),
        ({"stop_reason": [7]}, ("", None, True)),
    ],
)
def test_the_end(choice: dict[str, Any], end: tuple[str, str | int | None, bool]) -> None:
    chunk = of_choice(**choice)
    assert (chunk.finish, chunk.stop, chunk.names_stop) == end
    assert chunk.stop is not True


@pytest.mark.parametrize(
    ("call", "part"),
    [
        ({"index": 2, "id": "c", "function": {"name": "f", "arguments": "{"}}, CallPart(2, "c", "f", "{")),
        ({"index": True, "id": 5, "function": {"name": 5}}, CallPart(None, "", "", "")),
        ({"index": "2", "function": {"arguments": {"a": 1}}}, CallPart(None, "", "", '{"a": 1}')),
        ({"index": 0, "function": {"name": "f", "arguments": None}}, CallPart(0, "", "f", "")),
    ],
)
def test_calls(call: object, part: CallPart) -> None:
    (found,) = of_choice(delta={"tool_calls": [5, {"function": "f"}, call]}).calls
    assert found == part
    assert found.number is None or type(found.number) is int
    assert of_choice(delta={"tool_calls": call}).calls == ()
    assert of_choice(delta=[call], tool_calls=[call]).calls == ()


def _token(token: object, logprob: object = -1.0, **more: object) -> dict[str, object]:
    return {"token": token, "logprob": logprob, **more}


@pytest.mark.parametrize(
    ("given", "token"),
    [
        (_token("a"), Scored(b"a", -1.0)),
        (_token("a", bytes=[0, 255]), Scored(b"\x00\xff", -1.0)),
        (_token("a", bytes=[0, 256]), Scored(b"a", -1.0)),
        (_token("a", bytes=[-1]), Scored(b"a", -1.0)),
        (_token("a", bytes=["b"]), Scored(b"a", -1.0)),
        (_token("a", bytes={"0": 1}), Scored(b"a", -1.0)),
        (_token("\ud800"), Scored(b"?", -1.0)),
        (_token("a", -2), Scored(b"a", -2.0)),
        (_token("a", 0.5), Scored(b"a", 0.0)),
        (_token("a", math.nan), Scored(b"a", -math.inf)),
        (_token("a", True), Scored(b"a", -math.inf)),
        (_token("a", "0"), Scored(b"a", -math.inf)),
        (_token("a", None), Scored(b"a", -math.inf)),
        (_token("a", top_logprobs=[_token("b", -3, bytes=[1]), _token(""), _token(5), 5, _token("c")]),
         Scored(b"a", -1.0, ((b"\x01", -3.0), (b"c", -1.0)))),
        (_token("a", top_logprobs={"b": -1}), Scored(b"a", -1.0)),
    ],
)  # fmt: skip
def test_tokens_of_chats(given: object, token: Scored) -> None:
    unnamed = [_token(""), _token(5), "a"]
    assert of_choice(logprobs={"content": [*unnamed, given]}).tokens == (token,)
    assert of_choice(logprobs=[given]).tokens == ()


def test_tokens_of_completions() -> None:
    lists = {
        "tokens": ["a", "", 5, "b", "c"],
        "token_logprobs": [-1, -2, -3, -4],
        "top_logprobs": [{"x": -5, "": 0}],
    }
    found = (Scored(b"a", -1.0, ((b"x", -5.0),)), Scored(b"b", -4.0))
    assert of_choice(text="ab", logprobs=lists).tokens == found
    without = tuple(token._replace(top=()) for token in found)
    assert of_choice(logprobs={**lists, "top_logprobs": [None] * 4}).tokens == without
    assert of_choice(logprobs={**lists, "top_logprobs": {"x": -5}}).tokens == without
    assert of_choice(logprobs={**lists, "tokens": "ab"}).tokens == ()
    assert of_choice(logprobs={**lists, "token_logprobs": None}).tokens == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"error": "busy"}, "busy"),
        ({"error": {"code": 5}}, "an error without a message"),
        ({"object": "error"}, "an error without a message"),
        ({"error": None}, None),
        ({"object": "chunk", "message": "no error"}, None),
    ],
)
def test_errors(value: object, message: str | None) -> None:
    assert read(value) == Chunk(error=message)


@pytest.mark.parametrize("data", ["", "{", "[1]", '"a"', "null", "[" * 100_000])
def test_what_is_no_chunk(data: str) -> None:
    assert read_chunk(data) is None
