"""What a server can do is found by what it does: a server with everything, with little, strict ones."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.drain import drain
from engine.errors import Cancelled, RemoteError
from engine.remote.capabilities import Capabilities
from engine.remote.client import Client, RemoteModel
from engine.remote.parameters import PARAMETERS
from engine.remote.probe import probe
from engine.remote.provider import Provider
from tests.engine.remote.fake_server import Asked, FakeServer, Reply, events, json_reply, serving

pytestmark = pytest.mark.loopback
NAMES = tuple(each.name for each in PARAMETERS)


class Model:
    """Answers like a server whose abilities are set; `knows` are the parameters it checks."""

    def __init__(self, server: FakeServer) -> None:
        self.can: set[str] = set()
        self.knows: tuple[str, ...] = ()
        self.strict = False
        self.says_names = True
        self.limit = "max_tokens"
        self.efforts: tuple[str, ...] = ()
        server.routes |= {
            "/v1/chat/completions": self.chat, "/v1/completions": self.complete, "/tokenize": self.tokenize,
            "/v1/models": lambda asked: json_reply(
                {"data": [{"id": "m", "max_model_len": 2048, "owned_by": "fake"}, {"id": ""}, 7, {"id": "m"}]}
            ),
        }  # fmt: skip

    def refusal(self, body: dict[str, Any]) -> Reply | None:
        known = {*self.knows, "model", "messages", "stream", "stream_options", self.limit, "stop", "n",
                 "logprobs", "top_logprobs", "tools", "tool_choice", "response_format"}  # fmt: skip
        known |= {"reasoning_effort"} if self.efforts else set()
        wrong = [name for name in body if self.strict and name not in known]
        wrong += [name for name in self.knows if isinstance(body.get(name), dict) and body[name]]
        if self.efforts and body.get("reasoning_effort", self.efforts[0]) not in self.efforts:
            wrong.append("reasoning_effort")
        if "logprobs" in body and body.get("top_logprobs", 0) > 5:
            wrong.append("top_logprobs")
        if not wrong:
            return None
        said = f"bad: {', '.join(wrong)}" if self.says_names else "bad request"
        return json_reply({"error": {"message": said}}, 400)

    def chat(self, asked: Asked) -> Reply:
        body = asked.body
        if "no chat" in self.can:
            return json_reply({"error": {"message": "no template"}}, 400)
        if (found := self.refusal(body)) is not None:
            return found
        if body.get("stream"):
            return self.stream(body)
        text = self.text(body)
        prompt = 12 + sum(
            1 + 5 * (not self.continues(body)) for m in body["messages"] if m["role"] == "assistant"
        )
        message: dict[str, Any] = {"role": "assistant", "content": text}
        asked_to = body.get("chat_template_kwargs", {}).get("enable_thinking", True)
        if "switch adds to prompts" in self.can and not asked_to:
            prompt += 4
        if "switch ends thoughts" in self.can and asked_to:  # there is no room for more
            message |= {"reasoning_content": "hm", "content": ""}
        elif "tools" in body and "tools" in self.can:
            message["tool_calls"] = [{"function": {"name": "xyzzy", "arguments": "{}"}}]
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        if "stop" in body and "stop" in self.can and message["content"]:
            message["content"] = "On"
            choice |= {"finish_reason": "stop", "stop_reason": "e"}
        choices = [choice, {**choice, "index": 1}] if body.get("n") == 2 and "n" in self.can else [choice]
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": 1}
        if "hidden thoughts" in self.can and body.get("reasoning_effort") != "none":
            usage["completion_tokens_details"] = {"reasoning_tokens": 7}
        return json_reply({"choices": choices, "usage": usage})

    def continues(self, body: dict[str, Any]) -> bool:
        return "always" in self.can or ("flags" in self.can and bool(body.get("continue_final_message")))

    def text(self, body: dict[str, Any]) -> str:
        if "constrain" in self.can and "response_format" in body:
            return json.dumps({"answer": "xyzzy"})
        outputs = body.get("structured_outputs", {}) if "constrain" in self.can else {}
        return "xyzzy-42" if "regex" in outputs else "xyzzy" if "grammar" in outputs else "One, two, three"

    def stream(self, body: dict[str, Any]) -> Reply:
        logprobs = {"content": [{"token": "Hi", "logprob": -0.5, "top_logprobs": [
            {"token": f"t{i}", "logprob": -1.0} for i in range(body.get("top_logprobs", 0))]}]}  # fmt: skip
        delta = {"content": "Hi", **({"reasoning": "hm"} if "reason" in self.can else {})}
        own = logprobs if "logprobs" in self.can and "logprobs" in body else None
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop", "logprobs": own}]}
        usage = [{"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 1}}]
        return events(chunk, *(usage if "usage" in self.can else []), "[DONE]")

    def complete(self, asked: Asked) -> Reply:
        if "plain" not in self.can:
            return json_reply({}, 404)
        return json_reply({"choices": [{"index": 0, "text": "x", "finish_reason": "length"}]})

    def tokenize(self, asked: Asked) -> Reply:
        if "tokenize" not in self.can or "prompt" not in asked.body:
            return json_reply({}, 404)
        return json_reply({"count": len(asked.body["prompt"].split())})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as running:
        yield running


def found(server: FakeServer, said: list[str] | None = None) -> Capabilities:
    provider, stop = Provider("lab", "Lab", server.url), threading.Event()
    (model,) = Client(provider, "").models(stop)
    assert model == RemoteModel("m", 2048, "fake")
    result = drain(probe(provider, "", model, stop), (said if said is not None else []).append)
    assert result.probed > 0
    return replace(result, probed=0.0)


def test_a_server_with_everything(server: FakeServer) -> None:
    model, said = Model(server), list[str]()
    model.can = {
        "flags",
        "usage",
        "logprobs",
        "reason",
        "constrain",
        "n",
        "stop",
        "plain",
        "tokenize",
        "tools",
    }
    model.knows = ("temperature", "top_k", "min_p", "seed")
    assert found(server, said) == Capabilities(
        server="fake", context_length=2048, chat=True, completions=True, usage=True, finishes=True,
        top_logprobs=5, several=True, continues="flags", tokenize="vllm", reasoning="reasoning",
        schema="response_format",
        regex="structured_outputs.regex", grammar="structured_outputs.grammar", tools=True, stops=True,
        stop_reason=True, taken=("temperature", "seed", "top_k", "min_p"), pictures="no",
        pictures_why="it accepts requests with pictures, but does not read them",
    )  # fmt: skip
    assert len(said) >= 5
    assert len(server.asked) < 36


def test_a_server_that_accepts_everything_and_does_nothing(server: FakeServer) -> None:
    Model(server)
    result = found(server)
    assert result.pictures_why == "it accepts requests with pictures, but does not read them"
    assert replace(result, pictures_why="") == Capabilities(
        server="fake", context_length=2048, chat=True, finishes=True, pictures="no"
    )


def test_a_server_that_refuses_what_it_does_not_know(server: FakeServer) -> None:
    model = Model(server)
    model.strict, model.knows = True, ("temperature", "top_p", "seed")
    assert found(server).taken == ("temperature", "top_p", "seed")


def test_a_server_that_does_not_say_what_is_wrong(server: FakeServer) -> None:
    model = Model(server)
    model.says_names, model.knows = False, ("temperature", "min_p")
    assert found(server).taken == ("temperature", "min_p")


def test_parameters_that_a_server_lists(server: FakeServer) -> None:
    Model(server)
    server.routes["/props"] = lambda asked: json_reply(
        {"default_generation_settings": {"n_ctx": 512, "params": {"top_k": 40, "typical_p": 1.0, "other": 1}}}
    )
    result = found(server)
    assert (result.taken, result.context_length) == (("top_k", "typical_p"), 512)


def test_a_server_that_always_continues(server: FakeServer) -> None:
    Model(server).can = {"always"}
    assert found(server).continues == "always"


@pytest.mark.parametrize("way", ["switch adds to prompts", "switch ends thoughts"])
def test_a_template_that_switches_thinking(server: FakeServer, way: str) -> None:
    Model(server).can = {way, "constrain", "stop", "tools"}
    result = found(server)
    assert (result.thinking_by, result.thinking) == ("chat_template_kwargs", ("off", "on"))
    assert (result.schema, result.regex) == ("response_format", "structured_outputs.regex")
    assert (result.stops, result.tools) == (True, True)
    assert dict(result.rows())["Switch for thinking"] == "yes: off, on"
    assert Capabilities.from_json(json.loads(json.dumps(result.to_json()))) == result


@pytest.mark.parametrize("can", [{"hidden thoughts"}, {"reason"}])
def test_levels_of_effort(server: FakeServer, can: set[str]) -> None:
    """Where the model thinks: thoughts were seen, or their tokens are counted."""
    model = Model(server)
    model.can, model.efforts, model.strict = can, ("none", "low", "medium", "high"), True
    result = found(server)
    assert (result.thinking_by, result.thinking) == ("reasoning_effort", ("off", "low", "medium", "high"))


def test_an_effort_of_a_model_that_does_not_think(server: FakeServer) -> None:
    Model(server).efforts = ("none", "low", "medium", "high")
    result = found(server)
    assert (result.thinking_by, result.thinking) == ("", ())


def test_a_model_without_a_chat_template(server: FakeServer) -> None:
    Model(server).can = {"no chat", "plain"}
    result = found(server)
    assert (result.chat, result.completions) == (False, True)
    assert re.search("no chat template", result.notes[0])


def test_another_name_for_the_limit(server: FakeServer) -> None:
    model = Model(server)
    model.strict, model.limit = True, "max_completion_tokens"
    assert found(server).limit == "max_completion_tokens"


def test_a_wrong_key_ends_it_with_a_sentence(server: FakeServer) -> None:
    server.routes["/v1/chat/completions"] = lambda asked: json_reply({"error": "no"}, 401)
    provider = Provider("lab", "Lab", server.url)
    with pytest.raises(RemoteError, match="asks for a key: no"):
        drain(probe(provider, "", RemoteModel("m"), threading.Event()))
    assert len(server.asked) == 1
    with pytest.raises(RemoteError, match="nothing at this address"):
        Client(provider, "").models(threading.Event())


def test_it_can_be_stopped(server: FakeServer) -> None:
    server.routes["/v1/chat/completions"] = lambda asked: Reply(200, {}, (threading.Event(),))
    stop = threading.Event()
    steps = probe(Provider("lab", "Lab", server.url), "", RemoteModel("m"), stop)
    next(steps)
    stop.set()
    with pytest.raises(Cancelled):
        next(steps)
