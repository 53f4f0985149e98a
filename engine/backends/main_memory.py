"""The size of main memory."""

from __future__ import annotations


def free_memory() -> int:
    """Bytes of main memory that are available to programs."""
    import psutil

    return int(psutil.virtual_memory().available)


def total_memory() -> int:
    """Bytes of main memory in total."""
    import psutil

    return int(psutil.virtual_memory().total)
