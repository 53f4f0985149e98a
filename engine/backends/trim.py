"""Giving freed memory back to the system, where the C library keeps it for later."""

from __future__ import annotations

import ctypes
import sys


def give_memory_back() -> None:
    """Return what was freed but is still held: after loading, glibc may keep tens of megabytes.

    Elsewhere nothing is to do.
    """
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim is not None:
        trim(ctypes.c_size_t(0))
