"""Typed reading of a model's configuration: each key with its type, its range and, where there is one, its
default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.errors import BadCheckpoint

_REQUIRED = object()


class Keys:
    """The entries of `source` under `prefix`; `where` names the file in messages.

    All methods raise `BadCheckpoint`.

    A null counts as absent, as in Hugging Face's files.
    """

    def __init__(self, source: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.source, self._where, self._prefix = source, where, prefix

    def has(self, name: str) -> bool:
        """Whether the key is there, be it null."""
        return self._prefix + name in self.source

    def raw(self, name: str) -> Any:
        """The value as it is, or None."""
        return self.source.get(self._prefix + name)

    def integer(self, name: str, low: int, high: int, default: Any = _REQUIRED) -> int:
        """A whole number from `low` to `high`."""
        value = self._value(name, default, f"a whole number from {low} to {high}")
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(name, value, f"a whole number from {low} to {high}")
        return value

    def number(self, name: str, low: float, high: float, default: Any = _REQUIRED) -> float:
        """A finite number from `low` to `high`."""
        value = self._value(name, default, f"a number from {low:g} to {high:g}")
        if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
            raise self._wrong(name, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, name: str, default: Any = _REQUIRED) -> bool:
        """True or false."""
        value = self._value(name, default, "true or false")
        if type(value) is not bool:
            raise self._wrong(name, value, "true or false")
        return value

    def text(self, name: str, default: Any = _REQUIRED) -> str:
        """A text."""
        value = self._value(name, default, "a text")
        if type(value) is not str:
            raise self._wrong(name, value, "a text")
        return value

    def table(self, name: str) -> Keys | None:
        """The keys of a nested object, or None when there is none."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(name, value, "an object")
        return Keys(value, f"{self._where}: {self._prefix}{name}")

    def over(self, defaults: Mapping[str, Any]) -> Keys:
        """The same keys, with these values for those that are not there; a null stays."""
        return Keys(
            {self._prefix + name: value for name, value in defaults.items()} | dict(self.source),
            self._where,
            self._prefix,
        )

    def inner(self, name: str) -> Keys:
        """The keys of a nested object above those around it, as of a text model inside one that sees
        pictures; else the same keys.
        """
        inner = self.table(name)
        return self if inner is None else Keys({**self.source, **inner.source}, self._where, self._prefix)

    def optional(self, name: str, low: float, high: float) -> float:
        """A number, or 0 where there is none or null."""
        return self.number(name, low, high, 0.0)

    def integers(self, name: str, low: int, high: int) -> tuple[int, ...]:
        """A list of whole numbers from `low` to `high`; () where there is none."""
        values = self.raw(name)
        values = [] if values is None else values
        if not isinstance(values, list) or any(
            type(value) is not int or not low <= value <= high for value in values
        ):
            raise self._wrong(name, values, f"a list of whole numbers from {low} to {high}")
        return tuple(values)

    def _value(self, name: str, default: Any, expected: str) -> Any:
        value = self.raw(name)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise BadCheckpoint(
                f"{self._where} has no {self._prefix}{name}; {expected} was expected. The file is incomplete."
            )
        return default

    def _wrong(self, name: str, value: Any, expected: str) -> BadCheckpoint:
        found = repr(value)
        found = found if len(found) <= 80 else found[:77] + "..."
        return BadCheckpoint(
            f"{self._where}: {self._prefix}{name} is {found}, but {expected} was expected; the file is "
            "damaged."
        )
