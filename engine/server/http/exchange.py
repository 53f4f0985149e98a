"""Exchange: one request and its answer. Reads the body, sends JSON or events, and notices when the client
leaves.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from starlette.types import Receive, Scope, Send

from engine.server.failure import ApiError, Failure, bad_request
from engine.server.http.channel import Channel, ClientGone
from engine.server.http.memory import Memory
from engine.server.options import Bounds

_EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_LINE_STREAM = {"content-type": "application/x-ndjson", "cache-control": "no-cache"}

_SILENCE = 2.0
"""Seconds after which a client is not expected to send more of a refused body."""

FailureEvents = Callable[[Failure], Iterable[tuple[Mapping[str, Any], str]]]
"""The events, (value, name) each, that tell a client of a failure in a stream."""
Ping = Callable[[], tuple[Mapping[str, Any], str] | None]
"""The event, (value, name), that shows the client of a silent stream that it is still answered. None is a
comment, which all readers of server-sent events skip.
"""


class Exchange:
    """One request and its answer.

    `channel` carries the events of the work for this request; when the client leaves, all of it ends.
    `memory` is what it holds of the memory for all requests.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, bounds: Bounds, memory: Memory) -> None:
        self.scope = scope
        self.memory = memory.share()
        self.channel = Channel(bounds.unread)
        self._receive, self._send, self._bounds = receive, send, bounds
        self._watch: asyncio.Task[None] | None = None
        self.failure_events: FailureEvents = lambda failure: ((failure.body_for(self._path), ""),)
        self.streaming = False
        """Whether the answer is a stream that has begun."""
        self.ping: Ping = lambda: None
        self._lines = False
        self._sent = 0.0
        self.since = time.monotonic()
        self.tokens = 0
        """How many tokens have been written for it."""
        self.ends: list[Any] = []
        """An `Ended` of each of its replies, in the order in which they ended."""
        self.halted = False
        """Whether its replies were ended on purpose: what has been written of them is the answer."""
        self.writing_since = 0.0
        """When the first of its tokens was written; 0 before."""

    async def read(self, *, optional: bool = False) -> dict[str, Any]:
        """The JSON object in the body, which may be missing if it is `optional`; from then on the client's
        leaving is noticed. Raises `ApiError`.
        """
        try:
            async with asyncio.timeout(self._bounds.body_seconds):
                body = await self._body()
        except TimeoutError:
            raise ApiError(Failure(408, "The body of the request did not arrive in time.")) from None
        self.watch()
        self.memory.take(memory_of(body) - len(body))  # that of its text is taken as it comes
        return {} if optional and not body else parsed(body)

    async def _body(self) -> bytes:
        body, more = bytearray(), True
        too_large = ApiError(
            Failure(413, f"The body is larger than the {self._bounds.body:,} bytes that are accepted.")
        )
        headers = dict(self.scope["headers"])
        coding = headers.get(b"content-encoding", b"identity").decode("latin-1").strip()
        if coding.lower() not in ("identity", ""):
            raise ApiError(
                Failure(
                    415,
                    f"The body is compressed ({coding[:40]}); send it uncompressed, without the header "
                    "Content-Encoding.",
                )
            )
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self._bounds.body:
            raise too_large
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part, more = message.get("body", b""), message.get("more_body", False)
            if len(body) + len(part) > self._bounds.body:
                raise too_large
            self.memory.take(len(part))
            body += part
        return bytes(body)

    def watch(self) -> None:
        """Notice from now on when the client leaves; the whole body has been read."""

        async def watch() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass
            self.channel.leave()

        self._watch = asyncio.create_task(watch())

    def halt(self) -> None:
        """End its replies; what has been written of them is the answer."""
        self.halted = True
        self.channel.cancel()

    async def send_json(
        self, value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer."""
        await self.send_body(to_json(value), status, headers)

    async def send_body(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, *, more: bool = False
    ) -> None:
        """A whole answer that is JSON already; with `more`, the connection stays until `_send` ends it."""
        own = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self._start(status, own)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def fail(self, failure: Failure) -> None:
        """Tell the client of a failure: as the whole answer, or as the last event of a stream."""
        if self.streaming:
            for event in self.failure_events(failure):
                await self.send_event(*event)
            await self.end_stream(done=False)
            return
        headers = {"retry-after": str(failure.retry_after)} if failure.retry_after else {}
        body = to_json(failure.body_for(self._path))
        if self._watch is not None:
            await self.send_body(body, failure.status, headers)
            return
        # The body was not read, or not to its end.
        await self.send_body(body, failure.status, headers | {"connection": "close"}, more=True)
        await discard(self._receive, self._bounds.body_seconds)
        await self._send({"type": "http.response.body", "body": b""})

    @property
    def program(self) -> str:
        """What the client calls itself (`User-Agent`)."""
        name: bytes = dict(self.scope["headers"]).get(b"user-agent", b"")
        return name.decode("latin-1")

    @property
    def _path(self) -> str:
        return str(self.scope.get("path", ""))

    async def start_stream(self, *, lines: bool = False) -> None:
        """Begin a stream of events; with `lines` each is a line of JSON."""
        await self._start(200, _LINE_STREAM if lines else _EVENT_STREAM)
        self.streaming, self._lines, self._sent = True, lines, time.monotonic()

    async def send_event(self, value: Mapping[str, Any], name: str = "") -> None:
        """One event of a stream."""
        head = f"event: {name}\n".encode() if name else b""
        body = to_json(value) + b"\n" if self._lines else head + b"data: " + to_json(value) + b"\n\n"
        await self._send_part(body)

    @property
    def silence_left(self) -> float | None:
        """How many seconds the stream may stay silent; None without a stream."""
        return self._sent + self._bounds.ping_seconds - time.monotonic() if self.streaming else None

    async def send_ping(self) -> None:
        """A sign of life in a stream: many clients and proxies give up after a minute without any byte."""
        event = self.ping()
        await (self._send_part(b": ping\n\n") if event is None else self.send_event(*event))

    async def _send_part(self, part: bytes) -> None:
        self._sent = time.monotonic()
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end_stream(self, *, done: bool = True) -> None:
        """End a stream; `done` ends it as OpenAI's do."""
        await self._send({"type": "http.response.body", "body": b"data: [DONE]\n\n" if done else b""})

    async def close(self) -> None:
        """End what still runs for this request."""
        self.memory.release()
        self.channel.cancel()
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})


