"""What every device must do: each check takes a `Device`. `tests/simt/driver/test_gpu.py` runs them on the
fake devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.kernels.pointwise import add_call, add_kernel
from engine.backends.cuda.runtime.device import Device
from engine.backends.graph.buffers import Buffer
from engine.errors import NotEnoughMemory

WIDTH, ROWS = 1000, 5
BUFFERS = Buffer(WIDTH), Buffer(WIDTH), Buffer(WIDTH)
STRIDE = BUFFERS[0].stride
CALL = add_call(*BUFFERS, 0.5)
GRID = CALL.blocks(ROWS)


def values_of(*addresses: int) -> list[Any]:
    """The arguments of `CALL` for buffers at these addresses."""
    return [
        addresses[BUFFERS.index(value)] if isinstance(value, Buffer) else value for value in CALL.arguments
    ]


class Sum:
    """y = x + 0.5 * other on a device, as a launch that can be repeated."""

    def __init__(self, device: Device, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.device = device
        self.values = [rng.standard_normal((ROWS, STRIDE // 4)).astype(np.float32) for _ in range(2)]
        self.x, self.other = (device.upload(values) for values in self.values)
        self.y = device.zeros(ROWS * STRIDE)
        list(device.prepare([add_kernel()]))

    def launch(self) -> None:
        self.device.launch(
            add_kernel(), GRID, values_of(self.x.data_ptr(), self.other.data_ptr(), self.y.data_ptr())
        )

    def expected(self) -> Any:
        x, other = self.values
        return (x + np.float32(0.5) * other)[:, :WIDTH]

    def found(self) -> Any:
        out = self.device.read(self.y).view(np.float32).reshape(ROWS, -1)
        assert (out[:, WIDTH:] == 0).all()
        return out[:, :WIDTH]


def says_what_it_is(device: Device) -> None:
    assert device.name
    assert device.capability >= 75
    assert device.sm_count > 0
    assert 0 < device.free_memory() <= device.total_memory


def memory_is_aligned_and_filled(device: Device) -> None:
    for size in (0, 1, 255, 4097, (1 << 20) + 3):
        empty, zeros, pinned = device.empty(size), device.zeros(size), device.pinned(size)
        for tensor in (empty, zeros, pinned):
            assert (tensor.nbytes, tensor.data_ptr() % 256 if size else 0) == (size, 0)
        assert not device.read(zeros).any()
        assert not pinned.numpy().any()


def uploads_come_back(device: Device) -> None:
    rng = np.random.default_rng(1)
    fixed = np.arange(7, dtype=np.int64)
    fixed.flags.writeable = False
    # The large one is longer than the two pieces of memory through which it goes.
    for array in (
        rng.integers(0, 256, (1 << 26) + 12345, np.uint8),
        rng.standard_normal((3, 5)).astype(np.float32)[:, ::2],
        fixed,
    ):
        assert device.read(device.upload(array)).tobytes() == array.tobytes()
    assert device.read(device.upload(np.zeros(0, np.float32))).size == 0


def torch_work_nests(device: Device) -> None:
    """Entered again, it stays what it was, and what follows is in order."""
    import torch

    numbers = device.upload(np.ones(4, np.float32)).view(torch.float32)
    with device.torch_work():
        numbers.mul_(2)
        with device.torch_work():
            numbers.add_(1)
        numbers.mul_(2)
        with pytest.raises(ValueError, match="inner"), device.torch_work():
            raise ValueError("inner")
        numbers.add_(1)
    assert device.read(numbers).view(np.float32).tolist() == [7.0] * 4
    with device.torch_work():
        numbers.mul_(2)
    assert device.read(numbers).view(np.float32).tolist() == [14.0] * 4


def a_kernel_runs(device: Device) -> None:
    work = Sum(device)
    work.launch()
    np.testing.assert_allclose(work.found(), work.expected(), rtol=1e-6)


def an_empty_grid_is_nothing(device: Device) -> None:
    work = Sum(device)
    device.launch(add_kernel(), (0, *GRID[1:]), values_of(0, 0, 0))
    device.launch(add_kernel(), (*GRID[:2], 0), values_of(0, 0, 0))
    assert not work.found().any()


def copies_are_in_order(device: Device) -> None:
    """Pinned memory to the device, a kernel over it, and back, without waiting before the end."""
    work = Sum(device, 2)
    given, back = device.pinned(ROWS * STRIDE), device.pinned(ROWS * STRIDE)
    given.numpy()[:] = np.full(ROWS * STRIDE // 4, 3.0, np.float32).view(np.uint8)
    device.copy(given, work.x)
    work.launch()
    device.copy(work.y, back)
    device.mark().wait()
    expected = np.float32(3) + np.float32(0.5) * work.values[1]
    np.testing.assert_allclose(
        back.numpy().view(np.float32).reshape(ROWS, -1)[:, :WIDTH], expected[:, :WIDTH], rtol=1e-6
    )


def kernels_reach_pinned_memory(device: Device) -> None:
    """A kernel uses pinned memory by its host address, without a copy."""
    work = Sum(device, 3)
    work.y = device.pinned(ROWS * STRIDE)
    work.launch()
    device.mark().wait()
    np.testing.assert_allclose(
        work.y.numpy().view(np.float32).reshape(ROWS, -1)[:, :WIDTH], work.expected(), rtol=1e-6
    )


def a_graph_is_recorded_and_replayed(device: Device) -> None:
    """Nothing runs during the capture; each replay reads the memory as it is then."""
    work = Sum(device, 4)
    back = device.pinned(ROWS * STRIDE)
    work.launch()
    device.synchronize()
    device.copy(device.zeros(ROWS * STRIDE), work.y)

    def launches() -> None:
        work.launch()
        device.copy(work.y, back)

    graph = device.record(launches)
    assert not work.found().any()
    graph.launch()
    device.synchronize()
    first = back.numpy().copy()
    np.testing.assert_allclose(
        first.view(np.float32).reshape(ROWS, -1)[:, :WIDTH], work.expected(), rtol=1e-6
    )
    device.copy(device.upload(-work.values[0]), work.x)
    graph.launch()
    device.synchronize()
    again = back.numpy().view(np.float32).reshape(ROWS, -1)[:, :WIDTH]
    np.testing.assert_allclose(
        again, (np.float32(0.5) * work.values[1] - work.values[0])[:, :WIDTH], rtol=1e-6
    )
    for _ in range(50):
        graph.launch()
    device.synchronize()
    assert back.numpy().view(np.float32).reshape(ROWS, -1)[:, :WIDTH].tobytes() == again.tobytes()


def a_recording_that_fails_can_be_repeated(device: Device) -> None:
    work = Sum(device, 5)

    def fails() -> None:
        work.launch()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        device.record(fails)
    graph = device.record(work.launch)
    graph.launch()
    np.testing.assert_allclose(work.found(), work.expected(), rtol=1e-6)


def marks_tell_when(device: Device) -> None:
    work = Sum(device, 6)
    work.launch()
    mark = device.mark()
    mark.wait()
    assert mark.reached()
    device.wait_for(mark)
    device.synchronize()


def torch_works_in_order(device: Device) -> None:
    """A kernel, a torch operation on its result, a kernel on that."""
    import torch

    work = Sum(device, 7)
    work.launch()
    with device.torch_work():
        work.x.view(torch.float32).copy_(work.y.view(torch.float32)).mul_(2)
    work.launch()
    expected = 2 * work.expected() + np.float32(0.5) * work.values[1][:, :WIDTH]
    np.testing.assert_allclose(work.found(), expected, rtol=1e-5, atol=1e-6)


def memory_that_is_not_there_is_refused(device: Device) -> None:
    """With one sentence; the device works on."""
    with pytest.raises(NotEnoughMemory, match=device.name.split("(")[0]):
        device.empty(2 * device.total_memory)
    a_kernel_runs(device)


CHECKS: tuple[Callable[[Device], None], ...] = (
    says_what_it_is, memory_is_aligned_and_filled, uploads_come_back, torch_work_nests, a_kernel_runs,
    an_empty_grid_is_nothing, copies_are_in_order, kernels_reach_pinned_memory,
    a_graph_is_recorded_and_replayed,
    a_recording_that_fails_can_be_repeated, marks_tell_when, torch_works_in_order,
    memory_that_is_not_there_is_refused,
)  # fmt: skip


def missing(ran: set[str], kernels: list[Kernel]) -> list[str]:
    """The variants, each its own machine code, that did not run; `ran` names those that did."""
    return sorted({kernel.name for kernel in kernels} - ran)
