"""Tokens of the tool servers that the user has signed in to: in the system's keyring, or for this run only.

Not on the GUI thread: the keyring may ask for its password.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from engine.platform.key_store import KeyStore
from engine.words import N_

__all__ = ["forget", "load", "save"]

_stores: dict[str, KeyStore] = {}


def load(server: str, url: str) -> dict[str, Any]:
    """What was saved for a server; {} if nothing was, or if it is for another address."""
    try:
        found = json.loads(base64.urlsafe_b64decode(_store(server).get()))
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("url") == url else {}


def save(server: str, url: str, values: dict[str, Any]) -> None:
    """Save JSON values; until the program ends where no keyring takes them."""
    text = json.dumps({**values, "url": url})
    _store(server).put(base64.urlsafe_b64encode(text.encode()).decode())


def forget(server: str) -> None:
    """Delete what was saved for a server."""
    _store(server).delete()


def _store(server: str) -> KeyStore:
    if server not in _stores:
        _stores[server] = KeyStore(f"tool-server-{server}", N_("token"))
    return _stores[server]
