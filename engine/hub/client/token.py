"""The user's hub token, kept in the system's keyring or for this run only; never written to a plain file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE, USER = "inglenook", "hugging-face-token"
_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_session = ""


def hub_token() -> str:
    """The token to send, or "": from HF_TOKEN, else from this program, else from the file of `hf auth login`.

    The keyring may ask the user for its password, so do not call this on the GUI thread.
    """
    for name in _VARIABLES:
        if token := _clean(os.environ.get(name, "")):
            return token
    return _session or _from_keyring() or _from_file()


def set_hub_token(token: str) -> str:
    """Store a token; "" deletes it.

    Returns "" if the keyring holds it, else a sentence that says what happened instead.
    """
    global _session
    if not token.strip():
        return delete_hub_token()
    token = _clean(token)
    if not token:
        return "That is not a token: it may hold letters, digits and signs only, without blanks between them."
    backend = _backend()
    if backend is not None:
        from keyring.errors import KeyringError

        try:
            backend.set_password(SERVICE, USER, token)
        except (KeyringError, OSError, RuntimeError) as error:
            _session = token
            return (
                f"The system's keyring did not take the token ({_reason(error)}), so it is kept only until "
                "the program ends."
            )
        _session = ""
        return ""
    _session = token
    return "This system has no keyring that can be used, so the token is kept only until the program ends."


def delete_hub_token() -> str:
    """Delete the token of this program. Returns "", or a sentence if the keyring refuses."""
    global _session
    _session = ""
    backend = _backend()
    if backend is None:
        return ""
    from keyring.errors import KeyringError

    try:
        if backend.get_password(SERVICE, USER) is not None:
            backend.delete_password(SERVICE, USER)
    except (KeyringError, OSError, RuntimeError) as error:
        return (
            f"The system's keyring did not give the token up ({_reason(error)}); remove the entry {SERVICE} "
            "there."
        )
    return ""


def token_source() -> str:
    """Where `hub_token` finds the token: a variable's name, "keyring", "this run", "file" or ""."""
    for name in _VARIABLES:
        if _clean(os.environ.get(name, "")):
            return name
    if _session:
        return "this run"
    return "keyring" if _from_keyring() else "file" if _from_file() else ""


def _from_keyring() -> str:
    backend = _backend()
    if backend is None:
        return ""
    from keyring.errors import KeyringError

    try:
        return _clean(backend.get_password(SERVICE, USER) or "")
    except (KeyringError, OSError, RuntimeError):
        return ""  # locked or gone: treated as empty


def _backend() -> KeyringBackend | None:
    """The system's keyring; None if there is none, or only one that writes plain text."""
    import keyring
    from keyring.backends.chainer import ChainerBackend

    try:
        found = keyring.get_keyring()
    except (ImportError, OSError, RuntimeError, ValueError):
        return None  # the keyring configuration is broken
    usable: list[KeyringBackend] = list(found.backends) if isinstance(found, ChainerBackend) else [found]
    for backend in usable:
        kind = type(backend)
        if not kind.__module__.startswith(("keyring.backends.fail", "keyring.backends.null", "keyrings.alt")):
            return backend
    return None


def _from_file() -> str:
    """Source: the `HF_TOKEN_PATH` and `HF_HOME` entries of
    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables."""
    named = os.environ.get("HF_TOKEN_PATH")
    path = Path(os.path.expandvars(named)).expanduser() if named else hub_home() / "token"
    try:
        return _clean(path.read_text("utf-8")) if path.stat().st_size < 4096 else ""
    except (OSError, UnicodeDecodeError):
        return ""


def hub_home() -> Path:
    """The folder of Hugging Face's tools: HF_HOME, else `huggingface` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(
        os.path.expandvars(os.environ.get("HF_HOME") or str(Path(cache) / "huggingface"))
    ).expanduser()


def _clean(token: str) -> str:
    """The token without surrounding white space; "" if it is not valid in a header."""
    token = token.strip()
    return token if token.isascii() and token.isprintable() and " " not in token else ""


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
