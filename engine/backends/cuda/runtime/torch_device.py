"""A `Device` that is a real GPU: torch provides memory, stream and graphs, the driver launches kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.runtime import nvml
from engine.backends.cuda.runtime.driver import LOST, OUT_OF_MEMORY, Driver, driver, lost, supported_cuda
from engine.backends.cuda.runtime.kept_memory import kept_unused
from engine.backends.cuda.runtime.launcher import Launcher
from engine.core import Loading
from engine.errors import EngineError, NotEnoughMemory
from engine.platform.garbage import gc_paused
from engine.units import size_text
from engine.words import _

_cuda: Any = torch.cuda  # its events and streams have no type hints

ALIGNMENT = 256
STAGING_BYTES = 1 << 25
"""The size of each of two pinned buffers for uploads: one is filled while the other is copied."""


_STREAMS: WeakKeyDictionary[Driver, dict[int, Any]] = WeakKeyDictionary()
"""One stream for each GPU: memory that torch caches can be reused only on the stream it was freed on."""
_STREAMS_LOCK = threading.Lock()
_AT_WORK = threading.local()
"""`device`: whose `torch_work` this thread is in."""


def _stream_of(library: Driver, index: int) -> Any:
    with _STREAMS_LOCK:
        streams = _STREAMS.setdefault(library, {})
        if index not in streams:
            streams[index] = _cuda.Stream(device=index)
        return streams[index]


@contextmanager
def _translated(device: TorchDevice, needed: int = 0) -> Iterator[None]:
    """Raise torch's errors as `NotEnoughMemory` (for `needed` bytes), `DeviceLost` or `EngineError`."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise _no_room(device, needed) from error
    except RuntimeError as error:
        what, known = str(error).partition("\n")[0], isinstance(error, torch.AcceleratorError)
        if not known and not what.startswith("CUDA "):  # the prefix of errors from cuBLAS and the driver API
            raise
        what = what.removeprefix("CUDA error: ").removeprefix("CUDA driver error: ")
        code = getattr(error, "error_code", None)
        # pinned memory; cuBLAS
        if code == OUT_OF_MEMORY or "out of memory" in what or "ALLOC_FAILED" in what:
            raise _no_room(device, needed) from error
        gone = code in LOST if code is not None else known
        raise (lost(what) if gone else EngineError(_("The GPU reported: {what}.", what=what))) from error


def _no_room(device: TorchDevice, needed: int) -> NotEnoughMemory:
    try:
        free = _(
            "{free_memory} of {total_memory} free",
            free_memory=size_text(device.free_memory()),
            total_memory=size_text(device.total_memory),
        )
    except EngineError:
        free = _("too little free")
    if needed:
        sentence = _(
            "{device} has {free}; {needed} more were needed; close other programs that use it, or "
            "choose a smaller model or a shorter context.",
            device=device.name,
            free=free,
            needed=size_text(needed),
        )
    else:
        sentence = _(
            "{device} has {free}; close other programs that use it, or choose a smaller model or a "
            "shorter context.",
            device=device.name,
            free=free,
        )
    return NotEnoughMemory(sentence)


class TorchGraph:
    """A graph captured by torch. Launching it by its handle avoids torch's own overhead at each step."""

    def __init__(self, device: TorchDevice, graph: torch.cuda.CUDAGraph) -> None:
        self._device, self._graph = device, graph  # torch's object destroys the handle with itself
        self._handle = int(graph.raw_cuda_graph_exec())

    def launch(self) -> None:
        self._device.launcher.launch_graph(self._handle, self._device.stream.cuda_stream)


class TorchMark:
    """An event. A waiting thread sleeps instead of polling, so that others can use the processor."""

    def __init__(self, device: TorchDevice) -> None:
        self._device = device
        with _translated(device):
            self.event = _cuda.Event(blocking=True)
            self.event.record(device.stream)

    def wait(self) -> None:
        """See `device.Mark`; torch releases Python's lock meanwhile."""
        with _translated(self._device):
            self.event.synchronize()

    def reached(self) -> bool:
        with _translated(self._device):
            return bool(self.event.query())


