"""`uniqueItems` of JSON schemas, for lists whose items are among a few known values.

A grammar cannot compare the items of a list; it can only name every list. With values that are known, and
few, it does: one alternative for each order of them, which may end early. Elsewhere the keyword stays, and
is refused as one that cannot be enforced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any

from engine.constraint.calls.merged import fits
from engine.constraint.closed_schema import NAMED, VERBATIM
from engine.text.tools.values import resolved

__all__ = ["with_unique_items"]

_MOST_ORDERS = 720
"""Of six values; the grammar of them is compiled within half a second."""
_NOTES = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
_KEPT = _NOTES | {"$defs", "definitions", "$schema"}
_OF_LISTS = frozenset({"type", "items", "uniqueItems", "minItems", "maxItems"})
_OF_ITEMS = frozenset({"type", "enum", "const", "$ref", "minimum", "maximum"})


def with_unique_items(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in which `uniqueItems` is left out where it says nothing, and lists of a few known values are
    written out. Raises `RecursionError` for what is nested too deeply.
    """
    found: dict[str, Any] = _Writer(schema).enforced(schema)
    return found


class _Writer:
    """Writes out the lists of one schema, whose document is `root`, `_MOST_ORDERS` of them at most."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._left = root, _MOST_ORDERS

    def enforced(self, schema: Any) -> Any:
        """As `with_unique_items`, for a part of the document."""
        if isinstance(schema, list):
            return [self.enforced(one) for one in schema]
        if not isinstance(schema, Mapping):
            return schema
        found: dict[str, Any] = {}
        for key, value in schema.items():
            if key in NAMED and isinstance(value, Mapping):
                found[key] = {name: self.enforced(one) for name, one in value.items()}
            else:
                found[key] = value if key in VERBATIM else self.enforced(value)
        if "uniqueItems" not in found:
            return found
        if _says_nothing(found):
            del found["uniqueItems"]
            return found
        return self._written_out(found) or found

    def _written_out(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The same lists without the keyword; None if their items are not known, or too many."""
        kinds, least, most = schema.get("type"), schema.get("minItems", 0), schema.get("maxItems", math.inf)
        values = _values(schema.get("items"), self._root)
        if schema["uniqueItems"] is not True or kinds is None or values is None:
            return None
        if not schema.keys() <= _OF_LISTS | _KEPT or not _are_numbers(least, most) or most < 0:
            return None
        length = int(min(most, len(values)))
        self._left -= (count := math.perm(len(values), length))
        if self._left < 0:
            self._left += count
            return None
        lists = [
            {"type": "array", "prefixItems": [{"const": one} for one in order], "items": False,
             "minItems": least}
            for order in permutations(values, length)
        ]  # fmt: skip
        others = [kind for kind in kinds if kind != "array"] if isinstance(kinds, list) else []
        kept = {key: value for key, value in schema.items() if key in _KEPT}
        return {**kept, "anyOf": [*lists, *([{"type": others}] if others else [])]}


def _says_nothing(schema: Mapping[str, Any]) -> bool:
    kinds, most = schema.get("type", "array"), schema.get("maxItems", 2)
    return (
        schema["uniqueItems"] is False
        or (isinstance(kinds, str | list) and "array" not in ([kinds] if isinstance(kinds, str) else kinds))
        or (isinstance(most, int) and most < 2)
    )


def _values(items: Any, root: Mapping[str, Any]) -> Sequence[Any] | None:
    """All values, each once, that the items of a list may have; None if these cannot be listed."""
    schemas = [items, *(one for name in ("$defs", "definitions") for one in _members(root.get(name)))]
    if any("$ref" in one and one.keys() - _NOTES > {"$ref"} for one in schemas if isinstance(one, Mapping)):
        return None  # what stands beside a reference holds, too
    schema = resolved(items, root)
    if not schema or not schema.keys() <= _OF_ITEMS | _NOTES:
        return None
    low, high, kinds = schema.get("minimum"), schema.get("maximum"), schema.get("type", [])
    if not _are_numbers(low or 0, high or 0) or not isinstance(kinds, str | list):
        return None
    if "const" in schema:
        found = [schema["const"]]
    elif isinstance(schema.get("enum"), list):
        found = schema["enum"]
    elif kinds in ("boolean", "null"):
        found = [True, False] if kinds == "boolean" else [None]
    elif kinds == "integer" and isinstance(low, int) and isinstance(high, int):
        found = [*range(low, min(high, low + _MOST_ORDERS) + 1)]
    else:
        return None
    return [*{_identity(value): value for value in found if fits(value, schema)}.values()]


def _members(schemas: Any) -> Iterable[Any]:
    return schemas.values() if isinstance(schemas, Mapping) else ()


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _identity(value: Any) -> str:
    """The same text for the same value of JSON: 1 and 1.0 are, true and 1 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)
