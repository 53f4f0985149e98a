"""Typed access to a model's configuration: each key is read with its type, range and default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.errors import BadCheckpoint
from engine.words import _

_REQUIRED = object()


class Keys:
    """The entries of `source` under `prefix`; `where` names the file in messages.

    A null counts as absent, as in Hugging Face's files. All methods raise `BadCheckpoint`.
    """

    def __init__(self, source: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.source, self._where, self._prefix = source, where, prefix

    def has(self, name: str) -> bool:
        """Whether the key is present, even as null."""
        return self._prefix + name in self.source

    def has_prefix(self, name: str) -> bool:
        """Whether the entries are those of the architecture `name` of a GGUF file."""
        return self._prefix == name + "."

    def raw(self, name: str) -> Any:
        """The unchecked value, or None."""
        return self.source.get(self._prefix + name)

    def integer(self, name: str, low: int, high: int, default: Any = _REQUIRED) -> int:
        """An integer from `low` to `high`."""
        value = self._value(name, default, _("a whole number from {low} to {high}", low=low, high=high))
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(name, value, _("a whole number from {low} to {high}", low=low, high=high))
        return value

    def number(self, name: str, low: float, high: float, default: Any = _REQUIRED) -> float:
        """A finite number from `low` to `high`."""
        value = self._value(name, default, _("a number from {low:.12g} to {high:.12g}", low=low, high=high))
        if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
            raise self._wrong(name, value, _("a number from {low:.12g} to {high:.12g}", low=low, high=high))
        return float(value)

    def flag(self, name: str, default: Any = _REQUIRED) -> bool:
        value = self._value(name, default, _("true or false"))
        if type(value) is not bool:
            raise self._wrong(name, value, _("true or false"))
        return value

    def text(self, name: str, default: Any = _REQUIRED) -> str:
        value = self._value(name, default, _("a text"))
        if type(value) is not str:
            raise self._wrong(name, value, _("a text"))
        return value

    def table(self, name: str) -> Keys | None:
        """The keys of a nested object; None if it is absent."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(name, value, _("an object"))
        return Keys(value, f"{self._where}: {self._prefix}{name}")

    def over(self, defaults: Mapping[str, Any]) -> Keys:
        """The same keys with defaults for absent ones; a null stays null."""
        return Keys(
            {self._prefix + name: value for name, value in defaults.items()} | dict(self.source),
            self._where,
            self._prefix,
        )

    def replaced(self, name: str, value: Any) -> Keys:
        """The same keys with another value of one."""
        return Keys({**self.source, self._prefix + name: value}, self._where, self._prefix)

    def renamed(self, **names: str) -> Keys:
        """The same keys, where each of `names` has the value of the key that it names if that is there."""
        found = {
            self._prefix + name: self.source[self._prefix + old]
            for name, old in names.items()
            if self._prefix + old in self.source
        }
        return Keys({**self.source, **found}, self._where, self._prefix)

    def without(self, *names: str) -> Keys:
        """The same keys less these."""
        dropped = {self._prefix + name for name in names}
        return Keys(
            {name: value for name, value in self.source.items() if name not in dropped},
            self._where,
            self._prefix,
        )

    def inner(self, name: str) -> Keys:
        """The keys of a nested object over those around it, such as the text part of a vision model. The
        class stays that of the whole, since transformers writes null or another one inside.
        """
        inner = self.table(name)
        if inner is None:
            return self
        merged = {**self.source, **inner.source}
        if "architectures" in self.source:
            merged["architectures"] = self.source["architectures"]
        return Keys(merged, self._where, self._prefix)

    def optional(self, name: str, low: float, high: float) -> float:
        """A number; 0 if absent or null."""
        return self.number(name, low, high, 0.0)

    def integers(self, name: str, low: int, high: int) -> tuple[int, ...]:
        """A list of integers from `low` to `high`; () if absent."""
        values = self.raw(name)
        values = [] if values is None else values
        if not isinstance(values, list) or any(
            type(value) is not int or not low <= value <= high for value in values
        ):
            raise self._wrong(
                name, values, _("a list of whole numbers from {low} to {high}", low=low, high=high)
            )
        return tuple(values)

    def flags(self, name: str, count: int) -> tuple[bool, ...]:
        """A list of at least `count` flags, or of 0 and 1, of which the rest is left out; () if absent."""
        values = self.raw(name)
        if values is None:
            return ()
        if (
            not isinstance(values, list)
            or len(values) < count
            or any(value not in (0, 1) for value in values)
        ):
            raise self._wrong(name, values, _("a list of {count} flags", count=count))
        return tuple(bool(value) for value in values[:count])

    def numbers(self, name: str, low: float, high: float) -> tuple[float, ...]:
        """A list of numbers from `low` to `high`, which may be infinite; () if absent."""
        values = self.raw(name)
        values = [] if values is None else values
        if not isinstance(values, list) or any(
            type(value) not in (int, float) or not low <= value <= high for value in values
        ):
            raise self._wrong(
                name, values, _("a list of numbers from {low:.12g} to {high:.12g}", low=low, high=high)
            )
        return tuple(float(value) for value in values)

    def _value(self, name: str, default: Any, expected: str) -> Any:
        value = self.raw(name)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise BadCheckpoint(
                _(
                    "{where} has no {prefix}{name}; {expected} was expected. The file is incomplete.",
                    where=self._where,
                    prefix=self._prefix,
                    name=name,
                    expected=expected,
                )
            )
        return default

    def _wrong(self, name: str, value: Any, expected: str) -> BadCheckpoint:
        found = repr(value)
        found = found if len(found) <= 80 else found[:77] + "..."
        return BadCheckpoint(
            _(
                "{where}: {prefix}{name} is {found}, but {expected} was expected; the file is damaged.",
                where=self._where,
                prefix=self._prefix,
                name=name,
                found=found,
                expected=expected,
            )
        )
