"""Gives memory that nobody uses any more back to the system, where the C library keeps it in pieces (glibc)."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

__all__ = ["find_trim"]


def find_trim() -> Callable[[], object]:
    """What gives it back, a few milliseconds each time; nothing where the C library has no such function."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim.argtypes = [ctypes.c_size_t]
            return lambda: trim(0)
    return lambda: None
