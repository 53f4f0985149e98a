"""Returning freed memory that the C library keeps for later to the system."""

from __future__ import annotations

import ctypes
import sys


def give_memory_back() -> None:
    """Return freed memory to the system: after loading, glibc may keep tens of megabytes. Linux only."""
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim is not None:
        trim(ctypes.c_size_t(0))
