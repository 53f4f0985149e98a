"""The forms of Hugging Face's servers: texts that go on (TGI), vectors (TEI)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.server.served import Answer, Served, ask

pytestmark = pytest.mark.loopback

PROMPT = "The quick brown"


def write(served: Served, path: str = "/generate", **given: Any) -> Answer:
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": 6, **given}}
    return ask(served, path, body)


def plain(served: Served, **given: Any) -> Any:
    body = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0, **given}
    return ask(served, "/v1/completions", body).json["choices"][0]


def test_a_text_is_the_likeliest_one_unless_it_is_sampled(served: Served) -> None:
    expected = plain(served)["text"]
    assert write(served).json == {"generated_text": expected}
    assert write(served, return_full_text=True).json["generated_text"] == PROMPT + expected
    sampled = plain(served, temperature=1.5, seed=4)["text"]
    assert sampled != expected
    assert write(served, temperature=1.5, seed=4).json["generated_text"] == sampled
    found = write(served, do_sample=True, seed=4, details=True).json
    assert found["details"]["seed"] == 4


def test_details(served: Served) -> None:
    scores = plain(served, logprobs=2, echo=True)["logprobs"]
    details = write(served, details=True, decoder_input_details=True, top_n_tokens=2).json["details"]
    assert (details["finish_reason"], details["generated_tokens"], details["seed"]) == ("length", 6, None)
    tokens = [*details["prefill"], *details["tokens"]]
    assert [one["text"] for one in tokens] == scores["tokens"]
    assert tokens[0]["logprob"] is None
    found = [one["logprob"] for one in tokens[1:]]
    assert found == pytest.approx(scores["token_logprobs"][1:], abs=1e-5)
    assert [top[0]["id"] for top in details["top_tokens"]] == [one["id"] for one in details["tokens"]]


def test_a_stop_string_is_in_the_text(served: Served) -> None:
    text = write(served).json["generated_text"]
    stop = text[2:4]
    found = write(served, stop=[stop], details=True).json
    assert found["generated_text"] == text[: text.index(stop) + len(stop)]
    assert found["details"]["finish_reason"] == "stop_sequence"
    events = write(served, "/generate_stream", stop=[stop]).events
    assert "".join(event["token"]["text"] for event in events) == found["generated_text"]


def test_a_stream_has_an_event_for_each_token(served: Served) -> None:
    whole = write(served, details=True).json
    events = write(served, "/generate_stream").events
    assert [event["index"] for event in events] == [1, 2, 3, 4, 5, 6]
    tokens = [event["token"] for event in events]
    assert [token["id"] for token in tokens] == [token["id"] for token in whole["details"]["tokens"]]
    assert "".join(token["text"] for token in tokens) == whole["generated_text"]
    assert [event["generated_text"] for event in events] == [None] * 5 + [whole["generated_text"]]
    assert events[-1]["details"]["finish_reason"] == "length"
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": 6}, "stream": True}
    assert ask(served, "/", body).events == events


def test_a_grammar(served: Served) -> None:
    found = write(served, grammar={"type": "regex", "value": "[0-9]{3}"}, max_new_tokens=20).json
    assert len(found["generated_text"]) == 3
    assert found["generated_text"].isdigit()


def test_the_root_writes_or_embeds(served: Served) -> None:
    """As `huggingface_hub` asks: with parameters for a text, without for a vector."""
    assert write(served, "/").json == [write(served).json]
    vectors = ask(served, "/v1/embeddings", {"input": [PROMPT, "a"]}).json["data"]
    for path in ("/", "/embed"):
        found = ask(served, path, {"inputs": [PROMPT, "a"], "normalize": True}).json
        assert found == [one["embedding"] for one in vectors]
    assert ask(served, "/embed", {"inputs": PROMPT, "dimensions": 4}).json[0][3:]


@pytest.mark.parametrize("path", ["/", "/similarity"])
def test_texts_are_compared_with_one(served: Served, path: str) -> None:
    inputs = {"source_sentence": PROMPT, "sentences": ["a", PROMPT]}
    found = ask(served, path, {"inputs": inputs, "parameters": {}}).json
    first, second = (
        one["embedding"] for one in ask(served, "/v1/embeddings", {"input": [PROMPT, "a"]}).json["data"]
    )
    cosine = sum(a * b for a, b in zip(first, second, strict=True))
    assert found == pytest.approx([cosine, 1], abs=1e-6)
    for wrong, name in (
        ({"sentences": ["a"]}, "source_sentence"),
        ({**inputs, "sentences": []}, "sentences"),
    ):
        answer = ask(served, path, {"inputs": wrong})
        assert (answer.status, f"inputs.{name}" in str(answer.json)) == (400, True)


@pytest.mark.parametrize("path", ["/", "/generate", "/embed"])
def test_these_need_the_token(served: Served, path: str) -> None:
    refused = ask(served, path, {"inputs": PROMPT, "parameters": {}}, headers={"Authorization": None})
    assert refused.status == 401


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"truncate": 5}, "truncate"), ({"best_of": 2}, "best_of"),
        ({"max_new_tokens": "x"}, "max_new_tokens"),
        ({"grammar": {"type": "x"}}, "grammar"), ({"top_n_tokens": 9}, "top_n_tokens"),
        ({"adapter_id": "a"}, "adapter_id"),
    ],
)  # fmt: skip
def test_what_is_refused(served: Served, given: Any, word: str) -> None:
    """In TGI's form, which its clients read."""
    answer = write(served, **given)
    assert answer.status == 400
    assert word in answer.json["error"]
    assert answer.json["error_type"] == "validation"


def test_refused_vectors_and_info(served: Served) -> None:
    assert "normalize" in ask(served, "/embed", {"inputs": "a", "normalize": False}).json["error"]
    assert "inputs is missing" in ask(served, "/generate", {}).json["error"]
    assert ask(served, "/info").json["max_total_tokens"] == 1024
