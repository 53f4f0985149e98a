"""Streams of real servers, in any pieces and cut anywhere: text, tokens and figures are the same, or what
came is kept.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import ChatEvent, ChatRequest, Done, Message, Text
from engine.errors import EngineError, RemoteError
from engine.remote.capabilities import Capabilities
from engine.remote.chat import RemoteChat
from engine.remote.exchange import Exchange
from engine.remote.provider import Provider
from engine.remote.tokens import UNKNOWN_ID
from engine.settings import StopSettings

STREAMS = Path(__file__).parent / "streams"
ALL = Capabilities(chat=True, completions=True, usage=True, top_logprobs=5, stops=True, stop_reason=True)
PROVIDER = Provider("lab", "Lab", "http://127.0.0.1:1/v1")
EXPECTED = {
    "vllm_chat": "<think>\nThe user greets.\n</think>\n\nGrüß😀 Gott",
    "vllm_stop": "One two",
    "vllm_0_32_chat": None,
    "vllm_0_32_completion": None,
    "sglang_chat": "<think>\nHm. So.\n</think>\n\nYes.",
    "llama_cpp_python_chat": None,
    "llama_cpp_python_completion": None,
}


class Pieces(httpx2.SyncByteStream):
    """A body in pieces; `error` is raised after them."""

    def __init__(self, pieces: Sequence[bytes], error: Exception | None = None) -> None:
        self._pieces, self._error = pieces, error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        if self._error is not None:
            raise self._error


@contextlib.contextmanager
def answering(pieces: Sequence[bytes], error: Exception | None = None) -> Iterator[None]:
    """Every request is answered with this stream."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, stream=Pieces(pieces, error)
        )

    client = httpx2.Client(transport=httpx2.MockTransport(handle))
    with mock.patch.object(Exchange, "_client", return_value=client):
        yield


def reply(
    chat: RemoteChat, plain: bool = False, stops: StopSettings = StopSettings()
) -> tuple[list[ChatEvent], str]:
    """All events of a reply but the empty ones, and the sentence of an error."""
    request = ChatRequest((Message("user", "Hi"),), plain=plain, stops=stops)
    found: list[ChatEvent] = []
    try:
        found.extend(chat.stream(request, threading.Event()))
    except EngineError as error:
        return [each for each in found if isinstance(each, Text | Done)], str(error)
    return [each for each in found if isinstance(each, Text | Done)], ""


def text_of(events: list[ChatEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def data_of(name: str) -> bytes:
    return (STREAMS / f"{name}.sse").read_bytes()


def chat() -> RemoteChat:
    return RemoteChat(PROVIDER, "m", ALL)


@pytest.mark.parametrize("name", EXPECTED)
def test_byte_by_byte_is_as_in_one_piece(name: str) -> None:
    data, plain = data_of(name), name.endswith("completion")
    with answering([data]):
        whole, sentence = reply(chat(), plain)
    with answering([data[place : place + 1] for place in range(len(data))]):
        single, other = reply(chat(), plain)
    assert sentence == other == ""
    expected = EXPECTED[name]
    assert text_of(single) == text_of(whole) == (text_of(whole) if expected is None else expected)
    assert text_of(whole).strip()
    tokens = [(t.id, t.text) for event in whole if isinstance(event, Text) for t in event.tokens]
    assert tokens == [(t.id, t.text) for event in single if isinstance(event, Text) for t in event.tokens]
    assert "".join(text for _, text in tokens) == text_of(whole)
    first, last = whole[-1], single[-1]
    assert isinstance(first, Done)
    assert isinstance(last, Done)
    assert (first.reason, first.trigger) == (last.reason, last.trigger)
    assert first.stats.new_tokens == last.stats.new_tokens > 0


def test_what_vllm_sends() -> None:
    with answering([data_of("vllm_chat")]):
        events, _ = reply(chat())
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.trigger) == ("stop_token", "")
    assert (done.stats.prompt_tokens, done.stats.cached_tokens, done.stats.prefill_tokens) == (31, 16, 15)
    assert (done.stats.new_tokens, done.stats.context_tokens) == (14, 45)
    tokens = [token for event in events if isinstance(event, Text) for token in event.tokens]
    assert [token.text for token in tokens] == [
        "<think>\n", "The", " user", " greets", ".", "\n</think>\n\n", "Gr", "üß", "", "😀", " Gott",
    ]  # fmt: skip
    assert [token.id == UNKNOWN_ID for token in tokens] == [True] + 4 * [False] + [True] + 5 * [False]
    gott = tokens[-1]
    assert math.isclose(gott.raw_probability, math.exp(-1.25))
    assert gott.probability == gott.raw_probability
    assert [each.text for each in gott.alternatives] == [" Gott", " other"]
    assert gott.alternatives[0].id == gott.id != gott.alternatives[1].id
    rest = 1 - math.exp(-1.25) - math.exp(-2.5)
    assert math.isclose(
        gott.entropy, -sum(p * math.log(p) for p in (math.exp(-1.25), math.exp(-2.5), rest)), rel_tol=1e-6
    )
    assert [each.text for each in tokens[9].alternatives] == ["<0x98><0x80>", " other"]


def test_the_stop_string_that_the_server_found() -> None:
    with answering([data_of("vllm_stop")]):
        events, _ = reply(chat(), stops=StopSettings(stop_strings=(" END",)))
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.trigger, text_of(events)) == ("stop_string", " END", "One two")
    assert [token.text for event in events if isinstance(event, Text) for token in event.tokens] == [
        "One",
        " two",
    ]


