"""Schemas of arguments as they are enforced: without notes, and with no other members than those named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from engine.constraint.grammar_source import named_schema, with_short_blanks
from engine.core import Tool
from engine.errors import BadSetting
from engine.text.tools.values import parameters_of
from engine.words import _

__all__ = ["argument_schema"]

_NOTES = frozenset({
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$comment", "$schema", "$id", "uniqueItems", "x-guidance",
})  # fmt: skip
"""Keywords that change nothing; and uniqueItems, which cannot be enforced, and which sets need not have;
and what llguidance would take as its options."""
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_VERBATIM = ("enum", "const", "required")
_COMBINED = ("allOf", "anyOf", "oneOf", "$ref", "patternProperties")


@lru_cache(256)
def argument_schema(tool: Tool, lenient: bool) -> Mapping[str, Any]:
    """The schema of a tool's arguments; with `lenient`, without the keywords that cannot be enforced.

    Do not change it. Raises `BadSetting` with a sentence that names the tool.
    """
    name = _("the schema of the tool {tool!r}", tool=tool.name)
    try:
        schema: dict[str, Any] = _enforced(parameters_of(tool))
    except RecursionError:
        raise BadSetting(
            _(
                "The schema of the tool {tool!r} is nested too deeply; use $ref for what repeats.",
                tool=tool.name,
            )
        ) from None
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


def _enforced(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_enforced(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            found[key] = {name: _enforced(one) for name, one in value.items()}
        elif key in _VERBATIM:
            found[key] = value
        elif key not in _NOTES:
            found[key] = _enforced(value)
    if found.get("properties") and not any(key in found for key in _COMBINED):
        found.setdefault("additionalProperties", False)
    return found


def as_json(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)
