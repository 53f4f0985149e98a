"""The three ways to reach a tool server: its standard streams, Streamable HTTP, and the older SSE."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx2
from mcp.client import stdio
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from desktop.services.tools.launching import environment_for, find_program
from desktop.services.tools.server_log import ServerLog
from desktop.services.tools.servers import ServerConfig
from desktop.services.tools.unusable import UnusableConfig
from engine.lazy_dataclass import dataclass
from engine.words import _

__all__ = ["Opened", "open_transport"]

for _name in ("httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # They quote addresses, which may contain a key.

# The library waits 2 s for each, which is too long for a window that closes.
stdio.PROCESS_TERMINATION_TIMEOUT = 0.6
stdio.FORCE_KILL_TIMEOUT = 0.4

_CONNECT_S = 20.0
_IDLE_S = 24 * 3600.0
"""A connection without a message for this long is closed; calls have limits of their own."""


@dataclass
class Opened:
    """What is known of a connection: whether its process is `starting`, which must not be cancelled; if it
    fails, whether an HTTP server `answered` at all, and the status by which it `refused` the last request, or
    0.
    """

    answered: bool = False
    refused: int = 0
    starting: bool = False


async def open_transport(
    stack: AsyncExitStack, config: ServerConfig, log: ServerLog, opened: Opened, auth: httpx2.Auth | None
) -> tuple[Any, Any]:
    """Start or reach a server, whose configuration is `filled`; returns the streams of its messages. `auth`
    signs in. Raises `UnusableConfig`, OSError and what the libraries raise.
    """
    if config.url:
        return await _open_http(stack, config, opened, auth)
    program, path = await anyio.to_thread.run_sync(
        find_program, config.command, config.folder, abandon_on_cancel=True
    )
    folder = os.path.expanduser(config.folder) or str(Path.home())
    if not os.path.isdir(folder):
        raise UnusableConfig(_("The folder {folder} does not exist.", folder=folder))
    parameters = stdio.StdioServerParameters(
        command=program,
        args=list(config.arguments),
        env=environment_for(config, path),
        cwd=folder,
        encoding_error_handler="replace",
    )
    with open(log.pipe(), "w", encoding="utf-8") as errors:
        opened.starting = True  # asyncio would leave the pipes of a process that is just being made
        try:
            return await stack.enter_async_context(stdio.stdio_client(parameters, errors))
        finally:
            opened.starting = False


async def _open_http(
    stack: AsyncExitStack, config: ServerConfig, opened: Opened, auth: httpx2.Auth | None
) -> tuple[Any, Any]:
    is_local = config.is_local

    async def answered(response: httpx2.Response) -> None:
        opened.answered = True
        # A server need not have a stream of its own (405), and forgets sessions (404 to DELETE).
        if response.request.method == "POST" or config.transport:
            opened.refused = response.status_code if response.status_code >= 400 else 0

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(_CONNECT_S, read=_IDLE_S),
            auth=auth,
            trust_env=not is_local,  # no proxy for this computer
            event_hooks={"response": [answered]},
        )

    headers = dict(config.headers)
    if config.transport == "sse":
        return await stack.enter_async_context(
            sse_client(config.url, headers, sse_read_timeout=_IDLE_S, httpx_client_factory=client, auth=auth)
        )
    http = await stack.enter_async_context(client(headers, auth=auth))
    return await stack.enter_async_context(streamable_http_client(config.url, http_client=http))
