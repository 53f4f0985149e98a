"""The calls and channels of LM Studio's WebSocket API, beside what the other APIs answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.server.lm_studio.wire import ANY, BRIEF, Refused, Wire, asked, layers, setting, words
from tests.engine.server.served import NUMBERS, Gate, Served, ask, break_third_pass

pytestmark = pytest.mark.loopback
KIND = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello there"}]


def text_of(packets: list[Any]) -> str:
    return "".join(packet["fragment"]["content"] for packet in packets if packet["type"] == "fragment")


def plain(served: Served, path: str = "/v1/chat/completions", **fields: Any) -> Any:
    body = {"messages": KIND, "max_tokens": 8, "temperature": 0}
    return ask(served, path, {**body, **fields}).json["choices"][0]


def test_models_are_listed_and_described(served: Served) -> None:
    with Wire(served, "system") as wire:
        listed = wire.call("listDownloadedModels")
        assert [(one["type"], one["modelKey"]) for one in listed] == [("llm", "tiny"), ("llm", "other")]
        assert wire.call("version")["build"] == 1
    with Wire(served) as wire:
        info = wire.call("getModelInfo", {"specifier": ANY, "throwIfNotFound": True})
        assert (info["identifier"], info["contextLength"], info["architecture"]) == (
            "tiny",
            1024,
            "LlamaForCausalLM",
        )
        named = {"type": "query", "query": {"identifier": "tiny"}}
        reference = {"type": "instanceReference", "instanceReference": info["instanceReference"]}
        for specifier in (named, reference):
            assert wire.call("getModelInfo", {"specifier": specifier, "throwIfNotFound": True}) == info
        config = wire.call("getLoadConfig", {"specifier": ANY})
        assert config == {"fields": [{"key": "llm.load.contextLength", "value": 1024}]}
        absent = {"specifier": {"type": "query", "query": {"identifier": "none"}}}
        assert wire.call("getModelInfo", {**absent, "throwIfNotFound": False}) is None
        error = wire.call("getModelInfo", {**absent, "throwIfNotFound": True})["error"]
        assert error["title"] == "No loaded model is named 'none'; the loaded model is 'tiny'."
        assert error["displayData"] == {
            "code": "generic.noModelMatchingQuery", "query": {"identifier": "none"},
            "loadedModelsSample": ["tiny"], "totalLoadedModels": 1,
        }  # fmt: skip
        assert wire.call("getBasePredictionConfig", {"specifier": ANY}) == {"fields": []}
        for wrong, name in ((None, "specifier"), ({"type": "name"}, "specifier.type")):
            assert name in wire.call("getBasePredictionConfig", {"specifier": wrong})["error"]["title"]
        pictures = {"specifier": {"type": "query", "query": {"vision": True}}, "throwIfNotFound": True}
        assert "pictures" in wire.call("getModelInfo", pictures)["error"]["title"]


def test_a_prediction_is_the_reply_of_a_chat_in_fragments(served: Served) -> None:
    with Wire(served) as wire:
        packets = wire.packets("predict", asked(*BRIEF))
    kinds = [*dict.fromkeys(packet["type"] for packet in packets)]
    assert kinds == ["promptProcessingProgress", "fragment", "success"]
    assert text_of(packets) == plain(served)["message"]["content"]
    progress = [packet for packet in packets if packet["type"] == "promptProcessingProgress"]
    assert progress[-1]["progress"] == 1
    details = progress[-1]["details"]
    assert details["unprocessedPromptTokenCount"] == 0
    assert sum(details.values()) == 2 * details["totalPromptTokenCount"]
    fragments = [packet["fragment"] for packet in packets if packet["type"] == "fragment"]
    assert {one["reasoningType"] for one in fragments} == {"none"}
    assert 0 < sum(one["tokensCount"] for one in fragments) <= 8  # the last may have no text
    success = packets[-1]
    assert success["modelInfo"]["identifier"] == "tiny"
    assert success["predictionConfig"]["fields"] == [*BRIEF]
    stats = success["stats"]
    assert stats["stopReason"] == "maxPredictedTokensReached"
    assert (stats["predictedTokensCount"], stats["promptTokensCount"]) == (
        8,
        details["totalPromptTokenCount"],
    )
    assert stats["totalTokensCount"] == 8 + stats["promptTokensCount"]
    assert stats["tokensPerSecond"] > 0
    assert "stopString" not in stats


def test_a_text_goes_on_from_a_prompt(served: Served) -> None:
    text = plain(served, "/v1/completions", prompt="Hello there")["text"]
    complete = layers(*BRIEF)
    complete["layers"] += layers(setting("promptTemplate", {"type": "jinja"}), name="completeModeFormatting")[
        "layers"
    ]
    one = asked(messages=[words("user", "Hello there")])
    with Wire(served) as wire:
        assert text_of(wire.packets("predict", {**one, "predictionConfigStack": complete})) == text
        raw = {"modelSpecifier": ANY, "rawPrompt": "Hello there", "predictionConfigStack": layers(*BRIEF)}
        assert text_of(wire.packets("completeRawText", raw)) == text


def test_a_stop_string_and_a_format_end_a_prediction(served: Served) -> None:
    text = plain(served)["message"]["content"]
    stop = next(letter for letter in text if letter.isascii() and letter.isprintable())
    schema = {"type": "json", "jsonSchema": NUMBERS}
    with Wire(served) as wire:
        packets = wire.packets("predict", asked(*BRIEF, setting("stopStrings", [stop])))
        assert text_of(packets) == text[: text.index(stop)]
        assert (packets[-1]["stats"]["stopReason"], packets[-1]["stats"]["stopString"]) == (
            "stopStringFound",
            stop,
        )
        packets = wire.packets("predict", asked(setting("temperature", 0), setting("structured", schema)))
        assert 0 <= json.loads(text_of(packets))["n"] <= 99


def test_tokens_come_with_their_log_probabilities(served: Served) -> None:
    wanted = setting("logProbs", {"checked": True, "value": 2})
    with Wire(served) as wire:
        packets = wire.packets("predict", asked(*BRIEF, wanted))
    found = [
        token for packet in packets if packet["type"] == "fragment" for token in packet["fragment"]["tokens"]
    ]
    scores = plain(served, logprobs=True, top_logprobs=2)["logprobs"]["content"]
    assert [(one["text"], one["logProb"]) for one in found] == [
        (one["token"], one["logprob"]) for one in scores
    ]
    assert [[two["text"] for two in one["candidates"]] for one in found] == [
        [two["token"] for two in one["top_logprobs"]] for one in scores
    ]


def test_a_call_of_a_tool_is_reported_as_it_is_written(served: Served) -> None:
    tool = {
        "type": "function",
        "function": {"name": "count", "description": "Counts.", "parameters": NUMBERS},
    }
    tools = setting("tools", {"type": "toolArray", "tools": [tool], "force": True})
    with Wire(served) as wire:
        packets = wire.packets("predict", asked(setting("temperature", 0), tools))
        kinds = [*dict.fromkeys(packet["type"].removeprefix("toolCallGeneration") for packet in packets)]
        assert kinds == [
            "promptProcessingProgress", "Start", "NameReceived", "ArgumentFragmentGenerated", "End",
            "success",
        ]  # fmt: skip
        end = packets[-2]
        request = end["toolCallRequest"]
        assert (request["type"], request["name"]) == ("function", "count")
        assert 0 <= request["arguments"]["n"] <= 99
        pieces = [packet.get("content", "") for packet in packets if "Argument" in packet["type"]]
        assert "".join(pieces) == end["rawContent"]
        assert packets[-1]["stats"]["stopReason"] == "toolCalls"
        assert request["id"]


def test_a_cancelled_prediction_ends_with_what_has_been_written(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(served.chat, monkeypatch)
    with Wire(served) as wire:
        channel = wire.open("predict", asked(setting("temperature", 0)))
        packets = []
        gate.let(4)
        while not any(packet["type"] == "fragment" for packet in packets):
            packets.append(wire.packet(channel))
        wire.send({"type": "channelSend", "channelId": channel, "message": {"type": "cancel"}, "ackId": 7})
        while (message := wire.receive())["type"] != "channelAck":
            packets.append(message["message"])
        assert (message["channelId"], message["ackId"]) == (channel, 7)
        gate.open()
        while packets[-1]["type"] != "success":
            packets.append(wire.packet(channel))
        assert packets[-1]["stats"]["stopReason"] == "userStopped"
        assert wire.receive() == {"type": "channelClose", "channelId": channel}
    assert served.idle()


def test_other_packets_of_a_client_end_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(served.chat, monkeypatch)
    with Wire(served) as wire:
        channel = wire.open("predict", asked(*BRIEF))
        gate.let(4)
        while wire.packet(channel)["type"] != "fragment":
            pass
        for number, sent in (
            (channel, {"type": "toolCallResult"}), (channel, {}), (channel, None),
            (channel + 1, {"type": "cancel"}),
        ):  # fmt: skip
            wire.send({"type": "channelSend", "channelId": number, "message": sent})
        gate.open()
        while (packet := wire.packet(channel))["type"] != "success":
            pass
        assert packet["stats"]["stopReason"] == "maxPredictedTokensReached"
    assert served.idle()


def test_a_failure_in_mid_reply_is_an_error_of_its_channel(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Wire(served) as wire:
        with monkeypatch.context() as patched:
            break_third_pass(served, patched)
            packets = wire.packets("predict", asked(*BRIEF))
        assert "Something went wrong in the server (ValueError)" in packets[-1]["error"]["title"]
        assert text_of(wire.packets("predict", asked(*BRIEF))) == plain(served)["message"]["content"]


def test_texts_are_counted_embedded_and_rendered(served: Served) -> None:
    text = {"specifier": ANY, "inputString": "Hello there"}
    ids = ask(served, "/tokenize", {"content": "Hello there"}).json["tokens"]
    messages = [words("system", "Be kind."), words("user", "Hi")]
    with Wire(served) as wire:
        assert wire.call("tokenize", text) == {"tokens": ids}
        assert wire.call("countTokens", text) == {"tokenCount": len(ids)}
        template = {
            "specifier": ANY,
            "history": {"messages": messages},
            "predictionConfigStack": {"layers": []},
        }
        sent = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
        prompt = ask(served, "/apply-template", {"messages": sent}).json["prompt"]
        assert wire.call("applyPromptTemplate", {**template, "opts": {}}) == {"formatted": prompt}
        bare = wire.call("applyPromptTemplate", {**template, "opts": {"omitBosToken": True}})["formatted"]
        bos = ask(served, "/tokenizer_info").json["bos_token"]
        assert bare == prompt.removeprefix(bos)
        assert "is missing" in wire.call("tokenize", {"specifier": ANY})["error"]["title"]
    with Wire(served, "embedding") as wire:
        assert wire.call("listLoaded") == []
        vector = wire.call("embedString", {"modelSpecifier": ANY, "inputString": "Hello there"})["embedding"]
        assert vector == ask(served, "/v1/embeddings", {"input": "Hello there"}).json["data"][0]["embedding"]
        assert "is missing" in wire.call("embedString", {"modelSpecifier": ANY})["error"]["title"]
        config = wire.call("getLoadConfig", {"specifier": ANY})
        assert config["fields"][0]["key"] == "embedding.load.contextLength"


def test_a_model_is_loaded_with_progress_and_unloaded(tiny_folder: Path) -> None:
    served = Served(tiny_folder)
    stack = {"loadConfigStack": {"layers": []}}
    try:
        with Wire(served) as wire:
            packets = wire.packets("getOrLoad", {"identifier": "tiny", **stack})
            assert [(one["type"], one["info"]["identifier"]) for one in packets] == [
                ("alreadyLoaded", "tiny")
            ]
            packets = wire.packets("getOrLoad", {"identifier": "other", **stack})
            kinds = [*dict.fromkeys(packet["type"] for packet in packets)]
            assert kinds == ["startLoading", "loadProgress", "loadSuccess"]
            done = [packet["progress"] for packet in packets if packet["type"] == "loadProgress"]
            assert done == sorted({*done})
            assert 0 < done[0] <= done[-1] <= 1
            assert packets[-1]["info"]["identifier"] == "other"
            packets = wire.packets("loadModel", {"modelKey": "tiny", **stack})
            assert packets[0]["type"] == "resolved"
            assert (packets[-1]["type"], packets[-1]["info"]["identifier"]) == ("success", "tiny")
            assert "displayData" in wire.call("unloadModel", {"identifier": "other"})["error"]
            assert wire.call("unloadModel", {"identifier": "tiny"}) is None
            assert wire.call("listLoaded") == []
            packets = wire.packets("predict", asked(*BRIEF))
            assert packets[0]["error"]["title"] == "No model is loaded."
    finally:
        served.close()


def test_what_loading_cannot_do_is_refused_by_name(served: Served) -> None:
    fields = {"key": "llm.load.contextLength", "value": 9}
    with Wire(served) as wire:
        for channel, parameter, begin in (
            (
                "loadModel",
                {"modelKey": "tiny", "loadConfigStack": layers(fields)},
                "llm.load.contextLength cannot",
            ),
            (
                "loadModel",
                {"modelKey": "tiny", "identifier": "a"},
                "A loaded model has the name of the model",
            ),
            ("loadModel", {"modelKey": "none"}, "No loaded model is named 'none'"),
            ("getOrLoad", {"identifier": "none"}, "No loaded model is named 'none'"),
        ):
            assert wire.packets(channel, parameter)[-1]["error"]["title"].startswith(begin)
        loaded = {"identifier": "tiny", "loadConfigStack": layers(fields)}
        assert wire.packets("getOrLoad", loaded)[0]["type"] == "alreadyLoaded"  # as in LM Studio


def test_what_other_namespaces_cannot_do_is_refused_by_name(served: Served) -> None:
    with Wire(served, "files") as wire:
        error = wire.call("uploadFileBase64", {"name": "a.png", "contentBase64": "aGk="})["error"]
        assert "text only" in error["title"]
    with Wire(served, "repository") as wire:
        assert "searchModels" in wire.call("searchModels", {"opts": {"searchTerm": "a"}})["error"]["title"]
    with pytest.raises(Refused) as refused:
        Wire(served, "nowhere")
    assert refused.value.status == 404
