"""A real server: what was probed is what happens. See README.md for how to start one."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace

import pytest

from engine.core import CallPiece, ChatEvent, ChatRequest, Done, Message, Text, Tool
from engine.drain import drain
from engine.errors import BadSetting, RemoteError
from engine.remote.capabilities import Capabilities
from engine.remote.chat import RemoteChat
from engine.remote.client import Client
from engine.remote.probe import probe
from engine.remote.provider import Provider
from engine.remote.tokens import UNKNOWN_ID
from engine.settings import ConstraintSettings, SamplerSettings, StopSettings, ThinkingSettings
from engine.settings.thinking import OFF
from engine.text.template.reasoning import PLAIN_TAG

URL, KEY = os.environ.get("INGLENOOK_REMOTE_URL", ""), os.environ.get("INGLENOOK_REMOTE_KEY", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.loopback,
    pytest.mark.skipif(not URL, reason="no live server: see tests/remote/README.md"),
]
COUNT = (Message("user", "Count from one to twenty in words, with commas."),)
GREEDY = SamplerSettings(temperature=0.0)
SHORT = StopSettings(max_tokens=24)


@pytest.fixture(scope="module")
def known() -> dict[str, Capabilities]:
    """What was found, by model; filled by the first test."""
    return {}


@pytest.fixture
def chat(known: dict[str, Capabilities]) -> RemoteChat:
    provider, stop = Provider("live", "Live", URL), threading.Event()
    model = Client(provider, KEY).models(stop)[0]
    if model.name not in known:
        known[model.name] = drain(probe(provider, KEY, model, stop))
    return RemoteChat(provider, model.name, known[model.name], KEY)


def said(chat: RemoteChat, request: ChatRequest, thinking: str = OFF) -> tuple[str, Done, list[ChatEvent]]:
    """The reply, its end and its events; without a thought, where the server can be told so."""
    request = replace(request, thinking=ThinkingSettings(thinking))
    found = list(chat.stream(request, threading.Event()))
    done = found[-1]
    assert isinstance(done, Done)
    return "".join(event.text for event in found if isinstance(event, Text)), done, found


def test_a_reply(chat: RemoteChat) -> None:
    text, done, found = said(chat, ChatRequest(COUNT, sampler=GREEDY, stops=SHORT))
    assert text.strip()
    assert done.reason in ("max_tokens", "stop_token")  # a small model may end early
    assert 1 <= done.stats.new_tokens <= 24
    assert done.stats.prompt_tokens > 0
    tokens = [token for event in found if isinstance(event, Text) for token in event.tokens]
    assert "".join(token.text for token in tokens) == text
    likely = [token for token in tokens if token.id != UNKNOWN_ID]
    assert bool(likely) == bool(chat.capabilities.top_logprobs)
    assert all(0 < token.raw_probability <= 1 for token in likely)
    if chat.capabilities.top_logprobs > 0:
        assert any(len(token.alternatives) > 1 for token in likely)


def test_stop_conditions(chat: RemoteChat) -> None:
    whole, _, _ = said(chat, ChatRequest(COUNT, sampler=GREEDY, stops=SHORT))
    end = whole[6:9]
    for stops in (
        StopSettings(max_tokens=24, stop_strings=(end,)),
        StopSettings(max_tokens=24, stop_strings=(end, "\u2400a", "\u2400b", "\u2400c", "\u2400d")),
    ):
        text, done, _ = said(chat, ChatRequest(COUNT, sampler=GREEDY, stops=stops))
        assert (text, done.reason, done.trigger) == (whole[: whole.index(end)], "stop_string", end)
    text, done, _ = said(
        chat, ChatRequest(COUNT, sampler=GREEDY, stops=StopSettings(max_tokens=24, stop_regex=r"\w{3,}"))
    )
    assert done.reason == "stop_regex"
    assert text + done.trigger == whole[: len(text + done.trigger)]


def test_continuing(chat: RemoteChat) -> None:
    begun = (*COUNT, Message("assistant", "One, two, three,"))
    request = ChatRequest(begun, sampler=GREEDY, stops=SHORT, continue_last=True)
    if not chat.capabilities.continues:
        with pytest.raises(BadSetting, match="starts a new reply"):
            said(chat, request)
        return
    assert said(chat, request)[0].lstrip().startswith("four")


def test_thinking_is_switched(chat: RemoteChat) -> None:
    """A thought comes first, between the tags that the window folds, or there is none."""
    if not chat.capabilities.thinking:
        pytest.skip("the server has no switch for this model's thinking")
    request = ChatRequest(COUNT, sampler=GREEDY, stops=StopSettings(max_tokens=64))
    thought, answer = said(chat, request, chat.capabilities.thinking[-1])[0], said(chat, request)[0]
    opening, closing = PLAIN_TAG
    assert thought.startswith(opening)
    assert thought.partition(closing)[0].removeprefix(opening).strip()
    assert answer.strip()
    assert opening not in answer
    assert closing not in answer


def test_constraints(chat: RemoteChat) -> None:
    for format, pattern, able, expected in (
        ("json_schema", '{"type": "object", "properties": {"a": {"const": "zq"}}, "required": ["a"], '
         '"additionalProperties": false}', chat.capabilities.schema, '{"a":"zq"}'),
        ("regex", "zq{3}", chat.capabilities.regex, "zqqq"),
        ("choices", "alpha\nalpha", chat.capabilities.regex, "alpha"),
        ("grammar", 'start: "zqq"', chat.capabilities.grammar, "zqq"),
    ):  # fmt: skip
        request = ChatRequest(
            COUNT, sampler=GREEDY, stops=SHORT, constraint=ConstraintSettings(format=format, pattern=pattern)
        )
        if able:
            assert "".join(said(chat, request)[0].split()) == expected
        else:
            with pytest.raises(BadSetting, match="cannot constrain replies to"):
                said(chat, request)


def test_stopping_and_asking_again(chat: RemoteChat) -> None:
    for _ in range(3):
        stop, found = threading.Event(), list[ChatEvent]()
        for event in chat.stream(ChatRequest(COUNT, stops=StopSettings(max_tokens=1000)), stop):
            found.append(event)
            if isinstance(event, Text):
                stop.set()
        assert isinstance(found[-1], Done)
        assert found[-1].reason == "cancelled"
    assert said(chat, ChatRequest(COUNT, sampler=GREEDY, stops=SHORT))[0].strip()


def test_two_at_once(chat: RemoteChat) -> None:
    """Each is complete, or says that it is not: llama-cpp-python breaks one off for the other."""
    request = ChatRequest(COUNT, sampler=GREEDY, stops=SHORT)
    streams = {place: chat.stream(request, threading.Event()) for place in range(2)}
    texts, broken = dict.fromkeys(streams, ""), dict[int, str]()
    while streams:
        for place, stream in tuple(streams.items()):
            try:
                event = next(stream, None)
            except RemoteError as error:
                broken[place], event = str(error), None
            if event is None:
                del streams[place]
            elif isinstance(event, Text):
                texts[place] += event.text
    assert len(broken) < 2
    assert all("was lost" in each or "without an answer" in each for each in broken.values())
    assert broken or texts[0] == texts[1]
    assert any(text.strip() for text in texts.values())


def test_a_tool_that_must_be_called(chat: RemoteChat) -> None:
    schema = (
        '{"type": "object", "properties": {"to": {"type": "string", "enum": ["all"]}}, "required": ["to"]}'
    )
    request = ChatRequest(
        COUNT, sampler=GREEDY, stops=StopSettings(max_tokens=64),
        tools=(Tool("greet", "Says hello.", schema),), tool_choice="greet",
    )  # fmt: skip
    if not chat.capabilities.tools:
        with pytest.raises(BadSetting, match="does not call tools"):
            said(chat, request)
        return
    pieces = [event for event in said(chat, request)[2] if isinstance(event, CallPiece)]
    assert (pieces[0].index, pieces[0].name) == (0, "greet")
    assert pieces[0].id
    assert {piece.name for piece in pieces[1:]} <= {""}
    assert json.loads("".join(piece.arguments for piece in pieces)) == {"to": "all"}


def test_plain_text(chat: RemoteChat) -> None:
    request = ChatRequest((Message("user", "Once upon a"),), sampler=GREEDY, stops=SHORT, plain=True)
    if chat.capabilities.completions:
        assert said(chat, request)[0].strip()
    else:
        with pytest.raises(BadSetting, match="which a notebook needs"):
            said(chat, request)


def test_an_unknown_model(chat: RemoteChat) -> None:
    """Some servers answer with the model that they have; the others say that there is no such model."""
    other = RemoteChat(chat.provider, "no-such-model", chat.capabilities, KEY)
    sentence = ""
    try:
        text, _, _ = said(other, ChatRequest(COUNT, stops=SHORT))
    except RemoteError as error:
        text, sentence = "", str(error)
    assert text.strip() or "no-such-model" in sentence


def test_a_wrong_key(chat: RemoteChat) -> None:
    if not KEY:
        pytest.skip("the server has no key")
    other = RemoteChat(chat.provider, chat.model, chat.capabilities, "wrong-key")
    with pytest.raises(RemoteError, match="does not accept the key"):
        said(other, ChatRequest(COUNT, stops=SHORT))
