"""RemoteModels: opens models of servers beside those of this computer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path

from desktop.services.engine.model_host import Describe, Leaving, OpenChat
from desktop.services.providers.servers import ListedModel, Server
from engine.core import ChatSource, Loading, ModelInfo
from engine.drain import mapped
from engine.errors import ModelNotFound, RemoteError
from engine.remote import Capabilities, split_address
from engine.remote.keys import key_of
from engine.settings import CacheSettings, LoadSettings
from engine.words import _

__all__ = ["LIST_SECONDS", "RemoteModels"]

LIST_SECONDS = 20.0
"""So long a server may take to list its models."""


class RemoteModels:
    """The servers by their ids. Any thread may read them and add what was found out.

    `found(provider, model)` is called after a model was probed, on the thread that did it.
    """

    def __init__(self, servers: Iterable[Server], found: Callable[[str, str], object]) -> None:
        self._servers = {server.provider.id: server for server in servers}
        self._found = found
        self._lock = threading.Lock()

    @property
    def servers(self) -> Mapping[str, Server]:
        """A snapshot, in the order in which they were added."""
        with self._lock:
            return dict(self._servers)

    def put(self, server: Server) -> None:
        """Add a server, or replace the one of the same id."""
        with self._lock:
            self._servers[server.provider.id] = server

    def remove(self, provider: str) -> None:
        """Forget a server."""
        with self._lock:
            self._servers.pop(provider, None)

    def set_models(self, asked: Server, models: tuple[ListedModel, ...]) -> None:
        """What a server lists, unless it has another address by now."""
        with self._lock:
            if (server := self._still(asked)) is not None:
                self._servers[server.provider.id] = server._replace(models=models)

    def set_capabilities(self, asked: Server, model: str, found: Capabilities) -> None:
        """What was found out about a model, unless the server has another address by now."""
        with self._lock:
            if (server := self._still(asked)) is not None:
                known = {**server.capabilities, model: found}
                self._servers[server.provider.id] = server._replace(capabilities=known)
        self._found(asked.provider.id, model)

    def _still(self, asked: Server) -> Server | None:
        """What is known now of the server that was asked; None if it was removed or has another address."""
        server = self._servers.get(asked.provider.id)
        return server if server is not None and server.provider.base_url == asked.provider.base_url else None

    def capabilities(self, path: str) -> Capabilities | None:
        """What is known about the model at this address; None for nothing, and for a file."""
        provider, model = split_address(path) or ("", "")
        server = self.servers.get(provider)
        return server.capabilities.get(model) if server is not None else None

    def opening(self, local: OpenChat) -> OpenChat:
        """`local`, and for an address of a server a model there."""

        def open_chat(
            path: Path, load: LoadSettings, cache: CacheSettings, stop: threading.Event, leaving: Leaving
        ) -> Generator[Loading, None, ChatSource]:
            address = split_address(str(path))
            return self._open(*address, stop) if address else local(path, load, cache, stop, leaving)

        return open_chat

    def describing(self, local: Describe) -> Describe:
        """`local`, and for an address of a server what is known about the model there, without asking."""

        def describe(path: Path) -> ModelInfo:
            address = split_address(str(path))
            if address is None:
                return local(path)
            from engine.remote.chat import remote_info

            provider, model = address
            server = self._server(provider)
            known = server.capabilities.get(model, Capabilities(chat=True))
            return remote_info(server.provider, model, known)

        return describe

    def _server(self, provider: str) -> Server:
        server = self.servers.get(provider)
        if server is None:
            raise ModelNotFound(
                _(
                    "The server “{provider}” is no longer in your list of servers. Add it again in "
                    "the model library, or choose another model.",
                    provider=provider,
                )
            )
        return server

    def _open(self, provider: str, model: str, stop: threading.Event) -> Generator[Loading, None, ChatSource]:
        """A model of a server; one that was never probed is probed first. Raises `EngineError`."""
        yield Loading(_("Reading the key"), 0, 1)
        server = self._server(provider)
        key = key_of(provider).get()
        # imported here: the window starts without HTTP
        from engine.remote.chat import RemoteChat
        from engine.remote.client import Client, RemoteModel
        from engine.remote.probe import probe

        found = server.capabilities.get(model)
        models: tuple[RemoteModel, ...] = ()
        if found is None:
            yield Loading(_("Listing the models of {provider}", provider=server.provider.name), 0, 0)
            with contextlib.suppress(RemoteError):  # some list none, and the model may answer all the same
                models = Client(server.provider, key).models(stop, LIST_SECONDS)
                self.set_models(server, tuple(ListedModel(each.name, each.context_length) for each in models))
            known = next((each for each in models if each.name == model), RemoteModel(model))
            probing = probe(server.provider, key, known, stop)
            found = yield from mapped(probing, lambda sentence: Loading(sentence, 0, 0))
            self.set_capabilities(server, model, found)
        return RemoteChat(server.provider, model, found, key)
