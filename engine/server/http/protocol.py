"""BoundedProtocol: HTTP on one connection, with limits to how long a client may take for everything; and
WebSockets, whose clients must read.

uvicorn itself bounds only the size of headers and messages, the time between two requests, and that of a
WebSocket's pings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.server.options import Bounds


class BoundedWriting(asyncio.Protocol):
    """The part of a connection that cuts it when the client stops reading."""

    bounds = Bounds()
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _write_timer: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The client reads less than is written."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.bounds.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._write_timer = _cancelled(self._write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._write_timer = _cancelled(self._write_timer)
        super().connection_lost(exc)


class BoundedProtocol(BoundedWriting, H11Protocol):
    """A connection. It is cut when headers do not arrive in time, when the client stops reading, and when
    there are too many connections.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections:
            transport.abort()
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Something has come: if it begins a request, its headers must follow soon."""
        if self._timer is None and self._is_idle():
            self._await_head()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._timer = _cancelled(self._timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._timer = _cancelled(self._timer)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.bounds.head_seconds, self.transport.abort)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None


def protocol_for(bounds: Bounds) -> type[BoundedProtocol]:
    """The protocol with these bounds, for uvicorn's configuration."""
    return type("BoundedProtocol", (BoundedProtocol,), {"bounds": bounds})


def socket_protocol_for(bounds: Bounds) -> Callable[..., asyncio.Protocol]:
    """Makes the protocol of a WebSocket with these bounds, for uvicorn's configuration. What speaks it is
    imported when the first client asks for it: most servers are never asked.
    """

    def make(*args: Any, **kwargs: Any) -> asyncio.Protocol:
        from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

        made = type("BoundedSocket", (BoundedWriting, WSProtocol), {"bounds": bounds})
        found: asyncio.Protocol = made(*args, **kwargs)
        return found

    return make
