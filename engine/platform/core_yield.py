"""Room for a thread of this process that wants a core for a moment: the CPU backend's helper threads leave
one to it.

The window's thread asks for it while it has work to do. Without that, the system takes a core from the
model's threads in the middle of a tile, and all of them wait until it is given back.
"""

from __future__ import annotations

import os
from array import array

__all__ = ["address", "ask", "give_back"]

_WANTED = array("q", [0])


def address() -> int:
    """Where an int64 says how many cores are wanted, now 0 or 1."""
    return _WANTED.buffer_info()[0]


def ask() -> None:
    """One core is wanted until `give_back`."""
    _WANTED[0] = 1
    if hasattr(os, "sched_yield"):
        os.sched_yield()  # to the helper whose core this may be: it leaves as soon as its tile is done


def give_back() -> None:
    """It is no longer."""
    _WANTED[0] = 0
