"""The machine's own memory."""

from __future__ import annotations


def free_memory() -> int:
    """Bytes that programs can still have."""
    import psutil

    return int(psutil.virtual_memory().available)


def total_memory() -> int:
    """Bytes that the machine has."""
    import psutil

    return int(psutil.virtual_memory().total)
