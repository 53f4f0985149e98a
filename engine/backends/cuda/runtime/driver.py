"""The NVIDIA driver through ctypes, without torch: functions, errors, and the usable GPUs.

Signatures and numbers: CUDA driver API reference, version 13.0 (cuda.h). That header maps plain
names to those ending in _v2. The driver, like torch, numbers GPUs according to
`CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
import threading
from ctypes import POINTER, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from engine.backends.cuda.runtime import nvml
from engine.errors import DeviceLost, EngineError, NotEnoughMemory
from engine.lazy_dataclass import dataclass
from engine.words import _

MINIMUM_DRIVER = 13000
"""The CUDA version that the driver must support, which R580 does; machine code of toolkit 13 needs it."""
MINIMUM_CAPABILITY = 75
MINIMUM_TORCH = (2, 13)
"""The first version whose `addmm` adds float32 to a product of fp16 or bf16 in place (`gemm`)."""
DRIVER_SECONDS = 20.0
"""How long to wait for the driver. Starting one that no other program uses can take a few seconds."""

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (POINTER(c_char), c_int, c_int),
    "cuDeviceGetUuid_v2": (POINTER(c_char), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxGetCurrent": (POINTER(c_void_p),),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncLoad": (c_void_p,),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "cuLaunchKernelEx": (c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "cuMemcpyAsync": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemcpyPeerAsync": (c_uint64, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p),
    "cuGraphLaunch": (c_void_p, c_void_p),
}

OUT_OF_MEMORY = 2
_SUCCESS, _NO_DEVICE = 0, 100
LOST = frozenset({214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 999})
"""Errors after which this process has lost the device's memory, such as kernel faults."""
_DISAGREES = frozenset({803, 804})
"""The driver's kernel module and its library have different versions."""

_ATTRIBUTES = {
    "clock": 13,
    "processors": 16,
    "mode": 20,
    "memory_clock": 36,
    "bus": 37,
    "l2_cache": 38,
    "major": 75,
    "minor": 76,
}
_PROHIBITED = 2


class Driver:
    """The driver's functions. `library` is the loaded ctypes library, or a fake one in tests."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """A function that returns a CUresult, 0 for success. Raises `EngineError` if it is missing."""
        if name not in self._functions:
            try:
                found = getattr(self._library, name)
            except AttributeError as error:
                raise EngineError(
                    _("The NVIDIA driver has no {name}: it is older than R580; update it.", name=name)
                ) from error
            found.argtypes, found.restype = _SIGNATURES[name], c_int
            self._functions[name] = found
        return self._functions[name]

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises `error` of its result unless it succeeds."""
        code = self.function(name)(*arguments)
        if code != _SUCCESS:
            raise self.error(code)

    def describe(self, code: int) -> str:
        """An error in the driver's words, such as `an illegal memory access was
        encountered (CUDA_ERROR_ILLEGAL_ADDRESS)`.
        """
        texts = []
        for name in ("cuGetErrorString", "cuGetErrorName"):
            text = c_char_p()
            found = text.value if self.function(name)(code, ctypes.byref(text)) == _SUCCESS else None
            texts.append(found.decode("utf-8", "replace") if found else _("error {code}", code=code))
        return f"{texts[0]} ({texts[1]})" if texts[0] != texts[1] else texts[0]

    def error(self, code: int) -> EngineError:
        """The exception for a result other than success."""
        if code == OUT_OF_MEMORY:
            return NotEnoughMemory(
                _(
                    "The GPU has no memory left; close other programs that use it, or choose a shorter "
                    "context."
                )
            )
        if code in LOST:
            return lost(self.describe(code))
        return EngineError(_("The GPU reported: {reason}.", reason=self.describe(code)))


def lost(what: str) -> DeviceLost:
    """The exception for a GPU that failed with the message `what`. A process cannot recover such a device."""
    return DeviceLost(
        _(
            "The GPU stopped working: {what}. Restart Inglenook and reload the model, or load it on the CPU.",
            what=what,
        )
    )


