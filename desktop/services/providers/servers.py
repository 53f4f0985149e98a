"""The servers that the user has added, as they are kept in the preferences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from engine.errors import BadSetting
from engine.remote import Capabilities, Provider
from engine.words import _

__all__ = ["ListedModel", "Saved", "Server", "id_for", "read_servers"]

_MOST_KEPT = 1000
"""Models of one server that are remembered."""


class ListedModel(NamedTuple):
    """A model that a server lists; `context_length` in tokens, 0 if it does not say."""

    name: str
    context_length: int = 0


class Server(NamedTuple):
    """A server, the models that it listed last, and what was found out about those that were probed."""

    provider: Provider
    models: tuple[ListedModel, ...] = ()
    capabilities: Mapping[str, Capabilities] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its models: the one to offer first, those used before, and those that it lists."""
        own = [self.provider.model] if self.provider.model else []
        return tuple(dict.fromkeys([*own, *self.capabilities, *(model.name for model in self.models)]))

    def to_json(self) -> dict[str, Any]:
        """For the preferences; the key is not there."""
        return {
            "provider": self.provider.to_json(),
            "models": [list(model) for model in self.models[:_MOST_KEPT]],
            "capabilities": {name: found.to_json() for name, found in self.capabilities.items()},
        }

    @classmethod
    def from_json(cls, values: object) -> Server:
        """What `to_json` wrote; parts that cannot be read are left out. Raises `BadSetting` without a usable
        provider.
        """
        kept = values if isinstance(values, dict) else {}
        provider = kept.get("provider")
        if not isinstance(provider, dict):
            raise BadSetting(_("A saved server cannot be read."))
        models, found = kept.get("models"), kept.get("capabilities")
        return cls(
            Provider.from_json(provider),
            tuple(
                ListedModel(each[0], each[1])
                for each in (models if isinstance(models, list) else ())
                if isinstance(each, list) and len(each) == 2
                and isinstance(each[0], str) and each[0] and type(each[1]) is int
            ),
            {
                name: Capabilities.from_json(each)
                for name, each in (found if isinstance(found, dict) else {}).items()
                if isinstance(each, dict)
            },
        )  # fmt: skip


class Saved(NamedTuple):
    """What the preferences hold: the `servers`, each id once; `unread`, which cannot be used and stay as they
    are; and a sentence for each of those.
    """

    servers: tuple[Server, ...] = ()
    unread: tuple[Any, ...] = ()
    problems: tuple[str, ...] = ()


def read_servers(saved: object) -> Saved:
    """The servers that are kept, as read from JSON."""
    servers: dict[str, Server] = {}
    unread: list[Any] = []
    problems: list[str] = []
    for each in saved if isinstance(saved, list) else ():
        try:
            server = Server.from_json(each)
        except BadSetting as error:
            unread.append(each)
            problems.append(str(error))
        else:
            servers.setdefault(server.provider.id, server)
    return Saved(tuple(servers.values()), tuple(unread), tuple(problems))


def id_for(name: str, taken: Container[str]) -> str:
    """An id for a new server: its name in small letters, with a number if it is `taken`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:30].strip("-") or "server"
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}-{number}"
    return found
