"""Service: what all endpoints share, and `Endpoint`, which runs one for each request."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from starlette.types import Receive, Scope, Send

from engine.core import Stats
from engine.lazy_dataclass import dataclass
from engine.server.anthropic.threads import Threads
from engine.server.failure import CLOSING, ENDED, ApiError, Failure, busy, failure_of
from engine.server.fields import Fields
from engine.server.host import EngineHost, Outlet, ServedModel, Work
from engine.server.http.channel import ClientGone, weight_of
from engine.server.http.exchange import Exchange
from engine.server.http.memory import Memory
from engine.server.kept_files import KeptFiles
from engine.server.options import ServerOptions
from engine.server.replies import Begun, Ended, Reading, ReplyEvent, Written, joined
from engine.server.responses.stored import StoredResponses

Handler = Callable[["Service", Exchange], Awaitable[Mapping[str, Any] | None]]
"""Answers one request: returns the JSON of the answer, or None if it has sent it. Raises `ApiError`."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that is being answered. `address` is the client's, `seconds` how long it has been there;
    `tokens` were written for it, `speed` of them a second.
    """

    number: int
    address: str
    path: str
    seconds: float
    tokens: int
    speed: float


@dataclass(eq=False, slots=True)
class KoboldText:
    """A text while it is written for a client of KoboldCpp's, which knows it by its `key` ("" for none)."""

    key: str
    exchange: Exchange
    text: str = ""


@dataclass(slots=True)
class Totals:
    """What all replies had together: tokens that were read and written, and the seconds this took; how many
    they were, and how the last one ended.
    """

    read: int = 0
    read_seconds: float = 0.0
    written: int = 0
    written_seconds: float = 0.0
    replies: int = 0
    last: Ended | None = None

    def add(self, ended: Ended) -> None:
        """A reply has ended."""
        stats, self.last = ended.stats, ended
        self.replies += 1
        self.read += stats.prefill_tokens
        self.read_seconds += stats.prefill_seconds
        self.written += stats.new_tokens
        self.written_seconds += stats.decode_seconds


@dataclass(slots=True)
class _Replies:
    """The replies of a request: how many of them the model's thread has at a time, and what follows these."""

    at_once: int = 0
    later: deque[tuple[Work, Outlet]] = field(default_factory=deque)


@dataclass(slots=True)
class _Seen:
    """What has happened to one reply."""

    begun: bool = False
    ended: bool = False
    read: int = 0
    written: int = 0

    def see(self, event: ReplyEvent) -> None:
        """A further event."""
        self.begun = True
        if isinstance(event, Reading):
            self.read = event.total
        if isinstance(event, Written):
            self.written += event.tokens
        self.ended = self.ended or isinstance(event, Ended)

    def rest(self) -> Sequence[ReplyEvent]:
        """What a halted reply lacks to be complete."""
        stats = Stats(prompt_tokens=self.read, new_tokens=self.written)
        ends = () if self.ended else (Ended("cancelled", "", stats),)
        return ends if self.begun else (Begun(), *ends)


