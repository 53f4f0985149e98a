"""What goes wrong with a server: each fault has a sentence, what came is kept, nothing is left running."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.core import (
    CallPiece,
    ChatEvent,
    ChatRequest,
    Done,
    Loading,
    Message,
    Running,
    Text,
    Trimmed,
    Waiting,
)
from engine.errors import BadSetting, ContextTooLong, EngineError, RemoteError
from engine.remote import reply as reply_module
from engine.remote.capabilities import Capabilities
from engine.remote.chat import RemoteChat
from engine.remote.client import Client
from engine.remote.provider import Provider
from engine.settings import StopSettings
from tests.engine.remote.fake_server import Asked, FakeServer, Gone, Reply, events, json_reply, serving

pytestmark = pytest.mark.loopback
CHAT = "/v1/chat/completions"
KNOWN = Capabilities(chat=True, completions=True, usage=True)
KEY = "sk-secret-key"
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def says(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as running:
        yield running


def chat_of(server: FakeServer, known: Capabilities = KNOWN, **fields: Any) -> RemoteChat:
    return RemoteChat(Provider("lab", "Lab", server.url, **fields), "m", known, KEY)


def asking(text: str = "Hi", **more: Any) -> ChatRequest:
    return ChatRequest((Message("user", text),), **more)


def sentence_of(server: FakeServer, request: ChatRequest | None = None) -> tuple[str, str]:
    """The text that came, and the sentence of the error."""
    found: list[ChatEvent] = []
    with pytest.raises(EngineError) as caught:
        found.extend(chat_of(server).stream(request or asking(), threading.Event()))
    assert KEY not in str(caught.value)
    return "".join(e.text for e in found if isinstance(e, Text)), str(caught.value)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    chat = RemoteChat(Provider("lab", "Lab", f"http://127.0.0.1:{port}"), "m", KNOWN)
    with pytest.raises(RemoteError, match=r"refused the connection: no server is running there; start it\."):
        list(chat.stream(asking(), threading.Event()))


def test_a_server_without_tls(server: FakeServer) -> None:
    provider = Provider("lab", "Lab", server.url.replace("http:", "https:"))
    with pytest.raises(RemoteError, match="does not speak TLS as expected"):
        list(RemoteChat(provider, "m", KNOWN).stream(asking(), threading.Event()))


ANSWERS = (
    (
        json_reply({"error": {"message": f"Incorrect key {KEY}"}}, 401),
        "does not accept the key: Incorrect key [key]",
    ),
    (json_reply({"detail": "Forbidden"}, 403), "does not accept the key: Forbidden"),
    (json_reply({"message": "The model `m` does not exist."}, 404), "has no model “m”"),
    (json_reply({}, 404), "has nothing at this address. Check it"),
    (json_reply({"error": "pay first"}, 402), "asks for payment: pay first"),
    (json_reply({"error": {"message": "slow down"}}, 429), "requests: slow down. Try again later."),
    (json_reply({}, 429, retry_after="3600"), "Try again in 60 min."),
    (json_reply({"error": {"message": "boom"}}, 500), "reports an error (status 500): boom"),
    (json_reply({"error": {"message": "upstream"}}, 503), "reports an error (status 503): upstream"),
    (json_reply({"detail": [{"loc": ["body", "top_k"], "msg": "big"}]}, 422), "(status 422): top_k: big"),
    (json_reply({"choices": []}), "something that is not a reply"),
    (json_reply("hello"), "something that is not a reply"),
    (Reply(200, {"content-type": "text/html"}, (b"<html>Welcome</html>",)), "sent a web page"),
    (Reply(502, {"content-type": "text/html"}, (b"<html>Bad</html>",)), "reports an error (status 502). Try"),
)


@pytest.mark.parametrize(("answer", "words"), ANSWERS)
def test_answers_that_are_no_reply(server: FakeServer, answer: Reply, words: str) -> None:
    server.routes[CHAT] = lambda asked: answer
    text, sentence = sentence_of(server)
    assert text == ""
    assert words in sentence
    assert sentence.startswith(f"Lab (127.0.0.1:{server.port}) ")
    assert len(server.asked) == 1


def test_a_conversation_that_is_too_long(server: FakeServer) -> None:
    said = "This model's maximum context length is 2048 tokens."
    server.routes[CHAT] = lambda asked: json_reply({"error": {"message": said}}, 400)
    with pytest.raises(ContextTooLong, match="maximum context length is 2048 tokens"):
        list(chat_of(server).stream(asking(), threading.Event()))


def test_the_key_is_not_sent_on(server: FakeServer) -> None:
    with serving() as other:
        target = f"http://localhost:{other.port}{CHAT}"
        server.routes[CHAT] = lambda asked: Reply(307, {"location": target, "content-length": "0"})
        other.routes[CHAT] = lambda asked: events(says("stolen"), END)
        text, sentence = sentence_of(server)
        assert text == ""
        assert f"redirects requests to {target}, and the key is not sent to another address" in sentence
        assert other.asked == []


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_on_the_same_host_is_followed(server: FakeServer, status: int) -> None:
    server.routes[CHAT] = lambda asked: Reply(status, {"location": f"{CHAT}/", "content-length": "0"})
    server.routes[f"{CHAT}/"] = lambda asked: events(says("Hi"), END, "[DONE]")
    found = list(chat_of(server).stream(asking(), threading.Event()))
    assert [e.text for e in found if isinstance(e, Text)] == ["Hi"]
    assert [asked.headers["authorization"] for asked in server.asked] == [f"Bearer {KEY}"] * 2
    server.routes[f"{CHAT}/"] = server.routes[CHAT]
    assert "itself repeatedly" in sentence_of(server)[1]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_list_of_models_elsewhere_on_the_same_host(server: FakeServer, status: int) -> None:
    moved = Reply(status, {"location": "/v1/models/", "content-length": "0"})
    server.routes["/v1/models"] = lambda asked: moved
    server.routes["/v1/models/"] = lambda asked: json_reply({"data": [{"id": "m"}]})
    found = Client(Provider("lab", "Lab", server.url), KEY).models(threading.Event())
    assert [model.name for model in found] == ["m"]
    assert [asked.method for asked in server.asked] == ["GET"] * 2


def test_a_post_is_not_made_a_get(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: Reply(302, {"location": "/elsewhere", "content-length": "0"})
    assert "redirects requests to" in sentence_of(server)[1]
    assert [asked.method for asked in server.asked] == ["POST"]


@pytest.mark.parametrize("chunked", [True, False])
def test_a_cut_stream(server: FakeServer, chunked: bool) -> None:
    server.routes[CHAT] = lambda asked: events(says("One"), says(" two"), chunked=chunked, complete=False)
    text, sentence = sentence_of(server)
    assert text == "One two"
    assert "was lost before the reply was complete. The text received so far is kept" in sentence


def test_what_was_held_back_for_a_stop_string_is_kept(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: events(says("One tw"), complete=False)
    assert sentence_of(server, asking(stops=StopSettings(stop_strings=("two",))))[0] == "One tw"


def test_a_connection_that_is_dropped_is_tried_once_more(server: FakeServer) -> None:
    def gone(asked: Asked) -> Reply:
        raise Gone

    server.routes[CHAT] = lambda asked: gone(asked) if len(server.asked) == 1 else events(says("Hi"), END)
    found = list(chat_of(server).stream(asking(), threading.Event()))
    assert [e.text for e in found if isinstance(e, Text)] == ["Hi"]
    server.asked.clear()
    server.routes[CHAT] = gone
    assert "closed the connection without an answer; try again" in sentence_of(server)[1]
    assert len(server.asked) == 2


class Clock:
    """A time that passes only while a reply waits."""

    def __init__(self, chat: RemoteChat, step: float) -> None:
        self.now, self.step = 0.0, step
        self._wait = chat._place.wait
        chat._place.clock, chat._place.wait = self, self.wait

    def __call__(self) -> float:
        return self.now

    def wait(self) -> None:
        self.now += self.step
        self._wait()


def test_waits_as_long_as_the_server_asks(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: (
        json_reply({}, 429, retry_after="12") if len(server.asked) < 3 else events(says("Hi"), END)
    )
    chat = chat_of(server)
    clock = Clock(chat, 1.0)
    found = list(chat.stream(asking(), threading.Event()))
    assert [e.text for e in found if isinstance(e, Text)] == ["Hi"]
    said = [e.stage for e in found if isinstance(e, Loading)]
    assert f"Lab (127.0.0.1:{server.port}) asks you to wait 12 s" in said
    assert f"Lab (127.0.0.1:{server.port}) asks you to wait 3 s" in said
    assert clock.now >= 24


def test_does_not_wait_for_ever(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: json_reply({"error": "busy"}, 503, retry_after="1")
    chat = chat_of(server)
    Clock(chat, 1.0)
    with pytest.raises(RemoteError, match=r"reports an error \(status 503\): busy"):
        list(chat.stream(asking(), threading.Event()))
    assert len(server.asked) == reply_module.MOST_WAITS + 1


def test_waiting_can_be_stopped(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: json_reply({}, 429, retry_after="30")
    stop = threading.Event()
    found = []
    for event in chat_of(server).stream(asking(), stop):
        found.append(event)
        if isinstance(event, Loading) and "asks you to wait" in event.stage:
            stop.set()
    assert isinstance(found[-1], Done)
    assert found[-1].reason == "cancelled"


def test_a_slow_first_token_is_waited_for_and_said(server: FakeServer) -> None:
    go = threading.Event()
    server.routes[CHAT] = lambda asked: events(b": keep-alive\n\n", go, says("Hi"), END)
    chat = chat_of(server)
    Clock(chat, 50.0)
    stages = []
    for event in chat.stream(asking(), threading.Event()):
        if isinstance(event, Loading):
            stages.append(event.stage)
            if event.stage.endswith("for 600 s"):
                go.set()
        last = event
    assert isinstance(last, Done)
    assert last.reason == "stop_token"
    assert stages[:2] == [f"Waiting for Lab (127.0.0.1:{server.port}){more}" for more in ("", " for 50 s")]


@pytest.mark.parametrize("begun", ["", "Hi"])
def test_the_longest_wait_of_a_server_ends_a_reply(server: FakeServer, begun: str) -> None:
    never = threading.Event()
    server.routes[CHAT] = lambda asked: events(*([says(begun)] if begun else []), never)
    found: list[ChatEvent] = []
    with pytest.raises(RemoteError, match="sent nothing for 1 s, which is the longest wait") as caught:
        found.extend(chat_of(server, longest_wait=1).stream(asking(), threading.Event()))
    assert ("What had come is kept" in str(caught.value)) == bool(begun)
    assert len(server.bodies(CHAT)) == 1  # it is not asked again
    never.set()


@pytest.mark.parametrize("when", ["before the answer", "before the first token", "in the middle"])
def test_stopping_closes_the_connection(server: FakeServer, when: str) -> None:
    hold = threading.Event()

    def script(asked: Asked) -> Reply:
        if when == "before the answer":
            return Reply(200, {}, (hold,))
        return events(*((says("One"),) if when == "in the middle" else (b":\n\n",)), hold, says(" two"))

    server.routes[CHAT] = script
    stop, found = threading.Event(), []
    for event in chat_of(server).stream(asking(), stop):
        found.append(event)
        if isinstance(event, Text) or (
            isinstance(event, Waiting) and when != "in the middle" and server.asked
        ):
            stop.set()
    assert isinstance(found[-1], Done)
    assert found[-1].reason == "cancelled"
    assert "".join(e.text for e in found if isinstance(e, Text)) == ("One" if when == "in the middle" else "")
    assert server.closed.acquire(timeout=30)


def test_leaving_a_reply_closes_the_connection(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: events(says("One"), threading.Event())
    chat = chat_of(server)
    stream = chat.stream(asking(), threading.Event())
    while not isinstance(next(stream), Text):
        pass
    stream.close()  # type: ignore[attr-defined]
    assert server.closed.acquire(timeout=30)
    assert not chat._place.running


def test_several_replies_at_once(server: FakeServer) -> None:
    """A reply that waits does not hold up the other."""
    go = threading.Event()
    server.routes[CHAT] = lambda asked: (
        events(go, says("late"), END)
        if asked.body["messages"][0]["content"] == "first"
        else events(says("early"), END)
    )
    chat, stop = chat_of(server), threading.Event()
    order: list[str] = []
    streams = {name: chat.stream(asking(name), stop) for name in ("first", "second")}
    while streams:
        for name, stream in tuple(streams.items()):
            event = next(stream, None)
            if isinstance(event, Done):
                order.append(name)
                go.set()
            if event is None:
                del streams[name]
    assert order == ["second", "first"]


def test_closing_the_chat_ends_its_replies(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: events(threading.Event())
    chat = chat_of(server)
    stream = chat.stream(asking(), threading.Event())
    while not server.asked:
        next(stream)
    chat.close()
    assert server.closed.acquire(timeout=30)
    stream.close()  # type: ignore[attr-defined]


def test_a_stop_that_only_the_end_decides(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: events(says("Well. EN"), says("D"), END, "[DONE]")
    stops = StopSettings(stop_strings=("END", "ENDLESS"))
    *found, done = chat_of(server).stream(asking(stops=stops), threading.Event())
    assert isinstance(done, Done)
    assert "".join(e.text for e in found if isinstance(e, Text)) == "Well. "
    assert (done.reason, done.trigger) == ("stop_string", "END")


@pytest.mark.parametrize(
    ("stops", "text", "reason", "trigger"),
    [
        (StopSettings(stop_regex="[0-9]+ apples"), "I have ", "stop_regex", "12 apples"),
        (StopSettings(stop_strings=("12 a",)), "I have ", "stop_string", "12 a"),
        (StopSettings(stop_strings=("12 a",), keep_stop=True), "I have 12 a", "stop_string", "12 a"),
        (StopSettings(stop_strings=tuple("vwxyz")), "I ha", "stop_string", "v"),
        (StopSettings(loop_window=9, loop_repeats=3), "I have 12 apples, 12 apples, 12", "loop", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pieces", [1, 3, 100])
def test_stop_conditions_that_are_applied_here(
    server: FakeServer, stops: StopSettings, text: str, reason: str, trigger: str | None, pieces: int
) -> None:
    whole = "I have 12 apples, 12 apples, 12 apples, 12 apples, 12 apples, more"
    cut = [whole[i : i + pieces] for i in range(0, len(whole), pieces)]
    server.routes[CHAT] = lambda asked: events(*map(says, cut), threading.Event())
    found = list(chat_of(server).stream(asking(stops=stops), threading.Event()))
    shown = "".join(e.text for e in found if isinstance(e, Text))
    done = found[-1]
    assert isinstance(done, Done)
    assert done.reason == reason
    if trigger is None:
        assert pieces == 100 or shown.startswith(text)
        assert "12 apples" in done.trigger or "apples, 12" in done.trigger or ", 12 apples" in done.trigger
    else:
        assert (shown, done.trigger) == (text, trigger)
    assert "stop" not in server.bodies(CHAT)[0]
    assert server.closed.acquire(timeout=30)


def test_the_time_limit_counts_from_the_first_token(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: events(says("One"), threading.Event())
    chat = chat_of(server)
    Clock(chat, 1.0)
    found = list(chat.stream(asking(stops=StopSettings(time_limit=5.0)), threading.Event()))
    done = found[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.stats.new_tokens) == ("time_limit", 1)


def test_usage_that_does_not_come_is_not_waited_for_long(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: events(says("One"), END, threading.Event())
    chat = chat_of(server)
    clock = Clock(chat, 1.0)
    done = list(chat.stream(asking(), threading.Event()))[-1]
    assert isinstance(done, Done)
    assert done.reason == "stop_token"
    assert clock.now <= 30


def test_a_server_that_does_not_stream(server: FakeServer) -> None:
    whole = {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "length"}
        ]
    }
    server.routes[CHAT] = lambda asked: json_reply(whole)
    found = list(chat_of(server).stream(asking(stops=StopSettings(max_tokens=1)), threading.Event()))
    assert [e.text for e in found if isinstance(e, Text)] == ["Hi"]
    assert isinstance(found[-1], Done)
    assert found[-1].reason == "max_tokens"


def call(index: int | None, id: str = "", name: str = "", arguments: Any = "") -> dict[str, Any]:
    part = {"id": id, "type": "function", "function": {"name": name or None, "arguments": arguments}}
    part |= {} if index is None else {"index": index}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [part]}, "finish_reason": None}]}


@pytest.mark.parametrize(
    ("sent", "pieces"),
    [
        (
            [
                call(0, "call_a", "add"),
                call(0, arguments='{"a"'),
                call(0, arguments=": 1}"),
                call(1, "b", "now"),
            ],
            [
                CallPiece(0, "call_a", "add"),
                CallPiece(0, arguments='{"a"'),
                CallPiece(0, arguments=": 1}"),
                CallPiece(1, "b", "now"),
            ],
        ),
        (  # not numbered, without ids, arguments as an object
            [call(None, "", "add", {"a": 1}), call(None, "", "now"), call(None, arguments="{}")],
            [
                CallPiece(0, "call_0", "add", '{"a": 1}'),
                CallPiece(1, "call_1", "now"),
                CallPiece(1, arguments="{}"),
            ],
        ),
        ([call(0, arguments="lost"), call(None, arguments="lost")], []),
    ],
)
def test_calls_of_tools(server: FakeServer, sent: list[Any], pieces: list[CallPiece]) -> None:
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    server.routes[CHAT] = lambda asked: events(says("Let me see."), *sent, end)
    found = list(chat_of(server).stream(asking(), threading.Event()))
    assert [event for event in found if isinstance(event, CallPiece)] == pieces
    assert isinstance(found[-1], Done)
    assert found[-1].reason == "stop_token"


@pytest.mark.parametrize("finishes", [True, False])
def test_done_without_a_reason_is_the_end_only_where_the_server_never_says_one(
    server: FakeServer, finishes: bool
) -> None:
    server.routes[CHAT] = lambda asked: events(says("One"), "[DONE]")
    chat = chat_of(server, replace(KNOWN, finishes=finishes))
    stream, found = chat.stream(asking(), threading.Event()), list[ChatEvent]()
    if finishes:
        with pytest.raises(RemoteError, match="was lost before the reply was complete"):
            found.extend(stream)
    else:
        found.extend(stream)
        assert isinstance(found[-1], Done)
    assert "".join(e.text for e in found if isinstance(e, Text)) == "One"


def test_figures_come_while_it_runs(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: events(*[says(f" {i}") for i in range(20)], END)
    chat = chat_of(server)
    now = [0.0]

    def clock() -> float:
        now[0] += 0.05
        return now[0]

    chat._place.clock = clock
    found = list(chat.stream(asking(), threading.Event()))
    running = [e.stats.new_tokens for e in found if isinstance(e, Running)]
    assert 1 <= len(running) < 20
    assert running == sorted(running)


def test_a_chat_of_this_computer_is_never_sent(server: FakeServer) -> None:
    chat = chat_of(server, Capabilities(chat=True, tokenize="vllm"), counts_tokens=True)
    request = asking(local_only=True)
    with pytest.raises(RemoteError, match="stays on this computer, so it was not sent to Lab"):
        list(chat.stream(request, threading.Event()))
    assert not chat.size(request).exact
    assert not chat.foresee(request).exact
    assert server.asked == []


def test_unencrypted_words_need_consent() -> None:
    with pytest.raises(BadSetting, match=r"is not encrypted: anyone between you and example\.org"):
        RemoteChat(Provider("lab", "Lab", "http://example.org/v1"), "m", KNOWN)
    RemoteChat(Provider("lab", "Lab", "http://example.org/v1", unencrypted=True), "m", KNOWN)


def test_the_oldest_turns_are_left_out_where_the_context_is_known(server: FakeServer) -> None:
    server.routes[CHAT] = lambda asked: events(says("Hi"), END)
    chat = chat_of(server, Capabilities(chat=True, context_length=400))
    turns = [Message("user" if i % 2 == 0 else "assistant", f"turn {i} " + 100 * "word ") for i in range(7)]
    messages = (Message("system", "Be kind."), *turns)
    foreseen = chat.foresee(ChatRequest(messages))
    found = list(chat.stream(ChatRequest(messages), threading.Event()))
    trimmed = [e for e in found if isinstance(e, Trimmed)]
    assert trimmed == [Trimmed(foreseen.dropped_messages)]
    sent = server.bodies(CHAT)[0]["messages"]
    assert sent[0]["content"] == "Be kind."
    assert sent[1]["role"] == "user"
    assert sent[-1]["content"] == turns[-1].content
    assert len(sent) == 8 - foreseen.dropped_messages < 8
    assert foreseen.prompt_tokens == sum(foreseen.messages) <= 300
    full = ChatRequest(messages, stops=StopSettings(when_full="stop"))
    list(chat.stream(full, threading.Event()))
    assert len(server.bodies(CHAT)[1]["messages"]) == 8


def test_estimates_learn_from_what_the_server_counts(server: FakeServer) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 1}}
    server.routes[CHAT] = lambda asked: events(says("Hi"), END, usage, "[DONE]")
    chat, request = chat_of(server), asking(2000 * "a")
    before = chat.size(request)
    assert (before.exact, before.context) == (False, 1 << 24)
    list(chat.stream(request, threading.Event()))
    assert abs(chat.size(request).prompt - 1000) <= 1
    assert before.prompt != chat.size(request).prompt


@pytest.mark.parametrize("allowed", [True, False])
def test_tokens_are_counted_by_the_server_only_where_that_is_allowed(
    server: FakeServer, allowed: bool
) -> None:
    server.routes["/tokenize"] = lambda asked: json_reply({"count": 77})
    chat = chat_of(
        server, Capabilities(chat=True, tokenize="vllm", context_length=900), counts_tokens=allowed
    )
    assert (chat.count("hello") == 77) == allowed
    foreseen = chat.foresee(asking("some words"))
    assert (foreseen.prompt_tokens == 77) == foreseen.exact == allowed
    assert bool(server.asked) == allowed
    if allowed:
        assert server.asked[-1].body["messages"] == [{"role": "user", "content": "some words"}]


def answering(value: Any) -> Callable[[Asked], Reply]:
    return lambda asked: json_reply(value)


def test_lists_of_models_have_many_forms(server: FakeServer) -> None:
    listed = [
        {"id": "a", "max_model_len": 100, "owned_by": "x\ny"}, {"id": "a", "max_model_len": 7}, "b",
        {"name": "c", "context_length": True, "meta": {"n_ctx_train": 9}},
        {"model": "d", "context_length": -1},
        {"id": " "}, {"id": "e" * 999}, 5, None,
    ]  # fmt: skip
    client, stop = Client(Provider("lab", "Lab", server.url), KEY), threading.Event()
    for found in (listed, {"data": listed}, {"models": listed}):
        server.routes["/v1/models"] = answering(found)
        assert [(each.name, each.context_length, each.owner) for each in client.models(stop)] == [
            ("a", 100, "x y"), ("b", 0, ""), ("c", 9, ""), ("d", 0, ""),
        ]  # fmt: skip
    for nothing in ({}, {"data": "a"}):
        server.routes["/v1/models"] = answering(nothing)
        with pytest.raises(RemoteError, match="has no list of models"):
            client.models(stop)


@pytest.mark.parametrize(
    ("found", "count"),
    [({"count": 0}, 0), ({"count": 7, "tokens": [1]}, 7), ({"tokens": [4, 5]}, 2),
     ({"count": True, "tokens": [4]}, 1), ({"count": -1}, None), ({"count": "7"}, None), ({}, None),
     ([], None)],
)  # fmt: skip
def test_what_servers_count(server: FakeServer, found: Any, count: int | None) -> None:
    server.routes["/tokenize"] = lambda asked: json_reply(found)
    client = Client(Provider("lab", "Lab", server.url), KEY)
    if count is None:
        with pytest.raises(RemoteError, match="does not count tokens as expected"):
            client.token_count("vllm", "m", "Hi", threading.Event(), 5.0)
    else:
        assert client.token_count("vllm", "m", "Hi", threading.Event(), 5.0) == count


def test_a_server_that_does_not_count_in_time_is_left_alone(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.remote import chat as chat_module

    monkeypatch.setattr(chat_module, "COUNT_SECONDS", 0.05)
    server.routes["/tokenize"] = lambda asked: Reply(200, {}, (threading.Event(),))
    chat = chat_of(server, Capabilities(chat=True, tokenize="vllm"), counts_tokens=True)
    assert chat.count("hello world, hello") == chat._estimate.text("hello world, hello") > 0
    assert chat.count("again") > 0
    assert len(server.asked) == 1


def test_no_proxy_and_no_password_file_for_this_computer(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server.routes[CHAT] = lambda asked: events(says("Hi"), END)
    list(chat_of(server).stream(asking(), threading.Event()))
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
