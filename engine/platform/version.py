"""The program's version, determined on first use."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["version"]


@cache  # the provenance of each reply needs it, and reading it takes milliseconds
def version() -> str:
    """The version of the installed distribution, or of pyproject.toml when run from a clone."""
    import importlib.metadata  # takes 20 ms, which the start can do without
    import tomllib

    try:
        return importlib.metadata.version("inglenook")
    except importlib.metadata.PackageNotFoundError:
        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])
