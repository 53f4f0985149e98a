"""A driver that forgives nothing, and a torch.cuda over it: what a GPU would answer with an error, or with
wrong numbers, is found.

Kernels may touch live memory only, by their models; a fault stays, as on a GPU, and every later call tells of
it. Handles of graphs that are gone, streams that torch never made, code of another architecture, launches
beyond its limits, and loading while a graph is recorded are errors. `faults` has what no call would tell:
memory that was freed while a graph holds its address.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.codegen.targets import target
from engine.backends.cuda.runtime import launcher
from engine.backends.cuda.runtime.driver import Driver
from engine.backends.cuda.runtime.torch_device import TorchDevice
from tests.simt.driver.test_gpu import FakeTorchCuda
from tests.simt.fake_driver import H200, INVALID_HANDLE, FakeCuda
from tests.simt.interpreter import KernelFault, Memory
from tests.simt.limits import against, runs

NO_BINARY, ILLEGAL_ADDRESS, OUT_OF_RESOURCES, CAPTURING, INVALIDATED = 209, 700, 701, 900, 901


class StrictCuda(FakeCuda):
    """See above; one GPU of this compute capability, times ten."""

    def __init__(self, capability: int = 90) -> None:
        super().__init__(attributes={**H200, 75: capability // 10, 76: capability % 10})
        self.capability, self.memory = capability, Memory()
        self.known_streams: set[int] = set()
        self.sizes: dict[int, int] = {}
        self.held: dict[int, set[int]] = {}
        """Addresses that a graph's launches were given, by its handle."""
        self.pending: dict[int, set[int]] = {}
        """The same of what is being recorded, by its stream."""
        self.broken = 0
        self.faults: list[str] = []
        self.refused: list[str] = []

    # -- memory

    def allocated(self, array: Any) -> None:
        """Memory that may be touched until it goes."""
        address = self.memory.add_room(array)
        self.sizes[address] = array.nbytes
        weakref.finalize(array, self._freed, address).atexit = False

    def _freed(self, address: int) -> None:
        size = self.sizes.pop(address)
        self.memory.remove(address)
        for graph, addresses in self.held.items():
            if any(address <= each < address + size for each in addresses):
                self.faults.append(f"{size} bytes were freed while graph {graph:#x} holds their address")

    @property
    def bytes(self) -> int:
        """Taken now."""
        return sum(self.sizes.values())

    def _hold(self, stream: int, *addresses: int) -> None:
        """Addresses of live memory among what is recorded."""
        if stream in self.recording:
            ranges = sorted(self.sizes.items())
            starts = np.array([start for start, _ in ranges], np.int64)
            for address in addresses:
                at = int(np.searchsorted(starts, address, "right")) - 1
                if at >= 0 and address < ranges[at][0] + ranges[at][1]:
                    self.pending.setdefault(stream, set()).add(address)

    # -- calls

    def now(self, stream: int, work: Callable[[], None]) -> None:
        """As before, but a fault breaks the device."""

        def guarded() -> None:
            if not self.broken:
                try:
                    work()
                except KernelFault as fault:
                    self.faults.append(str(fault))
                    self.broken = ILLEGAL_ADDRESS

        super().now(stream, guarded)

    def _cuModuleLoadData(self, out: Any, image: int) -> int:
        if self.broken or self.recording:
            return self.broken or CAPTURING
        name, _, folder = ctypes.string_at(image).decode().removeprefix("image of ").rpartition(" for ")
        if not runs(folder, self.capability):
            return NO_BINARY
        plain = ctypes.create_string_buffer(f"image of {name}".encode())
        return super()._cuModuleLoadData(out, ctypes.addressof(plain))

    def _run(
        self,
        function: int,
        grid: Any,
        block: Any,
        shared: int,
        stream: int,
        pointers: Any,
        extra: Any,
        early: bool,
    ) -> int:
        if self.broken or stream not in self.known_streams or function not in self.loaded:
            return self.broken or INVALID_HANDLE
        kernel = self.kernels[self.modules[function - 15001]]
        reason = against(kernel, tuple(grid), tuple(block), shared, self.capability, early)
        if reason:
            self.refused.append(reason)
            return OUT_OF_RESOURCES
        code = super()._run(function, grid, block, shared, stream, pointers, extra, early)
        if not code:
            values = self.launches[-1]["values"]
            self._hold(
                stream, *(v for v, letter in zip(values, kernel.parameters, strict=True) if letter == "l")
            )
        return code

    def _cuMemcpyAsync(self, target: int, source: int, size: int, stream: int) -> int:
        if self.broken or stream not in self.known_streams:
            return self.broken or INVALID_HANDLE
        if not self._stack():
            return super()._cuMemcpyAsync(target, source, size, stream)
        self._hold(stream, target, source)

        def copy() -> None:
            data = self.memory.view(source, np.uint8, size).copy()
            self.memory.view(target, np.uint8, size)[:] = data

        self.now(stream, copy)
        return 0

    def _cuGraphLaunch(self, graph: int, stream: int) -> int:
        if self.broken or stream not in self.known_streams:
            return self.broken or INVALID_HANDLE
        return super()._cuGraphLaunch(graph, stream)


