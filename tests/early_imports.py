"""In a fresh clone, no process that runs the tests has to compile all of them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

__all__ = ["import_backwards"]


def import_backwards(root: Path, folder: str, share: float = 1.0) -> None:
    """Import this share of the test modules below `root / folder`, from the first one on, the last one first.

    pytest has them in the opposite order, compiles those that have no bytecode yet, with their assertions
    rewritten, and keeps it. Where one process goes forwards and another backwards, each compiles about half
    of them and reads the bytecode of the other half, instead of both compiling all of them at the same time;
    a third begins in the middle. What fails here is left to the collection, which fails likewise and says so.
    """
    paths = sorted((root / folder).rglob("test_*.py"))
    for path in reversed(paths[: round(share * len(paths))]):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        try:
            importlib.import_module(name)
        except (Exception, pytest.skip.Exception):  # noqa: BLE001 - collected later, which reports it
            continue
