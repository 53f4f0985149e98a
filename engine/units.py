"""Formats numbers of bytes for the user."""

from __future__ import annotations

from engine.words import _, figure


def size_text(count: float) -> str:
    """Bytes in decimal units with three digits, as in file managers: "999 bytes", "98.4 MB", "4.7 GB"."""
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{figure(f'{value:.3g}')} {unit if unit != 'bytes' else _('bytes')}"
