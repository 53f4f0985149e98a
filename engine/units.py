"""Numbers for people: one way of writing bytes, in every sentence and in every list."""

from __future__ import annotations


def size_text(count: float) -> str:
    """Bytes in powers of 1000, as file managers show them, with three digits: "999 bytes", "98.4 MB", "4.7
    GB".
    """
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