class Service:
    """The model's thread, the options, and the requests that are being answered."""

    def __init__(self, host: EngineHost, options: ServerOptions) -> None:
        self.host, self.options = host, options
        self.responses = StoredResponses()
        self.conversations = StoredResponses()
        """Those of LM Studio's API."""
        self.threads = Threads()
        self.files = KeptFiles()
        self.kobold: list[KoboldText] = []
        """Texts that are written for KoboldCpp's clients."""
        self.memory = Memory(options.bounds.memory)
        self.totals = Totals()
        self._open: dict[Exchange, _Replies] = {}
        self._closing = False

    def model(self, fields: Fields) -> ServedModel:
        """The loaded model, for a request with these fields.

        It answers under any name but that of another model. Raises `ApiError`.
        """
        models, named = self.host.models(), fields.text("model")
        loaded = models[0] if models and models[0].loaded else None
        if loaded is None:
            raise ApiError(self.host.absence())
        if named != loaded.id and any(named == model.id for model in models):
            message = f"{named[:200]!r} is not loaded; load it with POST /v1/models/load."
            raise ApiError(Failure(503, message, "server_error", code="model_not_loaded"))
        return loaded

    def start(self, exchange: Exchange, works: Sequence[Work]) -> None:
        """Hand over the work of a request, once: each item is one of its replies. Of more than
        `Bounds.choices` each further one begins when another has ended. Raises `ApiError`.
        """
        bounds, at_once = self.options.bounds, min(len(works), self.options.bounds.choices)
        if sum(replies.at_once for replies in self._open.values()) + at_once > bounds.replies:
            raise busy("Too many replies are being written or waited for; try again in a moment.")
        outlets = [exchange.channel.outlet(number) for number in range(len(works))]
        self._open[exchange] = _Replies(at_once, deque(zip(works, outlets, strict=True)))
        for _ in range(at_once):
            self._begin_next(exchange)

    def _begin_next(self, exchange: Exchange) -> None:
        """Hand over the next reply of a request, if there is one."""
        replies = self._open.get(exchange)
        if replies is not None and replies.later:
            exchange.channel.hold(self.host.submit(*replies.later.popleft()))
            if exchange.halted:
                exchange.channel.cancel()

    async def events(self, exchange: Exchange) -> AsyncIterator[tuple[int, ReplyEvent]]:
        """What happens to the replies of a request, with the number of each. Raises `ApiError`, also for a
        reply that was ended on the server, unless the request was halted: such a reply has an end.
        """
        seen: dict[int, _Seen] = {}
        while found := await _taken(exchange):
            for number, event in joined(found):
                reply = seen.setdefault(number, _Seen())
                cancelled = isinstance(event, Ended) and event.reason == "cancelled"
                if (cancelled or (event is None and not reply.ended)) and not exchange.halted:
                    raise ApiError(ENDED)
                if not exchange.streaming:  # it is collected
                    exchange.memory.take(weight_of(event))
                for one in (event,) if event is not None else reply.rest():
                    reply.see(one)
                    if isinstance(one, Ended):
                        self.totals.add(one)
                        exchange.ends.append(one)
                    if isinstance(one, Written):
                        exchange.tokens += one.tokens
                        exchange.writing_since = exchange.writing_since or time.monotonic()
                    yield number, one
                if event is None:
                    self._begin_next(exchange)

    def halt(self, paths: Collection[str]) -> None:
        """End all replies to requests at these paths; what has been written of them is their answers."""
        for exchange in self._open:
            if exchange.scope.get("path") in paths:
                exchange.halt()

    def visits(self) -> tuple[Visit, ...]:
        """The requests that are being answered, in the order they came. Any thread may call this."""
        now = time.monotonic()
        return tuple(
            Visit(
                id(exchange),
                str((exchange.scope.get("client") or ("",))[0]),
                str(exchange.scope.get("path", "")),
                now - exchange.since,
                exchange.tokens,
                exchange.tokens / (now - exchange.writing_since) if 0 < exchange.writing_since < now else 0.0,
            )
            for exchange in tuple(self._open)
        )

    def end_visit(self, number: int) -> None:
        """End a request as if its time were over; on the server's thread."""
        for exchange in self._open:
            if id(exchange) == number:
                exchange.channel.fail(ENDED)

    def enter(self, exchange: Exchange) -> None:
        """A request has come. Raises `ApiError` when the server ends."""
        if self._closing:
            raise ApiError(CLOSING)
        self._open[exchange] = _Replies()

    def leave(self, exchange: Exchange) -> None:
        """A request is over."""
        self._open.pop(exchange, None)

    def shut_down(self) -> None:
        """End all requests; on the server's thread."""
        self._closing = True
        for exchange in self._open:
            exchange.channel.fail(CLOSING)


async def _taken(exchange: Exchange) -> Sequence[tuple[int, Any]]:
    """What has happened since; meanwhile a stream that is silent for long gets pings."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(exchange.silence_left):
                return await exchange.channel.take()
        await exchange.send_ping()


class Endpoint:
    """A route of the server: answers each request by `handler`."""

    def __init__(self, service: Service, handler: Handler) -> None:
        self._service, self._handler = service, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        exchange = Exchange(scope, receive, send, self._service.options.bounds, self._service.memory)
        try:
            self._service.enter(exchange)
            answer = await self._handler(self._service, exchange)
            if answer is not None:
                await exchange.send_json(answer)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - the client gets an answer, whatever this request met
            await exchange.fail(failure_of(error))
        finally:
            self._service.leave(exchange)
            await exchange.close()
