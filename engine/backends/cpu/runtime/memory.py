"""Memory that begins on a cache line, large arrays of which are spread over the machine's NUMA nodes."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.backends.cpu.runtime.numa import interleave
from engine.errors import NotEnoughMemory
from engine.units import size_text
from engine.words import _

LINE = 64
_OWN_PAGES = 1 << 17
"""From this size on an array has its own pages, which return to the system with it, not heap memory."""
_HUGE_PAGES = 4 << 20
"""From this size on huge pages are requested, as in NumPy: kernels then need fewer address look-ups."""
HUGE_PAGE = 2 << 20
"""Where such an array begins; the system fills only whole and aligned ones."""


def aligned(size: int, sparse: bool = False) -> npt.NDArray[np.uint8]:
    """`size` zeroed bytes at a multiple of 64. Pages that are never touched take no memory.

    `sparse` is for arrays that fill up slowly and in order: they have huge pages, but not at the beginning,
    so that the first bytes written do not take a whole one. Raises `NotEnoughMemory`.
    """
    try:
        if size >= _OWN_PAGES:
            step = HUGE_PAGE if size >= _HUGE_PAGES else mmap.PAGESIZE
            raw = np.frombuffer(_pages(size + step - mmap.PAGESIZE, sparse), np.uint8)
            interleave(raw.ctypes.data, raw.size)
        else:
            step, raw = LINE, np.zeros(size + LINE, np.uint8)
    except (MemoryError, OSError, OverflowError, ValueError):
        raise NotEnoughMemory(
            _(
                "The system refused {size} of memory; close other programs, or choose a smaller "
                "model or context.",
                size=size_text(size),
            )
        ) from None
    start = -raw.ctypes.data % step
    return raw[start : start + size]


def _pages(size: int, sparse: bool) -> mmap.mmap:
    """Zeroed private pages."""
    flags: dict[str, Any] = (
        {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANON} if hasattr(mmap, "MAP_PRIVATE") else {}
    )
    pages = mmap.mmap(-1, size, **flags)
    if size >= _HUGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without them
            pages.madvise(mmap.MADV_HUGEPAGE)
            if sparse:  # enough for the first one, wherever in it `aligned` lets the array begin
                pages.madvise(mmap.MADV_NOHUGEPAGE, 0, min(size, 2 * HUGE_PAGE - mmap.PAGESIZE))
    return pages
