"""Pauses Python's cyclic garbage collector, or has it run rarely."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_LOADING_THRESHOLD = 500_000
"""The threshold of garbage collection while a model is loaded, in objects; Python's own is 700."""


@contextmanager
def few_collections() -> Iterator[None]:
    """Collect garbage rarely: loading makes hundreds of thousands of small objects that stay, and scanning
    them takes a tenth of the time.

    At the end they count as old, so that the next few new ones do not have all of them scanned. A program
    that has frozen objects keeps them frozen; then they count as young.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(_LOADING_THRESHOLD, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # into the oldest generation


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
