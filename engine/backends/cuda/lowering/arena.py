"""The memory of a pass's buffers on each device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.backends.cuda.lowering.call import SMALL_BATCH
from engine.backends.cuda.lowering.lower import Step
from engine.backends.cuda.runtime.device import Device
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.memory_plan import plan_places
from engine.backends.graph.nodes import PeerCopy
from engine.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Touch:
    reads: Sequence[object]
    writes: Sequence[object]


def _touches(steps: Sequence[Step], device: int) -> Iterator[_Touch]:
    """The reads and writes of a device's buffers, in order."""
    for at, step in steps:
        if isinstance(step, PeerCopy):
            reads = step.reads if step.x.device == device else ()
            yield _Touch(reads, (step.y,) if at == device else ())
        elif at == device:
            yield _Touch(step.reads, step.writes)


def row_bytes(steps: Sequence[Step], device: int, logits: Buffer) -> tuple[int, int]:
    """Bytes on a device for each row of a step, and for each row that needs logits."""
    _, sizes = plan_places(list(_touches(steps, device)), logits, separate_logits=True)
    return sum(size for size, on in sizes if not on), sum(size for size, on in sizes if on)


class Arena:
    """The memory of all buffers on one device: `rows` rows of each place, and the logit rows requested.

    Raises `NotEnoughMemory`.
    """

    def __init__(self, device: Device, number: int, steps: Sequence[Step], logits: Buffer, rows: int) -> None:
        self._device = device
        self._places, self._sizes = plan_places(list(_touches(steps, number)), logits, separate_logits=True)
        self._memory = [device.empty(size * (SMALL_BATCH if on else rows)) for size, on in self._sizes]
        self._logit_rows = SMALL_BATCH

    def make_room(self, logit_rows: int) -> None:
        """Make room for this many logit rows; if it grows, their contents are lost and addresses change.

        Raises `NotEnoughMemory`.
        """
        if logit_rows <= self._logit_rows:
            return
        self._logit_rows = logit_rows
        for place, (size, on) in enumerate(self._sizes):
            if on:
                self._memory[place] = self._device.empty(0)  # free the old one first
                self._memory[place] = self._device.empty(size * logit_rows)

    def __contains__(self, buffer: Buffer) -> bool:
        return buffer in self._places

    def memory(self, buffer: Buffer) -> torch.Tensor:
        """uint8, all rows."""
        return self._memory[self._places[buffer]]

    def address(self, buffer: Buffer) -> int:
        """The address of the first row."""
        return int(self._memory[self._places[buffer]].data_ptr())

    def tensor(self, buffer: Buffer, rows: int) -> torch.Tensor:
        """float32 (rows, width), a view."""
        whole = self.memory(buffer)[: rows * buffer.stride].view(_float32())
        return whole.view(rows, buffer.stride // 4)[:, : buffer.width]


def _float32() -> torch.dtype:
    import torch

    return torch.float32
