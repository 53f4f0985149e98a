"""Google's Gemini API: what is asked, candidates, streams, errors, counts, vectors and models."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from engine.core import CallPiece, Stats, ToolCall
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.gemini.candidate import Candidate, joined, usage
from engine.server.gemini.request import Asked, asked_of
from engine.server.gemini.schema import camel, json_schema
from engine.server.host import ServedModel
from engine.server.replies import Called, Ended, Written
from engine.server.replies import joined as joined_events
from tests.engine.server.served import TOKEN, Answer, Served, ask

MODEL = ServedModel("tiny", True, 1024, thinking=(("<think>", "</think>"),))
HI = [{"role": "user", "parts": [{"text": "Hello"}]}]
HELLO = [{"role": "user", "content": "Hello"}]
GREEDY = {"temperature": 0, "maxOutputTokens": 8}
COUNT = {
    "name": "count",
    "parameters": {
        "type": "OBJECT", "properties": {"n": {"type": "INTEGER", "minimum": 0, "maximum": 99}},
        "required": ["n"],
    },
}  # fmt: skip


def asked(**body: Any) -> Asked:
    return asked_of(Fields({"contents": HI, **body}), MODEL, 4)


def generate(
    served: Served, method: str = "generateContent", *, version: str = "v1beta", **body: Any
) -> Answer:
    return ask(
        served, f"/{version}/models/tiny:{method}", {"contents": HI, "generationConfig": GREEDY, **body}
    )


def test_contents_are_messages() -> None:
    contents = [
        *HI,
        {"role": "model", "parts": [
            {"text": "Hm.", "thought": True}, {"text": "Wait."},
            {"functionCall": {"name": "look", "args": {"a": "é"}}},
            {"functionCall": {"name": "look", "args": {}, "id": "mine"}, "thoughtSignature": "x"},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "look", "response": {"result": "é"}}},
            {"functionResponse": {
                "name": "look", "id": "mine", "parts": [{"inlineData": {}}, {"inline_data": {"data": "x"}}],
            }},
            {"text": "So"}, {"text": "?"}, {"executableCode": {"code": "x"}},
        ]},
    ]  # fmt: skip
    (request,) = asked(contents=contents, systemInstruction={"parts": [{"text": "Be brief."}]}).requests
    system, user, model, first, second, last = request.messages
    assert (system.role, system.content, user.content) == ("system", "Be brief.", "Hello")
    assert (model.content, model.reasoning) == ("Wait.", "Hm.")
    assert model.tool_calls == (ToolCall("call_1", "look", '{"a": "é"}'), ToolCall("mine", "look", "{}"))
    assert (first.role, first.tool_call_id, first.name, first.content) == (
        "tool",
        "call_1",
        "look",
        '{"result": "é"}',
    )
    assert (second.tool_call_id, second.content) == (
        "mine",
        "{}\n[inlineData: left out, because you read only the text of results]",
    )
    assert (last.role, last.content, request.continue_last) == ("user", "So?", False)
    for empty in ({}, {"parts": []}, {"parts": [{"text": ""}]}):
        assert [(one.role, one.content) for one in asked(contents=[empty]).requests[0].messages] == [
            ("user", "")
        ]
    stray = [*HI, {"role": "user", "parts": [{"functionResponse": {"name": "look"}}]}]  # of no call
    assert asked(contents=stray).requests[0].messages[1].tool_call_id == ""
    begun = [*HI, {"role": "model", "parts": [{"text": "The"}]}]
    assert asked(contents=begun, system_instruction="x").requests[0].continue_last


def test_what_a_generation_is_asked_for() -> None:
    found = asked(
        generation_config={
            "top_p": 0.5, "topK": 3, "temperature": 0.25, "maxOutputTokens": 7, "stopSequences": ["x"],
            "seed": 5, "candidateCount": 2, "presencePenalty": 0.5, "frequencyPenalty": 0.25,
            "responseLogprobs": True, "logprobs": 3,
            "thinkingConfig": {"thinking_budget": 0, "include_thoughts": True},
        }
    )  # fmt: skip
    first, second = found.requests
    sampler = first.sampler
    assert (sampler.top_p, sampler.top_k, sampler.temperature) == (0.5, 3, 0.25)
    assert (sampler.presence_penalty, sampler.frequency_penalty) == (0.5, 0.25)
    assert (sampler.seed, second.sampler.seed) == (5, 6)
    assert (first.stops.max_tokens, first.stops.stop_strings) == (7, ("x",))
    assert (found.logprobs, first.output.alternatives, found.thoughts) == (3, 3, True)
    assert first.thinking.thinking == "off"
    for config, level in (
        ({}, "auto"), ({"thinkingBudget": -1}, "auto"), ({"thinkingBudget": 100}, "on"),
        ({"thinkingLevel": "LOW"}, "low"),
    ):  # fmt: skip
        assert asked(generationConfig={"thinkingConfig": config}).requests[0].thinking.thinking == level
    assert asked().logprobs is None


def test_functions_and_how_they_are_chosen() -> None:
    tools = [{"functionDeclarations": [COUNT, {"name": "b", "parametersJsonSchema": {"type": "object"}}]}]
    tools += [{"googleSearch": {}}, {"function_declarations": [{"name": "c"}]}]
    (request,) = asked(tools=tools).requests
    assert [tool.name for tool in request.tools] == ["count", "b", "c"]
    assert json.loads(request.tools[0].parameters)["properties"]["n"]["type"] == "integer"
    assert [tool.parameters for tool in request.tools[1:]] == ['{"type": "object"}', ""]
    for mode, choice in (("AUTO", "auto"), ("ANY", "required"), ("none", "none"), ("VALIDATED", "auto")):
        config = {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": ["c"]}}
        (request,) = asked(tools=tools, toolConfig=config).requests
        assert (request.tool_choice, [tool.name for tool in request.tools]) == (choice, ["c"])


def test_formats() -> None:
    def found(kind: str, **config: Any) -> tuple[str, str]:
        (request,) = asked(generationConfig={"responseMimeType": kind, **config}).requests
        return request.constraint.format, request.constraint.pattern

    number = {"type": "integer"}
    assert found("text/plain", responseSchema={"type": "INTEGER"}) == ("none", "")
    assert found("application/json") == ("json_schema", '{"type": "object"}')
    assert found("application/json", responseSchema={"type": "INTEGER"}) == (
        "json_schema",
        json.dumps(number),
    )
    assert found("application/json", responseJsonSchema=number) == ("json_schema", json.dumps(number))
    assert found("text/x.enum", responseSchema={"type": "STRING", "enum": ["a", "b c"]}) == (
        "choices",
        "a\nb c",
    )


def test_schemas() -> None:
    given = {
        "type": "OBJECT", "title": "T", "property_ordering": ["a"], "required": ["a"], "maxProperties": "3",
        "properties": {
            "a": {"type": "ARRAY", "min_items": "1", "items": {"any_of": [{"type": "STRING", "format": ""}]}},
            "b": {"type": "NUMBER", "nullable": True, "minimum": 0.5}, "c": {"type": "TYPE_UNSPECIFIED"},
        },
    }  # fmt: skip
    assert json_schema(given) == {
        "type": "object", "title": "T", "required": ["a"], "maxProperties": 3,
        "properties": {
            "a": {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}]}},
            "b": {"anyOf": [{"type": "number", "minimum": 0.5}, {"type": "null"}]}, "c": {},
        },
    }  # fmt: skip
    assert json_schema(None) is None
    assert json_schema({"maxItems": "9" * 5000}) == {"maxItems": "9" * 5000}
    assert [camel(name) for name in ("a", "a_bc_d", "aB", "_responseJsonSchema")] == [
        "a", "aBcD", "aB", "_responseJsonSchema",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"contents": []}, "contents"),
        ({"contents": [{"role": "robot"}]}, "contents[0].role"),
        ({"contents": [{"parts": [{"inlineData": {"data": "x"}}]}]}, "contents[0].parts[0].inlineData"),
        ({"contents": [{"role": "model", "parts": [{"functionCall": {}}]}]},
         "contents[0].parts[0].functionCall.name"),
        ({"contents": [{"role": "model", "parts": [{"functionCall": {"name": "a"}}]}]}, "contents"),
        ({"contents": [{"role": "model", "parts": [{"functionCall": {"name": "a", "args": [1]}}]}]},
         "contents[0].parts[0].functionCall.args"),
        ({"cachedContent": "x"}, "cachedContent"),
        ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "generationConfig.responseModalities"),
        ({"generationConfig": {"responseMimeType": "image/png"}}, "generationConfig.responseMimeType"),
        ({"generationConfig": {"topP": 5}}, "generationConfig.topP"),
        ({"generationConfig": {"candidateCount": 5}}, "generationConfig.candidateCount"),
        *(({"generationConfig": {"responseMimeType": "application/json", name: 5}},
           f"generationConfig.{name}") for name in ("responseSchema", "responseJsonSchema")),
        ({"generationConfig": {"responseMimeType": "text/x.enum"}}, "generationConfig.responseSchema"),
        *(({"generationConfig": {"responseMimeType": "text/x.enum", "responseSchema": {"enum": texts}}},
           "generationConfig.responseSchema") for texts in ([], "a", [1], ["a "], ["a\nb"], ["a\u2028b"])),
        ({"generationConfig": {"thinkingConfig": {"thinkingLevel": "huge"}}},
         "generationConfig.thinkingConfig.thinkingLevel"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "SOME"}}},
         "toolConfig.functionCallingConfig.mode"),
        ({"toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["x"]}}},
         "toolConfig.functionCallingConfig.allowedFunctionNames"),
    ],
)  # fmt: skip
def test_bad_requests_name_the_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        asked(**body)
    assert caught.value.failure.param == param


def candidate(*events: Any, shown: bool = False) -> list[Any]:
    """The chunks that events of a reply become."""
    found = Candidate(0, MODEL, asked().requests[0], None, shown=shown)
    return [chunk for event in events if (chunk := found.feed(event)) is not None]


def test_a_call_comes_when_it_is_complete() -> None:
    begun = [Called(CallPiece(0, "a", "look")), Called(CallPiece(0, arguments='{"x": '))]
    rest = [Called(CallPiece(0, arguments="1}")), Called(CallPiece(1, "b", "look", "{}"))]
    first, last = candidate(*begun, *rest, Ended("stop_token", "", Stats()))
    assert first["content"]["parts"] == [{"functionCall": {"id": "a", "name": "look", "args": {"x": 1}}}]
    assert last["content"]["parts"] == [{"functionCall": {"id": "b", "name": "look", "args": {}}}]
    assert "finishReason" not in first
    assert last["finishReason"] == "STOP"
    for reason, word in (("max_tokens", "MAX_TOKENS"), ("stop_string", "MALFORMED_FUNCTION_CALL")):
        (cut,) = candidate(*begun, Ended(reason, "", Stats()))
        assert (cut["content"]["parts"], cut["finishReason"]) == ([], word)


def test_thoughts_are_shown_where_they_are_asked_for() -> None:
    events = [Written("<think>Hm", 3), Written(".</think>So.", 3), Ended("stop_token", "", Stats())]
    parts = [part for chunk in candidate(*events, shown=True) for part in chunk["content"]["parts"]]
    assert [part["text"] for part in parts if "thought" in part] == ["Hm", "."]
    assert [part["text"] for part in parts if "thought" not in part] == ["So."]
    hidden = [part for chunk in candidate(*events) for part in chunk["content"]["parts"]]
    assert hidden == [{"text": "So."}]


def test_tokens_of_thoughts_are_counted_apart() -> None:
    found = Candidate(0, MODEL, asked().requests[0], None, shown=False)
    assert usage([found.writer]) == {}
    stats = Stats(prompt_tokens=9, cached_tokens=4, new_tokens=8)
    for event in (Written("<think>Hm", 5), Written("</think>So.", 3), Ended("stop_token", "", stats)):
        found.feed(event)
    counts = usage([found.writer, found.writer])
    thoughts = found.writer.reasoning_tokens
    assert 0 < thoughts < 8
    assert counts == {
        "promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 16 - 2 * thoughts,
        "thoughtsTokenCount": 2 * thoughts, "totalTokenCount": 25,
    }  # fmt: skip


def test_texts_of_a_kind_become_one_part() -> None:
    thought, call = {"text": "Hm", "thought": True}, {"functionCall": {"name": "look"}}
    parts = [thought, thought, {"text": "S"}, {"text": "o"}, call, call, {"text": "."}]
    chunks = [{"content": {"role": "model", "parts": [part]}, "index": 0} for part in parts]
    assert joined(chunks)["content"]["parts"] == [
        {"text": "HmHm", "thought": True}, {"text": "So"}, call, call, {"text": "."},
    ]  # fmt: skip
    assert thought["text"] == "Hm"


def test_long_texts_and_calls_are_joined_in_linear_time() -> None:
    """4,096 pieces of 4 kB: adding each to what is there would copy 34 GB."""
    piece, count = "x" * 4096, 4096
    begin = time.process_time()
    chunks = [{"content": {"role": "model", "parts": [{"text": piece}]}} for _ in range(count)]
    (part,) = joined(chunks)["content"]["parts"]
    assert len(part["text"]) == count * len(piece)
    pieces = [Called(CallPiece(0, arguments=piece)) for _ in range(count)]
    quoted = [Called(CallPiece(0, arguments=mark)) for mark in ('{"x": "', '"}')]
    events = [Called(CallPiece(0, "a", "look")), quoted[0], *pieces, quoted[1]]
    (found,) = candidate(*events, Ended("stop_token", "", Stats()))
    assert len(found["content"]["parts"][0]["functionCall"]["args"]["x"]) == count * len(piece)
    written = [(0, Written(piece, 1)) for _ in range(count)]
    ((_, whole), (_, called)) = joined_events([*written, *((0, event) for event in events)])
    assert (len(whole.text), whole.tokens) == (count * len(piece), count)
    assert len(called.piece.arguments) == count * len(piece) + 9
    assert time.process_time() - begin < 2


@pytest.mark.loopback
@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_a_reply_and_its_stream(served: Served, version: str) -> None:
    chat = {"messages": HELLO, "temperature": 0, "max_tokens": 8}
    expected = ask(served, "/v1/chat/completions", chat).json
    answer = generate(served, version=version).json
    (found,) = answer["candidates"]
    assert found["content"] == {
        "role": "model",
        "parts": [{"text": expected["choices"][0]["message"]["content"]}],
    }
    assert (found["finishReason"], found["index"], answer["modelVersion"]) == ("MAX_TOKENS", 0, "tiny")
    counts = answer["usageMetadata"]
    assert (counts["promptTokenCount"], counts["candidatesTokenCount"]) == (
        expected["usage"]["prompt_tokens"],
        8,
    )
    assert counts["totalTokenCount"] == counts["promptTokenCount"] + 8
    streamed = generate(served, "streamGenerateContent?alt=sse", version=version)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    chunks = streamed.events
    texts = [part["text"] for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert "".join(texts) == found["content"]["parts"][0]["text"]
    assert len(chunks) >= 2
    assert chunks[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert chunks[-1]["usageMetadata"]["totalTokenCount"] == counts["totalTokenCount"]
    assert all("usageMetadata" not in chunk for chunk in chunks[:-1])
    (listed,) = generate(served, "streamGenerateContent", version=version).json
    assert listed["candidates"] == answer["candidates"]


@pytest.mark.loopback
def test_several_candidates_with_log_probabilities(served: Served) -> None:
    config = {"candidateCount": 2, "responseLogprobs": True, "logprobs": 2, "maxOutputTokens": 4}
    found = generate(served, generationConfig=config).json["candidates"]
    assert [one["index"] for one in found] == [0, 1]
    for one in found:
        chosen, top = one["logprobsResult"]["chosenCandidates"], one["logprobsResult"]["topCandidates"]
        assert [len(each["candidates"]) for each in top] == [2] * len(chosen)
        assert all(each["logProbability"] < 0 for each in chosen)
        assert one["avgLogprobs"] == pytest.approx(
            sum(each["logProbability"] for each in chosen) / len(chosen)
        )
    none = {**config, "logprobs": None}
    assert (
        "topCandidates" not in generate(served, generationConfig=none).json["candidates"][0]["logprobsResult"]
    )


@pytest.mark.loopback
def test_a_stream_of_several_candidates_has_its_counts_at_the_very_end(served: Served) -> None:
    config = {"candidateCount": 2, "maxOutputTokens": 4}
    chunks = generate(served, "streamGenerateContent?alt=sse", generationConfig=config).events
    ends = [chunk for chunk in chunks if "finishReason" in chunk["candidates"][0]]
    assert sorted(chunk["candidates"][0]["index"] for chunk in ends) == [0, 1]
    assert [chunk for chunk in chunks if "usageMetadata" in chunk] == [chunks[-1]]
    counts = chunks[-1]["usageMetadata"]
    assert counts["candidatesTokenCount"] <= 8
    assert counts["totalTokenCount"] == counts["promptTokenCount"] + counts["candidatesTokenCount"]


@pytest.mark.loopback
def test_a_function_is_called(served: Served) -> None:
    body = {
        "tools": [{"functionDeclarations": [COUNT]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {"maxOutputTokens": 200, "seed": 1},
    }  # fmt: skip
    found = generate(served, **body).json["candidates"][0]
    calls = [part["functionCall"] for part in found["content"]["parts"]]
    assert found["finishReason"] in ("STOP", "MAX_TOKENS")
    assert calls
    assert all(call["name"] == "count" and 0 <= call["args"]["n"] <= 99 for call in calls)


@pytest.mark.loopback
def test_counts_vectors_and_models(served: Served) -> None:
    expected = ask(served, "/tokenize", {"messages": HELLO}).json["count"]
    assert generate(served, "countTokens").json == {"totalTokens": expected}
    whole = {"contents": HI, "generationConfig": {"candidateCount": 2}}
    nested = ask(served, "/v1beta/models/tiny:countTokens", {"generateContentRequest": whole}).json
    assert nested == {"totalTokens": expected}
    vector = ask(served, "/v1/embeddings", {"input": "Hello", "dimensions": 4}).json["data"][0]["embedding"]
    one = {"content": {"parts": [{"text": "Hello"}]}, "output_dimensionality": 4}
    assert ask(served, "/v1beta/models/tiny:embedContent", one).json == {"embedding": {"values": vector}}
    many = ask(served, "/v1/models/tiny:batchEmbedContents", {"requests": [one, one]}).json
    assert many == {"embeddings": [{"values": vector}] * 2}
    for wrong in ([], [one, {**one, "output_dimensionality": 5}], [{}]):
        assert ask(served, "/v1beta/models/tiny:batchEmbedContents", {"requests": wrong}).status == 400
    card, other = ask(served, "/v1beta/models").json["models"]
    assert (card["name"], card["inputTokenLimit"], other["name"]) == ("models/tiny", 1024, "models/other")
    assert {"generateContent", "countTokens", "embedContent"} <= set(card["supportedGenerationMethods"])
    assert ask(served, "/v1beta/models/tiny").json == card
    client = {"x-goog-api-client": "google-genai-sdk"}
    assert ask(served, "/v1/models", headers=client).json["models"][0] == card
    assert ask(served, "/v1/models/tiny", headers=client).json == card
    assert ask(served, "/v1/models").json["object"] == "list"


@pytest.mark.loopback
def test_errors_have_googles_form(served: Served) -> None:
    def error(path: str, body: Any, **headers: Any) -> tuple[int, str]:
        answer = ask(served, path, body, headers=headers)
        found = answer.json["error"]
        assert set(found) == {"code", "message", "status"}
        assert found["code"] == answer.status
        assert found["message"]
        return answer.status, found["status"]

    path = "/v1/models/tiny:generateContent"
    assert error(path, {"contents": []}) == (400, "INVALID_ARGUMENT")
    assert error(path, b"x") == (400, "INVALID_ARGUMENT")
    assert error(path, {"contents": HI}, Authorization=None) == (401, "UNAUTHENTICATED")
    assert error("/v1beta/models/none", None) == (404, "NOT_FOUND")
    assert error("/v1beta/models/other:generateContent", {"contents": HI}) == (503, "UNAVAILABLE")
    assert error("/v1beta/files", None) == (404, "NOT_FOUND")
    body = {"contents": HI, "generationConfig": GREEDY}
    key = {"Authorization": None, "x-goog-api-key": TOKEN}
    assert ask(served, path, body, headers=key).status == 200
    no_header = {"Authorization": None}
    assert ask(served, f"{path}?alt=json&key={TOKEN}", body, headers=no_header).status == 200
    assert error(f"{path}?key={TOKEN}x", body, Authorization=None) == (401, "UNAUTHENTICATED")
    assert "models" in ask(served, f"/v1/models?key={TOKEN}", headers=no_header).json
    assert ask(served, f"/v1/models/tiny?key={TOKEN}", headers=no_header).json["name"] == "models/tiny"
    assert ask(served, f"/tokenizer_info?key={TOKEN}", headers=no_header).status == 401
