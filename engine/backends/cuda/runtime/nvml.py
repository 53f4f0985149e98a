"""NVIDIA's management library (NVML) through ctypes: free GPU memory, and the driver's version.

The library is optional. Signatures: NVML API reference (nvml.h). It numbers GPUs in its own
order, so they are looked up by UUID.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any


class _Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nvmlInit_v2": (),
    "nvmlShutdown": (),
    "nvmlSystemGetDriverVersion": (POINTER(c_char), c_uint),
    "nvmlDeviceGetHandleByUUID": (c_char_p, POINTER(c_void_p)),
    "nvmlDeviceGetMemoryInfo": (c_void_p, POINTER(_Memory)),
}


class Manager:
    """The initialised library."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *arguments: Any) -> bool:
        """Call a function; returns whether it exists and succeeds."""
        function = getattr(self._library, name, None)
        if function is None:
            return False
        function.argtypes, function.restype = _SIGNATURES[name], c_int
        return bool(function(*arguments) == 0)

    def driver_version(self) -> str:
        """The driver's version, such as 580.65.06, or "" if it is not reported."""
        text = ctypes.create_string_buffer(96)
        return (
            text.value.decode("ascii", "replace")
            if self.call("nvmlSystemGetDriverVersion", text, len(text))
            else ""
        )

    def free_memory(self, uuid: bytes) -> int | None:
        """Free bytes of the GPU, or MIG device, with this UUID of 16 bytes; None if not reported."""
        digits = uuid.hex()
        text = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        for kind in ("GPU", "MIG"):
            device, memory = c_void_p(), _Memory()
            if self.call("nvmlDeviceGetHandleByUUID", f"{kind}-{text}".encode(), ctypes.byref(device)):
                return (
                    int(memory.free)
                    if self.call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
                    else None
                )
        return None


def load() -> Any | None:
    """The library as loaded by ctypes, or None."""
    try:
        return ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError:
        return None


@contextmanager
def opened() -> Iterator[Manager | None]:
    """The initialised library, shut down at the end; None if it is not installed or cannot be initialised."""
    library = load()
    manager = Manager(library) if library is not None else None
    if manager is None or not manager.call("nvmlInit_v2"):
        yield None
        return
    try:
        yield manager
    finally:
        manager.call("nvmlShutdown")
