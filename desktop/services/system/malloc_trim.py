"""Returns unused memory to the system where the C library (glibc) would keep it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

__all__ = ["find_trim", "share_arenas"]

_ARENA_MAX, _ARENAS = -8, 2


def share_arenas() -> None:
    """Make all threads allocate from two arenas (mallopt(3)); by default glibc creates one per thread.

    Memory freed in one arena is of no use to another: a program that runs for days would grow.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_ARENA_MAX, _ARENAS)


def find_trim() -> Callable[[], object]:
    """A function that returns free memory in a few milliseconds; it does nothing where the C library lacks
    one.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim.argtypes = [ctypes.c_size_t]
            return lambda: trim(0)
    return lambda: None
