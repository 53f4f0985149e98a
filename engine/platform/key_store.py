"""Secrets in the system's keyring, or for this run only; never in a plain file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.words import _, translate

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "inglenook"


class KeyStore:
    """One secret, such as a token or an API key, under the name `user`; `what` is its name in sentences.

    The keyring may ask the user for its password, so do not use this on the GUI thread.
    """

    def __init__(self, user: str, what: str) -> None:
        self.user, self.what = user, what
        self.session = ""
        """The secret while no keyring holds it."""

    def get(self) -> str:
        """The secret; "" for none, and while the keyring is locked or gone."""
        return self.session or self._from_keyring()

    def put(self, secret: str) -> str:
        """Store a secret; "" deletes it.

        Returns "" if the keyring holds it, else a sentence that says what happened instead.
        """
        if not secret.strip():
            return self.delete()
        secret = clean(secret)
        if not secret:
            return self._invalid()
        self.session = secret
        backend = usable_keyring()
        if backend is None:
            return _(
                "This system has no keyring that can be used, so the {what} is kept only until "
                "the program ends.",
                what=translate(self.what),
            )
        from keyring.errors import KeyringError

        try:
            backend.set_password(SERVICE, self.user, secret)
        except (KeyringError, OSError, RuntimeError) as error:
            return _(
                "The system's keyring did not accept the {what} ({reason}), so it is kept only until "
                "the program ends.",
                what=translate(self.what),
                reason=_reason(error),
            )
        self.session = ""
        return ""

    def keep_for_run(self, secret: str) -> str:
        """Keep a secret until the program ends, and none in the keyring. Returns "", or a sentence if it is
        not valid or the keyring does not give its own up.
        """
        kept = clean(secret)
        if secret.strip() and not kept:
            return self._invalid()
        sentence = self.delete()
        self.session = kept
        return sentence

    def delete(self) -> str:
        """Delete the secret. Returns "", or a sentence if the keyring refuses."""
        self.session = ""
        backend = usable_keyring()
        if backend is None:
            return ""
        from keyring.errors import KeyringError

        try:
            if backend.get_password(SERVICE, self.user) is not None:
                backend.delete_password(SERVICE, self.user)
        except (KeyringError, OSError, RuntimeError) as error:
            return _(
                "The {what} could not be deleted from the system's keyring ({reason}). Delete the "
                "entry {service} there.",
                what=translate(self.what),
                reason=_reason(error),
                service=SERVICE,
            )
        return ""

    def place(self) -> str:
        """Where the secret is: "this run", "keyring" or ""."""
        return "this run" if self.session else "keyring" if self._from_keyring() else ""

    def _invalid(self) -> str:
        return _(
            "That is not a {what}: it may contain only letters, digits and symbols, without spaces.",
            what=translate(self.what),
        )

    def _from_keyring(self) -> str:
        backend = usable_keyring()
        if backend is None:
            return ""
        from keyring.errors import KeyringError

        try:
            return clean(backend.get_password(SERVICE, self.user) or "")
        except (KeyringError, OSError, RuntimeError):
            return ""  # locked or gone: treated as empty


def usable_keyring() -> KeyringBackend | None:
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


def clean(secret: str) -> str:
    """The secret without surrounding white space; "" if it is not valid in a header."""
    secret = secret.strip()
    return secret if secret.isascii() and secret.isprintable() and " " not in secret else ""


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
