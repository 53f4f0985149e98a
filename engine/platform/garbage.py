"""Python's search for cyclic garbage, put off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_search() -> Iterator[None]:
    """Without the search for cycles, which runs on whatever thread makes an object.

    It takes a fifth of the time while millions of small objects are made, none of them in a cycle; and what
    it deletes while a graph is captured may call the driver, which ends the capture (PyTorch pull requests
    161037 and 195397).
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
