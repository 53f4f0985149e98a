"""Returns freed memory that the C library keeps to the system."""

from __future__ import annotations

import ctypes
import sys


def give_memory_back() -> None:
    """Return freed memory to the system; glibc may keep tens of megabytes. Does nothing but on Linux."""
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim is not None:
        trim(ctypes.c_size_t(0))
