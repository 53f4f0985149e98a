"""Reads values from JSON that may contain anything."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from typing import Any

__all__ = ["clean", "compact", "content_key", "first_text", "items", "mapping", "rest", "seconds", "text"]

_LATEST = 32_503_680_000.0  # the year 3000: later ones are damaged, and calendars refuse them
_MILLISECONDS_FROM = 1e11
_LOOSE = re.compile(
    r"\s*(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:,?[ T@]+(\d{1,2})(?:h"
    r"|:)\s*(\d{1,2})m?(?:[:\s]*(\d{1,2})s?)?(?:\s*(\d{1,3})ms)?)?\s*"
)
_WORDS = re.compile(
    r"\s*([A-Za-z]{3,9}) (\d{1,2}), (\d{4}) (\d{1,2}):(\d{2})(?: ?([ap]m))?\s*", re.IGNORECASE
)
_AMERICAN = re.compile(
    r"\s*(\d{1,2})/(\d{1,2})/(\d{4}),? (\d{1,2}):(\d{2})(?::(\d{2}))?\s([ap]m)\s*", re.IGNORECASE
)
"""A date as a browser writes it in American English; without AM or PM, day and month may be exchanged."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def clean(value: str) -> str:
    """The text with lone surrogates, which no file can hold, as replacement characters."""
    return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value


def text(value: Any) -> str:
    """The value if it is a text, else an empty one."""
    return clean(value) if isinstance(value, str) else ""


def first_text(*values: Any) -> str:
    """The first value that is a non-empty text; else an empty one."""
    return next((clean(value) for value in values if isinstance(value, str) and value), "")


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def rest(value: Any, *known: str) -> dict[str, Any]:
    """The fields of an object other than `known`, without those that are null, false or empty."""
    return {
        clean(name): inner
        for name, inner in mapping(value).items()
        if name not in known and not _is_empty(inner)
    }


def _is_empty(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, (str, list, dict)) and not value)


def seconds(value: Any) -> float | None:
    """A time as seconds since 1970, from a number of s, ms, µs or ns, an ISO 8601 date, or the formats
    of SillyTavern, TextGen and NextChat.

    Dates without a zone are in local time. None for anything else.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return _number(value)
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        return _number(float(value))
    except ValueError:
        pass
    try:
        return _checked(datetime.fromisoformat(value.strip()))
    except ValueError:
        return _loose(value)


def _number(value: float) -> float | None:
    try:
        found = float(value)
    except OverflowError:
        return None
    if not math.isfinite(found):
        return None
    for _ in range(3):
        if found > _MILLISECONDS_FROM:
            found /= 1000
    return found if 0 < found < _LATEST else None


def _loose(value: str) -> float | None:
    try:
        if found := _LOOSE.fullmatch(value):
            year, month, day, hour, minute, second, milli = (int(part or 0) for part in found.groups())
            return _checked(datetime(year, month, day, hour, minute, second, milli * 1000))
        if found := _AMERICAN.fullmatch(value):
            month, day, year, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
            hour = hour % 12 + (12 if found[7].lower() == "pm" else 0)
            return _checked(datetime(year, month, day, hour, minute, second))
        if found := _WORDS.fullmatch(value):
            month = _MONTHS.index(found[1][:3].lower()) + 1
            half = (found[6] or "").lower()
            hour = int(found[4]) % 12 + (12 if half == "pm" else 0) if half else int(found[4])
            return _checked(datetime(int(found[3]), month, int(found[2]), hour, int(found[5])))
    except ValueError:
        pass
    return None


def _checked(value: datetime) -> float | None:
    try:
        return _number(value.timestamp())  # one without a zone is in that of this machine
    except (OverflowError, OSError, ValueError):  # years outside the range of the system's calendar
        return None


def compact(value: Any) -> str:
    """JSON of the value for the user to read: on one line if it is short."""
    line = json.dumps(value, ensure_ascii=False)
    return clean(line if len(line) <= 100 else json.dumps(value, ensure_ascii=False, indent=2))


def content_key(value: Any) -> str:
    """A hash of a JSON value that does not depend on the order of its keys."""
    import hashlib

    data = json.dumps(value, sort_keys=True, ensure_ascii=True).encode("ascii")
    return hashlib.blake2b(data, digest_size=16).hexdigest()
