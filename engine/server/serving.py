"""ApiServer: listens on sockets and serves the API on a thread of its own."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import sys
import threading
from contextlib import suppress
from typing import Any, cast

import uvicorn

from engine.errors import BadSetting
from engine.server.app import make_app
from engine.server.host import EngineHost
from engine.server.http.protocol import protocol_for, socket_protocol_for
from engine.server.options import ServerOptions
from engine.server.service import Service

log = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "::1")
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_PORT_TRIES = 20
_GRACE_SECONDS = 2


class ApiServer:
    """A server over `host`, which it does not close. It listens once made; `close` ends it.

    Raises `BadSetting` for an address that it cannot listen on.
    """

    def __init__(self, host: EngineHost, options: ServerOptions) -> None:
        self.options = options
        self.service = Service(host, options)
        self._sockets = listening(options.host, options.port)
        self.port: int = self._sockets[0].getsockname()[1]
        bounds = options.bounds
        config = uvicorn.Config(
            make_app(self.service), http=protocol_for(bounds), lifespan="off", loop="asyncio",
            ws=cast(Any, socket_protocol_for(bounds)), ws_max_size=bounds.body, ws_per_message_deflate=False,
            log_config=None, access_log=False, server_header=False, proxy_headers=False,
            h11_max_incomplete_event_size=bounds.head, timeout_keep_alive=int(bounds.idle_seconds),
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="api server", daemon=True)
        self._thread.start()
        self._listening.wait()

    @property
    def url(self) -> str:
        """The address for clients, with the path "/v1"."""
        host = self.options.host
        host = {"localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"

    def end_visit(self, number: int) -> None:
        """End one of `service.visits()`. Any thread may call this."""
        if self._loop is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self.service.end_visit, number)

    def close(self) -> None:
        """End all replies and connections; returns when the thread has ended. Can be called again."""
        if self._loop is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._begin_end)
        self._thread.join()

    def _begin_end(self) -> None:
        self.service.shut_down()
        self._server.should_exit = True

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("the server stopped because of an error")
        finally:
            self._listening.set()
            for sock in self._sockets:
                sock.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._listening.set)
        await self._server.serve(self._sockets)
        for connection in list(self._server.server_state.connections):
            transport = connection.transport
            if isinstance(transport, asyncio.Transport):
                transport.abort()
        await asyncio.sleep(0)  # the transports close


def listening(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on an address, or for "localhost" on both loopback addresses with the same port.

    Raises `BadSetting`.
    """
    addresses = LOOPBACK if host == "localhost" else (host,)
    for last in range(_PORT_TRIES - 1, -1, -1):
        found: list[socket.socket] = []
        try:
            for address in addresses:
                sock = _bound(address, found[0].getsockname()[1] if found else port)
                found += [sock] if sock is not None else []
        except OSError as error:
            for sock in found:
                sock.close()
            if last and not port and found:
                continue  # the other address had this port taken
            raise BadSetting(
                f"The server cannot listen on {host} port {port}: {error.strerror or error}; choose another "
                "port or address."
            ) from error
        if found:
            return found
    raise BadSetting("This machine has no loopback address.")


def _bound(address: str, port: int) -> socket.socket | None:
    """A listening socket; None for an IPv6 loopback address on a machine without IPv6."""
    try:
        version = ipaddress.ip_address(address).version
    except ValueError as error:
        raise BadSetting(
            f"{address!r} is not an address of this machine; use one such as 127.0.0.1, localhost, "
            "or 0.0.0.0 for the network."
        ) from error
    kind = socket.AF_INET if version == 4 else socket.AF_INET6
    sock: socket.socket | None = None
    try:
        sock = socket.socket(kind, socket.SOCK_STREAM)
        if sys.platform == "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        sock.listen(128)
    except OSError as error:
        if sock is not None:
            sock.close()
        if address == LOOPBACK[1] and error.errno in _NO_IPV6:
            return None
        raise
    return sock