@dataclass(frozen=True)
class GpuInfo:
    """One GPU.

    `capability` is its compute capability times ten. Memory is in bytes; `free_memory` is None if
    NVML does not report it. `clock` and `memory_clock` are in MHz, `bus` in bits, `l2_cache` in
    bytes, 0 if the driver does not report them.
    """

    index: int
    name: str
    capability: int
    total_memory: int
    sm_count: int
    clock: int = 0
    memory_clock: int = 0
    bus: int = 0
    l2_cache: int = 0
    free_memory: int | None = None


@dataclass(frozen=True)
class Gpus:
    """The usable GPUs, and a sentence for each that is not; `reason` says why there are none, or is ""."""

    gpus: tuple[GpuInfo, ...] = ()
    refused: tuple[str, ...] = ()
    reason: str = ""


@cache
def driver() -> Driver:
    """The driver of this machine, loaded once. Raises `EngineError` if there is none."""
    for name in ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so"):
        try:
            return Driver(ctypes.CDLL(name))
        except OSError:
            continue
    raise EngineError(_("No NVIDIA driver was found on this machine."))


def find_gpus(seconds: float = DRIVER_SECONDS) -> Gpus:
    """The GPUs that the engine can use, or why there are none. Raises nothing, and waits at most `seconds`.

    It takes milliseconds after the driver has started, and does not import torch. Processes that are forked
    afterwards cannot use a GPU.
    """
    answer: list[Gpus] = []
    asking = threading.Thread(target=lambda: answer.append(_find()), name="find-gpus", daemon=True)
    asking.start()
    asking.join(seconds)
    return (
        answer[0]
        if answer
        else Gpus(
            reason=_(
                "The NVIDIA driver did not answer within {seconds:g} seconds; restart the machine.",
                seconds=seconds,
            )
        )
    )


def _find() -> Gpus:
    try:
        library = driver()
        unusable = _driver_trouble(library)
        if unusable:
            return Gpus(reason=unusable)
        count = c_int()
        library.call("cuDeviceGetCount", ctypes.byref(count))
        gpus, refused = [], []
        with nvml.opened() as manager:
            for index in range(count.value):
                gpu, against = _gpu(library, index, manager)
                if against:
                    refused.append(against)
                else:
                    gpus.append(gpu)
    except EngineError as error:
        return Gpus(reason=str(error))
    reason = _no_device() if not count.value else refused[0] if not gpus else _program_trouble()
    return Gpus(() if reason else tuple(gpus), tuple(refused), reason)


def supported_cuda(library: Driver) -> int:
    """The CUDA version that the driver supports, 13000 for 13.0."""
    version = c_int()
    library.call("cuDriverGetVersion", ctypes.byref(version))
    return version.value


def _driver_trouble(library: Driver) -> str:
    """Why the driver cannot be used, or ""."""
    version = supported_cuda(library)
    if version < MINIMUM_DRIVER:
        with nvml.opened() as manager:
            found = manager.driver_version() if manager else ""
        supports = f"CUDA {version // 1000}.{version % 1000 // 10}"
        found = (
            _("version {found} ({supports})", found=found, supports=supports)
            if found
            else _("one for {supports}", supports=supports)
        )
        return _(
            "The NVIDIA driver is too old: found {found}, expected R580 or later (CUDA 13.0), "
            "which the GPU kernels and PyTorch's CUDA 13 build need; update the driver.",
            found=found,
        )
    code = library.function("cuInit")(0)
    if code == _NO_DEVICE:
        return _no_device()
    if code in _DISAGREES:
        return _(
            "The NVIDIA driver's parts are of different versions: {reason}; restart the machine.",
            reason=library.describe(code),
        )
    return (
        ""
        if code == _SUCCESS
        else _(
            "The NVIDIA driver does not start: {reason}; restarting the machine may help.",
            reason=library.describe(code),
        )
    )


def _no_device() -> str:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None:
        return _(
            "No NVIDIA GPU can be seen: the environment variable CUDA_VISIBLE_DEVICES is "
            "{hidden!r}; unset it to use all GPUs.",
            hidden=hidden,
        )
    return _("The NVIDIA driver is installed, but found no GPU.")


