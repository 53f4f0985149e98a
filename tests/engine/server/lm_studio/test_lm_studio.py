"""LM Studio's API below /api/v1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.core import Message, Stats
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.lm_studio.chat import _Reply, studio_call
from engine.server.lm_studio.models import _card, _card_v1
from engine.server.lm_studio.replies import _statistics
from engine.server.replies import Ended, Written
from engine.server.responses.stored import StoredResponses
from tests.engine.server.served import Answer, Served, ask, break_third_pass

MODEL = ServedModel("tiny", loaded=True, context_length=1024)


def chat(served: Served, **fields: Any) -> Answer:
    return ask(
        served, "/api/v1/chat", {"input": "Hello there", "max_output_tokens": 8, "temperature": 0, **fields}
    )


def plain(served: Served, *messages: tuple[str, str]) -> Any:
    sent = [{"role": role, "content": content} for role, content in messages]
    body = {"messages": sent, "max_tokens": 8, "temperature": 0}
    return ask(served, "/v1/chat/completions", body).json["choices"][0]["message"]["content"]


@pytest.mark.loopback
def test_a_chat_goes_on_from_reply_to_reply(served: Served) -> None:
    first = chat(served, system_prompt="Be kind.").json
    text = plain(served, ("system", "Be kind."), ("user", "Hello there"))
    assert first["output"] == [{"type": "message", "content": text}]
    assert first["model_instance_id"] == "tiny"
    stats = first["stats"]
    assert (stats["total_output_tokens"], stats["reasoning_output_tokens"]) == (8, 0)
    assert stats["input_tokens"] > 4
    assert stats["tokens_per_second"] > 0
    second = chat(served, input="More", previous_response_id=first["response_id"]).json
    before = (("user", "Hello there"), ("assistant", text), ("user", "More"))
    assert second["output"][0]["content"] == plain(served, ("system", "Be kind."), *before)
    other = chat(
        served, input="More", previous_response_id=first["response_id"], system_prompt="Be brief."
    ).json
    assert other["output"][0]["content"] == plain(served, ("system", "Be brief."), *before)
    assert "response_id" not in chat(served, store=False).json
    assert ask(served, f"/v1/responses/{first['response_id']}").status == 404  # that is another API
    answer = chat(served, previous_response_id="resp_x")
    assert (answer.status, answer.error["code"]) == (400, "previous_response_not_found")


def test_thoughts_are_items_of_their_own() -> None:
    model = replace(MODEL, thinking=(("<t>", "</t>"),))
    reply = _Reply(studio_call(Fields({"input": "a"}), model, StoredResponses()))
    events = (
        Written("<t>", 1),
        Written("I think", 2),
        Written("</t>", 1),
        Written("\n\nYes", 3),
        Ended("stop_token", "", Stats()),
    )
    found = [one["type"] for event in events for one in reply.feed(event)]
    assert [*dict.fromkeys(found)] == [
        "reasoning.start", "reasoning.delta", "reasoning.end",
        "message.start", "message.delta", "message.end",
    ]  # fmt: skip
    result = reply.result()
    assert result["output"] == [
        {"type": "reasoning", "content": "I think"}, {"type": "message", "content": "Yes"},
    ]  # fmt: skip
    assert result["stats"]["reasoning_output_tokens"] == 3
    assert reply.message() == Message("assistant", "Yes", reasoning="I think")


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [("stop_token", "eosFound"), ("end_filter", "eosFound"), ("stop_string", "stopStringFound"),
     ("max_tokens", "maxPredictedTokensReached"), ("context_full", "contextLengthReached"),
     ("cancelled", "userStopped"), ("time_limit", "userStopped")],
)  # fmt: skip
def test_why_a_reply_ended(reason: str, stop_reason: str) -> None:
    assert _statistics(Ended(reason, "", Stats()))["stop_reason"] == stop_reason


@pytest.mark.loopback
def test_a_stream_has_the_documented_events_in_order(served: Served) -> None:
    whole = chat(served).json
    events = chat(served, stream=True).named_events
    kinds = [*dict.fromkeys(event["type"] for event in events)]
    assert kinds == [
        "chat.start", "prompt_processing.start", "prompt_processing.progress", "prompt_processing.end",
        "message.start", "message.delta", "message.end", "chat.end",
    ]  # fmt: skip
    progress = [event["progress"] for event in events if event["type"] == "prompt_processing.progress"]
    assert progress == sorted(progress)
    assert progress[-1] == 1
    text = "".join(event["content"] for event in events if event["type"] == "message.delta")
    assert [{"type": "message", "content": text}] == whole["output"] == events[-1]["result"]["output"]
    assert events[0]["model_instance_id"] == "tiny"
    assert chat(served, input="More", previous_response_id=events[-1]["result"]["response_id"]).status == 200


@pytest.mark.loopback
def test_a_failure_in_mid_stream_is_an_error_event(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    break_third_pass(served, monkeypatch)
    last = chat(served, stream=True, store=False).named_events[-1]
    assert last["type"] == "error"
    assert set(last["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("sent", "level"), [({}, "auto"), ({"reasoning": "off"}, "off"), ({"reasoning": "on"}, "on"),
                        ({"reasoning": "low"}, "low")],
)  # fmt: skip
def test_what_a_body_asks_for(sent: dict[str, Any], level: str) -> None:
    parts = [{"type": "text", "content": "One"}, {"type": "message", "content": "Two"}]
    body = {"input": parts, "repeat_penalty": 1.2, "top_k": 5, "max_output_tokens": 7, **sent}
    request = studio_call(Fields(body), MODEL, StoredResponses()).request
    assert request.messages == (Message("user", "One\nTwo"),)
    assert (request.sampler.repetition_penalty, request.sampler.top_k, request.stops.max_tokens) == (
        1.2,
        5,
        7,
    )
    assert request.thinking.thinking == level


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "image", "data_url": "data:"}]}, "input[0].type"),
        ({"input": "a", "integrations": ["mcp/x"]}, "integrations"),
        ({"input": "a", "reasoning": "much"}, "reasoning"),
        ({"input": "a", "previous_response_id": "resp_x"}, "previous_response_id"),
    ],
)
def test_bad_requests_get_one_sentence(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        studio_call(Fields(fields), MODEL, StoredResponses())
    assert (caught.value.failure.status, caught.value.failure.param) == (400, param)


@pytest.mark.parametrize(
    ("model", "type", "form", "tools"),
    [
        (ServedModel("a"), "llm", "gguf", []),
        (
            ServedModel("a", True, format="gguf", capabilities=("completion", "tools")),
            "llm",
            "gguf",
            ["tool_use"],
        ),
        (ServedModel("a", True, format="safetensors", capabilities=("embedding",)), "embeddings", "mlx", []),
        (ServedModel("a", True, format="gguf", reads_pictures=True), "vlm", "gguf", []),
    ],
)
def test_a_card_has_only_words_of_lm_studio(
    model: ServedModel, type: str, form: str, tools: list[str]
) -> None:
    """Zed reads no list at all in which one card has another word."""
    card = _card(model)
    assert (card["type"], card["compatibility_type"], card["capabilities"]) == (type, form, tools)
    assert _card_v1(model)["type"] == ("embedding" if type == "embeddings" else "llm")


@pytest.mark.loopback
def test_models(served: Served) -> None:
    loaded, other = ask(served, "/api/v1/models").json["models"]
    card = next(each for each in ask(served, "/api/v0/models").json["data"] if each["state"] == "loaded")
    assert card["quantization"]
    assert loaded["quantization"] == {"name": card["quantization"], "bits_per_weight": None}
    assert other["quantization"] is None
    info = served.chat.info
    assert (loaded["size_bytes"], loaded["params_string"]) == (
        info.file_bytes,
        f"{info.parameters / 1000:.0f}K",
    )
    assert info.file_bytes > info.parameters > 1000
    assert (other["size_bytes"], other["params_string"]) == (0, None)
    assert loaded["capabilities"] == {"vision": False, "trained_for_tool_use": True}
    assert (loaded["key"], other["key"], other["loaded_instances"]) == ("tiny", "other", [])
    assert (loaded["architecture"], loaded["format"]) == ("LlamaForCausalLM", "safetensors")
    assert other["architecture"] is other["format"] is None  # its file was not read
    assert loaded["loaded_instances"] == [{"id": "tiny", "config": {"context_length": 1024}}]
    found = ask(served, "/api/v1/models/load", {"model": "tiny"}).json
    assert (found["instance_id"], found["status"]) == ("tiny", "loaded")
    assert found["load_time_seconds"] >= 0
    assert ask(served, "/api/v1/models/unload", {"instance_id": "other"}).json == {"instance_id": "other"}
    for path, body in (("load", {"model": "none"}), ("unload", {"instance_id": "none"})):
        answer = ask(served, f"/api/v1/models/{path}", body)
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert ask(served, "/api/v1/models/unload", {}).status == 400
    assert ask(served, "/api/v1/models").json["models"][0]["loaded_instances"]
