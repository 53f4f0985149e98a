"""The program's version, read when first asked for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["version"]


@cache  # each reply's record asks, and reading it takes milliseconds
def version() -> str:
    """The version of the installed distribution, or of pyproject.toml when run from a clone."""
    import importlib.metadata  # with what it imports, 20 ms of a start that need not know
    import tomllib

    try:
        return importlib.metadata.version("inglenook")
    except importlib.metadata.PackageNotFoundError:
        project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])
