"""A client of LM Studio's WebSocket API: plain sockets, and wsproto for the frames."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from tests.engine.server.served import TOKEN, WAIT, Served

wsproto = pytest.importorskip("wsproto")
events = pytest.importorskip("wsproto.events")

ANY = {"type": "query", "query": {}}
"""The specifier of any loaded model."""


class Refused(Exception):
    """The server did not open a WebSocket: its status and body."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status, self.body = status, body


class Wire:
    """A connection to one namespace, opened with these headers; `key` is sent in the first message, None for
    no such message.
    """

    def __init__(
        self,
        served: Served,
        namespace: str = "llm",
        *,
        key: str | None = TOKEN,
        identifier: str = "me",
        headers: Mapping[str, str] | None = None,
        host: str = "localhost",
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", served.port), timeout=WAIT)
        self._connection = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        given = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._number = 0
        self._read: list[Any] = []
        self._text = ""
        self.closed: int | None = None
        """The status with which the server has closed it."""
        self._write(events.Request(host=host, target=f"/{namespace}", extra_headers=given))
        self._open()
        if key is not None:
            self.send({"authVersion": 1, "clientIdentifier": identifier, "clientPasskey": key})
            self.admission = self.receive()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave without a word."""
        self._socket.close()

    def _write(self, event: Any) -> None:
        self._socket.sendall(self._connection.send(event))

    def _open(self) -> None:
        status, body = 0, b""
        while True:
            event = self._event()
            if isinstance(event, events.AcceptConnection):
                return
            if isinstance(event, events.RejectConnection):
                status = event.status_code
            if isinstance(event, events.RejectData):
                body += event.data
                if event.body_finished:
                    self.close()
                    raise Refused(status, body)

    def _event(self) -> Any:
        """What comes next; None once the connection is closed."""
        while not self._read:
            data = self._socket.recv(1 << 16)
            if not data:
                return None
            self._connection.receive_data(data)
            self._read += self._connection.events()
        return self._read.pop(0)

    def send(self, message: Any) -> None:
        """A message: JSON, or a text or bytes as they are."""
        data = message if isinstance(message, str | bytes) else json.dumps(message)
        self._write(events.Message(data=data))

    def receive(self) -> Any:
        """The next message; None once the server has closed the connection."""
        while True:
            event = self._event()
            if event is None or isinstance(event, events.CloseConnection):
                self.closed = None if event is None else event.code
                return None
            if isinstance(event, events.Ping):
                self._write(event.response())
            if isinstance(event, events.TextMessage):
                self._text += event.data
                if event.message_finished:
                    text, self._text = self._text, ""
                    return json.loads(text)

    def call(self, endpoint: str, parameter: Any = None) -> Any:
        """The answer to a call: its result, or an error in a dictionary with the key "error"."""
        self._number += 1
        message = {"type": "rpcCall", "endpoint": endpoint, "callId": self._number}
        self.send(message | ({} if parameter is None else {"parameter": parameter}))
        answer = self.receive()
        assert answer["callId"] == self._number
        if answer["type"] == "rpcError":
            return {"error": answer["error"]}
        assert answer["type"] == "rpcResult"
        return answer.get("result")

    def open(self, endpoint: str, parameter: Any) -> int:
        """Open a channel; its number."""
        self._number += 1
        head = {"type": "channelCreate", "endpoint": endpoint, "channelId": self._number}
        self.send({**head, "creationParameter": parameter})
        return self._number

    def packet(self, channel: int) -> Any:
        """The next packet of a channel: None at its end, or an error in a dictionary with the key "error"."""
        answer = self.receive()
        assert answer["channelId"] == channel
        if answer["type"] == "channelError":
            return {"error": answer["error"]}
        assert answer["type"] in ("channelSend", "channelClose")
        return answer.get("message")

    def packets(self, endpoint: str, parameter: Any) -> list[Any]:
        """The packets of a channel, or the error that ends it."""
        channel, found = self.open(endpoint, parameter), list[Any]()
        while (packet := self.packet(channel)) is not None:
            found.append(packet)
            if "error" in packet:
                break
        return found


def setting(name: str, value: Any) -> dict[str, Any]:
    """A setting of a prediction."""
    return {"key": f"llm.prediction.{name}", "value": value}


def layers(*fields: Mapping[str, Any], name: str = "apiOverride") -> dict[str, Any]:
    """Settings in a layer of this name."""
    return {"layers": [{"layerName": name, "config": {"fields": [*fields]}}]}


def words(role: str, text: str) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": [{"type": "text", "text": text}]}


def asked(*fields: Mapping[str, Any], messages: Any = None, **rest: Any) -> dict[str, Any]:
    """The parameters of a prediction with these settings."""
    history = {"messages": messages or [words("system", "Be kind."), words("user", "Hello there")]}
    return {"modelSpecifier": ANY, "history": history, "predictionConfigStack": layers(*fields), **rest}


BRIEF = (setting("temperature", 0), setting("maxPredictedTokens", {"checked": True, "value": 8}))
"""The most likely tokens, eight of them."""
