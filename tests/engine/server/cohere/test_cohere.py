"""Chats and vectors in the form of Cohere's API, also through the package `cohere` where it is installed."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.core import Stats
from engine.server.cohere.message import Reply
from engine.server.host import ServedModel
from engine.server.options import Bounds, ServerOptions
from engine.server.replies import Begun, Ended, Written
from tests.engine.server.openai.test_tools_api import function
from tests.engine.server.served import (
    HELLO,
    NUMBERS,
    TOKEN,
    Answer,
    Gate,
    Served,
    ask,
    break_third_pass,
    complete,
)  # fmt: skip

pytestmark = pytest.mark.loopback
GREEDY = {"messages": HELLO, "max_tokens": 8, "temperature": 0}


def chat(served: Served, **fields: Any) -> Answer:
    return ask(served, "/v2/chat", {**GREEDY, **fields})


def streamed(served: Served, **fields: Any) -> list[Any]:
    """The events of a stream; each has its type as its name."""
    *blocks, end = chat(served, stream=True, **fields).body.decode()[:-2].split("\n\n")
    assert end == "data: [DONE]"
    found = []
    for block in blocks:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_a_chat_is_that_of_openais_api(served: Served) -> None:
    expected = complete(served, temperature=0, ignore_eos=True, logprobs=True).json
    choice, usage = expected["choices"][0], expected["usage"]
    found = chat(served, ignore_eos=True, logprobs=True).json
    assert found["message"] == {
        "role": "assistant",
        "content": [{"type": "text", "text": choice["message"]["content"]}],
    }
    assert found["finish_reason"] == "MAX_TOKENS"
    assert found["usage"]["tokens"] == {"input_tokens": usage["prompt_tokens"], "output_tokens": 8}
    scores = choice["logprobs"]["content"]
    assert [(one["text"], one["logprobs"]) for one in found["logprobs"]] == [
        (one["token"], [pytest.approx(one["logprob"], abs=1e-5)]) for one in scores
    ]
    sampled = {"temperature": 1.5, "seed": 4}
    near = chat(served, **sampled, p=0.5, k=3).json["message"]["content"]
    same = complete(served, **sampled, top_p=0.5, top_k=3).json["choices"][0]["message"]["content"]
    assert near == [{"type": "text", "text": same}]


def test_a_stream_has_the_same_text(served: Served) -> None:
    whole = chat(served, ignore_eos=True, logprobs=True).json
    events = streamed(served, ignore_eos=True, logprobs=True)
    kinds = [event["type"] for event in events]
    deltas = [event for event in events if event["type"] == "content-delta"]
    assert kinds == [
        "message-start", "content-start", *["content-delta"] * len(deltas), "content-end", "message-end",
    ]  # fmt: skip
    assert {event["index"] for event in events[1:-1]} == {0}
    text = "".join(event["delta"]["message"]["content"]["text"] for event in deltas)
    assert text == whole["message"]["content"][0]["text"]
    ids = [id for event in deltas for id in event.get("logprobs", {"token_ids": []})["token_ids"]]
    assert ids == [id for one in whole["logprobs"] for id in one["token_ids"]]
    assert len(ids) == 8
    assert events[-1]["delta"] == {name: whole[name] for name in ("finish_reason", "usage")}
    stop = text[2:4]
    assert chat(served, ignore_eos=True, stop_sequences=[stop]).json["finish_reason"] == "STOP_SEQUENCE"


def test_calls_of_tools(served: Served) -> None:
    tools = [function("count", parameters=NUMBERS)]
    asked = {"tools": tools, "tool_choice": "REQUIRED", "max_tokens": 300, "seed": 3, "temperature": 1}
    whole = chat(served, **asked).json
    assert whole["finish_reason"] == "TOOL_CALL"
    calls = whole["message"]["tool_calls"]
    assert whole["message"]["content"] is None
    assert {call["function"]["name"] for call in calls} == {"count"}
    assert all(0 <= json.loads(call["function"]["arguments"])["n"] <= 99 for call in calls)
    events = streamed(served, **asked)
    begun = [one["delta"]["message"]["tool_calls"] for one in events if one["type"] == "tool-call-start"]
    arguments = [""] * len(begun)
    for event in events:
        if event["type"] == "tool-call-delta":
            arguments[event["index"]] += event["delta"]["message"]["tool_calls"]["function"]["arguments"]
    assert arguments == [call["function"]["arguments"] for call in calls]
    assert [event["index"] for event in events if event["type"] == "tool-call-end"] == [*range(len(calls))]
    cut = streamed(served, **{**asked, "max_tokens": whole["usage"]["tokens"]["output_tokens"] - 20})
    kinds = [event["type"] for event in cut]
    assert cut[-1]["delta"]["finish_reason"] == "MAX_TOKENS"
    assert kinds.count("tool-call-end") == kinds.count("tool-call-start") - 1
    assert "tool_calls" not in chat(served, tools=tools, tool_choice="NONE").json["message"]
    same = chat(served, **{**asked, "tool_choice": "any"}).json["message"]["tool_calls"]  # LangChain's
    assert [call["function"] for call in same] == [call["function"] for call in calls]


def prompt(served: Served, monkeypatch: pytest.MonkeyPatch, body: Mapping[str, Any]) -> Any:
    """The messages that the engine gets."""
    from engine.server.cohere import chat as module

    seen: list[Any] = []
    real = module.chat_work

    def work(request: Any, logprobs: int | None) -> Any:
        seen.append(request)
        return real(request, logprobs)

    monkeypatch.setattr(module, "chat_work", work)
    answer = ask(served, "/v2/chat", {"max_tokens": 2, **body})
    assert answer.status == 200, answer.body
    return seen[0]


def test_what_a_conversation_may_have(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "count", "arguments": '{"n": 1}'}}
    document = {"type": "document", "document": {"id": "d", "data": {"title": "Fire", "heat": 7}}}
    thought = {"type": "thinking", "thinking": "Hm."}
    request = prompt(
        served, monkeypatch,
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Count"}]},
                {"role": "assistant", "tool_calls": [call], "tool_plan": "I count."},
                {"role": "tool", "tool_call_id": "c1", "content": [document]},
                {"role": "assistant", "content": [thought, {"type": "text", "text": "One."}]},
                {"role": "user", "content": "And now?"},
            ],
            "documents": ["Plain words", {"data": {"text": "Deep"}, "id": "1"}],
        },
    )  # fmt: skip
    system, asked, called, result, answer, again = request.messages
    assert (system.content, asked.content) == ("Be brief.", "Count")
    assert (called.content, called.tool_calls[0].arguments) == ("I count.", '{"n": 1}')
    assert (result.content, result.tool_call_id) == ("title: Fire\nheat: 7", "c1")
    assert (answer.reasoning, answer.content) == ("Hm.", "One.")
    assert again.content == "Document 1:\nPlain words\n\nDocument 2:\ntext: Deep\n\nAnd now?"


def test_thoughts_are_parts_of_their_own() -> None:
    thinking = (("<think>", "</think>"),)
    reply = Reply(ServedModel("m", loaded=True, thinking=thinking), scored=False)
    ended = Ended("stop_token", "", Stats(prompt_tokens=3, new_tokens=4))
    events = [Begun(), Written("<think>Hm", 1), Written(".</think>So", 2), Written("!", 1), ended]
    found = [event for one in events for event in reply.feed(one)]
    assert [(event["type"], event.get("index")) for event in found] == [
        ("message-start", None), ("content-start", 0), *[("content-delta", 0)] * 2, ("content-end", 0),
        ("content-start", 1), *[("content-delta", 1)] * 2, ("content-end", 1), ("message-end", None),
    ]  # fmt: skip
    whole = reply.whole()
    assert whole["finish_reason"] == "COMPLETE"
    assert whole["message"]["content"] == [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "So!"},
    ]


def test_formats(served: Served) -> None:
    schema = {"type": "object", "properties": {"n": NUMBERS["properties"]["n"]}, "required": ["n"]}
    format = {"type": "json_object", "json_schema": schema}
    found = chat(served, response_format=format, max_tokens=100).json
    assert json.loads(found["message"]["content"][0]["text"])["n"] in range(100)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stop_sequences": 5}, "stop_sequences"), ({"p": 7}, "p is 7"), ({"documents": [5]}, "documents"),
        ({"tool_choice": "SOME"}, "tool_choice is"), ({"thinking": {"type": "much"}}, "thinking.type"),
        ({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}, "messages[0].content[0].type"),
    ],
)  # fmt: skip
def test_errors_have_coheres_form(served: Served, fields: Mapping[str, Any], words: str) -> None:
    answer = chat(served, **fields)
    assert answer.status == 400
    assert words in answer.json["message"]


def test_a_failure_in_mid_stream(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    break_third_pass(served, monkeypatch)
    text = chat(served, stream=True, ignore_eos=True).body.decode()
    last = json.loads(text[:-2].split("\n\n")[-1].split("data: ")[1])
    assert (last["type"], last["delta"]["finish_reason"]) == ("message-end", "ERROR")
    assert last["delta"]["error"]


def test_vectors(served: Served) -> None:
    texts = ["Hello", "there"]
    data = ask(served, "/v1/embeddings", {"input": texts}).json
    expected = [one["embedding"] for one in data["data"]]
    asked = {"texts": texts, "input_type": "search_query"}
    found = ask(served, "/v2/embed", asked).json
    assert found["embeddings"] == {"float": expected}
    assert found["texts"] == texts
    assert found["meta"]["billed_units"]["input_tokens"] == data["usage"]["total_tokens"]
    inputs = [{"content": [{"type": "text", "text": text}]} for text in texts]
    coded = ask(served, "/v1/embeddings", {"input": texts, "encoding_format": "base64"}).json["data"]
    sent = {"inputs": inputs, "embedding_types": ["base64"]}
    assert ask(served, "/v2/embed", sent).json["embeddings"] == {
        "base64": [one["embedding"] for one in coded]
    }
    long = {"texts": ["fox " * 3000], "truncate": "NONE"}
    assert "the context holds" in ask(served, "/v2/embed", long).json["message"]
    assert ask(served, "/v2/embed", {**long, "truncate": "END"}).status == 200
    assert "images" in ask(served, "/v2/embed", {"images": ["data:"]}).json["message"]


def test_a_client_that_accepts_json_alone_gets_lines(served: Served) -> None:
    """As LiteLLM asks, which takes each line for an event."""
    sent, accept = {**GREEDY, "stream": True}, {"Accept": "application/json"}
    lines = ask(served, "/v2/chat", sent, headers=accept)
    assert lines.headers["content-type"] == "application/x-ndjson"
    found, events = lines.lines, streamed(served)
    assert [one["type"] for one in found] == [one["type"] for one in events]
    assert found[1:-1] == events[1:-1]


def test_a_silent_stream_of_lines_has_lines_alone(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = Served(tiny_folder, ServerOptions(token=TOKEN, bounds=Bounds(ping_seconds=0.02)))
    try:
        gate, found = Gate(hasty.chat, monkeypatch), []
        sent = {**GREEDY, "stream": True}
        asking = threading.Thread(
            target=lambda: found.extend(
                ask(hasty, "/v2/chat", sent, headers={"Accept": "application/json"}).lines
            )
        )
        asking.start()
        gate.wait()
        timer = threading.Timer(0.2, gate.open)
        timer.start()
        asking.join()
        timer.join()
        assert {one["type"] for one in found} >= {"message-start", "content-delta", "message-end"}
    finally:
        hasty.close()


def test_tokens(served: Served) -> None:
    expected = ask(served, "/tokenize", {"content": "The quick", "with_pieces": True}).json["tokens"]
    found = ask(served, "/v1/tokenize", {"model": "tiny", "text": "The quick"}).json
    assert found["tokens"] == [one["id"] for one in expected]
    assert "".join(found["token_strings"]) == "The quick"
    assert ask(served, "/v1/detokenize", {"tokens": found["tokens"]}).json["text"] == "The quick"
    assert ask(served, "/v1/tokenize", {"text": 5}).error["param"] == "text"
    nothing = ask(served, "/v1/tokenize", {"model": "tiny"})
    assert (nothing.status, nothing.error["param"]) == (400, "prompt")


@pytest.mark.parametrize("name", ["cohere", "cohere-ai"])
def test_models_in_coheres_form(served: Served, name: str) -> None:
    headers = {"X-Fern-SDK-Name": name}
    found = ask(served, "/v1/models?page_size=5", headers=headers).json
    assert [one["name"] for one in found["models"]] == ["tiny", "other"]
    assert found["next_page_token"] is None
    one = ask(served, "/v1/models/tiny", headers=headers).json
    assert (one, one["context_length"]) == (found["models"][0], 1024)
    assert "data" in ask(served, "/v1/models").json


@pytest.mark.slow
def test_coheres_own_client(served: Served) -> None:
    cohere = pytest.importorskip("cohere")
    address = f"http://127.0.0.1:{served.port}"
    with pytest.importorskip("httpx").Client() as http:
        client = cohere.ClientV2(api_key=TOKEN, base_url=address, httpx_client=http)
        sent = {"model": "tiny", "messages": HELLO, "max_tokens": 8, "temperature": 0}
        whole = client.chat(**sent)
        events = list(client.chat_stream(**sent))
        text = "".join(one.delta.message.content.text for one in events if one.type == "content-delta")
        assert text == whole.message.content[0].text
        assert events[-1].delta.usage.tokens.output_tokens == whole.usage.tokens.output_tokens
        vectors = client.embed(
            model="tiny", texts=["a"], input_type="search_query", embedding_types=["float"]
        )
        assert len(vectors.embeddings.float_) == 1
        tokens = client.tokenize(text="The quick", model="tiny")
        assert client.detokenize(tokens=tokens.tokens, model="tiny").text == "The quick"
        assert client.models.list().models[0].name == client.models.get("tiny").name == "tiny"
        with pytest.raises(cohere.BadRequestError, match="max_tokens"):
            client.chat(**{**sent, "max_tokens": 0})
