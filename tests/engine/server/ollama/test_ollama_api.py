"""Ollama's API: bodies as its clients for Python and Node.js send them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from engine.server.host import ServedModel
from tests.engine.server.served import HELLO, NUMBERS, Answer, Served, ask, break_third_pass

pytestmark = pytest.mark.loopback
OPTIONS = {"num_predict": 8, "temperature": 0, "ignore_eos": True}
TOOL = {"type": "function", "function": {"name": "count", "parameters": NUMBERS}}


def chat(served: Served, **fields: Any) -> Answer:
    return ask(served, "/api/chat", {"model": "tiny", "messages": HELLO, "options": OPTIONS, **fields})


def test_a_stream_is_the_default_and_says_the_same(served: Served) -> None:
    streamed, whole = chat(served), chat(served, stream=False).json
    assert streamed.headers["content-type"] == "application/x-ndjson"
    *pieces, last = streamed.lines
    assert not any(piece["done"] for piece in pieces)
    assert "".join(piece["message"]["content"] for piece in pieces) == whole["message"]["content"] != ""
    for end in (last, whole):
        assert (end["done"], end["done_reason"], end["eval_count"]) == (True, "length", 8)
        assert end["prompt_eval_count"] > 0
        assert end["total_duration"] >= end["eval_duration"] > 0
    openai = {"messages": HELLO, "temperature": 0, "max_tokens": 8, "ignore_eos": True}
    same = ask(served, "/v1/chat/completions", openai).json["choices"][0]["message"]["content"]
    assert whole["message"] == {"role": "assistant", "content": same}


def test_texts_are_the_users_or_go_on_as_they_are(served: Served) -> None:
    fields = {"model": "tiny", "prompt": "Hello there", "options": OPTIONS, "stream": False}
    assert (
        ask(served, "/api/generate", fields).json["response"]
        == chat(served, stream=False).json["message"]["content"]
    )
    raw = ask(served, "/api/generate", {**fields, "raw": True, "stream": True})
    openai = {"prompt": "Hello there", "temperature": 0, "max_tokens": 8, "ignore_eos": True}
    text = ask(served, "/v1/completions", openai).json["choices"][0]["text"]
    assert "".join(line["response"] for line in raw.lines) == text
    system = {**fields, "system": "Be brief."}
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    assert (
        ask(served, "/api/generate", system).json["prompt_eval_count"]
        == chat(served, messages=messages, stream=False).json["prompt_eval_count"]
    )


def test_without_a_prompt_the_model_is_there(served: Served) -> None:
    for path, body in (("/api/chat", {"messages": []}), ("/api/generate", {"keep_alive": 0})):
        found = ask(served, path, {"model": "tiny", **body}).json
        assert (found["done"], found["done_reason"]) == (True, "load")


def test_a_model_of_the_list_need_not_be_downloaded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(served, "/api/pull", {"model": "tiny"}).lines == [{"status": "success"}]
    assert ask(served, "/api/pull", {"name": "other:latest", "stream": False}).json == {"status": "success"}
    tagged = (ServedModel("phi:latest"),)
    with monkeypatch.context() as patch:
        patch.setattr(served.host, "models", lambda: tagged)
        assert ask(served, "/api/pull", {"model": "phi:latest", "stream": False}).json["status"] == "success"
    answer = ask(served, "/api/pull", {"model": "llama3"})
    assert answer.status == 404
    assert "'llama3'" in answer.json["error"]


def test_formats_are_json_or_a_schema(served: Served) -> None:
    options = {"num_predict": 200, "seed": 1}
    found = chat(served, format=NUMBERS, options=options, stream=False).json["message"]["content"]
    assert 0 <= json.loads(found)["n"] <= 99
    for format in ("yaml", 5, {"type": "nonsense"}):
        answer = chat(served, format=format)
        assert answer.status == 400
        assert set(answer.json) == {"error"}


def test_calls_are_objects_and_their_results_come_back(served: Served) -> None:
    forced = {"type": "function", "function": {"name": "count"}}
    fields: dict[str, Any] = {"tools": [TOOL], "tool_choice": forced, "options": {"seed": 3}}
    (call,) = chat(served, stream=False, **fields).json["message"]["tool_calls"]
    assert call["function"]["name"] == "count"
    assert 0 <= call["function"]["arguments"]["n"] <= 99
    *_, calls, end = chat(served, **fields).lines
    assert calls["message"]["tool_calls"][0]["function"] == call["function"]
    assert end["done_reason"] == "stop"
    messages = [
        *HELLO,
        {"role": "assistant", "content": "", "thinking": "", "tool_calls": [{"function": call["function"]}]},
        {"role": "tool", "tool_name": "count", "content": "seven"},
    ]
    rendered = ask(served, "/apply-template", {"messages": messages}).json["prompt"]
    assert "seven" in rendered
    assert chat(served, messages=messages, stream=False).json["eval_count"] > 0


def test_a_failure_in_mid_stream_is_its_last_line(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    break_third_pass(served, monkeypatch)
    *pieces, last = chat(served).lines
    assert [piece["done"] for piece in pieces] == [False] * len(pieces)
    assert pieces
    assert set(last) == {"error"}
    assert "ValueError" in last["error"]


def test_probabilities_and_stops(served: Served) -> None:
    scored = chat(served, stream=False, logprobs=True, top_logprobs=2).json["logprobs"]
    assert len(scored) == 8
    assert len(scored[0]["top_logprobs"]) == 2
    text = chat(served, stream=False).json["message"]["content"]
    stopped = chat(served, stream=False, options={**OPTIONS, "stop": [text[3]]}).json
    assert stopped["message"]["content"] == text[: text.index(text[3])]
    assert stopped["done_reason"] == "stop"


def test_a_prompt_that_is_too_long_loses_its_oldest_messages_unless_forbidden(served: Served) -> None:
    long = [{"role": "user", "content": "word " * 2000}, {"role": "assistant", "content": "Yes."}, *HELLO]
    assert chat(served, messages=long, stream=False).json["prompt_eval_count"] < 1024
    refused = chat(served, messages=long, truncate=False)
    assert refused.status == 400
    assert "context" in refused.json["error"]


def test_a_context_says_the_conversation_so_far(served: Served) -> None:
    def generate(**fields: Any) -> Any:
        return ask(served, "/api/generate", {"stream": False, "options": OPTIONS, **fields})

    first = generate(prompt="Hello “you”", system="Be brief.").json
    second = generate(prompt="And?", context=first["context"]).json
    said = [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello “you”"},
        {"role": "assistant", "content": first["response"]}, {"role": "user", "content": "And?"},
    ]  # fmt: skip
    assert second["response"] == chat(served, messages=said, stream=False).json["message"]["content"]
    last = generate(prompt="And?", context=first["context"], stream=True).lines[-1]
    assert last["context"] == second["context"]
    assert "context" not in generate(prompt="And?", raw=True).json
    other = generate(prompt="And?", context=first["context"], system="Be long.").json
    assert other["prompt_eval_count"] == second["prompt_eval_count"]


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        ("/api/chat", {"messages": [{**HELLO[0], "images": ["iVBOR"]}]}, r"messages\[0\]\.images"),
        ("/api/generate", {"prompt": "a", "suffix": "b"}, "no control tokens"),
        ("/api/generate", {"prompt": "a", "context": [1, 2]}, "context"),
        ("/api/generate", {"prompt": "a", "context": [6909547, 1]}, "not one that this server gave"),
        ("/api/generate", {"prompt": "a", "context": {"a": 1}}, "not one that this server gave"),
        ("/api/generate", {"prompt": "a", "raw": True, "context": [1]}, "context"),
        ("/api/generate", {"prompt": "a", "template": "{{ .Prompt }}"}, "template"),
        ("/api/chat", {"messages": HELLO, "options": {"top_k": "many"}}, r"options\.top_k"),
        ("/api/chat", {"messages": HELLO, "think": "hard"}, "think"),
        ("/api/copy", {"model": "tiny"}, "no such endpoint.*chat, generate"),
    ],
)
def test_what_is_not_there_is_named(served: Served, path: str, fields: dict[str, Any], named: str) -> None:
    answer = ask(served, path, fields)
    assert answer.status in (400, 404)
    assert re.search(named, answer.json["error"])


def test_the_models_and_the_token(served: Served) -> None:
    names = [model["model"] for model in ask(served, "/api/tags").json["models"]]
    assert names == ["tiny", "other"]
    (loaded,) = ask(served, "/api/ps").json["models"]
    assert (loaded["name"], loaded["context_length"], loaded["size_vram"]) == ("tiny", 1024, 0)
    shown = ask(served, "/api/show", {"model": "tiny"}).json
    assert shown["model_info"]["general.basename"] == "tiny"  # the name that VS Code shows
    assert {"completion", "tools"} <= set(shown["capabilities"])
    listed = ask(served, "/api/tags").json["models"][0]
    assert listed["capabilities"] == shown["capabilities"]
    assert listed["details"] == shown["details"]
    assert listed["modified_at"] == shown["modified_at"]
    assert shown["model_info"][shown["details"]["family"] + ".context_length"] == 1024
    assert ask(served, "/api/version").json["version"]
    refused = ask(served, "/api/tags", headers={"Authorization": None})
    assert (refused.status, set(refused.json)) == (401, {"error"})


def test_vectors_are_those_of_openais_form(served: Served) -> None:
    data = ask(served, "/v1/embeddings", {"input": ["a b", "c"]}).json["data"]
    found = ask(served, "/api/embed", {"model": "tiny", "input": ["a b", "c"]}).json
    assert found["embeddings"] == [item["embedding"] for item in data]
    assert (found["prompt_eval_count"], found["load_duration"]) == (3, 0)
    assert 10**4 < found["total_duration"] < 10**11, "in nanoseconds; clients require it"
    old = ask(served, "/api/embeddings", {"model": "tiny", "prompt": "c"}).json
    assert old["embedding"] == data[1]["embedding"]
    for nothing in ({}, {"input": []}, {"input": ""}):
        assert ask(served, "/api/embed", nothing).json["embeddings"] == []
    assert ask(served, "/api/embeddings", {"model": "tiny"}).json == {"embedding": []}


def test_a_text_that_is_too_long_for_a_vector_loses_its_end_unless_forbidden(served: Served) -> None:
    text = "word " * 1500
    ids = ask(served, "/tokenize", {"prompt": text}).json["tokens"]
    expected = ask(served, "/v1/embeddings", {"input": ids[:1024]}).json["data"][0]["embedding"]
    found = ask(served, "/api/embed", {"input": text}).json
    assert (len(ids) > 1024, found["prompt_eval_count"], found["embeddings"]) == (True, 1024, [expected])
    assert ask(served, "/api/embeddings", {"prompt": text}).json["embedding"] == expected
    refused = ask(served, "/api/embed", {"input": text, "truncate": False})
    assert (refused.status, "context holds 1024" in refused.json["error"]) == (400, True)


@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], []])
def test_the_older_form_of_vectors_takes_one_text(served: Served, prompt: list[Any]) -> None:
    answer = ask(served, "/api/embeddings", {"prompt": prompt})
    assert (answer.status, answer.json["error"]) == (
        400, f"prompt is {json.dumps(prompt)}, but a text was expected.",
    )  # fmt: skip
