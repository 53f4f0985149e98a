"""The offline switch: while it is on, nothing of the hub opens a connection."""

from __future__ import annotations

import os

from engine.errors import DownloadError

_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_switched = False


def set_offline(on: bool) -> None:
    """Turn the program's own switch on or off.

    A download that runs ends within a moment and keeps what came.
    """
    global _switched
    _switched = on


def switched_offline() -> bool:
    """Whether the program's own switch is on."""
    return _switched


def is_offline() -> bool:
    """Whether the switch is on, or the environment asks for it (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is
    1, on, yes or true).
    """
    return _switched or bool(_asking())


def _asking() -> str:
    """The environment variable that asks to be offline, or ""."""
    return next(
        (name for name in _VARIABLES if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")), ""
    )


def check_switch() -> None:
    """Raises `DownloadError` while the program's own switch is on."""
    if _switched:
        raise DownloadError(
            "The program is set to work offline; turn that off to search for and fetch models."
        )


def check_online() -> None:
    """Raises `DownloadError` while offline, and names what to turn off."""
    check_switch()
    if name := _asking():
        raise DownloadError(
            f"The environment variable {name} asks to work offline; remove it to search for and fetch models."
        )
