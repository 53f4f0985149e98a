"""Values that are written otherwise than as JSON: the grammar of a schema in a notation of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.constraint.calls.lark import LarkRules, quoted
from engine.text.tools.values import resolved

__all__ = ["FREE", "Notation", "Values", "braces", "python", "raw_pattern", "required_names"]

FREE = "(?s:.*)"
"""The expression of any text."""
_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_FORMATS = {
    "date": r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    "time": r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+\-][0-2][0-9]:[0-5][0-9])",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "email": r"[A-Za-z0-9._%+\-]{1,64}@[A-Za-z0-9\-]{1,63}(\.[A-Za-z0-9\-]{1,63}){1,4}",
    "ipv4": rf"{_OCTET}(\.{_OCTET}){{3}}",
    "uri": r"[a-z][a-z0-9+.\-]{0,20}:[^\s<>\"]{1,2000}",
}
_FORMATS["date-time"] = f"{_FORMATS['date']}T{_FORMATS['time']}"
_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_TYPES = ("string", "number", "boolean", "null", "array", "object")


@dataclass(frozen=True, slots=True)
class Notation:
    """How values are written: Python literals, or with bare keys and strings between two `quote`."""

    quote: str = ""

    @property
    def python(self) -> bool:
        """Whether these are Python literals."""
        return not self.quote

    @property
    def words(self) -> Mapping[str, str]:
        """The words for true, false and null."""
        own = ("True", "False", "None") if self.python else ("true", "false", "null")
        return dict(zip(("true", "false", "null"), own, strict=True))


def braces(quote: str) -> Notation:
    """Bare keys, strings between two `quote`."""
    return Notation(quote)


def python() -> Notation:
    """Python literals."""
    return Notation()


class Values:
    """The grammar of the values of one schema, whose document is `root`."""

    def __init__(self, rules: LarkRules, notation: Notation, root: Mapping[str, Any]) -> None:
        self._rules, self._notation, self._root = rules, notation, root
        self._references: dict[str, str] = {}

    def members(self, schema: Mapping[str, Any], between: str, *, bare: bool) -> str:
        """The members of an object, with `between` after each name, which is `bare` or in quotes; "" for
        none.
        """
        properties = schema.get("properties")
        known = [*properties.items()] if isinstance(properties, Mapping) else []
        required = required_names(schema)
        pairs = [
            (f"{self._key(name, bare)} {quoted(between)} {self.value(part)}", name in required)
            for name, part in known
        ]
        others = schema.get("additionalProperties", not known)
        if others is not False and "patternProperties" not in schema:
            name = self._rules.rule(r"/[A-Za-z_][A-Za-z0-9_]{0,40}/")
            name = name if bare else f'"\\"" {name} "\\""'
            pairs += [(f"( {name} {quoted(between)} {self.value(others)} )", False)] * 4
        return self._list(pairs, 0, True)

    def _list(self, pairs: Sequence[tuple[str, bool]], place: int, first: bool) -> str:
        """Members from `place` on, with commas between them."""
        if place == len(pairs):
            return ""
        (member, required), comma = pairs[place], "" if first else self._comma
        after = self._list_rule(pairs, place + 1, False)
        taken = f"{comma} {member} {after}"
        if required:
            return taken
        left_out = self._list_rule(pairs, place + 1, first)
        return f"( {taken} | {left_out} )" if left_out else f"( {taken} )?"

    def _list_rule(self, pairs: Sequence[tuple[str, bool]], place: int, first: bool) -> str:
        body = self._list(pairs, place, first)
        return self._rules.rule(body) if body else ""

    @property
    def _comma(self) -> str:
        return '"," " "?'

    def _key(self, name: str, bare: bool) -> str:
        return quoted(name if bare else json.dumps(name, ensure_ascii=False))

    def value(self, schema: Any) -> str:
        """A value that satisfies a schema."""
        if not isinstance(schema, Mapping) or not schema:
            return self._any()
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference not in self._references:
                name = self._references[reference] = self._rules.later()
                self._rules.define(name, self._body(resolved(schema, self._root)))
            return self._references[reference]
        return self._rules.rule(self._body(schema))

    def _any(self) -> str:
        """Any value."""
        if "" not in self._references:
            name = self._references[""] = self._rules.later()
            self._rules.define(name, " | ".join(f"( {self._of_type(kind, {})} )" for kind in _TYPES))
        return self._references[""]

    def _body(self, schema: Mapping[str, Any]) -> str:
        if "const" in schema:
            return self._written(schema["const"])
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return " | ".join(map(self._written, schema["enum"]))
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list) and schema[keyword]:
                rest = {key: part for key, part in schema.items() if key != keyword}
                return " | ".join(self.value(_merged([rest, one], self._root)) for one in schema[keyword])
        if isinstance(schema.get("allOf"), list):
            return self.value(_merged([schema, *schema["allOf"]], self._root))
        declared = schema.get("type")
        if declared is None:
            declared = _implied(schema)
        if isinstance(declared, list):
            return " | ".join(self._of_type(str(one), schema) for one in declared)
        return self._of_type(str(declared), schema)

    def _of_type(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind == "string":
            return self._string(schema)
        if kind == "boolean":
            return f"{quoted(self._notation.words['true'])} | {quoted(self._notation.words['false'])}"
        if kind == "null":
            return quoted(self._notation.words["null"])
        if kind == "array":
            return self._array(schema)
        if kind == "object":
            python = self._notation.python
            return f'"{{" {self.members(schema, ": " if python else ":", bare=not python)} "}}"'
        kind = "integer" if kind == "integer" else "number"
        return self._rules.json({"type": kind, **{key: schema[key] for key in _NUMERIC if key in schema}})

    def _string(self, schema: Mapping[str, Any]) -> str:
        if self._notation.python:
            limits = {
                key: schema[key] for key in ("minLength", "maxLength", "pattern", "format") if key in schema
            }
            return self._rules.json({"type": "string", **limits})
        quote = self._notation.quote
        return f"{self._rules.text(quote)} {self._rules.until(quote, raw_pattern(schema))}"

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        fixed = schema.get("prefixItems")
        if isinstance(fixed, list) and fixed:
            return f'"[" {f" {self._comma} ".join(self.value(one) for one in fixed)} "]"'
        item = self.value(schema.get("items", {}))
        if most == 0:
            return '"[" "]"'
        counted = f"{{{max(least - 1, 0)},{'' if most is None else max(most - 1, 0)}}}"
        some = f"{item} ( {self._comma} {item} ){counted}"
        return f'"[" {some} "]"' if least else f'"[" ( {some} )? "]"'

    def _written(self, value: Any) -> str:
        """Exactly one value."""
        quote = self._notation.quote
        if isinstance(value, str) and quote:
            return f"{self._rules.text(quote)} {quoted(value)} {self._rules.text(quote)}"
        if isinstance(value, bool) or value is None:
            return quoted(self._notation.words[json.dumps(value)])
        return quoted(json.dumps(value, ensure_ascii=False))


def required_names(schema: Mapping[str, Any]) -> Sequence[Any]:
    """The members that an object must have."""
    names = schema.get("required")
    return names if isinstance(names, list) else ()


def raw_pattern(schema: Mapping[str, Any]) -> str:
    """The expression of a string that stands there as it is."""
    pattern, form = schema.get("pattern"), schema.get("format")
    if isinstance(pattern, str) and (found := _whole(pattern)):
        return found
    if isinstance(form, str) and form in _FORMATS:
        return _FORMATS[form]
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not least and most is None:
        return FREE
    return f"(?s:.{{{least},{'' if most is None else most}}})"


def _whole(pattern: str) -> str:
    """The expression that a whole text matches if `pattern` is found in it; "" where that is not known."""
    from llguidance import regex_to_lark

    if not _compiles(pattern) or re.search(r"\(\?[=!<P]|\\[bB1-9]", pattern):
        return ""
    found = []
    for one in _branches(pattern):
        begins, ends = one.startswith("^"), one.endswith("$") and not one.endswith("\\$")
        core = one[begins : len(one) - ends]
        if re.search(r"(?<![\\\[])[\^$]", core):
            return ""
        inner = f"({regex_to_lark(core, 'd')})" if core else ""
        found.append(("" if begins else FREE) + inner + ("" if ends else FREE))
    return f"({'|'.join(found)})"


def _branches(pattern: str) -> list[str]:
    """The alternatives of an expression."""
    found, depth, in_class, at = [""], 0, False, 0
    while at < len(pattern):
        char = pattern[at : at + 1 + (pattern[at] == "\\")]
        at += len(char)
        if not in_class and not depth and char == "|":
            found.append("")
            continue
        depth += (char == "(") - (char == ")") if not in_class else 0
        in_class = char == "[" or (in_class and char != "]")
        found[-1] += char
    return found


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _merged(schemas: Sequence[Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas that hold together, as one."""
    found: dict[str, Any] = {}
    for one in schemas:
        part = resolved(one, root)
        for key, value in part.items():
            if key == "properties" and isinstance(value, Mapping):
                found[key] = {**found.get(key, {}), **value}
            elif key == "required" and isinstance(value, list):
                found[key] = [*found.get(key, []), *value]
            elif key not in ("allOf", "$defs", "definitions"):
                found[key] = value
    return found


def _implied(schema: Mapping[str, Any]) -> str | list[str]:
    """The types of a schema that names none."""
    if "properties" in schema or "required" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    if "pattern" in schema or "minLength" in schema or "maxLength" in schema or "format" in schema:
        return "string"
    return "number" if any(key in schema for key in _NUMERIC) else [*_TYPES]
