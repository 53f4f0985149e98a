"""Launching kernels through the driver: machine code is loaded once for each device, arguments are packed
into memory that is kept.

Functions and structures: CUDA driver API reference 13.0, "Execution Control" and "Module Management".
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from ctypes import c_uint, c_void_p

from engine.backends.cuda.codegen.cubin_cache import BINARIES, Binaries
from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.runtime.driver import Driver, driver
from engine.core import Loading

EARLY_CAPABILITY = 90
"""From here on a kernel may start before those before it are done (programmatic dependent launch)."""
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_FORMATS = {"l": "q", "i": "i", "f": "f"}


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: what the attribute is, padding to 8 bytes, and a union of 64 bytes, here with an
    int at its start.
    """

    _fields_ = (("id", c_uint), ("padding", c_uint), ("value", ctypes.c_int), ("rest", ctypes.c_byte * 60))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", c_uint),
    )


class Arguments:
    """Memory for a kernel's arguments, laid out as C lays out a structure of them, and the pointers to each
    that the driver wants.

    The driver copies them during the launch, so one such memory serves all launches of one thread.
    """

    def __init__(self, signature: str) -> None:
        formats = "".join(_FORMATS[letter] for letter in signature)
        self._pack = struct.Struct("@" + formats)
        self._room = ctypes.create_string_buffer(max(1, self._pack.size))
        start = ctypes.addressof(self._room)
        ends = [struct.calcsize("@" + formats[: i + 1]) for i in range(len(formats))]
        self.pointers = (c_void_p * max(1, len(formats)))(
            *[start + e - struct.calcsize(f) for e, f in zip(ends, formats, strict=True)]
        )

    def set(self, values: Sequence[int | float]) -> None:
        """Put in the next launch's values.

        Raises `struct.error` where one is no number of its letter, or there are more or fewer.
        """
        self._pack.pack_into(self._room, 0, *values)


class _Modules:
    """Functions that the process has loaded, by device and kernel. They need no thread of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: dict[tuple[int, int, Kernel], tuple[c_void_p, bytes, Driver]] = {}

    def function(self, library: Driver, index: int, kernel: Kernel, image: bytes) -> c_void_p:
        """The kernel's function on a device whose context is current."""
        with self._lock:
            key = id(library), index, kernel
            if key not in self._functions:
                module, function = c_void_p(), c_void_p()
                library.call("cuModuleLoadData", ctypes.byref(module), image)
                library.call("cuModuleGetFunction", ctypes.byref(function), module, kernel.name.encode())
                # Else its code would be brought to the device at its first launch, which may be while a graph
                # is recorded.
                library.call("cuFuncLoad", function)
                self._functions[key] = function, image, library
            return self._functions[key][0]


_MODULES = _Modules()


class _Current:
    """Makes a device's context the calling thread's for a while, unless it is already."""

    def __init__(self, library: Driver, context: c_void_p) -> None:
        self._library, self._context = library, context
        self._get = library.function("cuCtxGetCurrent")
        self._found = c_void_p()
        self._reference = ctypes.byref(self._found)
        self._pushed: list[bool] = []

    def __enter__(self) -> None:
        self._get(self._reference)
        there = self._found.value == self._context.value
        if not there:
            self._library.call("cuCtxPushCurrent_v2", self._context)
        self._pushed.append(not there)

    def __exit__(self, *_: object) -> None:
        if self._pushed.pop():
            self._library.call("cuCtxPopCurrent_v2", ctypes.byref(c_void_p()))


class Launcher:
    """Launches on one device.

    Used by one thread at a time; streams and graphs are given as the driver's handles.

    `early` lets kernels start before the one before is done, where the device can: they wait by themselves
    (`wait_for_others`). Methods raise `NotEnoughMemory`, `DeviceLost`, or `EngineError` with what the GPU
    reported.
    """

    def __init__(
        self, index: int, capability: int, *, early: bool = False, library: Driver | None = None
    ) -> None:
        self._library = library or driver()
        self.index, self.capability = index, capability
        self.early = early and capability >= EARLY_CAPABILITY
        device, context = ctypes.c_int(), c_void_p()
        self._library.call("cuInit", 0)
        self._library.call("cuDeviceGet", ctypes.byref(device), index)
        # The context that torch uses, too. It is kept until the process ends, as torch keeps it.
        self._library.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device.value)
        self.context = context
        self._here = _Current(self._library, context)
        self._functions: dict[Kernel, tuple[c_void_p, Arguments]] = {}
        self._attribute = LaunchAttribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
        self._config = LaunchConfig(attributes=ctypes.pointer(self._attribute), attribute_count=1)
        self._launch = self._library.function("cuLaunchKernel")
        self._launch_graph = self._library.function("cuGraphLaunch")

    def load(self, kernels: Iterable[Kernel], binaries: Binaries = BINARIES) -> Iterator[Loading]:
        """Have these kernels ready; what is missing is compiled first, see `Binaries.ready`.

        Raises `BuildError`.
        """
        wanted = [kernel for kernel in dict.fromkeys(kernels) if kernel not in self._functions]
        yield from binaries.ready(wanted, self.capability)
        with self._here:
            for kernel in wanted:
                function = _MODULES.function(
                    self._library, self.index, kernel, binaries.cubin(kernel, self.capability)
                )
                self._functions[kernel] = function, Arguments(kernel.parameters)

    def launch(
        self, kernel: Kernel, blocks: tuple[int, int, int], values: Sequence[int | float], stream: int
    ) -> None:
        """Run a kernel that was loaded (else `KeyError`), behind all that the stream was given before."""
        function, arguments = self._functions[kernel]
        arguments.set(values)
        with self._here:
            if self.early:
                config = self._config
                config.grid[:] = blocks
                config.block[:] = kernel.threads, 1, 1
                config.stream = stream
                self._library.call(
                    "cuLaunchKernelEx", ctypes.byref(config), function, arguments.pointers, None
                )
                return
            code = self._launch(function, *blocks, kernel.threads, 1, 1, 0, stream, arguments.pointers, None)
        if code:
            raise self._library.error(code)

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy bytes between addresses of devices and of pinned memory, which the driver tells apart by
        itself; in order.
        """
        if size:
            with self._here:
                self._library.call("cuMemcpyAsync", target, source, size, stream)

    def copy_from(self, other: Launcher, target: int, source: int, size: int, stream: int) -> None:
        """Copy bytes here from another device's memory, in order with this device's `stream`."""
        if size:
            with self._here:
                self._library.call(
                    "cuMemcpyPeerAsync", target, self.context, source, other.context, size, stream
                )

    def launch_graph(self, graph: int, stream: int) -> None:
        """Run an instantiated graph."""
        with self._here:
            code = self._launch_graph(graph, stream)
        if code:
            raise self._library.error(code)
