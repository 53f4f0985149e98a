"""KoboldCpp's and LM Studio's endpoints, and the smaller ones of llama.cpp's server."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine.core import Stats
from engine.server import kobold
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.kobold import _reason, _request
from engine.server.replies import Ended
from tests.engine.server.served import HELLO, NUMBERS, Gate, Served, ask, opened, read_until

pytestmark = pytest.mark.loopback
JSON = {"Content-Type": "application/json"}
GREEDY = {"prompt": "The quick", "max_length": 6, "temperature": 0, "rep_pen": 1}


def test_kobold_writes_what_completions_write(served: Served) -> None:
    sent = {"prompt": "The quick", "max_tokens": 6, "temperature": 0}
    expected = ask(served, "/v1/completions", sent).json
    (found,) = ask(served, "/api/v1/generate", GREEDY).json["results"]
    assert (found["text"], found["finish_reason"]) == (expected["choices"][0]["text"], "length")
    assert found["prompt_tokens"] == expected["usage"]["prompt_tokens"]
    assert found["completion_tokens"] == 6
    stopped = ask(served, "/api/v1/generate", {**GREEDY, "stop_sequence": [found["text"][2:4]]}).json
    assert stopped["results"][0]["finish_reason"] == "stop"
    split = {**GREEDY, "memory": "The ", "prompt": "quick"}
    assert ask(served, "/api/v1/generate", split).json["results"][0]["text"] == found["text"]
    blocks = ask(served, "/api/extra/generate/stream", GREEDY).body.decode()[:-2].split("\n\n")
    assert all(block.startswith("event: message\ndata: ") for block in blocks)
    events = [json.loads(block.split("data: ", 1)[1]) for block in blocks]
    assert "".join(event["token"] for event in events) == found["text"]
    assert [event["finish_reason"] for event in events if event["finish_reason"]] == ["length"]


def test_kobold_cuts_the_beginning_of_a_long_prompt(served: Served) -> None:
    def ids(text: str) -> list[int]:
        found = ask(served, "/tokenize", {"content": text}).json["tokens"]
        assert isinstance(found, list)
        return found

    begin = ask(served, "/tokenize", {"content": "", "add_special": True}).json["tokens"]
    text, memory = "Once the quick brown fox had jumped over the lazy dog. " * 60, "You are a fox. "
    assert len(ids(text)) > 1024
    plain = {"prompt": text, "max_tokens": 6, "temperature": 0}
    assert ask(served, "/v1/completions", plain).json["error"]["code"] == "context_length_exceeded"
    for sent, room in (({}, 1018), ({"max_context_length": 64}, 58), ({"max_context_length": 8}, 4)):
        (found,) = ask(served, "/api/v1/generate", {**GREEDY, "prompt": text, **sent}).json["results"]
        kept = [*begin, *ids(text)[-(room - len(begin)) :]]
        expected = ask(served, "/v1/completions", {**plain, "prompt": kept}).json
        assert (found["text"], found["prompt_tokens"]) == (expected["choices"][0]["text"], room)
    sent = {**GREEDY, "prompt": text, "memory": memory, "max_context_length": 64}
    (found,) = ask(served, "/api/v1/generate", sent).json["results"]
    kept = [*begin, *ids(memory)]
    kept += ids(text)[-(58 - len(kept)) :]
    expected = ask(served, "/v1/completions", {**plain, "prompt": kept}).json
    assert (found["text"], found["prompt_tokens"]) == (expected["choices"][0]["text"], 58)
    sent["memory"] = memory * 60
    assert ask(served, "/api/v1/generate", sent).json["results"][0]["prompt_tokens"] == 58


@pytest.mark.parametrize("path", ["/api/v1/generate", "/api/extra/generate/stream"])
def test_kobold_s_texts_are_aborted_by_their_key(
    served: Served, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(**body: str) -> str:
        answer = ask(served, "/api/extra/generate/check", body or b"", method="POST", headers=JSON)
        return str(answer.json["results"][0]["text"])

    sent = {**GREEDY, "max_length": 900, "ignore_eos": True, "genkey": "KCPP1"}
    gate = Gate(served.chat, monkeypatch)
    with opened(served, path, sent) as connection:
        gate.wait()
        gate.let(12)
        while not (begun := check(genkey="KCPP1")):
            time.sleep(0.01)
        assert check(genkey="KCPP2") == check() == ""
        for body in ({"genkey": "KCPP2"}, b""):
            assert ask(served, "/api/extra/abort", body, method="POST", headers=JSON).json == {
                "success": True
            }
        assert check(genkey="KCPP1").startswith(begun)
        assert ask(served, "/api/extra/abort", {"genkey": "KCPP1"}).json == {"success": True}
        gate.open()
        if path.endswith("stream"):
            answer = read_until(connection, b"\r\n0\r\n")
        else:
            answer = read_until(connection, b"]}")
        assert b"error" not in answer
        if not path.endswith("stream"):
            (found,) = json.loads(answer.split(b"\r\n\r\n", 1)[1])["results"]
            assert found["text"].startswith(begun)
            assert found["finish_reason"] == "stop"
    assert check(genkey="KCPP1") == ""
    assert served.idle()


def test_a_kobold_text_is_aborted_before_it_begins(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()

    def waits(_chat: object, stop: threading.Event) -> Iterator[Any]:
        began.set()
        assert stop.wait(30)
        yield from ()

    monkeypatch.setattr(kobold, "completion_work", lambda *_, **__: waits)
    with opened(served, "/api/extra/generate/stream", {**GREEDY, "genkey": "KCPP1"}) as connection:
        assert began.wait(30)
        assert ask(served, "/api/extra/abort", {"genkey": "KCPP1"}).json == {"success": True}
        answer = read_until(connection, b"\r\n0\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"error" not in answer
    assert served.idle()


def test_the_names_of_kobold() -> None:
    sent = {
        "rep_pen": 1.2, "rep_pen_range": 64, "typical": 0.9, "tfs": 0.8, "nsigma": 1.5, "sampler_seed": 5,
        "stop_sequence": ["You:"], "max_length": 7, "temperature": 0.5, "dynatemp_range": 0.7,
        "dynatemp_exponent": 2, "banned_tokens": ["a lot"], "negative_prompt": "dull", "guidance_scale": 1.5,
        "dry_multiplier": 0.8, "dry_penalty_last_n": 99,
    }  # fmt: skip
    request = _request(Fields(sent), ServedModel("tiny", defaults=(("top_k", 3),)))
    sampler, stops = request.sampler, request.stops
    assert (sampler.repetition_penalty, sampler.repetition_range, sampler.typical) == (1.2, 64, 0.9)
    assert (sampler.tail_free, sampler.top_n_sigma, sampler.seed) == (0.8, 1.5, 5)
    assert (sampler.top_k, sampler.top_p) == (3, 0.92)
    assert (stops.stop_strings, stops.max_tokens) == (("You:",), 7)
    assert (sampler.min_temperature, sampler.max_temperature) == (0.0, pytest.approx(1.2))
    assert (sampler.temperature_exponent, sampler.dry_range) == (2.0, 99)
    assert (request.guidance.negative_prompt, request.guidance.cfg_scale) == ("dull", 1.5)
    assert request.constraint.banned_strings == ("a lot",)
    ids = _request(Fields({"banned_tokens": [3]}), ServedModel("tiny")).constraint
    assert (ids.banned_tokens, ids.banned_strings) == ((3,), ())
    plain = _request(Fields({}), ServedModel("tiny"))
    usual, most = plain.sampler, plain.stops.max_tokens
    assert (usual.temperature, usual.top_k, usual.top_p, usual.repetition_penalty) == (0.7, 100, 0.92, 1.07)
    assert most == 200


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop_token", "stop"), ("stop_string", "stop"), ("cancelled", "stop"), ("max_tokens", "length"),
     ("context_full", "length"), ("time_limit", "length"), ("loop", "length")],
)  # fmt: skip
def test_why_a_text_of_kobold_ended(reason: str, finish: str) -> None:
    assert _reason(Ended(reason, "", Stats())) == finish


def test_the_performance_of_kobold_is_that_of_the_last_reply(tiny_folder: Path) -> None:
    served = Served(tiny_folder)
    try:
        before = ask(served, "/api/extra/perf").json
        assert (before["total_gens"], before["stop_reason"], before["last_token_count"]) == (0, -1, 0)
        assert (before["queue"], before["idle"]) == (0, 1)
        text = ask(served, "/api/v1/generate", GREEDY).json["results"][0]
        found = ask(served, "/api/extra/perf").json
        assert (found["total_gens"], found["stop_reason"]) == (1, 0)
        assert (found["last_token_count"], found["last_input_count"]) == (6, text["prompt_tokens"])
        assert found["last_process"] > 0
        assert found["last_eval"] > 0
        ask(served, "/api/v1/generate", {**GREEDY, "stop_sequence": [text["text"][2:4]]})
        assert ask(served, "/api/extra/perf").json["stop_reason"] == 2
    finally:
        served.close()


def test_what_kobold_asks_first(served: Served) -> None:
    other = ask(served, "/api/extra/tts", {})
    assert other.status == 404
    assert "KoboldCpp's API is supported to generate" in str(other.json["error"])
    found = ask(served, "/api/extra/tokencount", {"prompt": "The quick"}).json
    ids = ask(served, "/tokenize", {"prompt": "The quick"}).json["tokens"]
    assert found == {"value": len(ids), "ids": ids}
    there = ask(served, "/api/extra/detokenize", {"ids": ids}).json
    assert there == {"result": "The quick", "success": True}
    for path, body in (("tokencount", {"prompt": "The"}), ("detokenize", {"ids": ids})):
        assert ask(served, f"/api/extra/{path}", {**body, "model": "other"}).status == 503
    assert ask(served, "/api/extra/generate/check").json == {"results": [{"text": ""}]}
    assert ask(served, "/api/latest/model").json == ask(served, "/api/v1/model").json
    assert ask(served, "/api/latest/generate", GREEDY).json == ask(served, "/api/v1/generate", GREEDY).json
    assert "files are not downloaded" in ask(served, "/api/v1/models/download", {}).error["message"]
    assert ask(served, "/api/v1/model").json == {"result": "koboldcpp/tiny"}
    version = ask(served, "/api/extra/version").json
    assert version == {"result": "KoboldCpp", "version": kobold.VERSION, "vision": False}
    assert ask(served, "/api/v1/info/version").json == {"result": "1.2.5"}
    for path in ("/api/v1/config/max_context_length", "/api/extra/true_max_context_length"):
        assert ask(served, path).json == {"value": 1024}
    assert ask(served, "/api/latest/config/max_length").json == {"value": 200}
    answer = ask(served, "/api/v1/generate", {**GREEDY, "images": "x"})
    assert answer.status == 400
    assert "images is not supported" in answer.json["error"]


def test_kobold_counts_the_bos_of_a_model_that_has_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.chat.tokenizer, "add_bos", True)
    monkeypatch.setattr(served.chat.tokenizer, "bos_token_id", 7)
    plain = ask(served, "/tokenize", {"content": "The quick"}).json["tokens"]
    for more, begin in (({}, [7]), ({"special": True}, [7]), ({"special": False}, [])):
        found = ask(served, "/api/extra/tokencount", {"prompt": "The quick", **more}).json
        assert found["ids"] == [*begin, *plain]


def test_the_bos_of_each_form_of_tokenize(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def ids(**body: Any) -> Any:
        return ask(served, "/tokenize", body).json["tokens"]

    plain = ids(content="The quick")
    monkeypatch.setattr(served.chat.tokenizer, "add_bos", True)
    monkeypatch.setattr(served.chat.tokenizer, "bos_token_id", 7)
    assert ids(content="The quick") == ids(content="The quick", add_special=False) == plain
    assert ids(content="The quick", add_special=True) == [7, *plain]
    assert ids(prompt="The quick") == ids(prompt="The quick", add_special_tokens=True) == [7, *plain]
    assert ids(prompt="The quick", add_special_tokens=False) == plain


def test_kobold_follows_gbnf(served: Served) -> None:
    found = ask(served, "/api/v1/generate", {**GREEDY, "grammar": 'root ::= [x-z]{3} "!"'}).json
    assert re.fullmatch("[x-z]{3}!", found["results"][0]["text"])


def test_lm_studio(served: Served) -> None:
    cards = ask(served, "/api/v0/models").json["data"]
    assert [(card["id"], card["state"]) for card in cards] == [("tiny", "loaded"), ("other", "not-loaded")]
    assert ask(served, "/api/v0/models/tiny").json == cards[0]
    assert cards[0]["max_context_length"] == 1024
    assert ask(served, "/api/v0/models/none").status == 404
    body = {"messages": HELLO, "max_tokens": 4, "temperature": 0}
    texts = [
        ask(served, path, body).json["choices"][0]["message"]["content"]
        for path in ("/api/v0/chat/completions", "/v1/chat/completions")
    ]
    assert texts[0] == texts[1]
    assert cards[0]["arch"] == "LlamaForCausalLM"
    assert cards[0]["capabilities"] == ["tool_use"]


def test_lm_studio_s_statistics(served: Served) -> None:
    chat = {"messages": HELLO, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    text = {"prompt": "Hello", "max_tokens": 40, "temperature": 0}
    found = ask(served, "/api/v0/chat/completions", chat).json
    assert found["stats"]["stop_reason"] == "maxPredictedTokensReached"
    assert found["stats"]["tokens_per_second"] > 0
    assert found["stats"]["generation_time"] > 0
    assert found["stats"]["time_to_first_token"] > 0
    info = found["model_info"]
    assert (info["arch"], info["format"], info["context_length"]) == ("LlamaForCausalLM", "safetensors", 1024)
    assert found["runtime"]["supported_formats"] == ["gguf", "safetensors"]
    first = ask(served, "/v1/completions", text).json["choices"][0]["text"]
    stopped = ask(served, "/api/v0/completions", {**text, "stop": first[:2]}).json
    assert stopped["stats"]["stop_reason"] == "stopStringFound"
    tool = {"type": "function", "function": {"name": "count", "parameters": NUMBERS}}
    more = {"tools": [tool], "tool_choice": "required", "max_tokens": 200, "ignore_eos": False, "seed": 1}
    called = ask(served, "/api/v0/chat/completions", {**chat, **more, "parallel_tool_calls": False}).json
    assert called["choices"][0]["finish_reason"] == "tool_calls"
    assert called["stats"]["stop_reason"] == "toolCalls"
    assert "stats" not in ask(served, "/v1/chat/completions", chat).json
    assert ask(served, "/api/v0/chat/completions", {**chat, "stream": True}).events[-1] == "[DONE]"


def test_mistral_s_clients_get_their_own_form_of_models(served: Served) -> None:
    mistral = ask(served, "/v1/models", headers={"User-Agent": "mistral-client-python/1.9"}).json["data"][0]
    other = ask(served, "/v1/models").json["data"][0]
    assert {other[name] for name in ("max_model_len", "context_length", "context_window")} == {1024}
    info = served.chat.info
    assert other["meta"] == {"n_ctx": 1024, "n_params": info.parameters, "size": info.file_bytes}
    assert (mistral["type"], mistral["capabilities"]["completion_chat"]) == ("base", True)
    assert (other["type"], other["max_input_tokens"]) == ("model", 1024)


def test_llama_cpp_s_vectors_slots_and_adapters(served: Served) -> None:
    vector = ask(served, "/v1/embeddings", {"input": "The quick"}).json["data"][0]["embedding"]
    assert ask(served, "/embedding", {"content": "The quick"}).json == [{"index": 0, "embedding": [vector]}]
    two = ask(served, "/embeddings", {"input": ["The quick", "Hello"]}).json
    assert (two[0]["embedding"], two[1]["index"]) == ([vector], 1)
    slots = ask(served, "/slots").json
    assert [slot["id"] for slot in slots] == list(range(served.server.service.options.bounds.choices))
    assert {slot["n_ctx"] for slot in slots} == {1024}
    assert not any(slot["is_processing"] for slot in slots)
    assert ask(served, "/lora-adapters").json == []


def metrics(served: Served) -> dict[str, float]:
    answer = ask(served, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.split(" ") for line in lines)}


def test_what_is_being_written_has_a_slot_and_is_counted(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def requests() -> tuple[float, float]:
        found = metrics(served)
        return found["llamacpp:requests_processing"], found["llamacpp:requests_deferred"]

    gate = Gate(served.chat, monkeypatch)
    sent = {"prompt": "The quick", "max_tokens": 9, "ignore_eos": True, "stream": True}
    with opened(served, "/v1/completions", sent) as connection:
        gate.wait()
        assert requests() == (0, 1)
        gate.let(5)
        while (written := ask(served, "/slots").json[0]["next_token"][0]["n_decoded"]) == 0:
            time.sleep(0.01)
        assert 0 < written < 9
        slots = ask(served, "/slots").json
        assert [slot["is_processing"] for slot in slots] == [True] + [False] * (len(slots) - 1)
        assert {slot["next_token"][0]["n_decoded"] for slot in slots[1:]} == {0}
        assert requests() == (1, 0)
        gate.open()
        read_until(connection, b"data: [DONE]")
    while requests() != (0, 0):  # the last bytes go before the request is over
        time.sleep(0.01)


def test_metrics_count_what_replies_had(served: Served) -> None:
    before = metrics(served)
    body = {"prompt": "The quick", "max_tokens": 5, "ignore_eos": True}
    used = ask(served, "/v1/completions", body).json["usage"]
    after = metrics(served)
    assert after["llamacpp:tokens_predicted_total"] == before["llamacpp:tokens_predicted_total"] + 5
    read = after["llamacpp:prompt_tokens_total"] - before["llamacpp:prompt_tokens_total"]
    assert 0 < read <= used["prompt_tokens"]
    for speed, count, seconds in (
        ("prompt_tokens_seconds", "prompt_tokens_total", "prompt_seconds_total"),
        ("predicted_tokens_seconds", "tokens_predicted_total", "tokens_predicted_seconds_total"),
    ):
        total = after[f"llamacpp:{count}"] / after[f"llamacpp:{seconds}"]
        assert after[f"llamacpp:{speed}"] == pytest.approx(total)
    assert after["llamacpp:requests_processing"] == after["llamacpp:requests_deferred"] == 0
    assert ask(served, "/metrics", headers={"Authorization": None}).status == 401


def test_lists_of_models_have_the_forms_of_several_apis(served: Served) -> None:
    found = ask(served, "/v1/models").json
    assert (found["object"], found["first_id"], found["last_id"]) == ("list", "tiny", "other")
    card = found["data"][0]
    assert (card["object"], card["type"], card["display_name"]) == ("model", "model", "tiny")
    assert datetime.fromisoformat(card["created_at"]).timestamp() == card["created"]
    (running,) = ask(served, "/api/ps").json["models"]
    digests = {model["digest"] for model in ask(served, "/api/tags").json["models"]}
    assert running["digest"] in digests
    assert [len(digest) for digest in digests] == [64, 64]
    assert datetime.fromisoformat(running["expires_at"]) > datetime.now(UTC)
