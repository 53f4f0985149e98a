"""What the recorded passes ask of a GPU.

`gpu.TorchDevice` is a real one; the tests have one that runs on the CPU.
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
    """Recorded launches."""

    def launch(self) -> None:
        """Have the device run them all after what it was given before; returns at once."""
        ...


class Mark(Protocol):
    """A point in a device's work."""

    def wait(self) -> None:
        """Wait, without Python's lock, until the device has done all that it was given before the mark."""
        ...

    def reached(self) -> bool:
        """Whether it has, now."""
        ...


class Device(Protocol):
    """One GPU and its one stream of work. Used by one thread.

    `capability` is its compute capability times ten (90 for 9.0), `sm_count` the number of its
    multiprocessors. Everything that is launched runs in order, later than the call; only `read`, `Mark.wait`
    and `synchronize` wait.
    """

    name: str
    index: int
    capability: int
    sm_count: int
    total_memory: int

    @property
    def identity(self) -> str:
        """What tells this device, with its driver and with torch, from others, for what is remembered of
        it; "": nothing is to be.
        """
        ...

    @property
    def torch_device(self) -> torch.device:
        """Where tensors live."""
        ...

    def free_memory(self) -> int:
        """Bytes that can still be had: what the driver calls free, and what torch keeps in this process
        and nothing uses.
        """
        ...

    def trim(self) -> None:
        """Give back to the driver what was freed and is kept for later use, when the device has done all
        its work. Raises nothing.
        """
        ...

    def empty(self, size: int) -> torch.Tensor:
        """uint8 (size,) on the device, not filled, its address a multiple of 256.

        Raises `NotEnoughMemory`.
        """
        ...

    def zeros(self, size: int) -> torch.Tensor:
        """The same, filled with zeros."""
        ...

    def upload(self, array: Any) -> torch.Tensor:
        """uint8 with the bytes of a contiguous NumPy array, when the call returns.

        Raises `NotEnoughMemory`.
        """
        ...

    def pinned(self, size: int) -> torch.Tensor:
        """uint8 (size,) zeros in the host's memory, which the device reads and writes by itself."""
        ...

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy bytes, in order with the launches; one of the two may be pinned memory or lie on another
        device.
        """
        ...

    def read(self, source: torch.Tensor) -> Any:
        """The bytes of a device's tensor as a NumPy array of uint8, when all work before is done."""
        ...

    def prepare(self, kernels: Sequence[Kernel]) -> Iterator[Loading]:
        """Load the machine code of these kernels, compiling what is missing, so that they can be launched
        and recorded; yields progress.
        """
        ...

    def launch(self, kernel: Kernel, blocks: tuple[int, int, int], arguments: Sequence[int | float]) -> None:
        """Run a kernel over a grid of blocks; a grid with a zero in it is nothing."""
        ...

    def record(self, launches: Callable[[], None]) -> Graph:
        """A graph of what `launches` launches and copies; nothing of it runs now."""
        ...

    def torch_work(self) -> AbstractContextManager[None]:
        """Around torch operations on the device's tensors, so that they come in order with the launches."""
        ...

    def mark(self) -> Mark:
        """A point behind all that was launched so far."""
        ...

    def wait_for(self, mark: Mark) -> None:
        """Let this device's further work wait for a mark, perhaps of another device; returns at once."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has nothing left to do."""
        ...
