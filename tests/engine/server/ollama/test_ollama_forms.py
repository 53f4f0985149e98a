"""What bodies in Ollama's form ask for, and the objects that the events of a reply become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from engine.core import CallPiece, ChatRequest, Message, Stats
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.ollama.conversation import chat_request, text_request
from engine.server.ollama.models import _card
from engine.server.ollama.replies import _Lines, _message, _response
from engine.server.replies import Called, Ended, Prompted, Score, Written

TINY = ServedModel("tiny", thinking=(("<think>", "</think>"),), created=1_700_000_000, architecture="owl")
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
STATS = Stats(
    prompt_tokens=7, new_tokens=3, prefill_seconds=0.25, first_token_seconds=0.5, decode_seconds=2.0
)


def chat(messages: Any = HELLO, **fields: Any) -> ChatRequest:
    found = chat_request(Fields({"messages": messages, **fields}), TINY)
    assert found is not None
    return found


def text(**fields: Any) -> ChatRequest:
    found = text_request(Fields({"prompt": "Hello", **fields}), TINY)
    assert found is not None
    return found


def test_what_a_body_need_not_say() -> None:
    for found in (chat(), text()):
        sampler, stops = found.sampler, found.stops
        assert (sampler.temperature, sampler.top_k, sampler.top_p, sampler.min_p) == (0.8, 40, 0.9, 0.0)
        assert (stops.max_tokens, stops.when_full) == (0, "drop_oldest")
        assert (found.thinking.thinking, found.constraint.format, found.output.alternatives) == (
            "auto",
            "none",
            0,
        )
        assert found.messages == (Message("user", "Hello"),)
        assert (found.plain, found.report_prompt, found.continue_last) == (False, True, False)
    assert chat_request(Fields({"messages": []}), TINY) is None
    assert text_request(Fields({"system": "Be brief."}), TINY) is None


def test_the_makers_defaults_stand_above_ollamas_and_options_above_both() -> None:
    model = ServedModel("tiny", defaults=(("temperature", 0.3), ("top_k", 5)))
    found = chat_request(Fields({"messages": HELLO, "options": {"top_k": 7, "seed": 4}}), model)
    assert found is not None
    sampler = found.sampler
    assert (sampler.temperature, sampler.top_k, sampler.top_p, sampler.seed) == (0.3, 7, 0.9, 4)


@pytest.mark.parametrize(("said", "most"), [(-2, 0), (-1, 0), (5, 5)])
def test_how_long_a_reply_may_be(said: int, most: int) -> None:
    assert chat(options={"num_predict": said}).stops.max_tokens == most


def test_a_prompt_that_is_too_long() -> None:
    assert chat(truncate=False).stops.when_full == "stop"
    assert text(truncate=False).stops.when_full == "stop"
    assert text(raw=True).stops.when_full == "stop"


def test_texts_that_go_on_as_they_are() -> None:
    for found in (text(raw=True), text(suffix="!")):
        assert (found.plain, found.messages, found.report_prompt) == (True, (), False)
    assert text(raw=False, suffix="").plain is False
    whole = text(system="Be brief.")
    assert whole.messages == (Message("system", "Be brief."), Message("user", "Hello"))


def test_a_reply_that_is_begun_goes_on() -> None:
    assert chat([*HELLO, {"role": "assistant", "content": "Good"}]).continue_last
    call = {"function": {"name": "count", "arguments": {"n": 1}}}
    assert not chat([*HELLO, {"role": "assistant", "content": "", "tool_calls": [call]}]).continue_last


@pytest.mark.parametrize(
    ("said", "level"), [(True, "on"), (False, "off"), ("high", "high"), ("", "auto"), (None, "auto")]
)
def test_how_much_it_thinks(said: Any, level: str) -> None:
    assert chat(think=said).thinking.thinking == level


def test_formats() -> None:
    whole = chat(format="json").constraint
    assert (whole.format, '"object"' in whole.pattern) == ("json_schema", True)
    assert chat(format="").constraint.format == "none"
    schema = chat(format={"type": "integer"}).constraint
    assert (schema.format, "integer" in schema.pattern) == ("json_schema", True)
    with pytest.raises(ApiError, match='format is "yaml", but "json" or a JSON schema'):
        chat(format="yaml")


def lines(request: ChatRequest | None = None, form: Any = _message) -> _Lines:
    return _Lines(TINY, request or chat(), form)


def test_thoughts_and_text_of_a_stream() -> None:
    writing = lines()
    events = [
        Prompted((1, 2), "</think>"), Written("Hm.", 1), Written("</think>Yes", 2), Written(".", 1)
    ]  # fmt: skip
    found = [line for event in events for line in writing.feed(event)]
    assert [line["message"] for line in found] == [
        {"role": "assistant", "content": "", "thinking": "Hm."}, {"role": "assistant", "content": "Yes"},
        {"role": "assistant", "content": "."},
    ]  # fmt: skip
    assert not any(line["done"] for line in found)
    assert {line["model"] for line in found} == {"tiny"}
    assert abs((datetime.fromisoformat(found[0]["created_at"]) - datetime.now(UTC)).total_seconds()) < 60


def test_tags_in_a_text_that_goes_on_are_text() -> None:
    (line,) = lines(text(raw=True), _response).feed(Written("<think>a", 1))
    assert line["response"] == "<think>a"
    begun = lines(chat([*HELLO, {"role": "assistant", "content": "<think>a"}]))
    (line,) = begun.feed(Written("b", 1))
    assert line["message"] == {"role": "assistant", "content": "", "thinking": "b"}


def test_the_end_has_the_counts_and_the_times_in_nanoseconds() -> None:
    *_, last = lines().feed(Ended("max_tokens", "", STATS))
    assert (last["done"], last["done_reason"], last["message"]["content"]) == (True, "length", "")
    assert (last["prompt_eval_count"], last["eval_count"], last["load_duration"]) == (7, 3, 0)
    assert last["prompt_eval_duration"] == 250_000_000
    assert last["eval_duration"] == 2_000_000_000
    assert last["total_duration"] == 2_500_000_000
    (stopped,) = lines().feed(Ended("stop_token", "", STATS))
    assert stopped["done_reason"] == "stop"


def test_calls_come_whole_before_the_end() -> None:
    writing = lines()
    pieces = [
        CallPiece(0, "c1", "count", '{"n": '), CallPiece(0, arguments="7}"), CallPiece(1, "c2", "say", '{"a'),
        CallPiece(2, "c3", "nest", "[" * 100_000),
    ]  # fmt: skip
    for piece in pieces:
        assert list(writing.feed(Called(piece))) == []
    calls, last = writing.feed(Ended("stop_token", "", STATS))
    assert calls["message"]["tool_calls"] == [
        {"id": "c1", "function": {"index": 0, "name": "count", "arguments": {"n": 7}}},
        {"id": "c2", "function": {"index": 1, "name": "say", "arguments": {}}},
        {"id": "c3", "function": {"index": 2, "name": "nest", "arguments": {}}},
    ]
    assert (calls["done"], last["done"], "tool_calls" in last["message"]) == (False, True, False)


def test_scores_stand_in_the_line_of_their_text() -> None:
    (line,) = lines().feed(Written("a", 1, (Score(5, b"a", -0.5, (Score(6, b"b", -1.5),)),)))
    other = {"token": "b", "logprob": -1.5, "bytes": [98]}
    assert line["logprobs"] == [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [other]}]


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        (0, ""), (999, "999"), (1_500, "2K"), (134_515_008, "134.52M"), (999_000_000, "999.00M"),
        (8_030_261_248, "8.0B"), (1_235_814_400, "1.2B"), (671_000_000_000, "671.0B"),
    ],
)  # fmt: skip
def test_the_size_of_a_model_as_ollama_writes_it(parameters: int, size: str) -> None:
    model = ServedModel("tiny", True, parameters=parameters)
    assert _card(model)["details"]["parameter_size"] == size


def test_the_card_of_a_model() -> None:
    card = _card(TINY)
    assert (card["name"], card["model"], card["size"]) == ("tiny", "tiny", 0)
    assert datetime.fromisoformat(card["modified_at"]).timestamp() == 1_700_000_000
    assert (card["details"]["family"], card["details"]["families"]) == ("owl", ["owl"])
    assert _card(ServedModel("known", True, file_bytes=5))["size"] == 5
    assert card["capabilities"] == []  # it is not loaded
    assert set(card["details"]) == {
        "parent_model", "format", "family", "families", "parameter_size", "quantization_level",
    }  # fmt: skip
    assert card["digest"] != _card(ServedModel("other"))["digest"]