class TorchDevice:
    """GPU number `index`, as numbered by torch and `driver.find_gpus`.

    For `early` see `Launcher`. The caller must keep memory alive that kernels use: neither torch nor a graph
    knows what a launch reads, so synchronise before freeing memory that queued launches may use. Raises
    `EngineError` if torch cannot start the GPU.
    """

    def __init__(self, index: int = 0, *, early: bool = True, library: Driver | None = None) -> None:
        self.index = index
        library = library or driver()
        try:
            properties = _cuda.get_device_properties(index)
            self.stream = _stream_of(library, index)
        except (RuntimeError, AssertionError) as error:
            raise EngineError(
                _(
                    "PyTorch cannot start GPU {index}: {reason}",
                    index=index,
                    reason=str(error).partition(chr(10))[0],
                )
            ) from error
        self.name = str(properties.name)
        self.capability = 10 * int(properties.major) + int(properties.minor)
        self.sm_count = int(properties.multi_processor_count)
        self.total_memory = int(properties.total_memory)
        with nvml.opened() as manager:
            version = manager.driver_version() if manager else ""
        own = getattr(properties, "uuid", "")
        self.identity = (
            f"{self.name} {self.capability} {own} {version} {supported_cuda(library)} torch "
            f"{torch.__version__}"
        )
        self.launcher = Launcher(index, self.capability, early=early, library=library)
        self._library, self._others = library, dict[int, Launcher]()
        self._staging: list[tuple[torch.Tensor, Any]] = []

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cuda", self.index)

    def free_memory(self) -> int:
        with _translated(self):
            free, _unused = torch.cuda.mem_get_info(self.index)
        return int(free) + kept_unused(self.index)

    def trim(self) -> None:
        """See `device.Device`: frees torch's cache, the cuBLAS workspace (recreated on use) and staging."""
        self._staging = []
        with suppress(EngineError), _translated(self), torch.cuda.device(self.index):
            self.stream.synchronize()
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()

    @contextmanager
    def torch_work(self) -> Iterator[None]:
        """See `device.Device`. Raises torch's own errors as `NotEnoughMemory` or `DeviceLost`.

        Entering it again inside costs next to nothing; torch's own contexts take tens of microseconds.
        """
        outer = getattr(_AT_WORK, "device", None)
        if outer is self:
            yield
            return
        with _translated(self), torch.cuda.device(self.index), torch.cuda.stream(self.stream):
            _AT_WORK.device = self
            try:
                yield
            finally:
                _AT_WORK.device = outer

    def empty(self, size: int) -> torch.Tensor:
        """See `device.Device`. torch allocates multiples of 512 bytes."""
        with _translated(self, size), torch.cuda.device(self.index), torch.cuda.stream(self.stream):
            return torch.empty(size, dtype=torch.uint8, device=self.torch_device)

    def zeros(self, size: int) -> torch.Tensor:
        array = self.empty(size)
        with self.torch_work():
            return array.zero_()

    def upload(self, array: Any) -> torch.Tensor:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        target = self.empty(raw.size)
        if not self._staging:
            self._staging = [(self.pinned(STAGING_BYTES), _cuda.Event(blocking=True)) for _unused in range(2)]
        for number, start in enumerate(range(0, raw.size, STAGING_BYTES)):
            piece = raw[start : start + STAGING_BYTES]
            room, sent = self._staging[number % 2]
            with _translated(self):
                # its previous contents have been copied; an event that was never recorded counts as complete
                sent.synchronize()
            room.numpy()[: piece.size] = piece
            self.copy(room[: piece.size], target[start : start + piece.size])
            with _translated(self):
                sent.record(self.stream)
        self.synchronize()
        return target

    def pinned(self, size: int) -> torch.Tensor:
        """See `device.Device`. Host and device use the same address (unified addressing)."""
        with _translated(self, size), torch.cuda.device(self.index):
            room = torch.empty(size + ALIGNMENT, dtype=torch.uint8, pin_memory=True)
        start = -room.data_ptr() % ALIGNMENT
        return room[start : start + size].zero_()

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """See `device.Device`. Both must be contiguous, and host memory must be pinned.

        Raises `ValueError` for different sizes or tensors that are not contiguous.
        """
        if source.nbytes != target.nbytes or not (source.is_contiguous() and target.is_contiguous()):
            raise ValueError(
                f"{source.nbytes} bytes cannot be copied to {target.nbytes}: expected the same number, in "
                "one piece each"
            )
        at = target.data_ptr(), source.data_ptr(), source.nbytes, self.stream.cuda_stream
        if source.device.type == "cuda" and source.device.index != self.index:
            self.launcher.copy_from(self._other(source.device.index), *at)
        else:
            self.launcher.copy(*at)

    def _other(self, index: int) -> Launcher:
        """The launcher of another GPU, to copy from its memory."""
        if index not in self._others:
            self._others[index] = Launcher(index, self.capability, library=self._library)
        return self._others[index]

    def read(self, source: torch.Tensor) -> Any:
        self.synchronize()
        with self.torch_work():
            host = source.reshape(-1).view(torch.uint8).cpu().numpy()
        return host.copy() if source.device.type == "cpu" else host

    def prepare(self, kernels: Sequence[Kernel]) -> Iterator[Loading]:
        """See `device.Device`. Raises `BuildError` for kernels that cannot be compiled."""
        yield from self.launcher.load(kernels)

    def launch(self, kernel: Kernel, blocks: tuple[int, int, int], arguments: Sequence[int | float]) -> None:
        if 0 not in blocks:
            self.launcher.launch(kernel, blocks, arguments, self.stream.cuda_stream)

    def record(self, launches: Callable[[], None]) -> TorchGraph:
        """See `device.Device`. Load kernels and allocate memory before; capturing allows neither."""
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        with gc_paused(), self.torch_work():
            # Other threads may keep using the GPU: only this one is restricted during capture.
            graph.capture_begin(capture_error_mode="thread_local")
            whole = False
            try:
                launches()
                whole = True
            finally:
                # if the capture has failed, ending it fails as well
                with nullcontext() if whole else suppress(RuntimeError):
                    graph.capture_end()
            return TorchGraph(self, graph)

    def mark(self) -> TorchMark:
        return TorchMark(self)

    def wait_for(self, mark: Any) -> None:
        with _translated(self):
            self.stream.wait_event(mark.event)

    def synchronize(self) -> None:
        with _translated(self):
            self.stream.synchronize()
