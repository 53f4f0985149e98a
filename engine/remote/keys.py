"""API keys of servers: in the system's keyring, or for this run only; never in a file, log or sentence."""

from __future__ import annotations

from engine.platform.key_store import KeyStore
from engine.words import N_

_stores: dict[str, KeyStore] = {}


def key_of(provider_id: str) -> KeyStore:
    """Where the key of a provider is kept. Not on the GUI thread: the keyring may ask for a password."""
    if provider_id not in _stores:
        _stores[provider_id] = KeyStore(f"provider-{provider_id}", N_("key"))
    return _stores[provider_id]


def hidden(text: str, key: str) -> str:
    """`text` without the key, should a server repeat it in an error."""
    return text.replace(key, "[key]") if key else text
