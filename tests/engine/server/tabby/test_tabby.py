"""TabbyAPI's endpoints: models, tokens, and what may not be changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.core import Loading
from engine.server.openai import models as openai_models
from engine.server.tabby import models
from tests.engine.server.served import HELLO, TOKEN, Served, ask, complete

pytestmark = pytest.mark.loopback


def test_the_loaded_model_and_the_list(served: Served) -> None:
    card = ask(served, "/v1/model").json
    assert (card["id"], card["object"], card["parameters"]["max_seq_len"]) == ("tiny", "model", 1024)
    found = ask(served, "/v1/model/list").json
    assert found["object"] == "list"
    assert [one["id"] for one in found["data"]] == ["tiny", "other"]
    assert found["data"][0] == card
    assert found["data"][1]["parameters"] is None
    assert ask(served, "/v1/model/draft/list").json == {"object": "list", "data": []}


def test_a_model_is_loaded_and_released(tiny_folder: Any) -> None:
    served = Served(tiny_folder)
    try:
        before = ask(served, "/v1/model/load", {"name": "tiny"}).events  # it is loaded already
        assert before == [{"model_type": "model", "module": 1, "modules": 1, "status": "finished"}]
        steps = ask(served, "/v1/model/load", {"model_name": "other", "max_seq_len": 512}).events
        assert [step["status"] for step in steps[-2:]] == ["processing", "finished"]
        assert all(0 <= step["module"] <= step["modules"] for step in steps)
        assert steps[-1]["module"] == steps[-1]["modules"]
        assert ask(served, "/v1/model").json["id"] == "other"
        unknown = ask(served, "/v1/model/load", {"name": "none"})
        assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
        assert "name of a model was expected" in ask(served, "/v1/model/load", {}).error["message"]
        for status, body in ((200, b"null"), (503, None)):
            answer = ask(served, "/v1/model/unload", b"", method="POST")
            assert answer.status == status
            assert answer.body == body or answer.error["code"] == "model_not_loaded"
        assert ask(served, "/v1/model").error["code"] == "model_not_loaded"
        assert ask(served, "/v1/internal/model/info").json["model_name"] == "None"
        assert ask(served, "/v1/internal/model/load", {"model_name": "tiny"}).json == "OK"
        assert ask(served, "/v1/internal/model/info").json == {"model_name": "tiny", "lora_names": []}
        for _ in range(2):
            assert ask(served, "/v1/internal/model/unload", b"", method="POST").json == "OK"
    finally:
        served.close()


def test_progress_of_loading(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def loading(*_: Any) -> Any:
        for done, total in ((0, 0), (3, 8), (9, 8)):
            yield Loading("reading", done, total)

    monkeypatch.setattr(models, "loading", loading)
    steps = ask(served, "/v1/model/load", {"name": "other"}).events
    assert [(step["module"], step["modules"], step["status"]) for step in steps] == [
        (0, 1, "processing"), (3, 8, "processing"), (8, 8, "processing"), (8, 8, "finished"),
    ]  # fmt: skip
    assert openai_models.loading is not loading


def test_tokens_and_their_text(served: Served) -> None:
    whole = ask(served, "/tokenize", {"prompt": "The quick<|im_end|>"}).json["tokens"]
    sent = {"text": "The quick<|im_end|>"}
    found = ask(served, "/v1/token/encode", sent).json
    assert found == {"tokens": whole, "length": len(whole)}
    plain = ask(served, "/v1/token/encode", {**sent, "encode_special_tokens": False}).json
    assert plain["length"] > len(whole)
    bare = ask(served, "/tokenize", {"content": "The quick"}).json["tokens"]
    assert (
        ask(served, "/v1/token/encode", {"text": "The quick", "add_bos_token": False}).json["tokens"] == bare
    )
    rendered = ask(served, "/tokenize", {"messages": HELLO, "add_generation_prompt": False}).json["tokens"]
    assert ask(served, "/v1/token/encode", {"text": HELLO}).json["tokens"] == rendered
    text = ask(served, "/detokenize", {"tokens": whole}).json["prompt"]
    assert ask(served, "/v1/token/decode", {"tokens": whole}).json == {"text": text}
    without = ask(served, "/v1/token/decode", {"tokens": whole, "decode_special_tokens": False}).json["text"]
    assert "<|im_end|>" in text
    assert without.strip() == "The quick"
    assert ask(served, "/v1/token/encode", {}).error["param"] == "text"


def test_what_stays_as_it_was_started(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/v1/templates", "/v1/template/list"):
        assert ask(served, path).json == {"object": "list", "data": ["model"]}
    for path in ("/v1/sampling/overrides", "/v1/sampling/override/list"):
        assert ask(served, path).json == {"selected_preset": None, "overrides": {}, "presets": []}
    assert ask(served, "/v1/auth/permission").json == {"permission": "admin"}
    loaded = replace(served.host.models()[0], adapters=(("/somewhere/fox.gguf", 0.5),))
    monkeypatch.setattr(served.host, "models", lambda: [loaded])
    for path in ("/v1/lora", "/v1/loras", "/v1/lora/list"):
        (card,) = ask(served, path).json["data"]
        assert (card["id"], card["object"], card["scaling"]) == ("fox.gguf", "lora", 0.5)
    assert ask(served, "/v1/internal/lora/list").json == {"lora_names": ["fox.gguf"]}
    for path in (
        "/v1/template/switch", "/v1/template/unload", "/v1/lora/load", "/v1/lora/unload",
        "/v1/sampling/override/switch", "/v1/sampling/override/unload", "/v1/internal/lora/load",
        "/v1/internal/lora/unload",
    ):  # fmt: skip
        for body in (b"", {"name": "x", "loras": [{"name": "x"}]}):
            answer = ask(served, path, body, method="POST")
            assert answer.status == 400
            assert "cannot be changed over HTTP" in answer.error["message"]


@pytest.mark.parametrize("name", ["X-api-key", "X-admin-key"])
def test_the_headers_of_keys(served: Served, name: str) -> None:
    assert ask(served, "/v1/model", headers={"Authorization": None, name: TOKEN}).status == 200
    assert ask(served, "/v1/model", headers={"Authorization": None, name: "wrong"}).status == 401
    assert ask(served, "/health", headers={"Authorization": None}).status == 200


def test_a_prefix_of_the_reply_and_variables_of_the_template(served: Served) -> None:
    greedy = {"temperature": 0, "max_tokens": 6}
    begun = [*HELLO, {"role": "assistant", "content": "The quick"}]
    expected = complete(served, messages=begun, continue_final_message=True, **greedy).json["choices"][0]
    found = complete(served, response_prefix="The quick", **greedy).json["choices"][0]
    assert found["message"] == expected["message"]
    assert found["message"] != complete(served, **greedy).json["choices"][0]["message"]
    both = complete(served, messages=begun, continue_final_message=True, response_prefix="x")
    assert "exclude each other" in both.error["message"]


def test_what_a_text_must_not_contain(served: Served) -> None:
    def text(**fields: Any) -> str:
        sent = {"prompt": "The quick", "max_tokens": 12, "temperature": 0, **fields}
        answer = ask(served, "/v1/completions", sent)
        assert answer.status == 200, answer.body
        return str(answer.json["choices"][0]["text"])

    usual = text()
    banned = text(banned_strings=[usual[2:5]])
    assert usual[2:5] not in banned
    assert banned
    ids = ask(served, "/tokenize", {"content": "xyz"}).json["tokens"]
    listed = ",".join(map(str, ids))
    only = text(allowed_tokens=listed)
    assert set(ask(served, "/tokenize", {"content": only}).json["tokens"]) <= set(ids)
    assert text(custom_token_bans=listed) == text(banned_tokens=ids)
    assert set(text(regex_pattern="[xyz]{8}")) <= set("xyz")
    assert text(speculative_ngram=True) == text(prompt_lookup_num_tokens=4) == usual
    assert text(cfg_scale=3.0, negative_prompt="Once upon a time") != usual
    assert text(cfg_scale=1.0, negative_prompt="Once upon a time") == usual
    assert text(do_sample=False, temperature=5.0) == usual
    assert text(stop_sequence=[usual[3:5]]) == usual[: usual.index(usual[3:5])]


def test_a_text_without_a_bos_token(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.chat.tokenizer, "add_bos", True)
    monkeypatch.setattr(served.chat.tokenizer, "bos_token_id", 5)

    def read(**fields: Any) -> int:
        sent = {"prompt": "The quick", "max_tokens": 1, **fields}
        count = ask(served, "/v1/completions", sent).json["usage"]["prompt_tokens"]
        assert isinstance(count, int)
        return count

    assert read() == read(add_bos_token=True) == read(add_bos_token=False) + 1


def test_the_last_token_of_a_prompt_is_healed(served: Served) -> None:
    sent = {"prompt": "The quick bro", "max_tokens": 4, "temperature": 0, "logprobs": 0}
    found = ask(served, "/v1/completions", {**sent, "token_healing": True}).json["choices"][0]
    usual = ask(served, "/v1/completions", sent).json["choices"][0]
    ids = ask(served, "/tokenize", {"prompt": sent["prompt"]}).json["tokens"]
    last = ask(served, "/detokenize", {"tokens": ids[-1:]}).json["prompt"]
    assert found["logprobs"]["tokens"][0].startswith(last)
    assert not usual["logprobs"]["tokens"][0].startswith(last)
