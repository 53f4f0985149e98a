"""Attention of large batches, on the fake device, against the reference backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.base import AttentionShape
from engine.backends.cuda.kernels.attention import prefill_pieces
from engine.backends.cuda.kernels.attention.attention import slope_pairs
from engine.backends.cuda.kernels.attention.flash import has_flash
from engine.backends.cuda.kernels.attention.prefill import Bias, prefill_attention
from engine.backends.cuda.lowering.call import Argument, Call, Runtime, ScratchSize
from engine.backends.cuda.runtime.device import Device
from engine.backends.graph.buffers import Buffer
from engine.backends.kv_formats import CacheType
from tests.simt.attention_cases import Case, shape_of, special
from tests.simt.fake import FakeDevice


class Step:
    """One operation of a step; see `engine.backends.cuda.lowering.call.Bound`."""

    def __init__(self, device: FakeDevice, case: Case, tensors: dict[Buffer, torch.Tensor]) -> None:
        self._device, self.rows, self.position, self.pages, self._tensors = (
            device,
            case.rows,
            case.start,
            case.table,
            tensors,
        )
        self._table = device.upload(case.table)
        self._scratch: dict[int, torch.Tensor] = {}
        self.scratch_bytes: dict[int, int] = {}
        self.scratch_sizes: Mapping[int, ScratchSize] = {}

    @property
    def device(self) -> Device:
        return self._device

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        return self._tensors[buffer][:, : buffer.width]

    def address(self, argument: Argument) -> int | float:
        if isinstance(argument, Buffer):
            return self._tensors[argument].data_ptr()
        if isinstance(argument, Runtime):
            assert argument is Runtime.PAGES
            return self._table.data_ptr()
        return argument

    def launch(self, call: Call) -> None:
        self._device.launch(
            call.kernel, call.blocks(self.rows), [self.address(argument) for argument in call.arguments]
        )

    def scratch(self, size: int, place: int = 0) -> torch.Tensor:
        assert size <= self.scratch_sizes[place].bytes(self.rows, self.position + self.rows)
        self.scratch_bytes[place] = max(size, self.scratch_bytes.get(place, 0))
        if place not in self._scratch:
            room = self.scratch_sizes[place].bytes(self.rows, self.position + self.rows)
            self._scratch[place] = self._device.empty(room)
        return self._scratch[place][:size]


def attended(case: Case, capability: int = 90) -> tuple[Any, Step]:
    """(rows, H Dv), and the step that it ran in."""
    device, shape = FakeDevice(capability=capability), case.shape
    width = shape.heads * shape.head_dim
    q, y = Buffer(width), Buffer(shape.heads * shape.value_dim)
    made, own = Buffer(case.weights.shape[1]), Buffer(shape.heads)
    tensors = {
        b: device.zeros(case.rows * b.stride).view(torch.float32).view(case.rows, -1)
        for b in (q, y, made, own)
    }
    tensors[q][:, :width] = torch.from_numpy(case.q[:, :width])
    tensors[made][:, : made.width] = torch.from_numpy(case.weights)
    profiles = device.upload(case.of_distance if case.extent else case.sink)
    bias = Bias(made, profiles.data_ptr(), *case.profiles) if case.extent else None
    stores = [device.upload(store) for store in case.stores]
    sink = device.upload(case.sink)  # held while it is read
    if case.row_sinks:
        tensors[own].copy_(torch.from_numpy(case.sink))
    sinks = own if case.row_sinks else sink.data_ptr() if case.sinks else 0
    step = Step(device, case, tensors)
    flash, pairs = has_flash(device, shape), slope_pairs(shape)
    lean = None if pairs is None else device.upload(pairs)
    slopes = 0 if lean is None else lean.data_ptr()
    addresses = stores[0].data_ptr(), stores[-1].data_ptr()
    call = prefill_attention(case.kind, addresses, q, y, shape, sinks, flash, slopes, bias)
    step.scratch_sizes = call.scratch_sizes
    list(device.prepare(call.kernels))
    with device.torch_work():
        call.run(step)
    return tensors[y][:, : y.width].numpy(), step


MANY = [
    (("fp16", "fp16"), shape_of(4, 2, 64), 0, 70, False, 3e-3),
    (("fp16", "fp16"), shape_of(2, 2, 40), 250, 33, False, 3e-3),
    (("q8", "q4"), shape_of(1, 2, 16), 17, 20, False, 3e-3),
    (("fp8", "q8"), shape_of(2, 1, 64, window=300), 250, 20, False, 3e-3),
    (("fp32", "fp32"), shape_of(2, 1, 24), 30, 12, False, 1e-5),
    (("fp16", "fp16"), shape_of(3, 2, 16, window=100), 600, 40, True, 2e-3),
    (("q4", "q4"), shape_of(2, 1, 64, cap=5.0), 10, 30, False, 2e-3),
    (("fp32", "fp16"), shape_of(2, 2, 24, window=7, cap=3.0), 3, 30, True, 1e-5),
    (("fp16", "fp16"), special(5, 1, 48, 40), 250, 33, False, 2e-3),
    (("q4", "q4"), special(3, 1, 72, 40), 10, 30, True, 2e-3),
    (("fp16", "fp16"), special(2, 2, 16, alibi=1), 1020, 20, False, 2e-3),
    (("fp32", "fp32"), special(2, 2, 16, alibi=2), 300, 20, True, 1e-5),
    (("fp16", "fp16"), special(2, 2, 16, window=70), 60, 90, False, 3e-3),
]


BACKWARD = {"bidirectional": True, "backward_window": True}
BOTH_WAYS = [
    (kind, replace(shape, bidirectional=True), start, rows, sinks, close)
    for kind, shape, start, rows, sinks, close in (
        (("fp16", "fp16"), shape_of(4, 2, 64), 0, 70, False, 3e-3),
        (("fp16", "fp16"), shape_of(4, 2, 64), 250, 40, False, 3e-3),
        (("q8", "q4"), shape_of(1, 2, 16), 17, 3, False, 3e-3),
        (("fp16", "fp16"), shape_of(2, 1, 64, window=300), 100, 256, False, 3e-3),
        (("fp16", "fp16"), shape_of(2, 1, 64, window=400), 100, 256, False, 3e-3),
        (("fp32", "fp32"), shape_of(2, 2, 24, window=7), 40, 30, True, 1e-5),
        (("fp32", "fp16"), shape_of(2, 2, 24, cap=3.0), 1010, 60, False, 1e-5),
    )
]
BOTH_WAYS += [
    (("fp16", "fp16"), replace(shape_of(2, 1, 64, window=30), **BACKWARD), 100, 90, False, 3e-3),
    (("fp32", "fp32"), replace(shape_of(2, 2, 24, window=900), **BACKWARD), 990, 60, True, 1e-5),
    (("fp16", "fp16"), replace(shape_of(2, 1, 64, window=400), **BACKWARD), 100, 256, False, 3e-3),
]


@pytest.mark.parametrize("capability", [90, 75])
@pytest.mark.parametrize(("kind", "shape", "start", "rows", "sinks", "close"), MANY + BOTH_WAYS)
def test_many_rows(
    kind: tuple[str, str],
    shape: AttentionShape,
    start: int,
    rows: int,
    sinks: bool,
    close: float,
    capability: int,
) -> None:
    case = Case(CacheType(*kind), shape, start, rows, 1, sinks)
    found, _ = attended(case, capability)
    np.testing.assert_allclose(found, case.expected(), atol=close, rtol=close)


WIDE = shape_of(1, 2, 264)


WITHOUT_FLASH = [(75, shape_of(2, 2, 32)), (90, WIDE), (120, WIDE), (90, shape_of(2, 2, 20))]


@pytest.mark.parametrize(("capability", "shape"), WITHOUT_FLASH)
def test_where_torch_has_no_flash_attention(
    capability: int, shape: AttentionShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its float32 path, which has all scores at once, is never taken; and more positions take no more
    memory."""
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
    monkeypatch.setattr(prefill_pieces, "PIECE", 64)
    taken = []
    for start in (130, 300):
        case = Case(CacheType("fp16", "fp16"), shape, start, 20, 1, False)
        found, step = attended(case, capability)
        np.testing.assert_allclose(found, case.expected(), atol=3e-3, rtol=3e-3)
        taken.append(step.scratch_bytes)
    assert taken[0] == taken[1]


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("window", [0, 50])
@pytest.mark.parametrize("at_once", [1, 7, 500])
def test_pieces_and_rows_at_once_change_nothing(
    window: int, at_once: int, both_ways: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little room scores have, the result is the same."""
    shape = replace(shape_of(2, 1, 16, window=window, cap=4.0), bidirectional=both_ways)
    case = Case(CacheType("fp16", "fp16"), shape, 40, 90, 1, True)
    whole, _ = attended(case)
    np.testing.assert_allclose(whole, case.expected(), atol=2e-3, rtol=2e-3)
    monkeypatch.setattr(prefill_pieces, "PIECE", 16)
    monkeypatch.setattr(prefill_pieces, "SCORE_BYTES", 4 * 2 * 16 * at_once)
    parts, step = attended(case)
    np.testing.assert_allclose(parts, whole, atol=2e-6, rtol=2e-6)
    assert max(step.scratch_bytes.values()) < 60_000


def test_a_first_piece_that_a_row_does_not_see() -> None:
    """Rows of one step, of which the last see nothing of the window's first positions."""
    case = Case(CacheType("fp32", "fp32"), shape_of(2, 2, 8, window=5), 3000, 70, 1, False)
    found, _ = attended(case)
    np.testing.assert_allclose(found, case.expected(), atol=1e-5, rtol=1e-5)
