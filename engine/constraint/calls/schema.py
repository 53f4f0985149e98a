"""Schemas of arguments as they are enforced: without notes, and with no other members than those named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from engine.constraint.grammar_source import named_schema, with_short_blanks
from engine.core import Tool
from engine.errors import BadSetting
from engine.text.tools.values import parameters_of, resolved
from engine.words import _

__all__ = ["argument_schema", "closed", "in_order"]

_NOTES = frozenset({
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$comment", "$schema", "$id", "uniqueItems", "x-guidance",
})  # fmt: skip
"""Keywords that change nothing; and uniqueItems, which cannot be enforced, and which sets need not have;
and what llguidance would take as its options."""
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_VERBATIM = ("enum", "const", "required")
_BRANCHES = ("allOf", "anyOf", "oneOf")
_OF_OTHERS = frozenset({
    "patternProperties", "unevaluatedProperties", "propertyNames", "dependentRequired", "dependentSchemas",
    "if", "not",
})  # fmt: skip
"""Keywords that speak of members which `properties` need not name."""


@lru_cache(256)
def argument_schema(tool: Tool, lenient: bool) -> Mapping[str, Any]:
    """The schema of a tool's arguments; with `lenient`, without the keywords that cannot be enforced.

    Do not change it. Raises `BadSetting` with a sentence that names the tool.
    """
    name = _("the schema of the tool {tool!r}", tool=tool.name)
    try:
        given = parameters_of(tool)
        schema: dict[str, Any] = _enforced(given, given, frozenset(_joined(given)))
    except RecursionError:
        raise BadSetting(
            _(
                "The schema of the tool {tool!r} is nested too deeply; use $ref for what repeats.",
                tool=tool.name,
            )
        ) from None
    if not any(key in schema for key in (*_BRANCHES, "$ref")):
        schema.setdefault("additionalProperties", False)
    schema = with_short_blanks({**schema, "x-guidance": {"coerce_one_of": True}})
    try:
        named_schema(name, schema)
    except BadSetting:
        if not lenient:
            raise
        schema["x-guidance"] = {**schema["x-guidance"], "lenient": True}
        named_schema(name, schema)
    return schema


def closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema whose objects, where they name members and do not say which others there may be, have no
    others: left free, a small model goes on with members of its own until the reply is cut.

    What it allows, `schema` does, too. Raises `RecursionError` for what is nested too deeply.
    """
    found: Mapping[str, Any] = _enforced(schema, schema, frozenset(_joined(schema)), left_out=frozenset())
    return found


def in_order(schema: Any) -> Any:
    """A schema whose `properties`, at any depth, stand in the order of their names, as Jinja's `dictsort` has
    it.
    """
    if isinstance(schema, list):
        return [in_order(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: value if key in _VERBATIM else in_order(value) for key, value in schema.items()}
    known = found.get("properties")
    if isinstance(known, Mapping):
        found["properties"] = dict(sorted(known.items(), key=lambda one: str(one[0]).lower()))
    return found


def _enforced(
    schema: Any,
    root: Mapping[str, Any],
    joined: frozenset[str],
    is_part: bool = False,
    left_out: frozenset[str] = _NOTES,
) -> Any:
    """A schema without the keywords `left_out`, closed to members that it does not name unless it `is_part`
    of another one, which is closed then: what `joined` refers to are such parts, too.
    """
    if isinstance(schema, list):
        return [_enforced(one, root, joined, is_part, left_out) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            found[key] = {
                name: _enforced(one, root, joined, f"#/{key}/{name}" in joined, left_out)
                for name, one in value.items()
            }
        elif key in _VERBATIM:
            found[key] = value
        elif key not in left_out:
            inside = key in _BRANCHES and (is_part or _joins(schema, key))
            found[key] = _enforced(value, root, joined, inside, left_out)
    if is_part or "additionalProperties" in found:
        return found
    if any(_joins(schema, key) for key in (*_BRANCHES, "$ref")):
        names = _names(schema, root)
        if names:
            own = found.get("properties") or {}
            found |= {"properties": {**{name: {} for name in names}, **own}, "additionalProperties": False}
    elif found.get("properties") and not _has_others(found):
        found["additionalProperties"] = False
    return found


def _has_others(schema: Mapping[str, Any]) -> bool:
    """Whether an object needs, or speaks of, members that its `properties` do not name."""
    named, required = schema["properties"], schema.get("required")
    least = schema.get("minProperties")
    return (
        not _OF_OTHERS.isdisjoint(schema)
        or (isinstance(required, list) and any(name not in named for name in required))
        or (isinstance(least, int | float) and least > len(named))
    )


def _joins(schema: Mapping[str, Any], key: str) -> bool:
    """Whether what this keyword of a schema names has to hold together with something else."""
    others = ("properties", "allOf", "$ref", *(() if key in ("anyOf", "oneOf") else ("anyOf", "oneOf")))
    return key in schema and (key == "allOf" or any(other in schema for other in others if other != key))


def _joined(schema: Any) -> Iterator[str]:
    """The references whose schemas have to hold together with something else."""
    if isinstance(schema, Mapping):
        if _joins(schema, "$ref") and isinstance(schema["$ref"], str):
            yield schema["$ref"]
        for key in _BRANCHES:
            parts = schema.get(key)
            if isinstance(parts, list) and _joins(schema, key):
                yield from (one["$ref"] for one in parts if isinstance(one, Mapping) and _is_reference(one))
    for one in schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ():
        yield from _joined(one)


def _is_reference(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema.get("$ref"), str)


def _names(schema: Any, root: Mapping[str, Any], depth: int = 8) -> Sequence[str] | None:
    """The members that a schema and its parts name; None if a part says itself which others there may be."""
    if not isinstance(schema, Mapping) or not depth:
        return ()
    properties = schema.get("properties")
    found = dict.fromkeys(properties if isinstance(properties, Mapping) else ())
    parts = [one for key in _BRANCHES for one in schema.get(key) or () if isinstance(schema.get(key), list)]
    if _is_reference(schema):
        parts.append(resolved({"$ref": schema["$ref"]}, root))
    for one in parts:
        says = isinstance(one, Mapping) and ("additionalProperties" in one or "patternProperties" in one)
        names = None if says else _names(one, root, depth - 1)
        if names is None:
            return None
        found |= dict.fromkeys(names)
    return [*found]


def as_json(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)