class _Graph:
    """torch's graph: with it the driver's goes."""

    def __init__(self, cuda: StrictCuda, torch_cuda: StrictTorch, handle: int) -> None:
        self._cuda, self._torch, self._handle, self._work, self._stream = (
            cuda,
            torch_cuda,
            handle,
            list[Any](),
            0,
        )

    def capture_begin(self, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        self._stream = self._torch.current[-1]
        assert self._stream in self._cuda.known_streams, "a recording needs a stream of its own"
        self._cuda.recording[self._stream] = self._work

    def capture_end(self) -> None:
        del self._cuda.recording[self._stream]
        self._cuda.graph_work[self._handle] = self._work
        self._cuda.held[self._handle] = self._cuda.pending.pop(self._stream, set())

    def raw_cuda_graph_exec(self) -> int:
        return self._handle

    def __del__(self) -> None:
        self._cuda.graph_work.pop(self._handle, None)
        self._cuda.held.pop(self._handle, None)


class StrictTorch(FakeTorchCuda):
    """Its memory is known to the driver, and waiting while a graph is recorded is an error."""

    fake: StrictCuda

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fake: StrictCuda) -> None:
        self._empty = torch.empty
        super().__init__(monkeypatch, fake)
        properties = torch.cuda.get_device_properties(0)
        properties.major, properties.minor = fake.capability // 10, fake.capability % 10
        monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        images = StrictImages(fake)
        monkeypatch.setattr(launcher, "BINARIES", images)
        monkeypatch.setattr(launcher.Launcher.load, "__defaults__", (images,))

    def check(self) -> None:
        super().check()
        if self.fake.recording:
            raise torch.AcceleratorError(
                "CUDA error: operation would make the legacy stream depend on a capturing one"
            )
        if self.fake.broken:
            error = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
            error.error_code = self.fake.broken  # type: ignore[attr-defined]
            raise error

    def empty(
        self, size: Any, *more: Any, dtype: Any = None, device: Any = None, pin_memory: bool = False
    ) -> torch.Tensor:
        """A piece of memory; anything else is torch's own."""
        if dtype != torch.uint8 or not isinstance(size, int) or more:
            return self._empty(size, *more, dtype=dtype, device=device)
        self.check()
        room = np.zeros(size + 512, np.uint8)
        start = -room.ctypes.data % 512
        array = room[start : start + size]
        self.fake.allocated(array)
        return torch.from_numpy(array)

    def stream(self) -> Any:
        made = super().stream()
        self.fake.known_streams.add(made.cuda_stream)
        return made

    def graph(self) -> Any:
        self.handles += 1
        return _Graph(self.fake, self, self.handles)


class StrictImages:
    """Machine code of any kernel, for the architecture that it is asked for."""

    def __init__(self, fake: StrictCuda) -> None:
        self._fake = fake

    def ready(self, kernels: Any, capability: int) -> list[Any]:
        return []

    def cubin(self, kernel: Kernel, capability: int) -> bytes:
        self._fake.kernels[kernel.name] = kernel
        return f"image of {kernel.name} for {target(capability).folder}".encode()


class StrictDevice(TorchDevice):
    """A `TorchDevice` whose tensors are the processor's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capability: int = 90, early: bool = False) -> None:
        self.cuda = StrictCuda(capability)
        StrictTorch(monkeypatch, self.cuda)
        super().__init__(0, early=early, library=Driver(self.cuda))

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")
