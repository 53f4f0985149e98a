"""The offline switch: while it is on, no request is sent to the hub."""

from __future__ import annotations

import os

from engine.errors import DownloadError
from engine.words import _

_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_switched = False


def set_offline(on: bool) -> None:
    """Turn the program's switch on or off. A running download stops at once and keeps what it has."""
    global _switched
    _switched = on


def is_switched() -> bool:
    """Whether the program's own switch is on, which is for all connections."""
    return _switched


def is_offline() -> bool:
    """Whether the switch is on, or HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is 1, on, yes or true."""
    return _switched or bool(_variable())


def _variable() -> str:
    """The environment variable that asks to work offline, or ""."""
    return next(
        (name for name in _VARIABLES if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")), ""
    )


def check_switch() -> None:
    """Raise `DownloadError` while the program's switch is on."""
    if _switched:
        raise DownloadError(
            _("You are working offline. Clear “Work offline” to search for and download models.")
        )


def check_online() -> None:
    """Raise `DownloadError` while offline; it names what to turn off."""
    check_switch()
    if name := _variable():
        raise DownloadError(
            _(
                "The environment variable {name} turns on offline work; remove it to search for "
                "and download models.",
                name=name,
            )
        )
