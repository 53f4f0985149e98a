"""The machine's own memory."""

from __future__ import annotations

import psutil


def free_memory() -> int:
    """Bytes that programs can still have."""
    return int(psutil.virtual_memory().available)
