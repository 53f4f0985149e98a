"""Files that the program reads at run time: icons, themes, templates, the manifest of the starter model."""

from __future__ import annotations

from pathlib import Path

__all__ = ["path", "text"]

_FOLDER = Path(__file__).parent
"""Wheels are always unpacked, so `importlib.resources`, which takes 30 ms to import, is not needed."""


def path(name: str) -> Path:
    """The path of the file or folder `name`, such as "icons/send.svg". Raises FileNotFoundError."""
    found = _FOLDER / name
    if not found.exists():
        raise FileNotFoundError(
            f"The program's own file resources/{name} is missing; install Inglenook again."
        )
    return found


def text(name: str) -> str:
    """The content of the UTF-8 file `name`. Raises FileNotFoundError."""
    return path(name).read_text(encoding="utf-8")
