"""JSON schemas as they are enforced: with no other members than those named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.text.tools.values import resolved

__all__ = ["BRANCHES", "NAMED", "VERBATIM", "closed"]

NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords whose values are schemas by name."""
VERBATIM = ("enum", "const", "required")
"""Keywords whose values are no schemas."""
BRANCHES = ("allOf", "anyOf", "oneOf")
"""Keywords whose values are lists of schemas."""
_OF_OTHERS = frozenset({
    "patternProperties", "unevaluatedProperties", "propertyNames", "dependentRequired", "dependentSchemas",
    "if", "not",
})  # fmt: skip
"""Keywords that speak of members which `properties` need not name."""


def closed(schema: Mapping[str, Any], without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A schema whose objects, where they name members and do not say which others there may be, have no
    others: left free, a small model goes on with members of its own until the reply is cut. This is the one
    rule for replies in the window, from the command line and from the local server, as with Ollama, llama.cpp
    and vLLM. The keywords in `without` are left out.

    What it allows, `schema` does, too. Raises `RecursionError` for what is nested too deeply.
    """
    found: dict[str, Any] = _enforced(schema, schema, frozenset(_joined(schema)), without)
    return found


def _enforced(
    schema: Any,
    root: Mapping[str, Any],
    joined: frozenset[str],
    without: frozenset[str],
    is_part: bool = False,
) -> Any:
    """A schema without the keywords `without`, closed to members that it does not name unless it `is_part`
    of another one, which is closed then: what `joined` refers to are such parts, too.
    """
    if isinstance(schema, list):
        return [_enforced(one, root, joined, without, is_part) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            found[key] = {
                name: _enforced(one, root, joined, without, f"#/{key}/{name}" in joined)
                for name, one in value.items()
            }
        elif key in VERBATIM:
            found[key] = value
        elif key not in without:
            inside = key in BRANCHES and (is_part or _joins(schema, key))
            found[key] = _enforced(value, root, joined, without, inside)
    if is_part or "additionalProperties" in found:
        return found
    if any(_joins(schema, key) for key in (*BRANCHES, "$ref")):
        names, own = _names(schema, root, set()), found.get("properties") or {}
        if names and isinstance(own, Mapping):
            found |= {"properties": {**{name: {} for name in names}, **own}, "additionalProperties": False}
    elif found.get("properties") and isinstance(found["properties"], Mapping) and not _has_others(found):
        found["additionalProperties"] = False
    return found


def _has_others(schema: Mapping[str, Any]) -> bool:
    """Whether an object needs, or speaks of, members that its `properties` do not name."""
    named, required = schema["properties"], schema.get("required")
    least = schema.get("minProperties")
    return (
        not _OF_OTHERS.isdisjoint(schema)
        or (isinstance(required, list) and any(str(name) not in named for name in required))
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
        for key in BRANCHES:
            parts = schema.get(key)
            if isinstance(parts, list) and _joins(schema, key):
                yield from (one["$ref"] for one in parts if isinstance(one, Mapping) and _is_reference(one))
    for one in schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ():
        yield from _joined(one)


def _is_reference(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema.get("$ref"), str)


def _names(schema: Any, root: Mapping[str, Any], seen: set[int]) -> Sequence[str] | None:
    """The members that a schema and its parts name, but those `seen` before, by identity; None if a part says
    itself which others there may be.
    """
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return ()
    seen.add(id(schema))
    properties = schema.get("properties")
    found = dict.fromkeys(properties if isinstance(properties, Mapping) else ())
    lists = (schema.get(key) for key in BRANCHES)
    parts = [one for each in lists if isinstance(each, list) for one in each]
    if _is_reference(schema):
        parts.append(resolved({"$ref": schema["$ref"]}, root))
    for one in parts:
        says = isinstance(one, Mapping) and ("additionalProperties" in one or "patternProperties" in one)
        names = None if says else _names(one, root, seen)
        if names is None:
            return None
        found |= dict.fromkeys(names)
    return [*found]