def _gpu(library: Driver, index: int, manager: nvml.Manager | None) -> tuple[GpuInfo, str]:
    """One GPU, and why it cannot be used, or ""."""
    handle, size = c_int(), c_size_t()
    library.call("cuDeviceGet", ctypes.byref(handle), index)
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    library.call("cuDeviceGetName", name, 256, handle.value)
    library.call("cuDeviceTotalMem_v2", ctypes.byref(size), handle.value)
    found = {key: _attribute(library, handle.value, number) for key, number in _ATTRIBUTES.items()}
    free = None
    if manager and library.function("cuDeviceGetUuid_v2")(uuid, handle.value) == _SUCCESS:
        free = manager.free_memory(uuid.raw)
    capability = 10 * found["major"] + found["minor"]
    gpu = GpuInfo(
        index, name.value.decode("utf-8", "replace"), capability, size.value, found["processors"],
        found["clock"] // 1000, found["memory_clock"] // 1000, found["bus"], found["l2_cache"], free,
    )  # fmt: skip
    if capability < MINIMUM_CAPABILITY:
        return (
            gpu,
            _(
                "{gpu} is too old: its compute capability is {capability}, and at least 7.5 "
                "(Turing) is needed.",
                gpu=gpu.name,
                capability=capability / 10,
            ),
        )
    if found["mode"] == _PROHIBITED:
        return (
            gpu,
            _(
                "{gpu} accepts no programs: its compute mode is set to prohibited; nvidia-smi -c 0 "
                "allows them.",
                gpu=gpu.name,
            ),
        )
    return gpu, ""


def _attribute(library: Driver, handle: int, number: int) -> int:
    value = c_int()
    code = library.function("cuDeviceGetAttribute")(ctypes.byref(value), number, handle)
    return value.value if code == _SUCCESS else 0


def _program_trouble() -> str:
    """What this installation lacks to use a GPU, or ""."""
    built_for = torch_build()
    if built_for is None:
        return _(
            "A GPU was found, but using it requires PyTorch, which is not part of this installation; "
            'install the program with pip: pip install "inglenook[gpu]".'
        )
    if not built_for:
        return _(
            "A GPU was found, but this installation of PyTorch is the CPU build; install its CUDA 13 build "
            "to use the GPU."
        )
    version = torch_version()
    if version < MINIMUM_TORCH:
        found, least = (".".join(map(str, each)) for each in (version, MINIMUM_TORCH))
        return _(
            "A GPU was found, but PyTorch {found} is too old for it: {least} or later is "
            "needed; update PyTorch.",
            found=found,
            least=least,
        )
    if not gpu_parts():
        return _(
            "A GPU was found, but the parts that compile its kernels are not installed: pip install "
            '"inglenook[gpu]".'
        )
    return ""


def torch_build() -> str | None:
    """The CUDA version that the installed torch was built for, "" for none, None without torch.

    Does not import torch.
    """
    return _torch_fact("cuda")


def torch_version() -> tuple[int, int]:
    """The first two numbers of the installed torch's version, (0, 0) without torch. Does not import it."""
    found = re.match(r"(\d+)\.(\d+)", _torch_fact("__version__") or "")
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _torch_fact(name: str) -> str | None:
    """A text in torch's `version.py`, "" if it has none, None without torch."""
    loaded = sys.modules.get("torch")
    if loaded is not None:
        return str(getattr(loaded.version, name, None) or "")
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text("utf-8")
    except OSError:
        import torch

        return str(getattr(torch.version, name, None) or "")
    found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([\w.+]+)['\"]", text, flags=re.M)
    return found[1] if found else ""


def gpu_parts() -> bool:
    """Whether kernels are available: their compiler is installed, or they were compiled ahead of time."""
    from engine.backends.cuda.codegen import cubin_cache

    return cubin_cache.prebuilt() is not None or all(
        _importable(name) for name in ("numba_cuda", "cuda.core", "cuda.bindings")
    )


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the part before the dot is not installed
        return False