@pytest.mark.parametrize("name", ["vllm_chat", "sglang_chat"])
@given(where=st.data())
@settings(max_examples=60)
def test_in_any_pieces(name: str, where: st.DataObject) -> None:
    data = data_of(name)
    cuts = sorted(where.draw(st.lists(st.integers(0, len(data)), max_size=20)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    with answering(pieces):
        events, sentence = reply(chat())
    assert (text_of(events), sentence) == (EXPECTED[name], "")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("error", [None, httpx2.RemoteProtocolError("incomplete"), httpx2.ReadError("reset")])
@pytest.mark.parametrize("name", ["vllm_chat", "sglang_chat"])
def test_cut_anywhere_keeps_what_came(name: str, error: Exception | None) -> None:
    """Every piece of the text that came whole is kept; the sentence says that the reply is not complete."""
    data, expected = data_of(name), EXPECTED[name]
    assert expected is not None
    kept: list[int] = []
    end = data.index(b'"stop"')
    for cut in range(0, len(data), 7 if error is None else 31):
        with answering([data[:cut]], error):
            events, sentence = reply(chat())
        text = text_of(events)
        assert expected.startswith(text)
        kept.append(len(text))
        done = isinstance(events[-1], Done) if events else False
        assert done == (not sentence)
        if cut < end:
            assert not done
            assert "was lost" in sentence if text else "without an answer" in sentence
    assert kept == sorted(kept)  # never less of a longer beginning
    assert kept[-1] == len(expected)


def test_an_end_without_done_and_without_usage() -> None:
    with answering([data_of("sglang_chat")]):
        events, sentence = reply(chat())
    assert not sentence
    done = events[-1]
    assert isinstance(done, Done)
    assert done.reason == "stop_token"
    assert done.stats.prompt_tokens > 0


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (b'data: {"error": {"message": "CUDA out of memory", "code": 500}}\n\n', "CUDA out of memory"),
        (b'event: error\ndata: {"error": "busy"}\n\n', "busy"),
        (b"event: error\ndata: went wrong\n\n", "went wrong"),
        (b'data: {"object": "error", "message": "bad luck"}\n\n', "bad luck"),
        (b'data: {"choices": [{"del\n\ndata: [DONE]\n\n', "unreadable data in the middle"),
        (b"data: [1, 2]\n\ndata: [DONE]\n\n", "unreadable data in the middle"),
        (b"data: " + b"[" * 100_000 + b"\n\ndata: [DONE]\n\n", "unreadable data in the middle"),
    ],
)
def test_errors_within_a_stream(tail: bytes, words: str) -> None:
    data = data_of("vllm_chat")
    begin = data[: data.index(b"data: {", data.index(b" greets."))]
    with answering([begin + tail]):
        events, sentence = reply(chat())
    assert text_of(events) == "<think>\nThe user greets."
    assert words in sentence
    assert "The text received so far is kept." in sentence
    assert not isinstance(events[-1], Done)


def test_an_error_at_once() -> None:
    with answering([b'data: {"error": {"message": "no such luck"}}\n\n']):
        events, sentence = reply(chat())
    assert events == []
    assert sentence == "Lab (127.0.0.1:1) ended the reply with an error: no such luck."


@given(st.binary(max_size=400))
@settings(max_examples=80)
def test_any_bytes_give_a_sentence(data: bytes) -> None:
    with answering([data]):
        events, sentence = reply(chat())
    assert bool(sentence) != isinstance(events[-1] if events else None, Done)


CHUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "index", "logprobs", "token", "top_logprobs", "usage",
                 "reasoning", "finish_reason", "text", "tokens", "token_logprobs", "bytes", "logprob",
                 "prompt_tokens", "error", "message", "stop_reason"]
            ),
            inner, max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@given(CHUNK)
@settings(max_examples=200)
def test_any_json_is_read(value: object) -> None:
    import json

    from engine.remote.chunks import read_chunk

    chunk = read_chunk(json.dumps(value))
    assert chunk is None or (isinstance(chunk.text, str) and isinstance(chunk.thought, str))
    shaped = read_chunk(json.dumps({"choices": [{"delta": {"content": value}, "logprobs": value}]}))
    assert shaped is not None


def test_the_key_is_never_in_a_sentence() -> None:
    key = "sk-very-secret"
    for data in (f'data: {{"error": "bad key {key}"}}\n\n', f"data: {key} is no JSON\n\ndata: [DONE]\n\n"):
        with answering([data.encode()]):
            client = RemoteChat(PROVIDER, "m", ALL, key)
            with pytest.raises(RemoteError) as caught:
                list(client.stream(ChatRequest((Message("user", "Hi"),)), threading.Event()))
        assert key not in str(caught.value)
        assert "[key]" in str(caught.value)
        assert key not in repr(client._place)


def test_an_emoji_in_two_halves_is_one() -> None:
    """Servers that write JSON in ASCII may divide it between two events; a half alone has no UTF-8."""

    def event(text: str) -> bytes:
        return f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}\n\n'.encode()

    end = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    with answering([event("a\\ud83d"), event("\\ude00b\\udc00"), event("c\\ud83d"), end]):
        events, sentence = reply(chat())
    assert (text_of(events), sentence) == ("a\U0001f600b\ufffdc\ufffd", "")
    assert isinstance(events[-1], Done)
