"""What the settings and messages of LM Studio's SDKs become, and thoughts in their replies."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import CallPiece, Stats
from engine.server.failure import ApiError
from engine.server.fields import Fields
from engine.server.host import ServedModel
from engine.server.kept_files import KeptFiles
from engine.server.lm_studio.sockets.prediction import _Reply
from engine.server.lm_studio.sockets.settings import prediction_of
from engine.server.openai.chat import chat_call
from engine.server.replies import Called, Ended, Writer, Written
from engine.settings import ThinkingSettings
from engine.settings.thinking import OFF as OFF_LEVEL

MODEL = ServedModel("tiny", loaded=True, context_length=1024, thinking=(("<t>", "</t>"),))
HELLO = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]


def layer(*settings: tuple[str, Any], name: str = "apiOverride") -> dict[str, Any]:
    fields = [{"key": f"llm.prediction.{key}", "value": value} for key, value in settings]
    return {"layerName": name, "config": {"fields": fields}}


def prediction(*layers: Any, messages: Any = HELLO, **rest: Any) -> Any:
    stack = {"layers": [*layers]}
    fields = Fields({"history": {"messages": messages}, "predictionConfigStack": stack, **rest})
    return prediction_of(fields, KeptFiles())


def request(*settings: tuple[str, Any], messages: Any = HELLO) -> Any:
    return chat_call(prediction(layer(*settings), messages=messages).fields, MODEL, 1).requests[0]


def on(value: Any) -> dict[str, Any]:
    return {"checked": True, "value": value}


OFF = {"checked": False, "value": 0.125}


def test_settings_are_those_of_a_chat() -> None:
    found = request(
        ("temperature", 0.25), ("topKSampling", 7.0), ("topPSampling", on(0.5)), ("minPSampling", on(0.125)),
        ("repeatPenalty", on(1.25)), ("seed", on(5)), ("maxPredictedTokens", on(12)),
        ("stopStrings", ["a", "b"]),
        ("llama.frequencyPenalty", on(0.5)), ("llama.presencePenalty", on(0.75)),
        ("llama.xtcProbability", on(0.25)), ("llama.xtcThreshold", on(0.2)),
        ("llama.tailFreeSampling", on(0.5)), ("llama.locallyTypicalSampling", on(0.625)),
        ("llama.mirostatSampling", {"version": 2, "learningRate": 0.25, "targetEntropy": 4}),
        ("llama.logitBias", [[3, -1]]), ("reasoning.enableThinking", False),
    )  # fmt: skip
    sampler = found.sampler
    assert (sampler.temperature, sampler.top_k, sampler.top_p, sampler.min_p) == (0.25, 7, 0.5, 0.125)
    assert (sampler.repetition_penalty, sampler.seed) == (1.25, 5)
    assert (sampler.frequency_penalty, sampler.presence_penalty) == (0.5, 0.75)
    assert (sampler.xtc_probability, sampler.xtc_threshold) == (0.25, 0.2)
    assert (sampler.tail_free, sampler.typical) == (0.5, 0.625)
    assert (sampler.mirostat, sampler.mirostat_eta, sampler.mirostat_tau) == (True, 0.25, 4)
    assert (found.stops.max_tokens, found.stops.stop_strings) == (12, ("a", "b"))
    assert found.constraint.logit_bias == ("3 = -1.0",)
    assert found.thinking == ThinkingSettings(OFF_LEVEL)


def test_settings_that_are_switched_off_do_nothing() -> None:
    names = (
        "topPSampling", "minPSampling", "repeatPenalty", "seed", "maxPredictedTokens", "logProbs",
        "llama.frequencyPenalty", "llama.presencePenalty", "llama.xtcProbability", "llama.xtcThreshold",
        "llama.tailFreeSampling", "llama.locallyTypicalSampling",
    )  # fmt: skip
    for off in (OFF, on(False)):
        assert request(*((name, off) for name in names)) == request()
    model = ServedModel("tiny", True, 9, defaults=(("top_p", 0.25),))  # as its authors recommend
    fields = prediction(layer(("topPSampling", OFF))).fields
    assert chat_call(fields, model, 1).requests[0].sampler.top_p == 1.0


def test_later_layers_count_and_a_system_prompt_comes_first() -> None:
    found = prediction(layer(("temperature", 1)), layer(("temperature", 0.5), ("systemPrompt", "Be kind.")))
    assert found.fields.get("temperature") == 0.5
    assert [one["role"] for one in found.fields.get("messages")] == ["system", "user"]
    has_one = [{"role": "system", "content": [{"type": "text", "text": "Be."}]}, *HELLO]
    found = prediction(layer(("systemPrompt", "Be kind.")), messages=has_one)
    assert [one["content"] for one in found.fields.get("messages")] == ["Be.", "Hi"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("stopAtLimit", "stop"), ("truncateMiddle", "drop_oldest"), ("rollingWindow", "drop_oldest")],
)
def test_what_happens_when_the_context_is_full(policy: str, expected: str) -> None:
    assert prediction(layer(("contextOverflowPolicy", policy))).when_full == expected
    assert prediction(layer()).when_full == "stop"


def test_formats_and_tools() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert request(("structured", {"type": "json", "jsonSchema": schema})).constraint.format == "json_schema"
    assert request(("structured", {"type": "json"})).constraint.format == "json_schema"
    assert request(("structured", {"type": "none"})).constraint.format == "none"
    grammar = request(("structured", {"type": "gbnf", "gbnfGrammar": 'root ::= "a"'})).constraint
    assert (grammar.format, grammar.pattern) == ("grammar", 'root ::= "a"')
    tool = {"type": "function", "function": {"name": "count", "parameters": schema}}
    some = {"type": "toolArray", "tools": [tool]}
    assert (request(("tools", some)).tool_choice, len(request(("tools", some)).tools)) == ("auto", 1)
    assert request(("tools", {**some, "force": True})).tool_choice == "required"
    assert request(("tools", some), ("toolChoice", {"type": "generic", "mode": "none"})).tool_choice == "none"
    assert request(("tools", {"type": "none"})).tools == ()


def test_what_asks_for_nothing_is_let_through() -> None:
    quiet = (
        ("toolCallStopStrings", []), ("contextPrefill", []), ("speculativeDecoding.draftModel", ""),
        ("llama.cpuThreads", 4), ("speculativeDecoding.numDraftTokensExact", 2),
        ("toolNaming", "passThrough"),
        ("reasoning.parsing", {"enabled": True}), ("vision.userMaxImageDimensionPixels", on(1024)),
        ("reasoning.budgetTokens", OFF), ("temperature", None),
    )  # fmt: skip
    assert request(*quiet) == request()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("toolCallStopStrings", ["a"]), ("speculativeDecoding.draftModel", "small"), ("novelty", 3),
        ("reasoning.budgetTokens", on(5)), ("promptTemplate", {"type": "jinja"}), ("contextPrefill", [1]),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ApiError, match=rf"llm\.prediction\.{name} is not supported by this server"):
        prediction(layer((name, value)))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("temperature", "hot", 'llm.prediction.temperature is "hot"'),
        ("topPSampling", on(3), "llm.prediction.topPSampling is 3"),
        ("maxPredictedTokens", 4, "llm.prediction.maxPredictedTokens is 4, but an object"),
        ("contextOverflowPolicy", "burst", "llm.prediction.contextOverflowPolicy must be one of stopAtLimit"),
        ("structured", {"type": "xml"}, "llm.prediction.structured.type is"),
    ],
)
def test_a_wrong_value_is_named_as_the_client_named_it(name: str, value: Any, said: str) -> None:
    with pytest.raises(ApiError) as error:
        request((name, value))
    assert said in str(error.value)


def test_a_prediction_without_messages_is_refused() -> None:
    with pytest.raises(ApiError, match="history"):
        prediction_of(Fields({"predictionConfigStack": {"layers": []}}), KeptFiles())


def test_a_preset_is_refused() -> None:
    with pytest.raises(ApiError, match="Presets are not supported"):
        prediction(layer(), fuzzyPresetIdentifier="poet")


def test_calls_and_results_of_tools_keep_their_places() -> None:
    call = {"type": "function", "id": "c1", "name": "count", "arguments": {"n": 3}}
    results = [
        {"type": "toolCallResult", "content": "3", "toolCallId": "c1"},
        {"type": "toolCallResult", "content": "4", "toolCallId": "c2", "name": "count"},
    ]
    said = [{"type": "text", "text": "I "}, {"type": "text", "text": "count."}]
    calls = [{"type": "toolCallRequest", "toolCallRequest": call}]
    messages = [*HELLO, {"role": "assistant", "content": said + calls}, {"role": "tool", "content": results}]
    found = request(messages=messages).messages
    assert [one.role for one in found] == ["user", "assistant", "tool", "tool"]
    assert found[1].content == "I count."
    assert [(one.id, one.name, one.arguments) for one in found[1].tool_calls] == [("c1", "count", '{"n": 3}')]
    assert [(one.content, one.tool_call_id, one.name) for one in found[2:]] == [
        ("3", "c1", ""),
        ("4", "c2", "count"),
    ]


def test_files_that_are_no_pictures_are_refused_and_forgotten_pictures_reported() -> None:
    picture = {"type": "file", "name": "a.png", "identifier": "x", "sizeBytes": 3, "fileType": "image"}
    with pytest.raises(ApiError, match=r"The file 'a\.png' is no longer kept by the server; upload it again"):
        prediction(layer(), messages=[{"role": "user", "content": [picture]}])
    with pytest.raises(ApiError, match="text and pictures only; files cannot be sent"):
        prediction(layer(), messages=[{"role": "user", "content": [{**picture, "fileType": "text/plain"}]}])


def test_thoughts_stand_in_the_models_tags() -> None:
    reply = _Reply(MODEL, prediction(layer()), Writer(MODEL.thinking), with_scores=False)
    events = (
        Written("<t>I ", 2),
        Written("think", 1),
        Written("</t>\n\nYes", 4),
        Ended("stop_token", "", Stats()),
    )
    packets = [packet for event in events for packet in reply.feed(event)]
    found = [(one["fragment"]["content"], one["fragment"]["reasoningType"]) for one in packets]
    assert "".join(text for text, _ in found) == "<t>I think</t>Yes"
    kinds = [*dict.fromkeys(kind for _, kind in found)]
    assert kinds == ["reasoningStartTag", "reasoning", "reasoningEndTag", "none"]
    assert sum(one["fragment"]["tokensCount"] for one in packets) == 7
    assert reply.success()["stats"]["stopReason"] == "eosFound"


def test_a_thought_that_is_cut_ends_with_its_tag() -> None:
    reply = _Reply(MODEL, prediction(layer()), Writer(MODEL.thinking), with_scores=False)
    events = (Written("<t>I think", 3), Ended("max_tokens", "", Stats()))
    packets = [packet for event in events for packet in reply.feed(event)]
    assert packets[-1]["fragment"]["reasoningType"] == "reasoningEndTag"


def test_a_call_that_is_cut_has_failed_and_others_stand() -> None:
    reply = _Reply(MODEL, prediction(layer()), Writer(MODEL.thinking), with_scores=False)
    pieces = (
        CallPiece(0, "c1", "now", ""), CallPiece(1, "c2", "count", '{"n'), CallPiece(1, arguments='": 3}'),
        CallPiece(2, "c3", "count", '{"n": '),
    )  # fmt: skip
    events = (*(Called(piece) for piece in pieces), Ended("max_tokens", "", Stats()))
    packets = [packet for event in events for packet in reply.feed(event)]
    ends = [one for one in packets if one["type"] in ("toolCallGenerationEnd", "toolCallGenerationFailed")]
    requests = [one["toolCallRequest"] for one in ends if "toolCallRequest" in one]
    assert [(one["id"], one["name"], one["arguments"]) for one in requests] == [
        ("c1", "now", {}), ("c2", "count", {"n": 3}),
    ]  # fmt: skip
    assert ends[-1]["error"]["title"] == "The call of count is incomplete: its arguments are no JSON object."
    assert reply.success()["stats"]["stopReason"] == "maxPredictedTokensReached"
