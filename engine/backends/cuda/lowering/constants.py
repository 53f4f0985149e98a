"""The arrays whose addresses a pass's calls take, and the properties of devices that calls depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from engine.backends.base import AttentionShape, Weight
from engine.backends.cuda.kernels.attention import flash
from engine.backends.cuda.runtime.device import Device
from engine.backends.cuda.weight import ExpertTable, WeightSpec
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.linear import HeadLinear
from engine.backends.graph.moe import ExpertLinear
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats

if TYPE_CHECKING:
    import torch

USUAL_CAPABILITY, USUAL_SM_COUNT = 80, 64
"""Used when no GPU is chosen. The number of multiprocessors hardly changes the memory of a pass."""


@dataclass(frozen=True)
class HostRows:
    """An array (rows, width) float32, and pinned memory of its shape, which a device reaches."""

    rows: Floats
    pinned: Floats


@dataclass(frozen=True)
class GivenTable:
    """A rotary table (rows, width) float32 that may change between two steps, pinned memory of its shape, and
    where kernels find it on the device of this number.
    """

    rows: Floats
    pinned: torch.Tensor
    memory: torch.Tensor
    device: int

    def filled(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first `count` rows as they are now, in pinned memory, and their place on the device."""
        size = count * self.rows.nbytes // len(self.rows)
        self.pinned[:size].numpy()[:] = self.rows[:count].reshape(-1).view(np.uint8)
        return self.pinned[:size], self.memory[:size]


class Constants:
    """Arrays are uploaded once to each device; `kept` must live as long as the pass."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.kept: list[Any] = []
        self.keeps: list[HostRows] = []
        """What passes leave to the host, to be copied after each step."""
        self.gives: list[HostRows] = []
        """What they read of it, to be copied before."""
        self.given_tables: list[GivenTable] = []
        """The rotary tables among it."""
        self._devices = devices
        self._addresses: dict[tuple[int, int], tuple[Any, int]] = {}
        self._expert_tables: dict[tuple[Buffer, str], ExpertTable] = {}

    def array(self, values: Any, device: int) -> int:
        """The device address of an array of float32 or int32."""
        key = id(values), device
        if key not in self._addresses:
            # The original is kept as well, so that no other array can get its id.
            self._addresses[key] = values, self._upload(np.ascontiguousarray(values), device)
        return self._addresses[key][1]

    def table(self, table: Floats, device: int) -> int:
        """The device address of a table with a row for each position."""
        return self.array(table, device)

    def given_table(self, table: Floats, device: int) -> int:
        """The address of a rotary table that may change between two steps."""
        for each in self.given_tables:
            if each.rows is table and each.device == device:
                return int(each.memory.data_ptr())
        here = self._devices[device]
        made = GivenTable(table, here.pinned(table.nbytes), here.zeros(table.nbytes), device)
        self.given_tables.append(made)
        self.kept.append(made)
        return int(made.memory.data_ptr())

    def kept_rows(self, rows: Floats, device: int) -> int:
        """The address where a pass leaves the rows of a step."""
        return self._host_rows(rows, device, self.keeps)

    def given_rows(self, rows: Floats, device: int) -> int:
        """The address where a pass finds these rows."""
        return self._host_rows(rows, device, self.gives)

    def _host_rows(self, rows: Floats, device: int, to: list[HostRows]) -> int:
        """Small and large batches share the memory of an array."""
        for each in to:
            if each.rows is rows:
                return int(each.pinned.ctypes.data)
        memory = self._devices[device].pinned(rows.nbytes)
        self.kept.append(memory)
        to.append(HostRows(rows, memory.numpy().view(np.float32).reshape(rows.shape)))
        return int(memory.data_ptr())

    def expert_table(self, node: ExpertLinear) -> ExpertTable:
        """The table of the experts' matrices of one weight layout."""
        return self._table_of(node.y, cast(WeightSpec, node.weight), node.weights, node.device)

    def head_table(self, node: HeadLinear) -> ExpertTable:
        """The table of the heads' matrices, which are of one weight layout."""
        return self._table_of(node.y, cast(WeightSpec, node.weights[0]), node.weights, node.device)

    def _table_of(self, y: Buffer, first: WeightSpec, weights: Sequence[Weight], device: int) -> ExpertTable:
        key = y, first.weight_layout.name
        if key not in self._expert_tables:
            weights = cast(Sequence[WeightSpec], weights)
            self._expert_tables[key] = ExpertTable(self._device(device), weights, first)
            self.kept.append(self._expert_tables[key])
        return self._expert_tables[key]

    def sm_count(self, device: int) -> int:
        """The number of multiprocessors of a device."""
        return self._devices[device].sm_count

    def has_flash(self, device: int, shape: AttentionShape) -> bool:
        """Whether torch's flash attention supports heads of this shape on the device."""
        return flash.has_flash(self._devices[device], shape)

    def _device(self, number: int) -> Device | None:
        return self._devices[number]

    def _upload(self, values: Any, device: int) -> int:
        memory = self._devices[device].upload(values)
        self.kept.append(memory)
        return int(memory.data_ptr())


class CountedConstants(Constants):
    """Uploads nothing: `nbytes` counts what would be uploaded. Without a device, assumes a usual one."""

    def __init__(self, device: Device | None = None) -> None:
        super().__init__(() if device is None else (device,))
        self.nbytes = 0

    def table(self, table: Floats, device: int) -> int:
        return 256

    def given_table(self, table: Floats, device: int) -> int:
        return 256

    def sm_count(self, device: int) -> int:
        return super().sm_count(device) if self._devices else USUAL_SM_COUNT

    def has_flash(self, device: int, shape: AttentionShape) -> bool:
        if not self._devices:
            return flash.takes_flash(USUAL_CAPABILITY, shape)
        return super().has_flash(device, shape)

    def _device(self, number: int) -> Device | None:
        return None

    def _host_rows(self, rows: Floats, device: int, to: list[HostRows]) -> int:
        return 256

    def _upload(self, values: Any, device: int) -> int:
        self.nbytes += -(-values.nbytes // 256) * 256
        return 256
