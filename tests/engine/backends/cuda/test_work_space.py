"""A program allocates all of its GPU memory before the first step, and no more than the estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import Step
from engine.backends.cuda.backend import CudaBackend
from engine.core import PAGE_TOKENS
from engine.models.load import read_config, survey
from engine.models.memory.fit import work_space
from engine.weights.checkpoint import open_checkpoint
from tests.engine.models.architectures import write_checkpoint
from tests.engine.models.cases.table import BY_NAME
from tests.engine.models.oracle import load
from tests.simt.fake import FakeDevice

ROWS, CONTEXT = 64, 2 * PAGE_TOKENS


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("capability", [75, 90])
@pytest.mark.parametrize("name", ["Llama", "Mixtral", "GPT-OSS", "Gemma 2", "Gemma 3"])
def test_all_memory_is_allocated_at_the_start_as_estimated(
    tmp_path: Path, name: str, capability: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_checkpoint(BY_NAME[name], tmp_path / "model")
    device = FakeDevice(capability=capability)
    backend = CudaBackend([device])
    checkpoint = open_checkpoint(path)
    seen = survey(checkpoint, backend)
    assert seen.parts is not None
    said = work_space(read_config(checkpoint), backend, seen.parts)
    checkpoint.close()
    model = load(path, backend)
    cache = model.new_cache(CONTEXT)
    before = device.taken
    program = model.record(cache, ROWS, CONTEXT)
    taken = device.taken - before
    assert taken <= ROWS * said.row + CONTEXT * said.position + said.fixed + 4096  # a step's state
    sizes: list[int] = []
    place = device._place

    def counted(size: int, on_device: bool = True) -> Any:
        sizes.append(size if on_device else 0)
        return place(size, on_device)

    monkeypatch.setattr(device, "_place", counted)
    pages = np.arange(CONTEXT // PAGE_TOKENS, dtype=np.int32)
    for start in range(0, CONTEXT, ROWS):
        ids = np.arange(ROWS, dtype=np.int32) % 50
        program.run(Step(ids, np.arange(start, start + ROWS, dtype=np.int32), pages, 1))
    assert sum(sizes) == 0, "memory was taken in mid-reply"
    program.close()
    model.close()
