"""Schemas that hold together, as one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.constraint.closed_schema import BRANCHES
from engine.errors import BadSetting
from engine.text.tools.values import resolved
from engine.words import _

__all__ = ["check_variants", "fits", "merged"]

_LARGER = ("minItems", "minProperties", "minLength", "minimum", "exclusiveMinimum")
_SMALLER = ("maxItems", "maxProperties", "maxLength", "maximum", "exclusiveMaximum")
_NO_PART = ("allOf", "$defs", "definitions", "$ref")
_MOST_BRANCHES = 64
_MOST_VARIANTS, _DEEPEST = 4096, 16


def merged(schemas: Sequence[Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """One schema of the values that satisfy all of these, whose `allOf` has only what a number or a string
    must satisfy too. Raises `BadSetting` for keywords that cannot be joined.
    """
    found: dict[str, Any] = {}
    for part in _flat(schemas, root, 8):
        for key, value in part.items():
            if key in _NO_PART:
                continue
            if key not in found or found[key] == value:
                found[key] = value
            elif key in ("pattern", "format", "multipleOf"):
                found["allOf"] = [*found.get("allOf", ()), {key: value}]
            else:
                found[key] = _joint(key, found[key], value)
    return found


def _flat(schemas: Sequence[Any], root: Mapping[str, Any], depth: int) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for one in schemas:
        part = {"enum": []} if one is False else resolved(one, root)
        beside = one if isinstance(one, Mapping) and "$ref" in one else {}
        for each in (part, beside) if beside else (part,):
            found.append(each)
            inner = each.get("allOf")
            if isinstance(inner, list) and depth:
                found += _flat(inner, root, depth - 1)
    return found


def _joint(key: str, one: Any, other: Any) -> Any:
    """What both values of a keyword demand together."""
    if key in _LARGER:
        return max(one, other)
    if key in _SMALLER:
        return min(one, other)
    join = _JOINTS.get(key)
    if join is None:
        raise BadSetting(
            _(
                "A schema of the tools requires two things of {key!r} at once, by allOf or anyOf; "
                "that cannot be enforced, so write only one of them.",
                key=key,
            )
        )
    return join(one, other)


def _types(one: Any, other: Any) -> list[str]:
    first, second = ([each] if isinstance(each, str) else each for each in (one, other))
    both = [each for each in first if each in second or (each == "integer" and "number" in second)]
    return both + ["integer"] * ("integer" in second and "number" in first and "integer" not in both)


def _branches(one: Any, other: Any) -> list[Any]:
    if len(one) * len(other) > _MOST_BRANCHES:
        raise _too_many(_MOST_BRANCHES)
    return [{"allOf": [first, second]} for first in one for second in other]


def _properties(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: {"allOf": [one[name], other[name]]} for name in one if name in other}
    return {**one, **other, **both}


_JOINTS: dict[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "properties": _properties,
    "patternProperties": _properties,
    "required": lambda one, other: list(dict.fromkeys([*one, *other])),
    "enum": lambda one, other: [value for value in one if value in other],
    "items": lambda one, other: {"allOf": [one, other]},
    "additionalProperties": lambda one, other: (
        False if False in (one, other) else {"allOf": [part for part in (one, other) if part is not True]}
    ),
    "anyOf": _branches,
    "oneOf": _branches,
    "x-guidance": lambda one, other: one,
}


def _too_many(most: int) -> BadSetting:
    return BadSetting(
        _(
            "The schemas of the tools combine to more than {most_branches} variants; write fewer "
            "branches of anyOf.",
            most_branches=most,
        )
    )


def check_variants(root: Mapping[str, Any]) -> None:
    """Raise `BadSetting` for a document in which a schema's branches, and theirs, lead to more schemas, above
    all by references, than could be written out in a short time.
    """
    known: dict[tuple[int, int], int] = {}
    stack: list[Any] = [root]
    while stack:
        one = stack.pop()
        if isinstance(one, Mapping) and _variants(one, root, _DEEPEST, known) > _MOST_VARIANTS:
            raise _too_many(_MOST_VARIANTS)
        stack += one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ()


def _variants(schema: Any, root: Mapping[str, Any], depth: int, known: dict[tuple[int, int], int]) -> int:
    """How many schemas branches lead to; `known` by the identity of a schema and the depth."""
    found = resolved(schema, root)
    key = id(found), depth
    if key not in known:
        lists = (found.get(keyword) for keyword in BRANCHES) if depth else ()
        branches = [one for each in lists if isinstance(each, list) for one in each]
        known[key] = 1 + sum(_variants(one, root, depth - 1, known) for one in branches)
    return known[key]


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value of `enum` or `const` satisfies what else a merged schema says of scalars.

    Raises `BadSetting` for a pattern that is not known.
    """
    types = schema.get("type")
    if types is not None and not _is_of(value, [types] if isinstance(types, str) else types):
        return False
    if "const" in schema and schema["const"] != value:
        return False
    if isinstance(value, str):
        return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)) and all(
            _matches(part["pattern"], value)
            for part in (schema, *schema.get("allOf", ()))
            if "pattern" in part
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and not (value <= schema.get("exclusiveMinimum", value - 1))
        and not (value >= schema.get("exclusiveMaximum", value + 1))
        and all(
            value % part["multipleOf"] == 0
            for part in (schema, *schema.get("allOf", ()))
            if part.get("multipleOf")
        )
    )


def _is_of(value: Any, types: Sequence[str]) -> bool:
    if value is None or isinstance(value, bool):
        return ("null" if value is None else "boolean") in types
    if isinstance(value, int | float):
        return "number" in types or ("integer" in types and float(value).is_integer())
    return ("string" if isinstance(value, str) else "array" if isinstance(value, list) else "object") in types


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        raise BadSetting(
            _(
                "A schema of the tools has the pattern {pattern!r} beside enum or const, which "
                "cannot be enforced; leave it out.",
                pattern=pattern[:60],
            )
        ) from None
