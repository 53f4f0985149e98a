"""What every test of the desktop shares."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from desktop.services.composer import enchant


@pytest.fixture(autouse=True)
def _asyncio_loop() -> Iterator[None]:
    """Close the loop that a flow made; none is made where nothing waits."""
    yield
    loops = sys.modules.get("desktop.event_loop")
    if loops is not None:
        loops.close_loop()


@pytest.fixture(autouse=True)
def _no_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """No dictionary of this system: what is underlined is the same everywhere."""
    monkeypatch.setattr(enchant, "FILES", ())
