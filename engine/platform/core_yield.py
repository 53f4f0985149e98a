"""Lets a thread of this process have a core for a moment: a helper thread of the CPU backend leaves it one.

The GUI thread requests a core while it has work to do. Otherwise the system takes a core from the model's
threads in the middle of a tile, and all of them wait until it is back. The model's threads have a lower
priority, too: the system is slow to move one that shares a core with the GUI thread, and until then would
halve that core.
"""

from __future__ import annotations

import os
import sys
import threading
from array import array

__all__ = ["NICENESS", "address", "ask", "give_back", "lower_priority"]

NICENESS = 10
"""A tenth of the share of a thread at 0, when both want the same core (sched(7))."""

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


def lower_priority() -> None:
    """Lower the priority of this thread and of all that it will start, on Linux. Windows raises the priority
    of a thread that the user waits for by itself, and macOS that of a GUI thread.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
