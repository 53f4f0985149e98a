"""Launches kernels through the driver. Machine code is loaded once per device, and argument memory is reused.

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
"""From here on a kernel may start before earlier ones have finished (programmatic dependent launch)."""
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_FORMATS = {"l": "q", "i": "i", "f": "f"}


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: its id, padding to 8 bytes, and a union of 64 bytes that starts with an int."""

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
    """Memory for a kernel's arguments, laid out as a C structure, and the pointers that the driver needs.

    The driver copies the arguments during the launch, so all launches of one thread can share the memory.
    """

    def __init__(self, signature: str) -> None:
        formats = "".join(_FORMATS[code] for code in signature)
        self._pack = struct.Struct("@" + formats)
        self._room = ctypes.create_string_buffer(max(1, self._pack.size))
        start = ctypes.addressof(self._room)
        ends = [struct.calcsize("@" + formats[: i + 1]) for i in range(len(formats))]
        self.pointers = (c_void_p * max(1, len(formats)))(
            *[start + e - struct.calcsize(f) for e, f in zip(ends, formats, strict=True)]
        )

    def set(self, values: Sequence[int | float]) -> None:
        """Set the values for the next launch.

        Raises `struct.error` if a value does not fit its code, or if the number of values is wrong.
        """
        self._pack.pack_into(self._room, 0, *values)


class _Modules:
    """Functions that the process has loaded, by device and kernel. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: dict[tuple[int, int, Kernel], tuple[c_void_p, bytes, Driver]] = {}

    def function(self, library: Driver, index: int, kernel: Kernel, image: bytes) -> c_void_p:
        """The kernel's function on the device whose context is current."""
        with self._lock:
            key = id(library), index, kernel
            if key not in self._functions:
                module, function = c_void_p(), c_void_p()
                library.call("cuModuleLoadData", ctypes.byref(module), image)
                library.call("cuModuleGetFunction", ctypes.byref(function), module, kernel.name.encode())
                # Otherwise its code would be loaded at the first launch, possibly while a graph is being
                # captured.
                library.call("cuFuncLoad", function)
                self._functions[key] = function, image, library
            return self._functions[key][0]


_MODULES = _Modules()


class _Current:
    """A context manager that makes a device's context current in the calling thread, unless it already is."""

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
    """Launches kernels on one device.

    Only one thread at a time may use it. Streams and graphs are the driver's handles. With
    `early`, kernels may start before the previous one has finished, if the device supports it;
    they wait themselves (`wait_for_others`). Methods raise `NotEnoughMemory`, `DeviceLost`, or
    `EngineError` with the driver's message.
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
        # torch uses this context, too. Like torch, it is kept until the process ends.
        self._library.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device.value)
        self.context = context
        self._here = _Current(self._library, context)
        self._functions: dict[Kernel, tuple[c_void_p, Arguments]] = {}
        self._attribute = LaunchAttribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
        self._config = LaunchConfig(attributes=ctypes.pointer(self._attribute), attribute_count=1)
        self._launch = self._library.function("cuLaunchKernel")
        self._launch_graph = self._library.function("cuGraphLaunch")

    def load(self, kernels: Iterable[Kernel], binaries: Binaries = BINARIES) -> Iterator[Loading]:
        """Load these kernels, compiling the missing ones first (`Binaries.ready`); yields progress.

        Raises `BuildError`.
        """
        missing = [kernel for kernel in dict.fromkeys(kernels) if kernel not in self._functions]
        yield from binaries.ready(missing, self.capability)
        with self._here:
            for kernel in missing:
                function = _MODULES.function(
                    self._library, self.index, kernel, binaries.cubin(kernel, self.capability)
                )
                self._functions[kernel] = function, Arguments(kernel.parameters)

    def launch(
        self, kernel: Kernel, blocks: tuple[int, int, int], values: Sequence[int | float], stream: int
    ) -> None:
        """Launch a loaded kernel (otherwise `KeyError`) on a stream, after everything queued there."""
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
        """Copy bytes between addresses of device or pinned memory, in stream order."""
        if size:
            with self._here:
                self._library.call("cuMemcpyAsync", target, source, size, stream)

    def copy_from(self, other: Launcher, target: int, source: int, size: int, stream: int) -> None:
        """Copy bytes from another device's memory to this one, in order with this device's `stream`."""
        if size:
            with self._here:
                self._library.call(
                    "cuMemcpyPeerAsync", target, self.context, source, other.context, size, stream
                )

    def launch_graph(self, graph: int, stream: int) -> None:
        """Launch an instantiated graph."""
        with self._here:
            code = self._launch_graph(graph, stream)
        if code:
            raise self._library.error(code)
