"""What a template may change: the lists and dictionaries that it made itself.

Jinja's immutable sandbox forbids `append`, `pop` and the like on every list. Some templates, Kimi K2's among
them, keep a list of their own with them, and other programs that run templates allow it. Messages, tools and
all else that a template is given stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.sandbox import modifies_known_mutable

__all__ = ["GivenValues", "added_by", "changes_own", "changes_through_class"]

_ADDING: Mapping[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "insert"}),
    dict: frozenset({"setdefault", "update"}),
}
_TAKING: Mapping[type, frozenset[str]] = {
    list: frozenset({"clear", "pop", "remove", "reverse"}),
    dict: frozenset({"clear", "pop", "popitem"}),
}


class GivenValues:
    """The lists and dictionaries, of any depth, in what a template is given. They are known by identity, so
    the values must outlive this, and are looked for when a template is about to change something.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._found: set[int] | None = None

    def has(self, value: list[Any] | dict[Any, Any]) -> bool:
        """Whether this very list or dictionary was given."""
        if self._found is None:
            self._found, stack = set(), list(self._values.values())
            while stack:
                part = stack.pop()
                if isinstance(part, (list, tuple, dict)) and id(part) not in self._found:
                    self._found.add(id(part))
                    stack += part.values() if isinstance(part, dict) else part
        return id(value) in self._found


def changes_own(value: Any, method: str) -> bool:
    """Whether the method changes a list or dictionary in a way that is allowed for a template's own ones."""
    kind = type(value)
    return kind in _ADDING and method in _ADDING[kind] | _TAKING[kind]


def changes_through_class(value: Any, method: str) -> bool:
    """Whether this is a class's own function that changes what it is called with, such as `dict.pop`."""
    return isinstance(value, type) and any(
        issubclass(value, kind) and modifies_known_mutable(kind(), method) for kind in (list, dict, set)
    )


def added_by(
    owner: list[Any] | dict[Any, Any], method: str, args: tuple[Any, ...], named: Mapping[str, Any], most: int
) -> tuple[tuple[Any, ...], int]:
    """The arguments of a call that is about to change `owner`, with a list or dictionary for what `extend` or
    `update` would take items from, and how many items will be added.

    Raises `SecurityError` if `owner` would contain itself, which no later step could bound, or have more than
    `most` items.
    """
    if method not in _ADDING.get(type(owner), ()):
        return args, 0
    if method == "extend":
        args = tuple(_items(value, most) for value in args)
    elif method == "update":
        args = tuple(value if isinstance(value, dict) else dict(_items(value, most)) for value in args)
    added = len(named) + (sum(map(len, args)) if method in ("extend", "update") else 1)
    if len(owner) + added > most:
        raise SecurityError("a list or dictionary grows too long")
    # a list may well be extended by its own items, which are another list here
    if _contain([*args, *named.values()], owner):
        raise SecurityError("a list or dictionary cannot contain itself")
    return args, added


def _items(values: Any, most: int) -> list[Any]:
    return list(islice(values, most + 1))


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()


def _contain(values: Iterable[Any], target: Any) -> bool:
    """Whether `target` is one of the values, or in one at any depth."""
    seen, stack = set[int](), list(values)
    while stack:
        value = stack.pop()
        if value is target:
            return True
        if isinstance(value, (list, tuple, dict)) and id(value) not in seen:
            seen.add(id(value))
            stack += _parts(value)
    return False
