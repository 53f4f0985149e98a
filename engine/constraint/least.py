"""How long the texts of a JSON schema are at least, found from the schema alone: where it asks for a million
values, a search for the shortest text would find nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["least_bytes"]

_TYPES = ("null", "array", "object", "string")
"""Kinds of values whose shortest texts differ; numbers and booleans are no shorter than the first."""
_MEMBER = 4
"""The fewest bytes of a property: an empty name in quotes, a colon and a value of one byte."""


def least_bytes(schema: Any) -> int:
    """A number of bytes that every JSON text of a schema (draft 2020-12) has at least; blanks, commas and
    what a keyword unknown here asks for are not counted.
    """
    try:
        return _Lengths(schema).of(schema)
    except RecursionError:
        return 1


class _Lengths:
    """The least lengths of the parts of one schema, by their references."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[str, int] = {}

    def of(self, schema: Any) -> int:
        """The least length of a value: all that a schema says holds at once. Beside a reference the older
        drafts ignore the rest, and in a part with an "$id" references have another root.
        """
        if not isinstance(schema, Mapping) or ("$id" in schema and schema is not self._root):
            return 1
        if isinstance(reference := schema.get("$ref"), str):
            return self._of_reference(reference)
        found = [self._of_types(schema)]
        if "const" in schema:
            found.append(_written(schema["const"]))
        if isinstance(enum := schema.get("enum"), list) and enum:
            found.append(min(map(_written, enum)))
        for part in _list(schema, "allOf"):
            found.append(self.of(part))
        for either in (_list(schema, "anyOf"), _list(schema, "oneOf")):
            if either:
                found.append(min(map(self.of, either)))
        return max(found)

    def _of_reference(self, reference: str) -> int:
        """The least length of what a reference within the document refers to; within itself, 1."""
        if reference not in self._known:
            self._known[reference] = 1
            self._known[reference] = self.of(self._at(reference))
        return self._known[reference]

    def _at(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            return True
        place: Any = self._root
        for part in reference.split("/")[1:]:
            if not isinstance(place, Mapping):
                return True
            place = place.get(part.replace("~1", "/").replace("~0", "~"), True)
        return place

    def _of_types(self, schema: Mapping[str, Any]) -> int:
        """The least length by the types that a value may have, and what each of them must hold."""
        types = schema.get("type", _TYPES)
        lengths = [
            {"array": self._of_array, "object": self._of_object, "string": _of_string}.get(kind, _one)(schema)
            for kind in ([types] if isinstance(types, str) else types if isinstance(types, Sequence) else ())
            if isinstance(kind, str)
        ]
        return min(lengths, default=1)

    def _of_array(self, schema: Mapping[str, Any]) -> int:
        count = _number(schema, "minItems")
        first = _list(schema, "prefixItems")[:count]
        rest = count - len(first)
        return 2 + sum(map(self.of, first)) + (rest * self.of(schema.get("items", True)) if rest else 0)

    def _of_object(self, schema: Mapping[str, Any]) -> int:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = {name for name in _list(schema, "required") if isinstance(name, str)}
        members = [_written(name) + 1 + self.of(properties.get(name, True)) for name in required]
        more = max(0, _number(schema, "minProperties") - len(required))
        return 2 + sum(members) + more * _MEMBER


def _of_string(schema: Mapping[str, Any]) -> int:
    return 2 + _number(schema, "minLength")


def _one(schema: Mapping[str, Any]) -> int:
    return 1


def _written(value: Any) -> int:
    """The fewest bytes that a value is written with. A number may have several forms, and counts as one."""
    if isinstance(value, str):
        return 2 + len(value)
    if isinstance(value, Mapping):
        return 2 + sum(_written(name) + 1 + _written(one) for name, one in value.items())
    if isinstance(value, list):
        return 2 + sum(map(_written, value))
    return 1


def _number(schema: Mapping[str, Any], name: str) -> int:
    value = schema.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _list(schema: Mapping[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []
