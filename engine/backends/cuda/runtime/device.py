"""The interface of a GPU for recorded passes.

`torch_device.TorchDevice` is a real one; the tests have one that runs on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from engine.backends.cuda.codegen.kernel import Kernel
from engine.core import Loading

if TYPE_CHECKING:
    import torch


class Graph(Protocol):
    """Captured launches."""

    def launch(self) -> None:
        """Queue them on the device after all earlier work; returns at once."""
        ...


class Mark(Protocol):
    """A point in a device's work."""

    def wait(self) -> None:
        """Wait, without Python's lock, until the device has finished all work queued before the mark."""
        ...

    def reached(self) -> bool:
        """Whether that work has finished."""
        ...


class Device(Protocol):
    """One GPU with one stream of work. Used by one thread.

    `capability` is its compute capability times ten (90 for 9.0), `sm_count` its number of multiprocessors.
    Launches run asynchronously and in order; only `read`, `Mark.wait` and `synchronize` wait.
    """

    name: str
    index: int
    capability: int
    sm_count: int
    total_memory: int

    @property
    def identity(self) -> str:
        """Identifies the device, its driver and torch, for results that are stored; "" to store none."""
        ...

    @property
    def torch_device(self) -> torch.device:
        """The device of tensors."""
        ...

    def free_memory(self) -> int:
        """Bytes that can be allocated: free for the driver, or cached by torch and not used."""
        ...

    def trim(self) -> None:
        """Return cached free memory to the driver, after all queued work. Raises nothing."""
        ...

    def empty(self, size: int) -> torch.Tensor:
        """uint8 (size,) on the device, uninitialised; its address is a multiple of 256.

        Raises `NotEnoughMemory`.
        """
        ...

    def zeros(self, size: int) -> torch.Tensor:
        """As `empty`, filled with zeros."""
        ...

    def upload(self, array: Any) -> torch.Tensor:
        """A contiguous NumPy array's bytes as uint8 on the device; complete when the call returns.

        Raises `NotEnoughMemory`.
        """
        ...

    def pinned(self, size: int) -> torch.Tensor:
        """uint8 (size,) zeros in pinned host memory, which the device can read and write."""
        ...

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy bytes in order with the launches; one of the two may be pinned memory or on another device."""
        ...

    def read(self, source: torch.Tensor) -> Any:
        """The bytes of a device tensor as a NumPy array of uint8, after all queued work."""
        ...

    def prepare(self, kernels: Sequence[Kernel]) -> Iterator[Loading]:
        """Load these kernels, compiling missing ones, so that they can be launched; yields progress."""
        ...

    def launch(self, kernel: Kernel, blocks: tuple[int, int, int], arguments: Sequence[int | float]) -> None:
        """Launch a kernel over a grid of blocks; does nothing if a dimension of the grid is 0."""
        ...

    def record(self, launches: Callable[[], None]) -> Graph:
        """Capture what `launches` launches and copies as a graph, without running it."""
        ...

    def torch_work(self) -> AbstractContextManager[None]:
        """A context for torch operations on the device's tensors, in order with the launches."""
        ...

    def mark(self) -> Mark:
        """A mark after all work queued so far."""
        ...

    def wait_for(self, mark: Mark) -> None:
        """Let this device's later work wait for a mark, possibly of another device; returns at once."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has finished all queued work."""
        ...
