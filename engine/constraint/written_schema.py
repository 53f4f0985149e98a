"""JSON schemas as programs write them, with what means nothing in the standard left out.

Source: JSON Schema, drafts 7 and 2020-12: formats that are not known, and keywords that are notes, change
nothing; patterns are ECMAScript's (ECMA-262, "Patterns").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from engine.constraint.closed_schema import NAMED, VERBATIM

__all__ = ["as_meant", "mapped", "meant_pattern"]

_FORMATS = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
})  # fmt: skip
"""What llguidance enforces."""
_COUNTS = frozenset({
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
})  # fmt: skip
_OF_OTHERS = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties"})
_VALUES = (*VERBATIM, "default", "examples", "example", "x-guidance")
_ID = re.compile(r"(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")


def as_meant(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that allows the same, without what would make its grammar fail for no reason: keywords that
    are null, as programs in languages with fixed types write them, formats that are not known, `$schema`,
    and each `$id` that is no address; references to the own `$id` are those within the document. Counts are
    whole, patterns are written as the grammar takes them, and members that are required have a place among
    the `properties`. Raises `RecursionError` for what is nested too deeply.
    """
    id = schema.get("$id")
    own = id.rstrip("#") + "#" if isinstance(id, str) and id.rstrip("#") else ""

    def change(part: dict[str, Any]) -> dict[str, Any]:
        return _meant(part, own)

    return mapped(schema, change)


def mapped(schema: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """A schema all of whose parts that are objects went through `change`, the inner ones first."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            found[key] = {name: _mapped(one, change) for name, one in value.items()}
        else:
            found[key] = value if key in _VALUES else _mapped(value, change)
    return change(found)


def _mapped(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(value, list):
        return [_mapped(one, change) for one in value]
    return mapped(value, change) if isinstance(value, Mapping) else value


def _meant(part: dict[str, Any], own: str) -> dict[str, Any]:
    found = {key: value for key, value in part.items() if value is not None or key in ("const", "default")}
    found.pop("$schema", None)
    if not (isinstance(id := found.get("$id"), str) and _ID.fullmatch(id)):
        found.pop("$id", None)
    reference = found.get("$ref")
    if own and isinstance(reference, str) and reference.startswith(own):
        found["$ref"] = reference[len(own) - 1 :]
    if isinstance(form := found.get("format"), str) and form not in _FORMATS:
        del found["format"]
    for key in _COUNTS & found.keys():
        if isinstance(found[key], float) and found[key].is_integer():
            found[key] = int(found[key])
    if isinstance(pattern := found.get("pattern"), str):
        found["pattern"] = meant_pattern(pattern)
    known, required = found.get("properties"), found.get("required")
    if isinstance(known, Mapping) and isinstance(required, list) and _OF_OTHERS.isdisjoint(found):
        names = [name for name in required if isinstance(name, str)]
        found["properties"] = {**known, **{name: {} for name in names if name not in known}}
    return found


_PIECES = re.compile(
    r"""
    (?P<control>\\c[A-Za-z]) | (?P<zero>\\0(?![0-9])) | (?P<escape>\\(?:[pPux]\{[^}]*\}|.))
    | (?P<quantifier>\{[0-9]+(?:,[0-9]*)?\}) | (?P<posix>\[:\^?[a-z]+:\]) | (?P<open>\[\^?\]?)
    | (?P<both>&&|~~) | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def meant_pattern(pattern: str) -> str:
    r"""A pattern in ECMAScript's form as regular expressions of grammars are written, where `{`, and between
    brackets `[`, `&&` and `~~`, mean more, and `\cA`, `\0` and `[\b]` are not known.
    """
    found, inside = [], False
    for match in _PIECES.finditer(pattern):
        kind, text = match.lastgroup, match[0]
        if kind == "control":
            text = rf"\x{ord(text[2]) & 31:02x}"
        elif kind == "zero" or (inside and text == r"\b"):
            text = r"\x00" if kind == "zero" else r"\x08"
        elif kind == "open":
            text, inside = ("\\" + text, "]" not in text) if inside else (text, True)
        elif kind == "both" and inside:
            text = rf"{text[0]}\{text[1]}"
        elif text == "]":
            inside = False
        elif text == "{" and not inside:
            text = r"\{"
        found.append(text)
    return "".join(found)
