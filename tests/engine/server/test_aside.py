"""Long texts are refused by their bytes alone where these tell, else encoded while other replies go on, as
they do while a grammar is compiled.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from engine.constraint.grammar import GrammarFilter
from engine.constraint.select import SelectFilter
from engine.text.template.sandbox import BoundedEnvironment
from engine.text.tokenizer import aside
from engine.text.tokenizer.tokenizer import Tokenizer
from tests.engine.server.served import HELLO, WAIT, Gate, Served, ask, opened, read_until

pytestmark = pytest.mark.loopback
CHAT = "/v1/chat/completions"
LONG = "The dog sleeps by the fire. " * 20
STEPS = 20


class HeldEncoding:
    """Long texts wait while they are encoded; `begun` is released for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.free, self.threads = threading.Semaphore(0), threading.Event(), set[str]()
        real = Tokenizer.encode_here

        def encode_here(tokenizer: Tokenizer, text: str) -> list[int]:
            if len(text) >= aside.LONG:
                self.threads.add(threading.current_thread().name)
                self.begun.release()
                assert self.free.wait(WAIT)
            return real(tokenizer, text)

        monkeypatch.setattr(aside, "LONG", 300)
        monkeypatch.setattr(Tokenizer, "encode_here", encode_here)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldEncoding]:
    found = HeldEncoding(monkeypatch)
    yield found
    found.free.set()


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 3, **more}


LONG_REQUESTS = [
    (CHAT, chat(LONG)),
    ("/v1/completions", {"prompt": LONG, "max_tokens": 3}),
    ("/v1/embeddings", {"input": LONG}),
    ("/tokenize", {"prompt": LONG}),
    ("/v1/responses", {"input": LONG, "max_output_tokens": 16, "truncation": "auto"}),
]


