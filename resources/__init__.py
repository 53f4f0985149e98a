"""Files the program reads at run time: icons, themes, templates, the starter model's manifest; and where
they lie.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["path", "text"]

_FOLDER = Path(__file__).parent
"""A wheel is always unpacked; `importlib.resources`, for those that are not, takes 30 ms to import."""


def path(name: str) -> Path:
    """The file or folder `name` ("icons/send.svg") of this package on disk.

    Raises FileNotFoundError when it is not there.
    """
    found = _FOLDER / name
    if not found.exists():
        raise FileNotFoundError(
            f"The program's own file resources/{name} is missing; install Inglenook again."
        )
    return found


def text(name: str) -> str:
    """The content of the UTF-8 file `name` of this package. Raises FileNotFoundError when it is not there."""
    return path(name).read_text(encoding="utf-8")
