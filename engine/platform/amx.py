"""Whether this process may use the tiles of Intel's Advanced Matrix Extensions (AMX).

Their 8 KiB of registers make a thread's saved state so much larger that Linux gives them only to processes
that ask.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
"""The number of arch_prctl on x86-64, ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA.

Source: https://docs.kernel.org/arch/x86/xstate.html
"""


@cache
def tiles_allowed() -> bool:
    """Ask for the tiles, for all threads of this process; False where that is refused or not known."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
