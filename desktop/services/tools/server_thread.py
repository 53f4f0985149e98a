"""The thread on which the sessions with tool servers run, in an asyncio loop of its own.

Methods are called on the GUI thread and return at once, except for `close`. Only frozen values cross: reports
are handed to the `report` function on this thread, which emits a queued signal.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from desktop.services.tools import tokens
from desktop.services.tools.events import CallEnded, Event, Fetched
from desktop.services.tools.servers import ServerConfig
from engine.words import _

if TYPE_CHECKING:
    import asyncio

    from desktop.services.tools.connection import Connection

__all__ = ["CLOSE_S", "Report", "ServerThread"]

log = logging.getLogger(__name__)

CLOSE_S = 3.0
"""The longest that `close` waits. Servers have about a second to end before they are killed."""
Report = Callable[[Event], None]


class ServerThread:
    """Begins with the first server. Starts are numbered: reports of an earlier one can be told apart."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._generation = 0
        self._closing = False
        self._connections: dict[str, Connection] = {}
        """Used on the thread only, as are the two below."""
        self._owners: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, config: ServerConfig, asks_sign_in: bool = False) -> int:
        """Start a server that does not run; returns the number of this start. With `asks_sign_in`, the user
        signs in to it again: `PageOffered` is reported.
        """
        self._generation += 1
        self._soon(self._start, config, self._generation, asks_sign_in)
        return self._generation

    def forget(self, name: str) -> None:
        """Delete the tokens of a server."""
        self._soon(self._forget, name)

    def stop(self, name: str) -> None:
        """End a server and its calls."""
        self._soon(self._stop, name)

    def call(self, number: int, server: str, tool: str, arguments: Mapping[str, Any]) -> None:
        """Call a tool; `CallEnded` with this number is reported once."""
        self._soon(self._call, number, server, tool, arguments)

    def fetch(self, number: int, server: str, what: str, name: str, arguments: Mapping[str, str]) -> None:
        """Fetch a "prompt" or "resource"; `Fetched` with this number is reported once."""
        self._soon(self._fetch, number, server, what, name, arguments)

    def cancel(self, number: int) -> None:
        """Stop a call or what is fetched; nothing is reported."""
        self._soon(self._cancel, number)

    def close(self) -> bool:
        """End all servers, and wait for that at most `CLOSE_S`; whether they ended."""
        if self._thread is None:
            return True
        if not self._closing:
            self._soon(self._finish)
            self._closing = True
        self._thread.join(CLOSE_S)
        return not self._thread.is_alive()

    def _soon(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run `action` on the thread."""
        if self._closing:
            return
        if self._loop is None:
            import asyncio  # The first paint does not wait for it.

            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, name="tool-servers", daemon=True)
            self._thread.start()
        with contextlib.suppress(RuntimeError):  # The loop is closed: the thread has died.
            self._loop.call_soon_threadsafe(action, *arguments)

    def _run(self) -> None:
        import asyncio

        assert self._loop is not None
        loop = self._loop
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        import asyncio

        self._finished = asyncio.Event()
        await self._finished.wait()
        for connection in self._connections.values():
            connection.stop()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _forget(self, name: str) -> None:
        import asyncio

        self._keep(asyncio.to_thread(tokens.forget, name))

    def _start(self, config: ServerConfig, generation: int, asks_sign_in: bool) -> None:
        from desktop.services.tools.connection import Connection

        connection = Connection(config, generation, self._report, asks_sign_in)
        self._connections[config.name] = connection
        self._keep(connection.run())

    def _stop(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            connection.stop()

    def _call(self, number: int, server: str, tool: str, arguments: Mapping[str, Any]) -> None:
        connection = self._connections.get(server)
        if connection is None:
            self._report(CallEnded(number, f"The tool server {server!r} is not running.", True))
            return
        self._own(number, connection, connection.call(number, tool, arguments))

    def _fetch(self, number: int, server: str, what: str, name: str, arguments: Mapping[str, str]) -> None:
        connection = self._connections.get(server)
        if connection is None:
            self._report(Fetched(number, (), _("This tool server is not running. Look at File > Tools.")))
            return
        self._own(number, connection, connection.fetch(number, what, name, arguments))

    def _own(self, number: int, connection: Connection, work: Coroutine[Any, Any, None]) -> None:
        self._owners[number] = connection
        self._keep(self._owned(number, work))

    async def _owned(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._owners.pop(number, None)

    def _cancel(self, number: int) -> None:
        connection = self._owners.get(number)
        if connection is not None:
            connection.cancel(number)

    def _finish(self) -> None:
        self._finished.set()

    def _keep(self, work: Any) -> None:
        """Run a coroutine; asyncio itself holds its tasks weakly."""
        assert self._loop is not None
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a tool server's task failed: %s", type(error).__name__)
