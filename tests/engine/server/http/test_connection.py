"""What ends a connection, and what ends the wait for a reply's events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from engine.server.failure import TOO_SLOW, ApiError
from engine.server.http.channel import Channel, weight_of
from engine.server.http.exchange import ClientGone
from engine.server.http.protocol import BoundedWriting
from engine.server.options import Bounds


class _Written(asyncio.Protocol):
    """What writes to the client, which must hear when the client reads too little."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.heard.append("lost")


class _Connection(BoundedWriting, _Written):
    bounds = Bounds(write_seconds=7.0)


def test_a_client_that_stops_reading_is_heard_of_and_cut_in_time() -> None:
    running: dict[int, tuple[float, Callable[[], None]]] = {}

    def call_later(seconds: float, then: Callable[[], None]) -> Any:
        number = len(running) + 1
        running[number] = seconds, then
        return SimpleNamespace(cancel=lambda: running.pop(number))

    def abort() -> None: ...

    connection = _Connection()
    connection.loop = SimpleNamespace(call_later=call_later)  # type: ignore[assignment]
    connection.transport = SimpleNamespace(abort=abort)  # type: ignore[assignment]
    for resumed in (True, False):
        connection.pause_writing()
        assert list(running.values()) == [(7.0, abort)]
        if resumed:
            connection.resume_writing()
        else:
            connection.connection_lost(None)
        assert not running
    assert connection.heard == ["pause", "resume", "pause", "lost"]


def test_events_are_not_handed_to_a_client_that_has_left() -> None:
    async def take() -> None:
        channel = Channel()
        outlet = channel.outlet()
        outlet.put("one")
        outlet.end(None)
        channel.leave()
        with pytest.raises(ClientGone):
            await channel.take()

    asyncio.run(take())


def test_a_client_that_leaves_too_much_unread_hears_so_and_nothing_more_is_kept_for_it() -> None:
    async def take() -> None:
        weight, cancelled = weight_of("one"), list[bool]()
        channel = Channel(limit=2 * weight)
        channel.hold(SimpleNamespace(cancel=lambda: cancelled.append(True)))  # type: ignore[arg-type]
        outlet = channel.outlet()
        for event in ("one", "two"):
            outlet.put(event)
        assert await channel.take() == [(0, "one"), (0, "two")]
        for event in ("three", "four"):
            outlet.put(event)
        assert not cancelled
        outlet.put("five")
        assert cancelled
        with pytest.raises(ApiError) as caught:
            await channel.take()
        assert caught.value.failure == TOO_SLOW

    asyncio.run(take())
