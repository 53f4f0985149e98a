"""Formats numbers, sizes, shares and times for the user, with the separators of the language.

What is formatted in another way inside a sentence is a placeholder of `_()`, such as `{count:,}`.
"""

from __future__ import annotations

from engine.words import _, figure

__all__ = ["number_text", "percent_text", "rate_text", "seconds_text", "size_text"]


def number_text(value: float, spec: str = ",") -> str:
    """A number in the format `spec`: "1,234", and "1.234" in German."""
    return figure(format(value, spec))


def percent_text(share: float, spec: str = ".0f") -> str:
    """A share of 1 in percent: "50 %"."""
    return _("{number} %", number=number_text(100 * share, spec))


def rate_text(rate: float) -> str:
    """Tokens per second, with one decimal below 100: "43.6", "75,461"; more digits would be noise."""
    return number_text(rate, ",.1f" if rate < 99.95 else ",.0f")


def seconds_text(seconds: float, spec: str = ".0f") -> str:
    """A time in seconds: "4 s"."""
    return _("{number} s", number=number_text(seconds, spec))


def size_text(count: float) -> str:
    """Bytes in decimal units with three digits, as in file managers: "999 bytes", "98.4 MB", "4.7 GB"."""
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{number_text(value, '.3g')} {unit if unit != 'bytes' else _('bytes')}"
