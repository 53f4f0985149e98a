"""Upper bounds, in characters or items, of the result of a template's operation before it runs.

There is one table each for filters, string methods and operators, by name; each function has the parameters
of the operation it measures. Operations not listed produce no more than they are given (or a given number,
which `INT_LIMIT` bounds). `Deadline` bounds the time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

INT_LIMIT = 100_000
"""The largest number that a filter or string method accepts (widths, counts, indents)."""

LAZY_FILTERS = frozenset({
    "attr", "batch", "count", "d", "default", "dictsort", "first", "groupby", "items", "last", "length",
    "list", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "slice", "sort",
    "unique",
})  # fmt: skip
"""Filters that select and order items without making text of them; their input may be too large to print."""

_HUGE = 1 << 62
_FORMAT_LIMIT = 10_000
_SEARCH_LIMIT = 256
_WIDE = re.compile(r"\d{5}")


class Deadline:
    """The end of some seconds of this thread's work. Waiting does not count: on a busy computer a short
    template may wait longer than it may work.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds
        self._work_end = time.thread_time() + seconds

    @property
    def passed(self) -> bool:
        """Whether the thread that made it has worked longer; only that thread may ask."""
        # A thread works no longer than the clock runs, which is quicker to ask.
        return time.perf_counter() > self._end and time.thread_time() > self._work_end


def text_size(value: Any) -> int:
    """Characters of all strings in a value of any depth; list items count 1 each, other values 32."""
    size, stack = 0, [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            stack += value
            size += len(value)
        else:
            size += len(value) if isinstance(value, (str, bytes)) else 32
    return size


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> int:
    if not all(isinstance(part, (str, bytes)) for part in (text, old, new)):
        return text_size([text, old]) * max(1, text_size(new))
    found = text.count(old) if type(text) is type(old) else 0
    return len(text) + found * len(new)


def _join(items: Any, separator: Any = "", attribute: Any = None) -> int:
    return text_size(items) + (len(items) if hasattr(items, "__len__") else 1) * text_size(separator)


def _indent(text: Any, width: Any = 4, first: bool = False, blank: bool = False) -> int:
    lines = len(text.splitlines()) + 1 if isinstance(text, str) else text_size(text)
    return text_size(text) + lines * (width if isinstance(width, int) else text_size(width))


def _to_json(
    value: Any, ensure_ascii: Any = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
) -> int:
    characters = nodes = deepest = 0
    stack = [(value, 1)]
    while stack:
        value, depth = stack.pop()
        nodes, deepest = nodes + 1, max(deepest, depth)
        if isinstance(value, dict):
            stack += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, (list, tuple)):
            stack += [(part, depth + 1) for part in value]
        else:
            characters += text_size(value)
    step = 0 if indent is None else indent if isinstance(indent, int) else text_size(indent)
    return 6 * characters + nodes * (
        4 + deepest * step + (0 if separators is None else text_size(separators))
    )


def _format(pattern: Any, *args: Any, **kwargs: Any) -> int:
    if not isinstance(pattern, (str, bytes)):
        return 0
    shown = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    if len(shown) > _FORMAT_LIMIT or _WIDE.search(shown):
        return _HUGE
    values = [*args, *kwargs.values()]
    widest = max((abs(value) for value in values if isinstance(value, int)), default=0)
    return len(shown) + (shown.count("%") + shown.count("{")) * (
        10_000 + text_size(values) + min(widest, INT_LIMIT)
    )


def _percent(left: Any, right: Any) -> int:
    if not isinstance(left, (str, bytes)):
        return 0
    star = "*" if isinstance(left, str) else b"*"
    if star in left:  # type: ignore[operator]
        return _HUGE
    return _format(left, *(right if isinstance(right, tuple) else (right,)))


def _times(left: Any, right: Any) -> int:
    for items, number in ((left, right), (right, left)):
        if isinstance(items, (str, bytes, list, tuple)) and isinstance(number, int):
            return max(0, number) * (len(items) if isinstance(items, (str, bytes)) else text_size(items))
    if isinstance(left, int) and isinstance(right, int):
        return _digits(left.bit_length() + right.bit_length())
    return 0


def _power(left: Any, right: Any) -> int:
    return _digits(left.bit_length() * abs(right)) if isinstance(left, int) and isinstance(right, int) else 0


def _digits(bits: int) -> int:
    return _HUGE if bits > 100_000 else bits


def _plus(left: Any, right: Any) -> int:
    return sum(len(value) for value in (left, right) if isinstance(value, (str, bytes, list, tuple)))


def _sum(items: Any, attribute: Any = None, start: Any = 0) -> int:
    return 0 if isinstance(start, (int, float)) else _HUGE  # adding lists one by one takes quadratic time


def _short(text: Any, part: Any = None, *more: Any, **named: Any) -> int:
    """For searches whose time is proportional to both lengths: only short strings may be searched for."""
    parts = [part, *named.values()]
    return (
        _HUGE
        if any(isinstance(value, (str, bytes)) and len(value) > _SEARCH_LIMIT for value in parts)
        else text_size(text)
    )


def _never(*args: Any, **kwargs: Any) -> int:
    return _HUGE


def _from_json(text: Any) -> int:
    return 32 * text_size(text)  # an empty list is two characters


FILTER_SIZES: Mapping[str, Callable[..., int]] = {
    "replace": _replace,
    "join": _join,
    "indent": _indent,
    "tojson": _to_json,
    "fromjson": _from_json,
    "from_json": _from_json,
    "format": _format,
    "sum": _sum,
    "trim": _short,
}
METHOD_SIZES: Mapping[str, Callable[..., int]] = {
    "replace": _replace,
    "join": lambda separator, items: _join(items, separator),
    "format": _format,
    "format_map": _format,
    "strip": _short,
    "lstrip": _short,
    "rstrip": _short,
    "rfind": _short,
    "rindex": _short,
    "rsplit": _short,
    "rpartition": _short,
    "expandtabs": _never,
    "translate": _never,
    "striptags": _never,
    "to_bytes": _never,
}
OPERATOR_SIZES: Mapping[str, Callable[[Any, Any], int]] = {
    "+": _plus,
    "*": _times,
    "**": _power,
    "%": _percent,
}
