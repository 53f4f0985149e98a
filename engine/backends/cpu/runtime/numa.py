"""Memory that is spread over the machine's NUMA nodes.

Linux places a page on the node of the thread that touches it first. Weights are written by the thread that
loads them and read by all, each of which takes whatever part is next. So on a machine with several nodes all
pages would come from one node's memory, at its bandwidth. Interleaved pages use that of all nodes.

Source: Linux, Documentation/admin-guide/mm/numa_memory_policy.rst, and the manual pages mbind(2) and
get_mempolicy(2).
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from pathlib import Path

_NODES, _STATUS = Path("/sys/devices/system/node"), Path("/proc/self/status")
_SYSTEM_CALLS = {"x86_64": (237, 239), "aarch64": (235, 236)}
"""Numbers of mbind and get_mempolicy; glibc has no functions for them."""
_DEFAULT, _INTERLEAVE = 0, 3
_WORD = 64
"""Bits of a word of a set of nodes."""


def interleave(address: int, size: int) -> bool:
    """Place the `size` bytes of untouched pages at `address` on all nodes in turn, if there are several.

    Returns whether they are. They are not on other systems than Linux, or if whoever started this process
    chose nodes for it, as `numactl` does: then that choice stands.
    """
    nodes = memory_nodes()
    if len(nodes) < 2 or _policy() != _DEFAULT:
        return False
    words = [0] * (max(nodes) // _WORD + 1)
    for node in nodes:
        words[node // _WORD] |= 1 << node % _WORD
    mask = (ctypes.c_uint64 * len(words))(*words)
    # The number of bits is one more than those that count, as the kernel's interface has it.
    bits = _WORD * len(words) + 1
    return _call(0, address, size, _INTERLEAVE, ctypes.addressof(mask), bits, 0) == 0


@functools.cache
def memory_nodes(nodes: Path = _NODES, status: Path = _STATUS) -> tuple[int, ...]:
    """The nodes with memory that this process may use; none on other systems than Linux."""
    if sys.platform != "linux" or platform.machine() not in _SYSTEM_CALLS:
        return ()
    try:
        lines = dict(line.partition(":")[::2] for line in status.read_text("ascii", "replace").splitlines())
        have = _numbers((nodes / "has_memory").read_text("ascii", "replace"))
        return tuple(sorted(have & _numbers(lines.get("Mems_allowed_list", ""))))
    except (OSError, ValueError):
        return ()


def _numbers(text: str) -> set[int]:
    """The numbers of a list such as 0-1,4. Raises ValueError for anything else."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _policy() -> int:
    """The process's own policy for memory; -1 if it cannot be asked."""
    mode = ctypes.c_int(-1)
    _call(1, ctypes.addressof(mode), 0, 0, 0, 0)
    return mode.value


def _call(which: int, *arguments: int) -> int:
    """A system call's result: 0, or -1 if the kernel refuses it."""
    numbers = _SYSTEM_CALLS[platform.machine()]
    words = [ctypes.c_long(each) for each in (numbers[which], *arguments)]
    return int(ctypes.CDLL(None, use_errno=True).syscall(*words))
