"""POST /v1/chat/completions: whole answers and streams, and every parameter that changes them."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import pytest

from engine.core import ChatRequest, Done, Message, Text
from engine.settings import OutputSettings, SamplerSettings, StopSettings
from tests.engine.server.served import HELLO, Answer, Served, ask, complete

pytestmark = pytest.mark.loopback


def text_of(answer: Answer, index: int = 0) -> str:
    """The text of a choice, of a whole answer or of a stream."""
    if "event-stream" not in answer.headers["content-type"]:
        return str(answer.json["choices"][index]["message"]["content"])
    choices = [c for event in answer.events[:-1] for c in event["choices"] if c["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def engine_reply(served: Served, request: ChatRequest) -> tuple[str, list[Any], Done]:
    """What the engine itself answers: text, tokens and the last event."""

    def run(chat: Any) -> Any:
        events = list(chat.stream(request, threading.Event()))
        texts = [event for event in events if isinstance(event, Text)]
        return "".join(t.text for t in texts), [token for t in texts for token in t.tokens], events[-1]

    found: tuple[str, list[Any], Done] = served.on_model_thread(run)
    return found


def request(tokens: int = 8, **sampler: Any) -> ChatRequest:
    neutral = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    return ChatRequest(
        (Message("user", "Hello there"),), SamplerSettings(**(neutral | sampler)),
        StopSettings(max_tokens=tokens), output=OutputSettings(alternatives=3),
    )  # fmt: skip


def test_a_whole_answer_is_the_engines(served: Served) -> None:
    text, tokens, done = engine_reply(served, request(seed=5))
    answer = complete(served, seed=5, model="whatever")
    value = answer.json
    assert answer.status == 200
    assert value["object"] == "chat.completion"
    assert value["model"] == "tiny"
    assert value["id"].startswith("chatcmpl-")
    assert value["choices"] == [
        {
            "index": 0, "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": None, "finish_reason": "length", "stop_reason": None,
        }
    ]  # fmt: skip
    usage = value["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (done.stats.prompt_tokens, 8)
    assert usage["total_tokens"] == done.stats.prompt_tokens + 8
    assert len(tokens) == 8


def test_a_stream_has_the_same_text_in_openais_form(served: Served) -> None:
    whole = complete(served, seed=5)
    answer = complete(served, seed=5, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.events
    assert events[-1] == "[DONE]"
    assert {event["object"] for event in events[:-1]} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events[:-1]}) == 1
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in event["choices"][0]["delta"] for event in events[1:-1])
    assert text_of(answer) == text_of(whole)
    reasons = [event["choices"][0]["finish_reason"] for event in events[:-1]]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]
    assert all("usage" not in event for event in events[:-1])


def test_usage_comes_in_a_last_chunk_without_choices(served: Served) -> None:
    events = complete(served, stream=True, ignore_eos=True, stream_options={"include_usage": True}).events
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == 8
    assert all(event["usage"] is None for event in events[:-2])


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_are_the_models_own(served: Served, stream: bool) -> None:
    _, tokens, _ = engine_reply(served, request(seed=3, temperature=0.5))
    answer = complete(served, seed=3, temperature=0.5, logprobs=True, top_logprobs=3, stream=stream)
    choices = [event["choices"][0] for event in answer.events[:-1]] if stream else [answer.json["choices"][0]]
    found = [item for choice in choices if choice["logprobs"] for item in choice["logprobs"]["content"]]
    assert len(found) == len(tokens) >= 2
    for item, token in zip(found, tokens, strict=True):
        assert item["logprob"] == pytest.approx(math.log(token.raw_probability), abs=1e-9)
        assert item["token"] == bytes(item["bytes"]).decode("utf-8", "replace")
        assert [one["logprob"] for one in item["top_logprobs"]] == pytest.approx(
            [math.log(other.raw_probability) for other in token.alternatives], abs=1e-9
        )


def test_logprobs_without_alternatives(served: Served) -> None:
    content = complete(served, logprobs=True, ignore_eos=True).json["choices"][0]["logprobs"]["content"]
    assert [item["top_logprobs"] for item in content] == [[]] * 8


@pytest.mark.parametrize("stream", [False, True])
def test_choices_have_seeds_in_order(served: Served, stream: bool) -> None:
    answer = complete(served, n=3, seed=7, stream=stream)
    expected = [text_of(complete(served, seed=7 + index)) for index in range(3)]
    assert [text_of(answer, index) for index in range(3)] == expected
    assert len(set(expected)) == 3


@pytest.mark.parametrize(
    ("program", "places"),
    [
        ("AsyncGroq/Python 1.6.0", {"usage", "x_groq"}),
        ("ai-sdk/groq/3.0.71 runtime/node.js", {"usage", "x_groq"}),
        ("ai-sdk/openrouter/2.10.0 runtime/node.js", {"usage"}),
        ("AsyncOpenAI/Python 3.57.0", set()),
    ],
)
def test_clients_of_hosted_apis_get_the_usage_of_streams_unasked(
    served: Served, program: str, places: set[str]
) -> None:
    body = {"messages": HELLO, "max_tokens": 8, "ignore_eos": True, "stream": True}
    path, named = "/v1/chat/completions", {"User-Agent": program}
    *others, last, end = ask(served, path, body, headers=named).events
    assert end == "[DONE]"
    assert {"usage", "x_groq"} & set(last) == places
    assert all(not {"usage", "x_groq"} & set(event) for event in others)
    found = [last["x_groq"]["usage"]] if "x_groq" in places else []
    found += [last["usage"]] if places else []
    *_, last, _end = ask(served, "/openai" + path, body, headers={"User-Agent": "langchain/1.4"}).events
    assert ("usage" in last, last["x_groq"]["usage"]["completion_tokens"]) == (False, 8)
    asked = {**body, "stream_options": {"include_usage": True}}
    *others, finish, whole, end = ask(served, path, asked, headers=named).events
    assert whole["choices"] == []
    assert whole["usage"]["completion_tokens"] == 8
    assert finish["choices"][0]["finish_reason"] == "length"
    assert finish["usage"] is None
    assert [one["completion_tokens"] for one in found] == [8] * len(places)
    assert [one["prompt_tokens"] for one in found] == [whole["usage"]["prompt_tokens"]] * len(places)


def test_usage_counts_the_prompt_once_and_all_choices(served: Served) -> None:
    one, three = (complete(served, n=n, ignore_eos=True).json["usage"] for n in (1, 3))
    assert three["prompt_tokens"] == one["prompt_tokens"]
    assert three["completion_tokens"] == 3 * one["completion_tokens"]


def test_stop_strings_end_a_choice_and_are_told(served: Served) -> None:
    text = text_of(complete(served, seed=5))
    stop = text[2:4]
    choice = complete(served, seed=5, stop=["not in it", stop]).json["choices"][0]
    assert choice["message"]["content"] == text[: text.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert text_of(complete(served, seed=5, stop=stop)) == text[: text.index(stop)]
    assert text_of(complete(served, seed=5, stop="")) == text


def test_a_temperature_of_zero_is_greedy(served: Served) -> None:
    text, _, _ = engine_reply(served, request(temperature=0.0))
    assert text_of(complete(served, temperature=0)) == text


def test_max_completion_tokens_goes_before_max_tokens(served: Served) -> None:
    usage = complete(served, max_completion_tokens=3, max_tokens=5, ignore_eos=True).json["usage"]
    assert usage["completion_tokens"] == 3


def test_bias_bans_and_forces_tokens(served: Served) -> None:
    greedy = complete(served, temperature=0, logprobs=True, max_tokens=1).json["choices"][0]
    token = greedy["logprobs"]["content"][0]["token"]
    (id,) = served.on_model_thread(lambda chat: chat.tokenizer.encode("Z"))
    forced = complete(served, temperature=0, max_tokens=3, logit_bias={str(id): 100})
    assert text_of(forced) == "ZZZ" != token


def test_json_schema_holds(served: Served) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    requested = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    choice = complete(served, max_tokens=64, seed=1, response_format=requested).json["choices"][0]
    assert json.loads(choice["message"]["content"])["a"] in (1, 2)
    assert choice["finish_reason"] == "stop"


def test_a_reply_is_continued(served: Served) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "The quick"}]
    asked = ChatRequest(
        (Message("user", "Hello there"), Message("assistant", "The quick")),
        SamplerSettings(temperature=0.0), StopSettings(max_tokens=8), continue_last=True,
    )  # fmt: skip
    text, _, _ = engine_reply(served, asked)
    answer = complete(
        served, messages=begun, temperature=0, continue_final_message=True, add_generation_prompt=False
    )
    assert text_of(answer) == text


def test_without_a_generation_prompt_the_model_begins_the_turn(served: Served) -> None:
    prompt = ask(served, "/apply-template", {"messages": HELLO, "add_generation_prompt": False}).json
    body = {**prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    expected = ask(served, "/v1/completions", body).json["choices"][0]["text"]
    answer = complete(served, temperature=0, ignore_eos=True, add_generation_prompt=False)
    assert text_of(answer) == expected != text_of(complete(served, temperature=0, ignore_eos=True))
    again = ask(served, "/tokenize", {"messages": HELLO, "add_generation_prompt": False}).json["count"]
    assert answer.json["usage"]["prompt_tokens"] == again


def test_names_for_the_template_reach_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    template, seen = served.chat.template, []
    render = template.render

    def noted(messages: Any, **more: Any) -> str:
        seen.append(more["variables"])
        return render(messages, **more)

    monkeypatch.setattr(template, "render", noted)
    assert complete(served, chat_template_kwargs={"enable_thinking": False}).status == 200
    assert complete(served).status == 200
    assert seen == [{"enable_thinking": False}, {}]
    assert complete(served, chat_template_kwargs=5).error["param"] == "chat_template_kwargs"


def test_effort_is_the_thinking_of_the_request(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, seen = served.chat.stream, []

    def noted(request: ChatRequest, stop: Any) -> Any:
        seen.append(request.thinking.thinking)
        return stream(request, stop)

    monkeypatch.setattr(served.chat, "stream", noted)
    for more in ({}, {"reasoning_effort": "none"}, {"reasoning": {"effort": "high"}}):
        assert complete(served, **more).status == 200
    assert seen == ["auto", "off", "high"]
    assert complete(served, reasoning_effort="huge").error["param"] == "reasoning_effort"


def test_parts_of_text_are_joined_and_roles_are_known(served: Served) -> None:
    parts = [{"type": "text", "text": "Hello"}, {"type": "text", "text": " there"}]
    joined = complete(served, seed=1, messages=[{"role": "user", "content": parts}])
    assert text_of(joined) == text_of(complete(served, seed=1, modalities=["text"]))
    developer, system = (
        complete(served, seed=1, messages=[{"role": role, "content": "Be short"}, *HELLO])
        for role in ("developer", "system")
    )
    assert text_of(developer) == text_of(system) != text_of(joined)


BAD: list[tuple[dict[str, Any], str | None]] = [
    ({"messages": []}, "messages"),
    ({"messages": "Hello"}, "messages"),
    ({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, "modalities"),
    ({"messages": [1]}, "messages"),
    ({"messages": [{"role": "king", "content": ""}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
        "messages[0].content[0].text",
    ),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "8"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"n": 2, "best_of": 3}, "best_of"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": []}, "stream_options"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a"] * 65}, "stop"),
    ({"stop": [1.5]}, "stop"),
    ({"seed": 1.5}, "seed"),
    ({"logprobs": 5}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"5": "much"}}, "logit_bias.5"),
    ({"logit_bias": {"99999": 1}}, None),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.schema"),
    ({"guided_regex": 5}, "guided_regex"),
    ({"continue_final_message": True}, "messages"),
    ({"model": 5}, "model"),
]


@pytest.mark.parametrize(("fields", "param"), BAD)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests_get_one_sentence(
    served: Served, fields: dict[str, Any], param: str | None, stream: bool
) -> None:
    answer = complete(served, **({"stream": stream} | fields))
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["param"] == param
    assert "Traceback" not in answer.error["message"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_wrong_methods(served: Served, method: str) -> None:
    answer = ask(served, "/v1/chat/completions", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.body == b"" if method == "HEAD" else answer.error["message"]


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/", "GET, HEAD, POST"), ("/v1/models", "GET, HEAD"), ("/v1/responses/x", "DELETE, GET, HEAD"),
        ("/v1/models/load", "GET, HEAD, POST"), ("/api/extra/generate/check", "GET, HEAD, POST"),
    ],
)  # fmt: skip
def test_a_wrong_method_is_told_all_right_ones(served: Served, path: str, methods: str) -> None:
    answer = ask(served, path, method="PUT")
    assert (answer.status, answer.headers["allow"]) == (405, methods)


def test_unknown_paths(served: Served) -> None:
    assert ask(served, "/v1/nothing").status == 404
    assert ask(served, "/v1/nothing", {}).error["code"] == "not_found"
    for path, words in (
        ("/messages", "Add /v1"), ("/fim/completions", "Add /v1"), ("/v1/v1/messages", "Remove /v1"),
        ("/v1/audio/speech", "Sound is neither"), ("/v1/files", "Files are not kept"),
        ("/v1/responses/compact", "not compacted"), ("/v1/evals", "not run"), ("/v1/skills", "not kept"),
        ("/v1/api/chat", "Remove /v1"), ("/v1/chat/completions/x", "are not kept"),
        ("/v1/chat/completions/chat/completions", "Remove /chat/completions"),
        ("/upload/v1/files", "inlineData"), ("/v1/cachedContents", "cached unasked"),
    ):  # fmt: skip
        answer = ask(served, path, {})
        assert words in answer.error["message"]
        assert (answer.status, answer.error["code"]) == (404, "not_found")
    error = ask(served, "/v1beta/interactions", {}).json["error"]
    assert ("generateContent" in error["message"], error["status"]) == (True, "NOT_FOUND")
    for path in ("/v1beta/files", "/upload/v1beta/files"):
        error = ask(served, path, {}).json["error"]
        assert ("inlineData" in error["message"], error["status"]) == (True, "NOT_FOUND")


@pytest.mark.loopback
def test_an_address_without_a_version_is_answered_as_llama_cpps_server_does(served: Served) -> None:
    body = {"messages": HELLO, "max_tokens": 4, "temperature": 0}
    choices = ask(served, "/chat/completions", body).json["choices"]
    assert choices == ask(served, "/v1/chat/completions", body).json["choices"]
    assert ask(served, "/models").json == ask(served, "/v1/models").json
    response = ask(served, "/responses", {"input": "Hello there", "max_output_tokens": 4, "store": False})
    assert response.json["object"] == "response"
    contents = {"contents": [{"parts": [{"text": "Hello there"}]}]}
    googles = ask(served, "/models/tiny:countTokens", contents)
    assert googles.json == ask(served, "/v1beta/models/tiny:countTokens", contents).json
