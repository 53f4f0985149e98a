"""Attention of many rows, on the device that is none, against the reference backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.arena import Buffer
from engine.backends.base import AttentionShape
from engine.backends.cache_types import CacheType
from engine.backends.cuda import prefill_attention
from engine.backends.cuda.call import Argument, Call, Given
from engine.backends.cuda.device import Device
from tests.simt.fake import FakeDevice
from tests.simt.test_attention import Case, shape_of


class Step:
    """One operation of a step; see `engine.backends.cuda.call.Bound`."""

    def __init__(self, device: FakeDevice, case: Case, tensors: dict[Buffer, torch.Tensor]) -> None:
        self._device, self.rows, self.position, self.pages, self._tensors = device, case.rows, case.start, case.table, tensors
        self._table = device.upload(case.table)
        self.scratch_bytes: dict[int, int] = {}

    @property
    def device(self) -> Device:
        return self._device

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        return self._tensors[buffer][:, : buffer.width]

    def address(self, argument: Argument) -> int | float:
        if isinstance(argument, Buffer):
            return self._tensors[argument].data_ptr()
        if isinstance(argument, Given):
            assert argument is Given.PAGES
            return self._table.data_ptr()
        return argument

    def launch(self, call: Call) -> None:
        self._device.launch(call.kernel, call.blocks(self.rows), [self.address(argument) for argument in call.arguments])

    def scratch(self, size: int, place: int = 0) -> torch.Tensor:
        self.scratch_bytes[place] = size
        return self._device.empty(size)


def attended(case: Case) -> tuple[Any, Step]:
    """(rows, H D), and the step that it ran in."""
    device, width = FakeDevice(), case.shape.heads * case.shape.head_dim
    q, y = Buffer(width), Buffer(width)
    tensors = {b: device.zeros(case.rows * b.stride).view(torch.float32).view(case.rows, -1) for b in (q, y)}
    tensors[q][:, :width] = torch.from_numpy(case.q[:, :width])
    stores = [device.upload(store) for store in case.stores]
    sink = device.upload(case.sink)  # held while it is read
    sinks = sink.data_ptr() if case.sinks else 0
    step = Step(device, case, tensors)
    call = prefill_attention.prefill_attention(case.kind, (stores[0].data_ptr(), stores[1].data_ptr()), q, y, case.shape, sinks)
    list(device.prepare(call.kernels))
    with device.torch_work():
        call.run(step)
    return tensors[y][:, :width].numpy(), step


MANY = [
    (("fp16", "fp16"), shape_of(4, 2, 64), 0, 70, False, 3e-3),
    (("fp16", "fp16"), shape_of(2, 2, 40), 250, 33, False, 3e-3),
    (("q8", "q4"), shape_of(1, 2, 16), 17, 20, False, 3e-3),
    (("fp8", "q8"), shape_of(2, 1, 64, window=300), 250, 20, False, 3e-3),
    (("fp32", "fp32"), shape_of(2, 1, 24), 30, 12, False, 1e-5),
    (("fp16", "fp16"), shape_of(3, 2, 16, window=100), 600, 40, True, 2e-3),
    (("q4", "q4"), shape_of(2, 1, 64, cap=5.0), 10, 30, False, 2e-3),
    (("fp32", "fp16"), shape_of(2, 2, 24, window=7, cap=3.0), 3, 30, True, 1e-5),
]


@pytest.mark.parametrize(("kind", "shape", "start", "rows", "sinks", "close"), MANY)
def test_many_rows(kind: tuple[str, str], shape: AttentionShape, start: int, rows: int, sinks: bool, close: float) -> None:
    case = Case(CacheType(*kind), shape, start, rows, 1, sinks)
    found, step = attended(case)
    np.testing.assert_allclose(found, case.expected(), atol=close, rtol=close)
    seen = min(start + rows, shape.window + rows - 1) if shape.window else start + rows
    assert step.scratch_bytes[0] == seen * shape.kv_heads * shape.head_dim * (4 if "fp32" in kind else 2)


@pytest.mark.parametrize("window", [0, 50])
def test_scores_are_bounded(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little room scores have, the result is the same."""
    case = Case(CacheType("fp16", "fp16"), shape_of(2, 1, 16, window=window, cap=4.0), 40, 90, 1, True)
    whole, _ = attended(case)
    monkeypatch.setattr(prefill_attention, "SCORE_BYTES", 5000)
    parts, _ = attended(case)
    np.testing.assert_allclose(parts, whole, atol=1e-6, rtol=1e-6)
