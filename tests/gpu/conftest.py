from __future__ import annotations

import pytest

from engine.backends.cuda.runtime.driver import GpuInfo, find_gpus


@pytest.fixture(scope="session")
def gpus() -> tuple[GpuInfo, ...]:
    """All usable GPUs; without any, the test is skipped with the reason."""
    found = find_gpus()
    if not found.gpus:
        pytest.skip(found.reason)
    return found.gpus
