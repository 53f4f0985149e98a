"""ProviderService: the servers that the user has added. None is contacted unless the user asks for it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Generator
from typing import TypeVar

from PySide6.QtCore import QObject, Qt, Signal, Slot

from desktop.items.models.local_models import ModelEntry
from desktop.services.engine.background import Background
from desktop.services.engine.job import Job
from desktop.services.providers.remote_models import LIST_SECONDS, RemoteModels
from desktop.services.providers.servers import ListedModel, Server, id_for, read_servers
from desktop.store.settings.preferences import Preferences
from engine.core import ModelInfo
from engine.printable import one_line
from engine.remote import Capabilities, Provider, model_address, shown_name, split_address
from engine.remote.keys import key_of
from engine.remote.parameters import reason_against, reason_against_all
from engine.settings import Settings
from engine.words import _

__all__ = ["ProviderService"]

T = TypeVar("T")


class ProviderService(QObject):
    """Keeps servers in the preferences and their keys in the keyring, lists their models, and tests them.
    Each server has a thread of its own, which begins with the first question to it.

    `models` opens their models. Signals:
        changed(str provider): a server was added, changed or removed, or more is known about it.
        moved(str provider): its address or another setting that requests depend on has changed, or its key;
            or it was removed.
    """

    changed = Signal(str)
    moved = Signal(str)
    _probed = Signal(str, str)

    def __init__(self, preferences: Preferences, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._preferences = preferences
        saved = read_servers(preferences.servers)
        preferences.notices += saved.problems
        self._unread = saved.unread
        self.models = RemoteModels(saved.servers, self._probed.emit)
        self._threads: dict[str, Background] = {}
        self._jobs: dict[str, Job] = {}
        self._activity: dict[str, str] = {}
        self._trouble: dict[str, str] = {}
        self._key_places: dict[str, str] = {}
        self._probed.connect(self._on_probed, Qt.ConnectionType.QueuedConnection)

    # -- what is known

    @property
    def servers(self) -> tuple[Server, ...]:
        """All of them, in the order in which they were added."""
        return tuple(self.models.servers.values())

    def entries(self) -> tuple[ModelEntry, ...]:
        """The models of all servers, as `Server.names` has them."""
        return tuple(
            ModelEntry(
                model_address(server.provider.id, name), one_line(shown_name(name)), server.provider.name,
                source=server.provider.name,
            )
            for server in self.servers
            for name in server.names
        )  # fmt: skip

    def server(self, provider: str) -> Server | None:
        """The server of this id."""
        return self.models.servers.get(provider)

    def activity(self, provider: str) -> str:
        """What a server is being asked for, in words; "" for nothing."""
        return self._activity.get(provider, "")

    def trouble(self, provider: str) -> str:
        """What went wrong when it was asked last; "" for nothing."""
        return self._trouble.get(provider, "")

    def key_place(self, provider: str) -> str | None:
        """Where its key is: "keyring", "this run", "" for nowhere; None while that is not known."""
        return self._key_places.get(provider)

    def capabilities(self, path: str) -> Capabilities | None:
        """What was found out about the model at this address."""
        return self.models.capabilities(path)

    def reason_against(self, model: ModelInfo | None, cls: type[Settings], field: str) -> str:
        """Why a setting does nothing with a model; "" if it works, and for a model of this computer."""
        if model is None or not model.host:
            return ""
        found = self.capabilities(model.path)
        return reason_against(cls, field, found or Capabilities(), self._name_of(model))

    def reason_against_all(self, model: ModelInfo | None, reasons: Collection[str]) -> str:
        """What is said once about settings with these reasons against them; "" if they differ."""
        return reason_against_all(reasons, self._name_of(model) if model is not None else "")

    def _name_of(self, model: ModelInfo) -> str:
        server = self.server((split_address(model.path) or ("", ""))[0])
        return server.provider.name if server is not None else _("The server")

    # -- what the user does

    def new_id(self, name: str) -> str:
        """An id for a new server of this name."""
        return id_for(name, self.models.servers)

    def save(self, provider: Provider) -> None:
        """Add a server, or change the one of the same id; at another address nothing is known about it."""
        before = self.server(provider.id)
        server = Server(provider)
        if before is not None:
            if before.provider == provider:
                return
            if before.provider.base_url == provider.base_url:
                server = before._replace(provider=provider)
            else:
                self._forget_question(provider.id)
        self._trouble.pop(provider.id, None)
        self.models.put(server)
        self._write(provider.id)
        if before is not None:
            renamed = dataclasses.replace(before.provider, name=provider.name, model=provider.model)
            if renamed != provider:
                self.moved.emit(provider.id)

    def remove(self, provider: str) -> None:
        """Forget a server and its key."""
        self._forget_question(provider)
        self.models.remove(provider)
        self._key_places.pop(provider, None)
        self._thread(provider).call(lambda _stop: key_of(provider).delete(), lambda _sentence: None)
        self._write(provider)
        self.moved.emit(provider)

    def set_key(self, provider: str, key: str, in_keyring: bool) -> None:
        """Keep another key, or none (""), in the keyring or for this run only."""

        def keep(_stop: threading.Event) -> tuple[str, str]:
            store = key_of(provider)
            sentence = store.put(key) if in_keyring else store.keep_for_run(key)
            return sentence, store.place()

        def kept(result: tuple[str, str] | None) -> None:
            if result is not None and self.server(provider) is not None:
                sentence, self._key_places[provider] = result
                self._trouble[provider] = sentence
                self.changed.emit(provider)
                self.moved.emit(provider)

        self._thread(provider).call(keep, kept)

    def look_for_key(self, provider: str) -> None:
        """Find out where its key is."""

        def found(place: str | None) -> None:
            if place is not None and self.server(provider) is not None:
                self._key_places[provider] = place
                self.changed.emit(provider)

        self._thread(provider).call(lambda _stop: key_of(provider).place(), found)

    def list_models(self, provider: str) -> None:
        """Ask a server for its models."""
        asked = self.server(provider)
        if asked is None:
            return

        def listed(stop: threading.Event) -> Generator[str, None, tuple[ListedModel, ...]]:
            from engine.remote.client import Client

            yield _("Listing its models")
            client = Client(asked.provider, key_of(provider).get())
            return tuple(
                ListedModel(each.name, each.context_length) for each in client.models(stop, LIST_SECONDS)
            )

        def take(models: tuple[ListedModel, ...]) -> None:
            self.models.set_models(asked, models)
            if not models:
                self._trouble[provider] = _("The server lists no models. Type a model's name to test it.")

        self._ask(provider, listed, take)

    def test(self, provider: str, model: str) -> None:
        """Find out what a server can do with a model, by a few tiny requests."""
        asked = self.server(provider)
        if asked is None or not model.strip():
            return
        listed = next((each for each in asked.models if each.name == model), ListedModel(model))

        def probing(stop: threading.Event) -> Generator[str, None, Capabilities]:
            from engine.remote.client import RemoteModel
            from engine.remote.probe import probe

            return (yield from probe(asked.provider, key_of(provider).get(), RemoteModel(*listed), stop))

        self._ask(provider, probing, lambda found: self.models.set_capabilities(asked, model, found))

    def stop(self, provider: str) -> None:
        """Ask a server no further."""
        if (job := self._jobs.get(provider)) is not None:
            job.stop()

    def close(self) -> bool:
        """End the threads."""
        ended = [thread.close() for thread in self._threads.values()]
        return all(ended)

    # -- parts

    def _thread(self, provider: str) -> Background:
        if provider not in self._threads:
            self._threads[provider] = Background(f"server {provider}", self)
        return self._threads[provider]

    def _forget_question(self, provider: str) -> None:
        """Stop a question that is asked, and forget what came of it or of the one before."""
        self._thread(provider).drop(self._jobs.pop(provider, None))
        self._activity.pop(provider, None)
        self._trouble.pop(provider, None)

    def _ask(
        self,
        provider: str,
        make: Callable[[threading.Event], Generator[str, None, T]],
        take: Callable[[T], object],
    ) -> None:
        """Run one question to a server, instead of the one before."""
        self._forget_question(provider)

        def said(sentence: str) -> None:
            self._activity[provider] = sentence
            self.changed.emit(provider)

        def ended(result: T | None, sentence: str = "") -> None:
            self._forget_question(provider)
            self._trouble[provider] = sentence
            if result is not None:
                take(result)
            self._write(provider)

        said(_("Waiting"))
        self._jobs[provider] = self._thread(provider).start(
            make, ended, lambda sentence, _details: ended(None, sentence), said
        )

    @Slot(str, str)
    def _on_probed(self, provider: str, _model: str) -> None:
        self._write(provider)

    def _write(self, provider: str) -> None:
        """Keep what is known."""
        kept = [server.to_json() for server in self.servers]
        self._preferences.save_servers([*kept, *(each for each in self._unread if isinstance(each, dict))])
        self.changed.emit(provider)
