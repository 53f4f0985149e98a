"""One start of a tool server: the session with it, from its start to its end. Imports the library `mcp`."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any

import anyio
import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

from desktop.services.tools.events import CallEnded, Event, Fetched, PageOffered, Part, ServerChanged
from desktop.services.tools.fetching import fetch_prompt, fetch_resource
from desktop.services.tools.launching import filled
from desktop.services.tools.offers import list_prompts, list_resources, list_tools
from desktop.services.tools.results import result_text
from desktop.services.tools.server_log import ServerLog
from desktop.services.tools.servers import OfferedPrompt, OfferedResource, OfferedTool, ServerConfig
from desktop.services.tools.sign_in import SIGN_IN_S, sign_in_for
from desktop.services.tools.transports import Opened, open_transport
from desktop.services.tools.trouble import sentence_for
from desktop.services.tools.unusable import UnusableConfig
from engine.platform.version import version
from engine.words import _

__all__ = ["CALL_S", "START_S", "Connection"]

log = logging.getLogger(__name__)
logging.getLogger("mcp").setLevel(logging.CRITICAL)  # It quotes what servers write, which may be secret.

START_S = 60.0
"""The time limit of a start; npx and uvx may download a program first."""
CALL_S = 300.0
"""The time limit of a call, from its last report of progress."""
_MODERN_ONLY = {types.UNSUPPORTED_PROTOCOL_VERSION, types.METHOD_NOT_FOUND}
"""How a server without the handshake of the protocol before 2026 answers it."""
_CHANGES = (
    (types.ToolListChangedNotification, "tools"),
    (types.PromptListChangedNotification, "prompts"),
    (types.ResourceListChangedNotification, "resources"),
)


class _Dispatcher(JSONRPCDispatcher[Any]):
    """Says when the server has closed the connection, also while nothing waits for an answer."""

    closed: Callable[[], None]

    async def run(self, *arguments: Any, **named: Any) -> None:
        try:
            await super().run(*arguments, **named)
        finally:
            self.closed()


class Connection:
    """A server that runs or starts; all methods are called in the asyncio loop."""

    def __init__(
        self,
        config: ServerConfig,
        generation: int,
        report: Callable[[Event], None],
        asks_sign_in: bool = False,
    ) -> None:
        self.config = config
        self._asks_sign_in = asks_sign_in
        self._gave_up: Exception | None = None
        self._generation = generation
        self._report = report
        self._status = "starting"
        self._sentence = ""
        self._opened = Opened()
        self._tools: tuple[OfferedTool, ...] = ()
        self._prompts: tuple[OfferedPrompt, ...] = ()
        self._resources: tuple[OfferedResource, ...] = ()
        self._stopped = self._closed = False
        self._changed: set[str] = set()
        """What is to be listed again: "tools", "prompts", "resources"."""
        self._scope = anyio.CancelScope()
        self._wake = asyncio.Event()
        self._session: ClientSession | None = None
        self._calls: dict[int, anyio.CancelScope] = {}
        self._log = ServerLog(asyncio.get_running_loop(), self._tell)

    def stop(self) -> None:
        """End the session and the server's process; `run` returns then."""
        self._stopped = True
        for scope in self._calls.values():
            scope.cancel()
        if not self._opened.starting:
            self._scope.cancel()

    def cancel(self, number: int) -> None:
        """Stop a call; the server gets `notifications/cancelled`."""
        scope = self._calls.get(number)
        if scope is not None:
            scope.cancel()

    async def run(self) -> None:
        """Connect, list the tools, and follow the server until it ends or `stop` is called."""
        self._scope.deadline = anyio.current_time() + START_S + (SIGN_IN_S if self._asks_sign_in else 0)
        try:
            with self._scope:
                async with AsyncExitStack() as stack:
                    await self._connect(stack)
                    self._scope.deadline = math.inf
                    self._become("ready")
                    await self._follow()
            if self._scope.cancelled_caught and self._gave_up is not None:
                self._fail(sentence_for(self._gave_up, self.config, self._opened, ""))
            elif self._scope.cancelled_caught:
                self._fail(
                    _(
                        "The tool server did not answer within {seconds} seconds. Look at its log, and "
                        "restart it.",
                        seconds=round(START_S),
                    )
                )
        except Exception as error:  # noqa: BLE001 - libraries raise what they like, often in groups
            error = self._gave_up or error
            self._fail(sentence_for(error, self.config, self._opened, self._log.last_line))
        finally:
            self._session = None
            self._log.close()

    async def _connect(self, stack: AsyncExitStack) -> None:
        config = filled(self.config)
        sign_in = await sign_in_for(stack, config, self._asks_sign_in, self._offer_page, self._give_up)
        read, write = await open_transport(stack, config, self._log, self._opened, sign_in)
        if self._stopped:
            self._scope.cancel()
        dispatcher = _Dispatcher(read, write)
        dispatcher.closed = self._on_closed
        session = ClientSession(
            logging_callback=self._on_logging,
            message_handler=self._on_message,
            client_info=types.Implementation(name="Inglenook", version=version()),
            dispatcher=dispatcher,
        )
        await stack.enter_async_context(session)
        try:
            await session.initialize()
        except MCPError as error:
            if error.code not in _MODERN_ONLY:
                raise
            await session.discover()
        self._tools = await list_tools(session, self.config.name)
        self._look_at("prompts", "resources")  # later: the tools do not wait for them
        self._session = session

    def _offer_page(self, page: str) -> None:
        self._become("starting", _("Sign in on the page in your browser, then come back."))
        self._report(PageOffered(self.config.name, self._generation, page))

    def _give_up(self, error: Exception) -> None:
        """Signing in has failed. The library may wait for ever for a request that it could not send."""
        self._gave_up = error
        self._scope.cancel()

    def _look_at(self, *changed: str) -> None:
        self._changed.update(changed)
        self._wake.set()

    async def _follow(self) -> None:
        """List what the server offers whenever it changes, until the server closes the connection."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._closed:
                self._opened.refused = 0  # several requests may have found a session forgotten
                raise ConnectionError
            changed, self._changed = self._changed, set()
            for what in sorted(changed, reverse=True):  # the tools first
                with anyio.move_on_after(START_S):
                    await self._list(what)
            if changed:
                self._become("ready")

    async def _list(self, what: str) -> None:
        session, name = self._session, self.config.name
        assert session is not None
        try:
            if what == "tools":
                self._tools = await list_tools(session, name)
            elif what == "prompts":
                self._prompts = await list_prompts(session, name)
            else:
                self._resources = await list_resources(session, name)
        except Exception as error:  # noqa: BLE001 - a list that cannot be read is no reason to end
            if not (isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED):
                self._log.add(f"{what}/list: {error}")  # else what the server wrote last says why it ended

    async def fetch(self, number: int, what: str, name: str, arguments: Mapping[str, str]) -> None:
        """Fetch the "prompt" called `name`, or the "resource" at that address; nothing once cancelled."""
        parts: tuple[Part, ...] = ()
        trouble = ""
        with anyio.CancelScope(deadline=anyio.current_time() + START_S) as scope:
            self._calls[number] = scope
            try:
                if self._session is None:
                    trouble = _("This tool server is not running. Look at File > Tools.")
                elif what == "prompt":
                    parts = await fetch_prompt(self._session, name, arguments)
                else:
                    parts = await fetch_resource(self._session, name)
            except UnusableConfig as error:
                trouble = str(error)
            except MCPError as error:
                trouble = _("The tool server answered with an error: {problem}", problem=str(error)[:300])
            except Exception as error:  # noqa: BLE001 - libraries raise what they like
                log.warning("a %s was not fetched: %s", what, type(error).__name__)
                trouble = _(
                    "The answer of the tool server cannot be read ({problem}).", problem=str(error)[:300]
                )
            finally:
                self._calls.pop(number, None)
        if scope.cancelled_caught:
            if not self._stopped and scope.deadline > anyio.current_time():
                return  # The user has cancelled it.
            trouble = _("The tool server did not answer. Look at its log in File > Tools.")
        self._report(Fetched(number, parts, trouble))

    async def call(self, number: int, tool: str, arguments: Mapping[str, Any]) -> None:
        """Call a tool and report its result, an error for the model included; nothing once cancelled."""
        with anyio.CancelScope(deadline=anyio.current_time() + CALL_S) as scope:
            self._calls[number] = scope
            try:
                text, failed = await self._result(tool, arguments, scope)
            finally:
                self._calls.pop(number, None)
        if scope.cancelled_caught:
            if not self._stopped and scope.deadline > anyio.current_time():
                return  # The user has cancelled it.
            failed = True
            text = (
                "The tool server was stopped before the call had a result."
                if self._stopped
                else f"The tool reported nothing for {round(CALL_S)} seconds, so the call was stopped."
            )
        self._report(CallEnded(number, text, failed))

    async def _result(
        self, tool: str, arguments: Mapping[str, Any], scope: anyio.CancelScope
    ) -> tuple[str, bool]:
        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            scope.deadline = anyio.current_time() + CALL_S

        if self._session is None:
            return f"The tool server {self.config.name!r} is not running.", True
        try:
            result = await self._session.call_tool(tool, dict(arguments), progress_callback=progressed)
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                return "The tool server ended before the call had a result.", True
            if self._opened.refused == HTTPStatus.NOT_FOUND:
                # The protocol's answer to a session that the server has forgotten, as after its restart.
                self._opened.refused = 0
                self._on_closed()
            return f"The tool server answered with an error: {error}", True
        except Exception as error:  # noqa: BLE001 - libraries raise what they like
            log.warning("a call of a tool failed: %s", type(error).__name__)
            return f"The call failed: {error}", True
        return result_text(result)

    async def _on_message(self, message: IncomingMessage) -> None:
        for kind, what in _CHANGES:
            if isinstance(message, kind):
                self._look_at(what)
        if isinstance(message, Exception):
            self._log.add(_("The server wrote a line that is not a message of the protocol."))

    async def _on_logging(self, params: types.LoggingMessageNotificationParams) -> None:
        data = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False)
        self._log.add(f"{params.level}: {data}")

    def _on_closed(self) -> None:
        self._closed = True
        self._wake.set()

    def _wants_sign_in(self) -> bool:
        unsigned = self._opened.refused == HTTPStatus.UNAUTHORIZED
        return bool(self.config.url) and (unsigned or self._gave_up is not None)

    def _become(self, status: str, sentence: str = "") -> None:
        self._status, self._sentence = status, sentence
        self._tell()

    def _fail(self, sentence: str) -> None:
        self._tools, self._prompts, self._resources = (), (), ()
        self._become("failed", sentence)

    def _tell(self) -> None:
        if not self._stopped:
            self._report(
                ServerChanged(
                    self.config.name,
                    self._generation,
                    self._status,
                    self._sentence,
                    self._tools,
                    self._log.text,
                    self._prompts,
                    self._resources,
                    self._status == "failed" and self._wants_sign_in(),
                )
            )
