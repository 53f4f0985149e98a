"""A scripted server on loopback: each path has a function that says what is written, byte by byte."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Asked", "FakeServer", "Gone", "Reply", "events", "json_reply", "serving"]


@dataclass
class Asked:
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Gone(Exception):
    """Raised by a script: the connection is reset."""


Piece = bytes | threading.Event
"""Bytes to write, or an event to wait for."""


@dataclass
class Reply:
    """What is written; without a `length` the connection is closed at the end, as HTTP/1.0 does, or chunks
    are written. `complete`: the last chunk is written.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Iterable[Piece] = ()
    chunked: bool = False
    complete: bool = True


Script = Callable[[Asked], Reply]


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    data = json.dumps(value).encode()
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(
        status, {"content-type": "application/json", "content-length": str(len(data)), **named}, (data,)
    )


def events(*pieces: Piece | str | dict[str, Any], chunked: bool = True, complete: bool = True) -> Reply:
    """A stream of events: dicts are chunks, texts are data, bytes are written as they are."""

    def written() -> Iterator[Piece]:
        for piece in pieces:
            if isinstance(piece, dict):
                piece = json.dumps(piece)
            yield f"data: {piece}\n\n".encode() if isinstance(piece, str) else piece

    return Reply(200, {"content-type": "text/event-stream"}, written(), chunked, complete)


class FakeServer:
    """Answers by `routes`, {path: script}; `asked` are the requests, in order; `closed` counts the
    connections that the client closed while an answer was written or waited for.
    """

    def __init__(self) -> None:
        self.routes: dict[str, Script] = {}
        self.asked: list[Asked] = []
        self.closed = threading.Semaphore(0)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._ended = False
        self._begin(self._accept)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def bodies(self, path: str) -> list[Any]:
        """The bodies of the requests to a path."""
        return [asked.body for asked in self.asked if asked.path == path]

    def close(self) -> None:
        self._ended = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.add(connection)
            self._begin(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                asked = _request(connection)
                if asked is not None:
                    self.asked.append(asked)
                    script = self.routes.get(asked.path)
                    found = script(asked) if script is not None else json_reply({"detail": "Not Found"}, 404)
                    self._write(connection, found)
            except Gone:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            except OSError:
                self.closed.release()
            finally:
                self._open.discard(connection)

    def _write(self, connection: socket.socket, reply: Reply) -> None:
        headers = {**reply.headers, "connection": "close"}
        if reply.chunked:
            headers["transfer-encoding"] = "chunked"
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.sendall(f"HTTP/1.1 {reply.status} X\r\n{head}\r\n".encode())
        for piece in reply.pieces:
            if isinstance(piece, threading.Event):
                while not piece.wait(0.02):
                    self._check_open(connection)
            elif piece:
                connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if reply.chunked else piece)
        if reply.chunked and reply.complete:
            connection.sendall(b"0\r\n\r\n")

    def _check_open(self, connection: socket.socket) -> None:
        """Raises OSError if the client is gone."""
        connection.setblocking(False)
        try:
            if not connection.recv(1, socket.MSG_PEEK) or self._ended:
                raise ConnectionResetError
        except BlockingIOError:
            if self._ended:
                raise ConnectionResetError from None
        finally:
            connection.setblocking(True)


def _request(connection: socket.socket) -> Asked | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
        if data[0] == 0x16:  # TLS
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return None
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, json.loads(body) if body else None)


@contextlib.contextmanager
def serving() -> Iterator[FakeServer]:
    """A server, closed at the end."""
    server = FakeServer()
    try:
        yield server
    finally:
        server.close()
