"""A server over a tiny random model, a client of plain sockets, and control over the model's passes."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.chat import LocalChat, open_chat
from engine.core import Loading
from engine.server.host import Outlet
from engine.server.model_thread import ModelThread
from engine.server.options import ServerOptions
from engine.server.serving import ApiServer
from engine.settings import CacheSettings, LoadSettings
from tests.tiny import TINY, write_folder

TOKEN = "ink-test"
WAIT = 240.0
"""The longest that anything may take: a hostile format took 54 seconds beside seven other programs."""
LOADING = 240.0
"""The longest that loading a model may take: it may compile kernels."""
HELLO = [{"role": "user", "content": "Hello there"}]
NUMBERS = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["n"],
}
"""The schema of a tool's arguments."""


class Served:
    """A server over one tiny model. `chat` is used on the model's thread only."""

    def __init__(self, folder: Path, options: ServerOptions | None = None, context: int = 1024) -> None:
        self.chats: list[LocalChat] = []

        def opener(stop: threading.Event) -> Generator[Loading, None, LocalChat]:
            load = LoadSettings(backend="cpu", threads=2)
            chat = yield from open_chat(folder, load, CacheSettings(context_length=context), stop)
            self.chats.append(chat)
            return chat

        self.host = ModelThread({"tiny": opener, "other": opener})
        outlet = Collected()
        self.host.load("tiny", outlet)
        assert outlet.wait(LOADING) is None
        self.server = ApiServer(self.host, options or ServerOptions(token=TOKEN))

    @property
    def chat(self) -> LocalChat:
        return self.chats[-1]

    @property
    def port(self) -> int:
        return self.server.port

    def close(self) -> None:
        self.server.close()
        self.host.close()

    def on_model_thread(self, ask: Callable[[LocalChat], Any]) -> Any:
        """What `ask` returns on the model's thread, after the work that runs has had a turn."""

        def work(chat: LocalChat, stop: threading.Event) -> Generator[Any, None, None]:
            yield ask(chat)

        outlet = Collected()
        self.host.submit(work, outlet)
        assert outlet.wait() is None
        return outlet.events[0]

    def record_headless(self) -> None:
        """Record the pass of embeddings now: its threads stay."""

        def record(chat: LocalChat) -> None:
            with chat.generator.cache.table.open((), key="first") as lease:
                chat.generator.cache.hidden_states(lease, [1])

        self.on_model_thread(record)

    def idle(self) -> bool:
        """Whether no job is left; the page table must be right."""

        def ask(chat: LocalChat) -> bool:
            chat.generator.cache.table.check()
            generator = chat.generator
            return not (generator.active or generator.pending or chat.generator.cache.table._leases)

        return bool(self.on_model_thread(ask))


def break_third_pass(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the third pass from now on raise a ValueError, in the midst of a reply."""
    real, passes = served.chat.generator.cache.program.run, 0

    def run(step: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes == 3:
            raise ValueError("broken")
        return real(step)

    monkeypatch.setattr(served.chat.generator.cache.program, "run", run)


class Collected(Outlet):
    """An outlet that keeps everything."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.failure: Any = None
        self._ended = threading.Event()

    def put(self, event: Any) -> None:
        self.events.append(event)

    def end(self, failure: Any) -> None:
        self.failure = failure
        self._ended.set()

    def wait(self, seconds: float = WAIT) -> Any:
        """The failure, once all has come."""
        assert self._ended.wait(seconds)
        return self.failure


class Answer:
    """An answer: status, headers and body."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The error of an answer in OpenAI's form."""
        value = self.json
        assert set(value) == {"error"}
        assert set(value["error"]) == {"message", "type", "param", "code"}
        return value["error"]

    @property
    def events(self) -> list[Any]:
        """The events of a stream; the last one is "[DONE]" or an error."""
        text = self.body.decode()
        assert text.endswith("\n\n")
        lines = text[:-2].split("\n\n")
        assert all(line.startswith("data: ") for line in lines)
        return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]

    @property
    def lines(self) -> list[Any]:
        """The objects of a stream of lines."""
        text = self.body.decode()
        assert text.endswith("\n")
        return [json.loads(line) for line in text.splitlines()]

    @property
    def named_events(self) -> list[Any]:
        """The events of a stream whose names are their types, with nothing after the last of them."""
        text = self.body.decode()
        assert text.endswith("\n\n")
        found = []
        for block in text[:-2].split("\n\n"):
            name, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
        return found


def ask(
    served: Served | int,
    path: str,
    body: Any = None,
    *,
    method: str = "",
    headers: Mapping[str, str | None] | None = None,
) -> Answer:
    """One request with the token, as JSON unless the body is bytes. A header of None is left out."""
    port = served if isinstance(served, int) else served.port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    given: dict[str, str | None] = {"Authorization": f"Bearer {TOKEN}"}
    if body is not None:
        given["Content-Type"] = "application/json"
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
    given |= headers or {}
    sent = {name: value for name, value in given.items() if value is not None}
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
        answer = connection.getresponse()
        return Answer(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        )
    finally:
        connection.close()


def complete(served: Served, **fields: Any) -> Answer:
    """A chat request."""
    return ask(served, "/v1/chat/completions", {"messages": HELLO, "max_tokens": 8, **fields})


@contextmanager
def opened(served: Served, path: str, body: Mapping[str, Any]) -> Iterator[socket.socket]:
    """A connection on which a request was sent; closed at the end."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT) as connection:
        connection.sendall(head.encode() + data)
        yield connection


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What comes up to a mark."""
    found = b""
    while mark not in found:
        part = connection.recv(65536)
        assert part, f"the connection was closed after {found!r}"
        found += part
    return found


class Gate:
    """Holds the model's passes: each needs a permission. `passes` counts those that have run."""

    def __init__(self, chat: LocalChat, monkeypatch: pytest.MonkeyPatch, program: Any = None) -> None:
        self.passes = 0
        self._free = threading.Event()
        self._permissions = threading.Semaphore(0)
        self.waiting = threading.Semaphore(0)
        """Released when a pass waits for its permission."""
        program = program or chat.generator.cache.program
        real = program.run

        def run(step: Any) -> Any:
            if not self._free.is_set():
                self.waiting.release()
                assert self._permissions.acquire(timeout=WAIT)
            self.passes += 1
            return real(step)

        monkeypatch.setattr(program, "run", run)

    def wait(self) -> None:
        """Until a pass waits."""
        assert self.waiting.acquire(timeout=WAIT)

    def let(self, passes: int = 1) -> None:
        """Let passes run."""
        self._permissions.release(passes)

    def open(self) -> None:
        """Let all run from now on."""
        self._free.set()
        self._permissions.release(1000)


def write_tiny(folder: Path) -> Path:
    return write_folder(folder, TINY)
