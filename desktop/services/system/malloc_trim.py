"""Gives memory that nobody uses any more back to the system, where the C library keeps it in pieces
(glibc).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

__all__ = ["find_trim", "share_arenas"]

_ARENA_MAX, _ARENAS = -8, 2


def share_arenas() -> None:
    """Let all threads take their memory from two pools of it, as mallopt(3) says; by itself glibc makes one
    for every thread.

    Memory that one of them has given back is of no use to another pool: a program that stays open for days
    would grow.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_ARENA_MAX, _ARENAS)


def find_trim() -> Callable[[], object]:
    """What gives it back, a few milliseconds each time; nothing where the C library has no such function."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim.argtypes = [ctypes.c_size_t]
            return lambda: trim(0)
    return lambda: None
