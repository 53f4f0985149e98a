"""Schemas of arguments as they are enforced: without notes, and with no other members than those named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from engine.constraint.calls.merged import check_variants
from engine.constraint.closed_schema import BRANCHES, VERBATIM, closed
from engine.constraint.grammar_source import named_schema, with_short_blanks
from engine.constraint.written_schema import as_meant, mapped
from engine.core import Tool
from engine.errors import BadSetting
from engine.text.tools.values import parameters_of
from engine.words import _

__all__ = ["argument_schema", "as_json", "in_order"]

_NOTES = frozenset({
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$comment", "$schema", "$id", "uniqueItems", "x-guidance",
})  # fmt: skip
"""Keywords that change nothing; and uniqueItems, which cannot be enforced, and which sets need not have;
and what llguidance would take as its options."""


@lru_cache(256)
def argument_schema(tool: Tool, lenient: bool) -> Mapping[str, Any]:
    """The schema of a tool's arguments; with `lenient`, without the keywords that cannot be enforced.

    Do not change it. Raises `BadSetting` with a sentence that names the tool.
    """
    name = _("the schema of the tool {tool!r}", tool=tool.name)
    try:
        given = as_meant(parameters_of(tool))
        check_variants(given)
        schema: dict[str, Any] = closed(given, _NOTES)
    except RecursionError:
        raise BadSetting(
            _(
                "The schema of the tool {tool!r} is nested too deeply; use $ref for what repeats.",
                tool=tool.name,
            )
        ) from None
    if not any(key in schema for key in (*BRANCHES, "$ref")):
        schema.setdefault("additionalProperties", False)
    schema = with_short_blanks({**schema, "x-guidance": {"coerce_one_of": True}})
    try:
        named_schema(name, schema)
    except BadSetting:
        if not lenient:
            raise
        schema["x-guidance"] = {**schema["x-guidance"], "lenient": True}
        schema = mapped(schema, _enforceable)
        named_schema(name, schema)
    return schema


def _enforceable(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a schema without a pattern that no grammar can follow, as those are that look ahead, and
    without a choice among no values, which would make the tool one that cannot be called.
    """
    found, pattern = dict(part), part.get("pattern")
    if isinstance(pattern, str) and not _can_be_followed(pattern):
        del found["pattern"]
    if found.get("enum") == []:
        del found["enum"]
    return found


@lru_cache(256)
def _can_be_followed(pattern: str) -> bool:
    try:
        named_schema("", {"type": "string", "pattern": pattern})
    except BadSetting:
        return False
    return True


def in_order(schema: Any) -> Any:
    """A schema whose `properties`, at any depth, stand in the order of their names, as Jinja's `dictsort` has
    it.
    """
    if isinstance(schema, list):
        return [in_order(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: value if key in VERBATIM else in_order(value) for key, value in schema.items()}
    known = found.get("properties")
    if isinstance(known, Mapping):
        found["properties"] = dict(sorted(known.items(), key=lambda one: str(one[0]).lower()))
    return found


def as_json(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)
