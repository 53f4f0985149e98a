"""POST /completion and GET /props: the form of llama.cpp's server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.server.fields import Fields
from engine.server.openai.parameters import sampler
from tests.engine.server.served import HELLO, Answer, Served, ask

pytestmark = pytest.mark.loopback


def write(served: Served, prompt: Any = "The quick", **fields: Any) -> Answer:
    return ask(served, "/completion", {"prompt": prompt, "n_predict": 6, "temperature": 0, **fields})


def plain(served: Served, prompt: Any, **fields: Any) -> Any:
    sent = {"prompt": prompt, "max_tokens": 6, "temperature": 0, **fields}
    return ask(served, "/v1/completions", sent).json["choices"][0]


def test_it_writes_what_completions_write(served: Served) -> None:
    found = write(served).json
    assert found["content"] == plain(served, "The quick")["text"]
    assert (found["stop"], found["stop_type"], found["stopping_word"]) == (True, "limit", "")
    assert (found["tokens_predicted"], found["timings"]["predicted_n"]) == (6, 6)
    ids = ask(served, "/tokenize", {"content": "The quick", "add_special": True}).json["tokens"]
    assert found["tokens_evaluated"] == len(ids)
    assert write(served, n_predict=0).json["content"] == ""


@pytest.mark.parametrize("place", ["/extras", "/v1/extras"])
def test_tokens_in_the_form_of_llama_cpp_python(served: Served, place: str) -> None:
    ids = ask(served, "/tokenize", {"content": "The quick", "add_special": True}).json["tokens"]
    assert ask(served, f"{place}/tokenize", {"input": "The quick"}).json == {"tokens": ids}
    assert ask(served, f"{place}/tokenize/count", {"input": "The quick"}).json == {"count": len(ids)}
    assert ask(served, f"{place}/detokenize", {"tokens": ids}).json == {"text": "The quick"}


def test_ids_and_texts_mix_in_one_prompt(served: Served) -> None:
    first, second = (ask(served, "/tokenize", {"content": text}).json["tokens"] for text in ("The", " quick"))
    expected = plain(served, [*first, *second])["text"]
    assert write(served, [*first, " quick"]).json["content"] == expected
    assert write(served, [*first, *second]).json["content"] == expected


def test_several_prompts_are_a_list(served: Served) -> None:
    found = write(served, ["The quick", "Hello there"]).json
    assert [one["index"] for one in found] == [0, 1]
    assert [one["content"] for one in found] == [
        plain(served, p)["text"] for p in ("The quick", "Hello there")
    ]


def test_a_stream_ends_with_the_counts(served: Served) -> None:
    *pieces, last = write(served, stream=True, return_tokens=True).events
    whole = write(served, return_tokens=True).json
    assert "".join(piece["content"] for piece in pieces) == whole["content"]
    assert [id for piece in pieces for id in piece["tokens"]] == whole["tokens"]
    assert not any(piece["stop"] for piece in pieces)
    assert last["content"] == ""
    assert last["stop"]
    assert last["tokens_predicted"] == pieces[-1]["tokens_predicted"] == 6
    assert last["tokens_evaluated"] == pieces[-1]["tokens_evaluated"]


def test_probabilities_are_those_of_completions(served: Served) -> None:
    found = write(served, n_probs=3).json["completion_probabilities"]
    logprobs = plain(served, "The quick", logprobs=3)["logprobs"]
    assert [one["logprob"] for one in found] == logprobs["token_logprobs"]
    assert all(one["top_logprobs"][0]["id"] == one["id"] for one in found)


def test_a_stop_string_is_named(served: Served) -> None:
    word = write(served).json["content"][2:4]
    found = write(served, stop=[word]).json
    assert (found["stop_type"], found["stopping_word"]) == ("word", word)


@pytest.mark.parametrize("stream", [False, True])
def test_only_the_fields_that_are_asked_for(served: Served, stream: bool) -> None:
    names = ["content", "generation_settings/n_ctx", "timings/none", "stop_type/x"]
    found = write(served, response_fields=names, stream=stream)
    last = json.loads(found.body.decode().strip().split("data: ")[-1]) if stream else found.json
    text = "" if stream else write(served).json["content"]
    assert last == {"content": text, "generation_settings/n_ctx": 1024}


def test_tokens_with_their_pieces(served: Served) -> None:
    sent = {"content": "Hello 🦔"}
    ids = ask(served, "/tokenize", sent).json["tokens"]
    found = ask(served, "/tokenize", {**sent, "with_pieces": True}).json["tokens"]
    assert [one["id"] for one in found] == ids
    pieces = [one["piece"] for one in found]
    assert any(isinstance(piece, list) for piece in pieces)
    data = b"".join(piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces)
    assert data.decode() == "Hello 🦔"


def test_a_chat_takes_n_predict(served: Served) -> None:
    sent = {"messages": HELLO, "n_predict": 3}
    assert ask(served, "/v1/chat/completions", sent).json["usage"]["completion_tokens"] == 3


def test_a_bias_may_be_a_list_of_pairs(served: Served) -> None:
    first = write(served, return_tokens=True).json["tokens"][0]
    for never in ([[first, False]], {str(first): -1000}):
        assert write(served, return_tokens=True, logit_bias=never).json["tokens"][0] != first
    assert "logit_bias is" in write(served, logit_bias=[["x"]]).error["message"]


def test_samplers_by_their_names() -> None:
    names = {"mirostat": 2, "mirostat_tau": 3, "repeat_last_n": -1, "dry_allowed_length": 4, "tfs_z": 0.9}
    found = sampler(Fields({**names, "top_a": 0.2}), {})
    assert (found.mirostat, found.mirostat_tau, found.repetition_range) == (True, 3.0, -1)
    assert (found.dry_allowed_length, found.tail_free, found.top_a) == (4, 0.9, 0.2)
    assert not sampler(Fields({"mirostat": 0}), {}).mirostat


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"grammar": "root ::= [a-z"}, None), ({"post_sampling_probs": True}, "post_sampling_probs"),
     ({"prompt": {"a": 1}}, "prompt"), ({"prompt": None}, "prompt"),
     ({"repeat_last_n": 1.5}, "repeat_last_n"), ({"mirostat": 1}, "mirostat")],
)  # fmt: skip
def test_what_is_refused(served: Served, fields: Any, param: str) -> None:
    answer = write(served, **fields)
    assert (answer.status, answer.error["param"]) == (400, param)


def test_props(served: Served) -> None:
    found = ask(served, "/props").json
    usual = found["default_generation_settings"]
    assert (usual["n_ctx"], found["total_slots"]) == (1024, served.server.service.options.bounds.choices)
    assert usual["params"] == {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    assert found["chat_template"] == ask(served, "/tokenizer_info").json["chat_template"]
