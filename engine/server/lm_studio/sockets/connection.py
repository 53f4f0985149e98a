"""One connection of LM Studio's WebSocket API: the key, the messages, and the calls and channels on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.server.failure import ApiError, Failure, bad_request, busy, failure_of
from engine.server.fields import Fields
from engine.server.http.exchange import Exchange, memory_of, parsed, to_json
from engine.server.http.security import ADMITTED, is_token
from engine.server.lm_studio.sockets.namespaces import Namespace
from engine.server.lm_studio.sockets.trouble import serialized
from engine.server.service import Service

MOST_AT_ONCE = 256
"""Calls and channels of one connection that are open at a time."""
POLICY = 1008
"""The status of a connection that is closed because of the key."""
_WRONG_KEY = (
    "The access key is missing or wrong; send it as the passkey or the header 'Authorization: Bearer KEY'. "
    "LM Studio's SDK for JavaScript sends keys like sk-lm-xxxxxxxx:xxxxxxxxxxxxxxxxxxxx, its SDK for Python "
    "none; for these start the server with such a key, or without one (--no-token)."
)
_PYTHON = "python-httpx"
"""How LM Studio's SDK for Python begins its name: it reads the reason of a refusal as an object, the SDK for
JavaScript as a text.
"""
_UNANSWERED = frozenset({
    "channelAck", "communicationWarning", "signalUnsubscribe", "writableSignalUnsubscribe",
    "writableSignalUpdate",
})  # fmt: skip
_SIGNALS = {"signalSubscribe": "signalError", "writableSignalSubscribe": "writableSignalError"}


class StudioSocket:
    """The route of one namespace."""

    def __init__(self, service: Service, namespace: Namespace) -> None:
        self._service, self._namespace = service, namespace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        try:
            if await self._admitted(socket):
                await _Connection(self._service, self._namespace, socket).serve()
        except* WebSocketDisconnect:
            pass

    async def _admitted(self, socket: WebSocket) -> bool:
        """Whether the client has sent the key, in a header or in its first message; it is told."""
        options = self._service.options
        try:
            async with asyncio.timeout(options.bounds.head_seconds):
                fields = Fields(parsed(await _received(socket)))
            given = fields.text("clientPasskey"), fields.text("clientIdentifier")
        except (TimeoutError, ApiError):
            await socket.close(POLICY)
            return False
        keys = (given[0], f"sk-lm-{given[1]}:{given[0]}")
        if socket.scope.get(ADMITTED) or is_token(options.token, keys):
            await socket.send({"type": "websocket.send", "text": '{"success":true}'})
            return True
        in_python = socket.headers.get("user-agent", "").startswith(_PYTHON)
        reason: Any = {"title": _WRONG_KEY} if in_python else _WRONG_KEY
        await _send(socket, {"success": False, "error": reason})
        await socket.close(POLICY)
        return False


class _Connection:
    """A connection whose client may use the server."""

    def __init__(self, service: Service, namespace: Namespace, socket: WebSocket) -> None:
        self._service, self._namespace, self._socket = service, namespace, socket
        self._open = 0
        self._channels: dict[int, Exchange] = {}

    async def serve(self) -> None:
        """Answer messages until the client leaves, which ends all that runs for it."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                text = await _received(self._socket)
                try:
                    work = self._work_of(Fields(parsed(text)), text)
                except ApiError as error:
                    await self._warn(error.failure)
                    continue
                if work is not None:
                    tasks.create_task(work)

    def _work_of(self, message: Fields, text: bytes) -> Coroutine[Any, Any, None] | None:
        """What a message asks for. Raises `ApiError` for one that cannot be answered."""
        kind = message.text("type")
        if kind == "keepAlive":
            return self._send({"type": "keepAliveAck"})
        if kind == "rpcCall":
            return self._call(_number(message, "callId"), message, memory_of(text))
        if kind == "channelCreate":
            number = _number(message, "channelId")
            exchange = self._exchange(message)
            self._channels[number] = exchange
            return self._channel(number, exchange, message, memory_of(text))
        if kind == "channelSend":
            return self._sent(_number(message, "channelId"), message)
        if kind in _SIGNALS:
            failure = Failure(400, f"LM Studio's {message.text('endpoint')[:100]} is not supported here.")
            number = _number(message, "subscribeId")
            error = serialized(failure)
            return self._send({"type": _SIGNALS[kind], "subscribeId": number, "error": error})
        if kind in _UNANSWERED:
            return None
        raise message.wrong("type", "a type of LM Studio's messages")

    def _exchange(self, message: Fields) -> Exchange:
        path = f"/{self._namespace.name}/{message.text('endpoint')[:100]}"
        return _SocketExchange(self._socket.scope, path, self._service)

    async def _call(self, number: int, message: Fields, size: int) -> None:
        """Answer a call."""
        exchange, name = self._exchange(message), message.text("endpoint")

        async def answer() -> None:
            call = self._namespace.calls.get(name)
            if call is None:
                raise self._unsupported(name)
            result = await call(self._service, exchange, message.part("parameter") or Fields({}))
            rest = {} if result is None else {"result": result}
            await self._send({"type": "rpcResult", "callId": number, **rest})

        await self._run(exchange, size, answer, {"type": "rpcError", "callId": number})

    async def _channel(self, number: int, exchange: Exchange, message: Fields, size: int) -> None:
        """Send the packets of a channel, and close it."""
        name = message.text("endpoint")

        async def answer() -> None:
            channel = self._namespace.channels.get(name)
            if channel is None:
                raise self._unsupported(name)
            parameters = message.part("creationParameter") or Fields({})
            async with aclosing(channel(self._service, exchange, parameters)) as packets:
                async for packet in packets:
                    await self._send({"type": "channelSend", "channelId": number, "message": packet})
            await self._send({"type": "channelClose", "channelId": number})

        try:
            await self._run(exchange, size, answer, {"type": "channelError", "channelId": number})
        finally:
            if self._channels.get(number) is exchange:
                del self._channels[number]

    async def _run(
        self,
        exchange: Exchange,
        size: int,
        answer: Callable[[], Coroutine[Any, Any, None]],
        on_error: dict[str, Any],
    ) -> None:
        """Do the work of a call or a channel, whose message took `size` bytes; `on_error` is what its client
        gets with an error.
        """
        self._open += 1
        try:
            if self._open > MOST_AT_ONCE:
                raise busy("Too many calls of this connection are open; wait for the answer of some.")
            self._service.enter(exchange)
            exchange.memory.take(size)
            await answer()
        except WebSocketDisconnect:
            raise
        except Exception as error:  # noqa: BLE001 - the client gets an answer, whatever this call met
            await self._send({**on_error, "error": serialized(failure_of(error), error)})
        finally:
            self._open -= 1
            self._service.leave(exchange)
            await exchange.close()

    async def _sent(self, number: int, message: Fields) -> None:
        """A packet of the client: it can end a channel."""
        if message.get("ackId") is not None:
            await self._send({"type": "channelAck", "channelId": number, "ackId": message.get("ackId")})
        packet, exchange = message.part("message"), self._channels.get(number)
        if exchange is not None and packet is not None and packet.text("type") == "cancel":
            exchange.halt()

    def _unsupported(self, endpoint: str) -> ApiError:
        return bad_request(self._namespace.refusal.format(endpoint=endpoint[:100]))

    async def _warn(self, failure: Failure) -> None:
        await self._send({"type": "communicationWarning", "warning": failure.message})

    async def _send(self, message: dict[str, Any]) -> None:
        await _send(self._socket, message)


class _SocketExchange(Exchange):
    """A call or a channel: its answer does not go through here, but over the connection."""

    def __init__(self, scope: Scope, path: str, service: Service) -> None:
        scope = {**scope, "path": path}
        super().__init__(scope, _nothing_comes, _nothing_goes, service.options.bounds, service.memory)
        self.streaming = True

    @property
    def silence_left(self) -> None:
        """The connection has pings of its own."""


async def _nothing_comes() -> Message:
    raise AssertionError("a call has no body of its own")


async def _nothing_goes(message: Message) -> None:
    raise AssertionError("a call has no answer of its own")


def _number(message: Fields, name: str) -> int:
    number = message.whole(name, 0, 1 << 53)
    if number is None:
        raise message.wrong(name, "a whole number")
    return number


async def _received(socket: WebSocket) -> bytes:
    """The next message. Raises `WebSocketDisconnect` when the client is gone."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1006))
    text: str | None = message.get("text")
    return message["bytes"] if text is None else text.encode("utf-8", "surrogatepass")


async def _send(socket: WebSocket, message: dict[str, Any]) -> None:
    await socket.send({"type": "websocket.send", "text": to_json(message).decode()})
