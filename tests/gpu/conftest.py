from __future__ import annotations

import pytest

from engine.backends.cuda.runtime.driver import GpuInfo, find_gpus


@pytest.fixture(scope="session")
def gpus() -> tuple[GpuInfo, ...]:
    """All that can be used; where there are none, the test is left out, and says why."""
    found = find_gpus()
    if not found.gpus:
        pytest.skip(found.reason)
    return found.gpus
