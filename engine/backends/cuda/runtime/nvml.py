"""NVIDIA's management library by ctypes: free memory of a GPU without taking any, and the driver's version.

Optional.

Signatures: NVML API reference (nvml.h). It numbers GPUs in its own order, so they are asked for by their
UUID.
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
    """The library, after its start."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *arguments: Any) -> bool:
        """Whether a function is there and succeeds."""
        function = getattr(self._library, name, None)
        if function is None:
            return False
        function.argtypes, function.restype = _SIGNATURES[name], c_int
        return bool(function(*arguments) == 0)

    def driver_version(self) -> str:
        """Such as 580.65.06; "" when it does not say."""
        text = ctypes.create_string_buffer(96)
        return (
            text.value.decode("ascii", "replace")
            if self.call("nvmlSystemGetDriverVersion", text, len(text))
            else ""
        )

    def free_memory(self, uuid: bytes) -> int | None:
        """Free bytes of the GPU, or of the part of one, whose 16 bytes of UUID the driver gave."""
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
    """The library as ctypes loads it, or None."""
    try:
        return ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError:
        return None


@contextmanager
def opened() -> Iterator[Manager | None]:
    """The library, started and stopped again; None where it is not installed or does not start."""
    library = load()
    manager = Manager(library) if library is not None else None
    if manager is None or not manager.call("nvmlInit_v2"):
        yield None
        return
    try:
        yield manager
    finally:
        manager.call("nvmlShutdown")
