"""NVIDIA's driver, said in Python: real C function pointers, so that every argument passes through ctypes as
on a GPU.

Kernels "run" at once, by their models in NumPy. Contexts, modules, functions and streams are numbers; misuse
is an error code, as there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np

from engine.backends.cuda.codegen.kernel import Kernel
from engine.backends.cuda.runtime.launcher import LaunchConfig
from tests.simt.models import run_model

INVALID_VALUE, NOT_INITIALIZED, INVALID_IMAGE, INVALID_CONTEXT, INVALID_HANDLE = 1, 3, 200, 201, 400
_NAMES = {
    1: ("invalid argument", "CUDA_ERROR_INVALID_VALUE"),
    2: ("out of memory", "CUDA_ERROR_OUT_OF_MEMORY"),
    100: ("no CUDA-capable device is detected", "CUDA_ERROR_NO_DEVICE"),
    200: ("device kernel image is invalid", "CUDA_ERROR_INVALID_IMAGE"),
    201: ("invalid device context", "CUDA_ERROR_INVALID_CONTEXT"),
    209: ("no kernel image is available for execution on the device", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    400: ("invalid resource handle", "CUDA_ERROR_INVALID_HANDLE"),
    700: ("an illegal memory access was encountered", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    701: ("too many resources requested for launch", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    900: ("operation not permitted when stream is capturing", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
    803: (
        "system has unsupported display driver / cuda driver combination",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    ),
    999: ("unknown error", "CUDA_ERROR_UNKNOWN"),
}
H200 = {13: 1980000, 16: 132, 20: 0, 36: 3201000, 37: 6144, 38: 62914560, 75: 9, 76: 0}


class RawMemory:
    """Any address of this process, as the models see memory."""

    def view(self, address: int, kind: Any, count: int) -> Any:
        size = int(count) * np.dtype(kind).itemsize
        return (
            np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype=kind)
            if size
            else np.zeros(0, kind)
        )


class FakeCuda:
    """What ctypes would load. `kernels` are those whose images are known: b"image of NAME"."""

    def __init__(
        self,
        devices: int = 1,
        version: int = 13000,
        attributes: Mapping[int, int] = H200,
        kernels: tuple[Kernel, ...] = (),
    ) -> None:
        self.devices, self.version, self.attributes = devices, version, dict(attributes)
        self.init_code = self.launch_code = 0
        self.memory: Any = RawMemory()
        self.initialised = False
        self.kernels = {kernel.name: kernel for kernel in kernels}
        self.modules: list[str] = []
        self.loaded: set[int] = set()
        self.launches: list[dict[str, Any]] = []
        self.graphs: list[tuple[int, int]] = []
        self.peer_copies: list[tuple[int, int, int]] = []
        self.recording: dict[int, list[Callable[[], None]]] = {}
        self.graph_work: dict[int, list[Callable[[], None]]] = {}
        self._contexts = threading.local()
        self._text = [ctypes.create_string_buffer(t.encode()) for pair in _NAMES.values() for t in pair]

    def _stack(self) -> list[int]:
        if not hasattr(self._contexts, "stack"):
            self._contexts.stack = []
        return self._contexts.stack

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        kinds = _PROTOTYPES[name]
        made = ctypes.CFUNCTYPE(c_int, *kinds)(getattr(self, "_" + name))
        setattr(self, name, made)
        return made

    def _cuInit(self, flags: int) -> int:
        self.initialised = not self.init_code and flags == 0
        return self.init_code or (0 if flags == 0 else INVALID_VALUE)

    def _cuDriverGetVersion(self, out: Any) -> int:
        out[0] = self.version
        return 0

    def _text_of(self, code: int, out: Any, which: int) -> int:
        if code not in _NAMES:
            return INVALID_VALUE
        out[0] = ctypes.addressof(self._text[2 * list(_NAMES).index(code) + which])
        return 0

    def _cuGetErrorString(self, code: int, out: Any) -> int:
        return self._text_of(code, out, 0)

    def _cuGetErrorName(self, code: int, out: Any) -> int:
        return self._text_of(code, out, 1)

    def _cuDeviceGetCount(self, out: Any) -> int:
        out[0] = self.devices
        return 0 if self.initialised else NOT_INITIALIZED

    def _cuDeviceGet(self, out: Any, index: int) -> int:
        if not self.initialised:
            return NOT_INITIALIZED
        out[0] = 40 + index  # a handle is not the index
        return 0 if index < self.devices else 101

    def _cuDeviceGetName(self, out: int, size: int, device: int) -> int:
        text = f"NVIDIA Fake {device - 40}".encode() + b"\0"
        ctypes.memmove(out, text, min(size, len(text)))
        return 0

    def _cuDeviceGetUuid_v2(self, out: int, device: int) -> int:
        ctypes.memmove(out, bytes(range(device, device + 16)), 16)
        return 0

    def _cuDeviceGetAttribute(self, out: Any, attribute: int, device: int) -> int:
        out[0] = self.attributes.get(attribute, 0)
        return 0 if attribute in self.attributes else INVALID_VALUE

    def _cuDeviceTotalMem_v2(self, out: Any, device: int) -> int:
        out[0] = 141 * 10**9
        return 0

    def _cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> int:
        out[0] = 1000 + device
        return 0

    def _cuCtxGetCurrent(self, out: Any) -> int:
        out[0] = self._stack()[-1] if self._stack() else None
        return 0

    def _cuCtxPushCurrent_v2(self, context: int) -> int:
        self._stack().append(context)
        return 0

    def _cuCtxPopCurrent_v2(self, out: Any) -> int:
        if not self._stack():
            return INVALID_CONTEXT
        out[0] = self._stack().pop()
        return 0

    def _cuModuleLoadData(self, out: Any, image: int) -> int:
        if not self._stack():
            return INVALID_CONTEXT
        data = ctypes.string_at(image)
        name = data.removeprefix(b"image of ").decode()
        if name not in self.kernels:
            return INVALID_IMAGE
        self.modules.append(name)
        out[0] = 5000 + len(self.modules)
        return 0

    def _cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> int:
        if self.modules[module - 5001] != name.decode():
            return 500
        out[0] = 10000 + module
        return 0

    def _cuFuncLoad(self, function: int) -> int:
        self.loaded.add(function)
        return 0

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
        if self.launch_code:
            return self.launch_code
        if not self._stack():
            return INVALID_CONTEXT
        if function not in self.loaded or not stream:
            return INVALID_HANDLE
        if 0 in grid or tuple(block) == (0, 0, 0) or extra:
            return INVALID_VALUE
        grid = tuple(grid)  # which the caller may change while a graph still has it
        kernel = self.kernels[self.modules[function - 15001]]
        kinds = {"l": ctypes.c_int64, "i": c_int, "f": ctypes.c_float}
        values = [kinds[letter].from_address(pointers[i]).value for i, letter in enumerate(kernel.parameters)]
        context = self._stack()[-1]
        self.launches.append({
            "kernel": kernel.name, "grid": grid, "block": tuple(block), "shared": shared, "stream": stream,
            "early": early, "context": context, "values": values,
        })  # fmt: skip
        self.now(stream, lambda: run_model(kernel, grid, values, self.memory))  # type: ignore[arg-type]
        return 0

    def now(self, stream: int, work: Callable[[], None]) -> None:
        """Do it, or note it where the stream is being recorded."""
        self.recording[stream].append(work) if stream in self.recording else work()

    def _cuLaunchKernel(self, function: int, *rest: Any) -> int:
        grid, block, (shared, stream, pointers, extra) = rest[:3], rest[3:6], rest[6:]
        return self._run(function, grid, block, shared, stream, pointers, extra, False)

    def _cuLaunchKernelEx(self, config: int, function: int, pointers: Any, extra: Any) -> int:
        given = LaunchConfig.from_address(config)
        early = given.attribute_count == 1 and given.attributes[0].id == 6 and given.attributes[0].value == 1
        return self._run(
            function, given.grid, given.block, given.shared_bytes, given.stream, pointers, extra, early
        )

    def _cuMemcpyAsync(self, target: int, source: int, size: int, stream: int) -> int:
        if not self._stack():
            return INVALID_CONTEXT
        self.now(stream, lambda: ctypes.memmove(target, source, size) and None)
        return 0

    def _cuMemcpyPeerAsync(
        self, target: int, target_context: int, source: int, source_context: int, size: int, stream: int
    ) -> int:
        if not self._stack() or not {target_context, source_context} <= {
            1040 + i for i in range(self.devices)
        }:
            return INVALID_CONTEXT
        self.peer_copies.append((target_context, source_context, size))
        self.now(stream, lambda: ctypes.memmove(target, source, size) and None)
        return 0

    def _cuGraphLaunch(self, graph: int, stream: int) -> int:
        if graph not in self.graph_work:
            return INVALID_HANDLE
        self.graphs.append((graph, stream))
        for work in self.graph_work[graph]:
            work()
        return 0


_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_void_p)),
    "cuGetErrorString": (c_int, POINTER(c_void_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_void_p, c_int, c_int),
    "cuDeviceGetUuid_v2": (c_void_p, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxGetCurrent": (POINTER(c_void_p),),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuModuleLoadData": (POINTER(c_void_p), c_void_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncLoad": (c_void_p,),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 6, c_uint, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "cuLaunchKernelEx": (c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "cuMemcpyAsync": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemcpyPeerAsync": (c_uint64, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p),
    "cuGraphLaunch": (c_void_p, c_void_p),
}