async def discard(receive: Receive, seconds: float) -> None:
    """Read what a client still sends of a refused body, for so long at most: from a connection that is closed
    before that, it would learn of a reset instead of the answer (RFC 9112, section 9.6).
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                async with asyncio.timeout(_SILENCE):
                    message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; half surrogate pairs in its texts are replaced. Raises `ApiError`."""
    if not body.strip():
        raise bad_request("The body of the request is empty; a JSON object was expected.")
    if values_in(body) > MOST_VALUES:
        raise bad_request(
            f"The JSON of the body has more than {MOST_VALUES:,} values; send fewer, in several requests."
        )
    try:
        value = json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant, parse_float=_finite)
        if _ESCAPED_HALF.search(body):
            value = _well_formed(value)
    except UnicodeDecodeError:
        raise bad_request("The body is not UTF-8 text.") from None
    except json.JSONDecodeError as error:
        raise bad_request(f"The body is not JSON: {error}.") from None
    except ValueError as error:
        reason = "a number has too many digits" if "max_str_digits" in str(error) else error
        raise bad_request(f"The body is not JSON: {reason}.") from None
    except RecursionError:
        raise bad_request("The JSON of the body is nested too deeply.") from None
    if not isinstance(value, dict):
        raise bad_request("The body must be a JSON object.")
    return value


MOST_VALUES = 1 << 19
"""JSON values in a body. All requests wait while one is parsed, which takes up to a microsecond a value."""
_BYTES_A_VALUE = 64
"""About the memory that a parsed value takes besides its text."""
_WITH_PICTURES = 1 << 14
"""From this size on, a body may be pictures for the most part: base64, beside which their bytes are kept."""
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""Texts cannot have half surrogate pairs in another way: UTF-8 has none."""


def values_in(body: bytes) -> int:
    """At least the number of values in the JSON of a body."""
    marks = (b",", b"[", b"{")
    count = sum(map(body.count, marks))
    if count > MOST_VALUES:  # most of them may be in texts
        structure = _TEXT.sub(b"", body)
        count = sum(map(structure.count, marks))
    return count


def memory_of(body: bytes) -> int:
    """About the bytes of memory that a body takes, parsed and as it came, with the pictures in it."""
    pictures = 0 if len(body) < _WITH_PICTURES else len(body) * 3 // 4
    return len(body) + pictures + _BYTES_A_VALUE * values_in(body)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large")
    return value


def _well_formed(value: Any) -> Any:
    """A copy whose texts can be encoded."""
    if isinstance(value, str):
        return (
            value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, list):
        return [_well_formed(item) for item in value]
    if isinstance(value, dict):
        return {_well_formed(key): _well_formed(item) for key, item in value.items()}
    return value


def to_json(value: Mapping[str, Any]) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )
