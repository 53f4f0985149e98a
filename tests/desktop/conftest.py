"""What every test of the desktop shares."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _asyncio_loop() -> Iterator[None]:
    """Close the loop that a flow made; none is made where nothing waits."""
    yield
    loops = sys.modules.get("desktop.event_loop")
    if loops is not None:
        loops.close_loop()
