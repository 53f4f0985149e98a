"""Schemas of Google's API as JSON schemas. Source: Google's API reference, "Schema"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_SAME = ("title", "description", "enum", "required", "pattern", "minimum", "maximum", "default")


def camel(name: str) -> str:
    """The name of a field in JSON, which clients may write with underscores, too."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others) if first else name


def json_schema(value: Any) -> Any:
    """The JSON schema that a schema of Google's is: types are in lowercase, counts may be texts, and null is
    allowed by `nullable`. What is no schema stays as it is.
    """
    if not isinstance(value, dict):
        return value
    fields = {camel(name): part for name, part in value.items()}
    found: dict[str, Any] = {name: fields[name] for name in _SAME if name in fields}
    for name in _COUNTS:
        if name in fields:
            found[name] = _count(fields[name])
    if isinstance(fields.get("type"), str) and fields["type"] != "TYPE_UNSPECIFIED":
        found["type"] = fields["type"].lower()
    if isinstance(fields.get("properties"), dict):
        found["properties"] = {name: json_schema(part) for name, part in fields["properties"].items()}
    if "items" in fields:
        found["items"] = json_schema(fields["items"])
    if isinstance(fields.get("anyOf"), list):
        found["anyOf"] = [json_schema(part) for part in fields["anyOf"]]
    return _nullable(found) if fields.get("nullable") is True else found


def _nullable(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _count(value: Any) -> Any:
    """A count, of which a text has up to the 19 digits of an int64."""
    text = isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit()
    return int(value) if text else value
