"""The machine's own memory."""

from __future__ import annotations


def free_memory() -> int:
    """Bytes that are available to programs."""
    import psutil

    return int(psutil.virtual_memory().available)


def total_memory() -> int:
    """Bytes of the whole machine."""
    import psutil

    return int(psutil.virtual_memory().total)
