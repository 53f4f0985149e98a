"""A GPU that is none: launches wait in a queue until somebody waits for them, and are then run by NumPy, or
by the interpreter.

What a kernel does is said a second time in NumPy, in `tests/simt/models`: the interpreter's tests hold each
kernel's body against that, and whole passes run on it at a bearable speed. Because nothing runs before it
must, a host that changes memory too early is found out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.runtime.driver import lost
from engine.core import Loading
from engine.errors import EngineError, NotEnoughMemory
from tests.simt import interpreter
from tests.simt.interpreter import Memory
from tests.simt.limits import against
from tests.simt.models import run_model

Work = Callable[[], None]


class FakeGraph:
    def __init__(self, device: FakeDevice, work: list[Work]) -> None:
        self._device, self.work = device, work

    def launch(self) -> None:
        self._device.graph_launches += 1
        for each in self.work:
            self._device.later(each)


class FakeMark:
    """`passed`: how much of the device's work lay before it."""

    def __init__(self, device: FakeDevice, passed: int) -> None:
        self.device, self._passed = device, passed

    def wait(self) -> None:
        while self.device.done < self._passed:
            self.device.step()

    def reached(self) -> bool:
        return self.device.done >= self._passed


class FakeDevice:
    """See `engine.backends.cuda.runtime.device.Device`; `interpret` runs the kernels' own bodies, which is
    slow.
    """

    def __init__(
        self,
        total_memory: int = 1 << 34,
        capability: int = 90,
        sm_count: int = 4,
        index: int = 0,
        interpret: bool = False,
    ) -> None:
        self.name, self.index, self.capability, self.sm_count = (f"fake {index}", index, capability, sm_count)
        self.total_memory, self.taken, self.interpret = total_memory, 0, interpret
        self.kept = 0  # freed bytes that are not given back to the driver
        self.records = 0
        self.identity = ""
        self.refused = ""  # the beginning of the names of kernels that do not run
        # by the beginning of a kernel's name: what becomes of its work
        self.broken: dict[str, Callable[[Work], None]] = {}
        self.memory = Memory()
        self.done = self._given = self.graph_launches = 0
        self._queue: list[Work] = []
        self._recording: list[Work] | None = None
        self.prepared: set[Kernel] = set()
        self.lost = False

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    def free_memory(self) -> int:
        return self.total_memory - self.taken

    def _place(self, size: int, on_device: bool = True) -> tuple[npt.NDArray[np.uint8], torch.Tensor]:
        """Aligned memory, as NumPy and as torch see it; with its last tensor it is free again, and no
        kernel may touch it.
        """
        if on_device and size > self.free_memory():
            raise NotEnoughMemory(f"{self.name} has no room for {size} bytes.")
        room = np.empty(size + 256, np.uint8)
        start = -room.ctypes.data % 256
        array = room[start : start + size]
        address = self.memory.add_room(array)
        taken = size if on_device else 0
        self.taken += taken
        self.kept = max(0, self.kept - taken)
        weakref.finalize(array, self._free, address, taken).atexit = False
        return array, torch.from_numpy(array)

    def _free(self, address: int, taken: int) -> None:
        self.taken -= taken
        self.kept += taken
        self.memory.remove(address)

    def trim(self) -> None:
        if not self.lost:
            self.synchronize()
        self.kept = 0

    def empty(self, size: int) -> torch.Tensor:
        array, tensor = self._place(size)
        array[:] = 0xA5
        return tensor

    def zeros(self, size: int) -> torch.Tensor:
        array, tensor = self._place(size)
        array[:] = 0
        return tensor

    def upload(self, array: Any) -> torch.Tensor:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        target, tensor = self._place(raw.size)
        target[:] = raw
        return tensor

    def pinned(self, size: int) -> torch.Tensor:
        array, tensor = self._place(size, on_device=False)
        array[:] = 0
        return tensor

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        assert source.nbytes == target.nbytes
        self.later(
            lambda: (target.view(-1).view(torch.uint8).copy_(source.view(-1).view(torch.uint8)), None)[1]
        )

    def read(self, source: torch.Tensor) -> Any:
        self.synchronize()
        return source.view(-1).view(torch.uint8).numpy().copy()

    def prepare(self, kernels: Sequence[Kernel]) -> Iterator[Loading]:
        assert self._recording is None, "kernels are loaded before a recording begins"
        self.prepared |= set(kernels)
        yield Loading("Compiling", len(kernels), len(kernels))

    def launch(self, kernel: Kernel, blocks: tuple[int, int, int], arguments: Sequence[int | float]) -> None:
        assert kernel in self.prepared, f"{kernel.name} was not prepared"
        if self.refused and kernel.name.startswith(self.refused):
            raise EngineError(
                "The GPU reported: invalid device function (CUDA_ERROR_INVALID_DEVICE_FUNCTION)."
            )
        assert self.capability >= kernel.min_capability
        assert len(arguments) == len(kernel.parameters), kernel.name
        if 0 in blocks:
            return
        assert not (reason := against(kernel, blocks, (kernel.threads, 1, 1), 0, self.capability, False)), (
            reason
        )
        fixed = tuple(
            float(a) if letter == "f" else int(a)
            for a, letter in zip(arguments, kernel.parameters, strict=True)
        )

        def work() -> None:
            if self.interpret:
                interpreter.run(kernel, blocks, fixed, self.memory)
            else:
                run_model(kernel, blocks, fixed, self.memory)

        instead = next((each for name, each in self.broken.items() if kernel.name.startswith(name)), None)
        self.later(work if instead is None else partial(instead, work))

    def check(self) -> None:
        """Raise `DeviceLost` if somebody said that the device is `lost`, as a driver's every call does
        then.
        """
        if self.lost:
            self.done += len(self._queue)
            self._queue.clear()
            raise lost("it fell off the bus")

    def later(self, work: Work) -> None:
        self.check()
        if self._recording is not None:
            self._recording.append(work)
            return
        self._queue.append(work)
        self._given += 1

    def step(self) -> None:
        """Do the next thing in the queue."""
        self.check()
        work = self._queue.pop(0)
        work()
        self.done += 1

    def record(self, launches: Callable[[], None]) -> FakeGraph:
        assert self._recording is None
        self._recording = []
        self.records += 1
        try:
            launches()
            return FakeGraph(self, self._recording)
        finally:
            self._recording = None

    @contextmanager
    def torch_work(self) -> Iterator[None]:
        assert self._recording is None, "torch's own operations are not recorded"
        self.synchronize()
        yield

    def mark(self) -> FakeMark:
        assert self._recording is None
        return FakeMark(self, self._given)

    def wait_for(self, mark: Any) -> None:
        assert isinstance(mark, FakeMark)
        self.later(mark.wait) if mark.device is not self else None

    def synchronize(self) -> None:
        self.check()
        while self._queue:
            self.step()
