"""Servers of tools (MCP) and calls of their tools, for the GUI thread."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from desktop.services.tools.config_file import FILE_NAME, ConfigFile
from desktop.services.tools.events import CallEnded, Fetched, PageOffered, ServerChanged
from desktop.services.tools.offered_names import names_for
from desktop.services.tools.server_json import parse_servers
from desktop.services.tools.server_thread import ServerThread
from desktop.services.tools.servers import PERMISSIONS, OfferedTool, ServerConfig, ServerState
from engine.core import Tool
from engine.errors import BadSetting
from engine.words import _

__all__ = ["ToolService"]

log = logging.getLogger(__name__)


class ToolService(QObject):
    """The servers in `mcp.json` of a folder, on a thread of their own that starts with the first server.

    `notices` holds sentences about what could not be read from the file.

    Signals:
        changed(): a server's configuration, status, tools or log is another.
        ended(int number, str text, bool failed): a call has a result for the model, or an error. Comes after
            `call` has returned, and not for calls that were cancelled.
        fetched(int number, object parts, str trouble): what `fetch_prompt` or `fetch_resource` asked for, a
            tuple of `Part`, or a sentence why it cannot be had; not for what was cancelled.
        page_offered(str name, str page): the user signs in to this server at this page, https or of this
            computer; it is to be opened in the browser.
    """

    changed = Signal()
    ended = Signal(int, str, bool)
    fetched = Signal(int, object, str)
    page_offered = Signal(str, str)
    _arrived = Signal(object)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = ConfigFile(folder / FILE_NAME)
        self._states = {config.name: ServerState(config) for config in self._file.read()}
        self.notices = self._file.notices
        self._generations: dict[str, int] = {}
        self._last = 0
        self._calls: set[int] = set()
        self._started = False
        self._thread = ServerThread(self._arrived.emit)
        self._arrived.connect(self._on_event)

    def servers(self) -> tuple[ServerState, ...]:
        """All servers, in the order of the file."""
        return tuple(self._states.values())

    def start(self) -> None:
        """Start all servers that are enabled, in the background. Does nothing the second time."""
        if not self._started:
            self._started = True
            for name in tuple(self._states):
                self._begin(name)

    def offered(
        self, off: Collection[str] = (), local_only: bool = False
    ) -> tuple[tuple[Tool, OfferedTool], ...]:
        """The tools that a model may be offered, each with the name by which it is called.

        Servers named in `off` are left out, with `local_only` also those of other computers.
        """
        tools = [
            tool
            for state in self.ready(off, local_only)
            for tool in state.tools
            if self.permission(tool.server, tool.tool) != "never"
        ]
        return tuple(
            (Tool(name, tool.description, tool.parameters), tool)
            for name, tool in zip(names_for(tools), tools, strict=True)
        )

    def ready(self, off: Collection[str] = (), local_only: bool = False) -> tuple[ServerState, ...]:
        """The servers that run, without those named in `off`, with `local_only` also without those of other
        computers.
        """
        return tuple(
            state
            for state in self._states.values()
            if state.status == "ready" and (state.config.is_local or not local_only)
            if state.config.name not in off
        )

    def permission(self, server: str, tool: str) -> str:
        """One of `PERMISSIONS`: whether the tool may run; "ask" where nothing is saved."""
        state = self._states.get(server)
        return dict(state.config.permissions).get(tool, "ask") if state is not None else "ask"

    def set_permission(self, server: str, tool: str, value: str) -> None:
        """Save whether a tool may run. Raises `StoreError`; ValueError for another value."""
        if value not in PERMISSIONS:
            raise ValueError(value)
        state = self._states.get(server)
        if state is not None and self.permission(server, tool) != value:
            saved = {**dict(state.config.permissions), tool: value}
            kept = tuple((name, its) for name, its in saved.items() if its != "ask")
            self._save(server, replace(state, config=replace(state.config, permissions=kept)))

    def call(self, server: str, tool: str, arguments: str) -> int:
        """Call a tool with the JSON text of an object; returns the number that `ended` will have."""
        self._last += 1
        number = self._last
        self._calls.add(number)
        state = self._states.get(server)
        problem = ""
        if state is None or state.status != "ready":
            problem = f"The tool server {server!r} is not running."
        try:
            values = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            problem = problem or f"The arguments are not valid JSON ({error}). Call the tool again."
        else:
            if not isinstance(values, dict):
                problem = problem or "The arguments are not a JSON object. Call the tool again with one."
        if problem:
            self._later(lambda: self._on_event(CallEnded(number, problem, True)))
        else:
            self._thread.call(number, server, tool, values)
        return number

    def fetch_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> int:
        """Fetch the text of a prompt; returns the number that `fetched` will have."""
        return self._fetch(server, "prompt", name, arguments)

    def fetch_resource(self, server: str, uri: str) -> int:
        """Fetch a resource; returns the number that `fetched` will have."""
        return self._fetch(server, "resource", uri, {})

    def _fetch(self, server: str, what: str, name: str, arguments: Mapping[str, str]) -> int:
        self._last += 1
        self._calls.add(self._last)
        self._thread.fetch(self._last, server, what, name, arguments)
        return self._last

    def cancel(self, number: int) -> None:
        """Stop a call, or what is fetched: its server is asked to stop working, and nothing more is heard of
        it.
        """
        if number in self._calls:
            self._calls.discard(number)
            self._thread.cancel(number)

    def add(self, *configs: ServerConfig) -> None:
        """Add servers, all of them or none; those that are enabled start.

        Raises `BadSetting` if a server has one of the names already, `StoreError` if the file cannot be
        written.
        """
        for config in configs:
            self._check_free(config.name)
        self._write({**self._states, **{config.name: ServerState(config) for config in configs}})
        for config in configs:
            self._begin(config.name)
        self.changed.emit()

    def _check_free(self, name: str) -> None:
        if name in self._states:
            raise BadSetting(
                _("There is a tool server called “{name}” already. Choose another name.", name=name)
            )

    def change(self, before: str, config: ServerConfig) -> None:
        """Replace the server called `before`, whose name may change; it starts if it is enabled.

        Raises `BadSetting` if another server has the name, `StoreError` if the file cannot be written.
        """
        name = config.name
        if name != before:
            self._check_free(name)
        old = self._states[before].config
        moved = old.signs_in and (old.name, old.url) != (name, config.url)
        if moved:
            config = replace(config, signs_in=False)
        state = ServerState(config)
        states = {(name if each == before else each): its for each, its in self._states.items()}
        if name != before:
            self._file.rename(before, name)
        self._write({**states, name: state})
        self._stop(before)
        if moved:
            self._thread.forget(before)
        self._begin(name)
        self.changed.emit()

    def sign_in(self, name: str) -> None:
        """Start a server again, to which the user signs in; `page_offered` is emitted, and after that the
        server runs or has failed. Raises `StoreError`.
        """
        state = self._states.get(name)
        if state is not None:
            config = replace(state.config, signs_in=True, enabled=True)
            self._write({**self._states, name: replace(state, config=config)})
            self._stop(name)
            self._begin(name, anyway=True, asks_sign_in=True)
            self.changed.emit()

    def sign_out(self, name: str) -> None:
        """Delete the tokens of a server, and start it again without. Raises `StoreError`."""
        state = self._states.get(name)
        if state is not None and state.config.signs_in:
            self.change(name, replace(state.config, signs_in=False))
            self._thread.forget(name)

    def remove(self, name: str) -> None:
        """Stop a server and remove it. Raises `StoreError`."""
        if name in self._states:
            signs_in = self._states[name].config.signs_in
            self._write({each: its for each, its in self._states.items() if each != name})
            self._stop(name)
            if signs_in:
                self._thread.forget(name)
            self.changed.emit()

    def set_enabled(self, name: str, on: bool) -> None:
        """Start a server now and with the program, or stop it. Raises `StoreError`."""
        state = self._states.get(name)
        if state is not None and state.config.enabled != on:
            self.change(name, replace(state.config, enabled=on))

    def restart(self, name: str) -> None:
        """Stop a server, if it runs, and start it again."""
        if name in self._states:
            self._stop(name)
            self._begin(name, anyway=True)
            self.changed.emit()

    def save_in(self, folder: Path) -> None:
        """Keep the file in another folder from now on, and write it there. Raises `StoreError`."""
        self._file.path = folder / FILE_NAME
        if self._states:
            self._write(self._states)

    def read_json(self, text: str) -> tuple[ServerConfig, ...]:
        """The servers in a pasted text; nothing is saved. Raises `BadSetting`."""
        return parse_servers(text)

    def close(self) -> bool:
        """End all servers with their processes; whether they ended in time (2 s)."""
        self._calls.clear()
        return self._thread.close()

    def _begin(self, name: str, anyway: bool = False, asks_sign_in: bool = False) -> None:
        state = self._states[name]
        runs = state.config.enabled and (self._started or anyway)
        self._states[name] = ServerState(state.config, "starting" if runs else "off")
        if runs:
            self._generations[name] = self._thread.start(state.config, asks_sign_in)

    def _stop(self, name: str) -> None:
        if self._generations.pop(name, None) is not None:
            self._thread.stop(name)

    def _save(self, name: str, state: ServerState) -> None:
        self._write({**self._states, name: state})
        self.changed.emit()

    def _write(self, states: dict[str, ServerState]) -> None:
        self._file.write(state.config for state in states.values())
        self._states = states

    def _later(self, action: Callable[[], None]) -> None:
        QTimer.singleShot(0, self, action)

    @Slot(object)
    def _on_event(self, event: object) -> None:
        if isinstance(event, CallEnded) and event.number in self._calls:
            self._calls.discard(event.number)
            self.ended.emit(event.number, event.text, event.failed)
        if isinstance(event, Fetched) and event.number in self._calls:
            self._calls.discard(event.number)
            self.fetched.emit(event.number, event.parts, event.trouble)
        if isinstance(event, PageOffered) and self._generations.get(event.name) == event.generation:
            self.page_offered.emit(event.name, event.page)
        if isinstance(event, ServerChanged) and self._generations.get(event.name) == event.generation:
            state = self._states[event.name]
            self._states[event.name] = ServerState(
                state.config, event.status, event.sentence, event.tools, event.log,
                event.prompts, event.resources, event.wants_sign_in,
            )  # fmt: skip
            self.changed.emit()
