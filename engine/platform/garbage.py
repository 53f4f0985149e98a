"""Pauses Python's cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which runs on any thread that creates an object.

    It takes a fifth of the time while millions of small objects are created. While a CUDA graph is captured,
    what it deletes may call the driver, which ends the capture (PyTorch pull requests 161037 and 195397).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
