"""Lets a thread of this process have a core for a moment: a helper thread of the CPU backend leaves it one.

The GUI thread requests a core while it has work to do. Otherwise the system takes a core from the model's
threads in the middle of a tile, and all of them wait until it is back.
"""

from __future__ import annotations

import os
from array import array

__all__ = ["address", "ask", "give_back"]

_REQUESTED = array("q", [0])


def address() -> int:
    """The address of an int64, the number of requested cores: 0 or 1."""
    return _REQUESTED.buffer_info()[0]


def ask() -> None:
    """Request one core until `give_back`."""
    _REQUESTED[0] = 1
    if hasattr(os, "sched_yield"):
        os.sched_yield()  # to the helper on this core, which leaves when its tile is done


def give_back() -> None:
    """Withdraw the request."""
    _REQUESTED[0] = 0
