"""Channel: takes events from the model's thread to the server's, with a bound on what waits to be read."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from engine.server.failure import CLOSING, TOO_SLOW, ApiError, Failure
from engine.server.host import Outlet, Ticket

MOST_WAITING = 4 << 20
"""How much a client may leave unread, in bytes of memory (`weight_of`)."""


class ClientGone(Exception):
    """The client has closed its connection."""


def weight_of(event: Any) -> int:
    """About how many bytes of memory an event takes while it waits."""
    weight: int = getattr(event, "weight", 64)
    return weight


class Channel:
    """The events of the replies to one request, as (number of the reply, event); the last event of each is
    None. Made and read on the server's thread.

    A failure of any reply, and the client's leaving, end all of them.
    """

    def __init__(self, limit: int = MOST_WAITING) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._lock = threading.Lock()
        self._events: deque[tuple[int, Any]] = deque()
        self._weight = 0
        self._failure: Failure | None = None
        self._gone = False
        self._there = asyncio.Event()
        self._tickets: list[Ticket] = []
        self.open = 0
        """How many replies have not ended."""

    def outlet(self, number: int = 0) -> Outlet:
        """Where the events of one reply go; it must be used."""
        self.open += 1
        return _Numbered(self, number)

    def hold(self, ticket: Ticket) -> None:
        """Cancel this work, too, when the request ends early."""
        self._tickets.append(ticket)

    def cancel(self) -> None:
        """End all work."""
        for ticket in self._tickets:
            ticket.cancel()

    def leave(self) -> None:
        """The client is gone: `take` raises `ClientGone` from now on."""
        self._gone = True
        self.cancel()
        self._there.set()

    def fail(self, failure: Failure = CLOSING) -> None:
        """End all work with this failure, which `take` raises."""
        with self._lock:
            self._failure = self._failure or failure
            self._events.clear()
        self.cancel()
        self._there.set()

    async def take(self) -> Sequence[tuple[int, Any]]:
        """What has come since; waits for something. Empty once all replies have ended.

        Raises `ApiError` and `ClientGone`.
        """
        while True:
            with self._lock:
                found, self._weight = list(self._events), 0
                self._events.clear()
                failure = self._failure
                self._there.clear()
            if self._gone:
                raise ClientGone
            if failure is not None and not found:
                self.cancel()
                raise ApiError(failure)
            self.open -= sum(event is None for _, event in found)
            if found or not self.open:
                return found
            await self._there.wait()

    # -- on the model's thread

    def add(self, number: int, event: Any, failure: Failure | None = None) -> None:
        """An event of one reply; None, perhaps with a failure, after its last one."""
        with self._lock:
            if self._failure is not None:
                return
            self._weight += weight_of(event)
            if self._weight > self._limit:
                failure = TOO_SLOW
                self._events.clear()
            elif failure is None:
                self._events.append((number, event))
            self._failure = failure
        if failure is not None:
            self.cancel()
        with suppress(RuntimeError):  # the loop is closed: nobody reads
            self._loop.call_soon_threadsafe(self._there.set)


class _Numbered:
    """The outlet of one reply."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel, self._number = channel, number

    def put(self, event: Any) -> None:
        self._channel.add(self._number, event)

    def end(self, failure: Failure | None) -> None:
        self._channel.add(self._number, None, failure)