@pytest.mark.parametrize(("path", "body"), LONG_REQUESTS, ids=[path for path, _ in LONG_REQUESTS])
def test_other_replies_go_on_while_a_text_is_encoded(
    served: Served, held: HeldEncoding, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    gate = Gate(served.chat, monkeypatch)
    gate.open()
    other = {"messages": HELLO, "max_tokens": STEPS, "ignore_eos": True}
    with opened(served, path, body) as connection:
        assert held.begun.acquire(timeout=WAIT)
        before = gate.passes
        answer = ask(served, CHAT, other)
        assert answer.json["usage"]["completion_tokens"] == STEPS
        assert gate.passes - before >= STEPS - 1
        held.free.set()
        assert b"200 OK" in read_until(connection, b"\r\n\r\n")
    assert held.threads == {"aside"}
    while not served.idle():
        pass


def test_the_answer_is_the_same(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    body = chat(LONG, temperature=0, max_tokens=12)
    usual, ids = ask(served, CHAT, body).json, ask(served, "/tokenize", {"prompt": LONG}).json
    monkeypatch.setattr(aside, "LONG", 300)
    found = ask(served, CHAT, body).json
    assert found["choices"][0]["message"] == usual["choices"][0]["message"]
    assert found["usage"]["prompt_tokens"] == usual["usage"]["prompt_tokens"]
    assert ask(served, "/tokenize", {"prompt": LONG}).json == ids


def test_a_client_that_leaves_while_its_text_is_encoded(served: Served, held: HeldEncoding) -> None:
    with opened(served, CHAT, chat(LONG)):
        assert held.begun.acquire(timeout=WAIT)
    while served.server.service._open:
        pass
    assert served.idle()  # though the thread that encodes still waits
    held.free.set()
    assert ask(served, CHAT, chat(LONG)).status == 200


def test_several_long_texts_are_encoded_one_after_the_other(served: Served, held: HeldEncoding) -> None:
    with ExitStack() as stack:
        connections = [
            stack.enter_context(opened(served, CHAT, chat(f"{number} {LONG}"))) for number in range(3)
        ]
        assert held.begun.acquire(timeout=WAIT)
        assert ask(served, CHAT, chat("Hello")).status == 200
        assert not held.begun.acquire(blocking=False)
        held.free.set()
        for connection in connections:
            assert b"200 OK" in read_until(connection, b"\r\n\r\n")
    while not served.idle():
        pass


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x" * (8 << 20)}]}),
        (CHAT, {"messages": [{"role": "user", "content": "x" * (1 << 20)}], "stream": True}),
        ("/v1/completions", {"prompt": "x" * (1 << 20)}),
        ("/v1/embeddings", {"input": "x" * (1 << 20)}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x" * (1 << 20)}], "max_tokens": 3}),
    ],
    ids=["chat", "stream", "completion", "embedding", "anthropic"],
)
def test_a_text_of_too_many_bytes_is_not_encoded(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    real = Tokenizer.encode_here

    def encode_here(tokenizer: Tokenizer, text: str) -> list[int]:
        assert len(text) < aside.LONG
        return real(tokenizer, text)

    monkeypatch.setattr(Tokenizer, "encode_here", encode_here)
    answer = ask(served, path, body)
    assert answer.status == 400
    assert "has at least" in json.loads(answer.body)["error"]["message"]
    assert served.idle()


TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CONSTRAINED = [
    (CHAT, chat("Hello", response_format={"type": "json_object"})),
    (CHAT, chat("Hello", structured_outputs={"choice": ["yes", "no"]})),
    (CHAT, chat("Hello", tools=[TOOL], tool_choice="required")),
    ("/v1/completions", {"prompt": "Hello", "max_tokens": 3, "structured_outputs": {"regex": "[a-z]+"}}),
]


@pytest.mark.parametrize(("path", "body"), CONSTRAINED, ids=["json", "choice", "tool", "completion"])
def test_other_replies_go_on_while_a_format_becomes_a_filter(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    begun, free, threads = threading.Event(), threading.Event(), set[str]()

    def held(real: Any) -> Any:
        def make(self: Any, *rest: Any, **more: Any) -> None:
            threads.add(threading.current_thread().name)
            begun.set()
            assert free.wait(WAIT)
            real(self, *rest, **more)

        return make

    for kind in (GrammarFilter, SelectFilter):
        monkeypatch.setattr(kind, "__init__", held(kind.__init__))
    gate = Gate(served.chat, monkeypatch)
    gate.open()
    with opened(served, path, body) as connection:
        assert begun.wait(WAIT)
        before = gate.passes
        answer = ask(served, CHAT, {"messages": HELLO, "max_tokens": STEPS, "ignore_eos": True})
        assert answer.json["usage"]["completion_tokens"] == STEPS
        assert gate.passes - before >= STEPS - 1
        free.set()
        assert b"200 OK" in read_until(connection, b"\r\n\r\n")
    assert threads == {"aside"}
    while not served.idle():
        pass


def test_other_replies_go_on_while_a_template_runs_for_long(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free, threads = threading.Event(), threading.Event(), set[str]()
    real = BoundedEnvironment.render_bounded

    def render(self: BoundedEnvironment, template: Any, content: int, variables: Any) -> str:
        if content >= 300:
            threads.add(threading.current_thread().name)
            begun.set()
            with self._lock:  # as a rendering does
                assert free.wait(WAIT)
        return real(self, template, content, variables)

    monkeypatch.setattr(BoundedEnvironment, "render_bounded", render)
    monkeypatch.setattr(aside, "LONG", 300)
    turns = [{"role": role, "content": "a"} for _ in range(40) for role in ("user", "assistant")]
    with opened(served, CHAT, {"messages": [*turns, *HELLO], "max_tokens": 3}) as connection:
        assert begun.wait(WAIT)
        answer = ask(served, CHAT, {"messages": HELLO, "max_tokens": STEPS, "ignore_eos": True})
        assert answer.json["usage"]["completion_tokens"] == STEPS
        free.set()
        assert b"200 OK" in read_until(connection, b"\r\n\r\n")
    assert threads == {"aside"}
    while not served.idle():
        pass
