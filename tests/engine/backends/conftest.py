"""For tests of the CPU's programs: memory that holds no numbers before the first pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.program import CpuProgram


@pytest.fixture
def memory_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read and has not been written, such as the padding of rows and of heads, shows in the
    results.
    """
    make = CpuProgram.__init__

    def made(self: CpuProgram, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        for memory in (*self._arena, *self._pool._scratch):
            memory.view(np.uint8)[:] = 0xFF  # NaN as float32

    monkeypatch.setattr(CpuProgram, "__init__", made)
