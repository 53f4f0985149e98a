"""Files the program reads at run time: icons, themes, templates, the starter model's manifest; and where they lie."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["path", "text"]


def path(name: str) -> Path:
    """The file or folder `name` ("icons/send.svg") of this package on disk. Raises FileNotFoundError when it is not there."""
    found = Path(str(files(__name__).joinpath(name)))
    if not found.exists():
        raise FileNotFoundError(f"The program's own file resources/{name} is missing; install Inglenook again.")
    return found


def text(name: str) -> str:
    """The content of the UTF-8 file `name` of this package. Raises FileNotFoundError when it is not there."""
    return path(name).read_text(encoding="utf-8")
