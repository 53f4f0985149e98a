"""Which process a `HelperProcess` of this one runs in, found without asking it."""

from __future__ import annotations

import psutil


def helper_pid(module: str) -> int | None:
    """The id of the process that runs `main()` of `module`; None while there is none."""
    for child in psutil.Process().children():
        try:
            if any(module in argument for argument in child.cmdline()):
                return child.pid
        except psutil.Error:  # it ended meanwhile
            continue
    return None
