"""One server over a tiny model for all tests of this room that do not need their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.server.served import Served, write_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture(scope="session")
def served(tiny_folder: Path) -> Iterator[Served]:
    found = Served(tiny_folder)
    found.record_headless()
    yield found
    found.close()
