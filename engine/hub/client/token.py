"""The user's hub token, kept in the system's keyring or for this run only; never written to a plain file."""

from __future__ import annotations

import os
from pathlib import Path

from engine.platform.key_store import KeyStore, clean
from engine.words import N_

_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_store = KeyStore("hugging-face-token", N_("token"))


def hub_token() -> str:
    """The token to send, or "": from HF_TOKEN, else from this program, else from the file of `hf auth login`.

    The keyring may ask the user for its password, so do not call this on the GUI thread.
    """
    for name in _VARIABLES:
        if token := clean(os.environ.get(name, "")):
            return token
    return _store.get() or _from_file()


def set_hub_token(token: str) -> str:
    """Store a token; "" deletes it.

    Returns "" if the keyring holds it, else a sentence that says what happened instead.
    """
    return _store.put(token)


def delete_hub_token() -> str:
    """Delete the token of this program. Returns "", or a sentence if the keyring refuses."""
    return _store.delete()


def token_source() -> str:
    """Where `hub_token` finds the token: a variable's name, "keyring", "this run", "file" or ""."""
    for name in _VARIABLES:
        if clean(os.environ.get(name, "")):
            return name
    return _store.place() or ("file" if _from_file() else "")


def _from_file() -> str:
    """Source: the `HF_TOKEN_PATH` and `HF_HOME` entries of
    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables."""
    named = os.environ.get("HF_TOKEN_PATH")
    path = Path(os.path.expandvars(named)).expanduser() if named else hub_home() / "token"
    try:
        return clean(path.read_text("utf-8")) if path.stat().st_size < 4096 else ""
    except (OSError, UnicodeDecodeError):
        return ""


def hub_home() -> Path:
    """The folder of Hugging Face's tools: HF_HOME, else `huggingface` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(
        os.path.expandvars(os.environ.get("HF_HOME") or str(Path(cache) / "huggingface"))
    ).expanduser()
