"""Values that are written otherwise than as JSON: the grammar of a schema in a notation of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from engine.constraint.calls.lark import LarkRules, quoted
from engine.constraint.calls.merged import fits, merged
from engine.constraint.calls.schema import as_json
from engine.constraint.calls.texts import NoTexts, texts_of
from engine.lazy_dataclass import dataclass
from engine.text.tools.values import resolved

__all__ = ["NUMERIC", "Notation", "Values", "alternatives", "braces", "members_of", "python"]

NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_TEXTUAL = ("minLength", "maxLength", "pattern", "format")
_SINGLE_QUOTED = r"/'(?:[^'\\\x00-\x08\x0b\x0c\x0e-\x1f]|\\[^\x00-\x1f])*'/"
"""A string of Python between such quotes; LFM2.5's template writes line breaks in it as they are."""
_PYTHON_WORDS = {"true": "True", "false": "False", "null": "None"}
_TYPES = ("string", "number", "boolean", "null", "array", "object")


@dataclass(frozen=True, slots=True)
class Notation:
    """How values are written: Python literals, or with bare keys and strings between two `quote`."""

    quote: str = ""

    @property
    def python(self) -> bool:
        """Whether these are Python literals."""
        return not self.quote

    def word(self, word: str) -> str:
        """What stands for JSON's true, false or null: in Python calls either language's word, since templates
        write objects there as JSON (LFM2.5); for null in any notation (Gemma 4).
        """
        own = f"{quoted(_PYTHON_WORDS[word])} | {quoted(word)}"
        return own if self.python or word == "null" else quoted(word)


def braces(quote: str) -> Notation:
    """Bare keys, strings between two `quote`."""
    return Notation(quote)


def python() -> Notation:
    """Python literals."""
    return Notation()


class Values:
    """The grammar of the values of one schema, whose document is `root`.

    What cannot be enforced raises `BadSetting`, unless the grammar is `lenient`.
    """

    def __init__(
        self, rules: LarkRules, notation: Notation, root: Mapping[str, Any], *, lenient: bool
    ) -> None:
        self._rules, self._notation, self._root, self._lenient = rules, notation, root, lenient
        self._references: dict[str, str] = {}

    def members(self, schema: Mapping[str, Any], between: str, *, bare: bool) -> str:
        """The members of an object, with `between` after each name, which is `bare` or in quotes; "" for
        none. Raises `NoTexts` if there is no such object.
        """
        ways = [self._members(one, between, bare) for one in alternatives(schema, self._root)]
        if "" in ways and len(ways) > 1:
            return f"( {' | '.join(way for way in ways if way)} )?"
        return ways[0] if len(ways) == 1 else f"( {' | '.join(ways)} )"

    def _members(self, schema: Mapping[str, Any], between: str, bare: bool) -> str:
        known = members_of(schema)
        pairs = list[tuple[str, bool]]()
        for name, (part, required) in known.items():
            try:
                pairs.append((f"{self._key(name, bare)} {quoted(between)} {self.value(part)}", required))
            except NoTexts:
                if required:
                    raise
        others = schema.get("additionalProperties", not known)
        if others is not False and "patternProperties" not in schema:
            name = self._other_name(known)
            name = name if bare else f"""( "\\"" {name} "\\"" | "'" {name} "'" )"""
            least = max(schema.get("minProperties", 0) - len(known), 0)
            most = min(schema.get("maxProperties", len(known) + 4) - len(known), max(least, 4))
            member = f"( {name} {quoted(between)} {self.value(others)} )"
            pairs += [(member, place < least) for place in range(most)]
        elif schema.get("minProperties", 0) > len(known):
            raise NoTexts
        return self._list(pairs, 0, True)

    def _other_name(self, known: Mapping[str, Any]) -> str:
        """A name that is none of the `known`."""
        taken = f" & ~( {' | '.join(map(quoted, known))} )" if known else ""
        return self._rules.terminal(f"/[A-Za-z_][A-Za-z0-9_]{{0,40}}/{taken}")

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
        if bare:
            return quoted(name)
        return f"( {self._written(name)} )" if self._notation.python else quoted(as_json(name))

    def value(self, schema: Any) -> str:
        """A value that satisfies a schema. Raises `NoTexts` if there is none."""
        if schema is False:
            raise NoTexts
        if not isinstance(schema, Mapping) or not schema:
            return self._any()
        reference = schema.get("$ref")
        if isinstance(reference, str) and len(schema) == 1:
            target = resolved(schema, self._root)
            return self._rules.reference(self._references, reference, lambda: self._body(target))
        return self._rules.rule(self._body(schema))

    def _any(self) -> str:
        """Any value."""
        return self._rules.reference(
            self._references, "", lambda: " | ".join(f"( {self._of_type(kind, {})} )" for kind in _TYPES)
        )

    def _body(self, schema: Mapping[str, Any]) -> str:
        schema = merged([schema], self._root)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list) and schema[keyword]:
                rest = {key: part for key, part in schema.items() if key != keyword}
                parts = [merged([rest, one], self._root) if rest else one for one in schema[keyword]]
                return self._either(parts, self.value)
        if "const" in schema or isinstance(schema.get("enum"), list):
            values = [schema["const"]] if "const" in schema else schema["enum"]
            return self._either([value for value in values if fits(value, schema)], self._written)
        declared = schema.get("type")
        if declared is None:
            declared = implied_types(schema)
        kinds = declared if isinstance(declared, list) else [declared]
        return self._either(kinds, lambda kind: self._of_type(str(kind), schema))

    @staticmethod
    def _either(parts: Sequence[Any], write: Callable[[Any], str]) -> str:
        """One of these parts that can be written. Raises `NoTexts` if none can."""
        found = list[str]()
        for part in parts:
            with suppress(NoTexts):
                found.append(write(part))
        if not found:
            raise NoTexts
        return " | ".join(dict.fromkeys(found))

    def _of_type(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind == "string":
            return self._string(schema)
        if kind == "boolean":
            return f"{self._notation.word('true')} | {self._notation.word('false')}"
        if kind == "null":
            return self._notation.word("null")
        if kind == "array":
            return self._array(schema)
        if kind == "object":
            python = self._notation.python
            return f'"{{" {self.members(schema, ": " if python else ":", bare=not python)} "}}"'
        kind = "integer" if kind == "integer" else "number"
        return self._scalar(kind, schema, NUMERIC)

    def _scalar(self, kind: str, schema: Mapping[str, Any], keywords: Sequence[str]) -> str:
        """A number or a string as JSON, with these of its keywords."""
        limits = {key: schema[key] for key in keywords if key in schema}
        also = [part for part in schema.get("allOf", ()) if part.keys() <= {*keywords}]
        return self._rules.json({"type": kind, **limits, **({"allOf": also} if also else {})})

    def _string(self, schema: Mapping[str, Any]) -> str:
        if self._notation.python:
            json = self._scalar("string", schema, _TEXTUAL)
            limited = any(key in schema for key in (*_TEXTUAL, "allOf"))
            return json if limited else f"{json} | {self._rules.terminal(_SINGLE_QUOTED)}"
        quote = self._rules.text(self._notation.quote)
        texts = texts_of({**schema, "type": "string"}, self._root, lenient=self._lenient)
        return f"{quote} {self._rules.until(self._notation.quote, texts)}"

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        items, first = schema.get("items", {}), schema.get("prefixItems")
        if isinstance(items, list):
            items, first = schema.get("additionalItems", {}), items
        fixed = first if isinstance(first, list) else []
        if items is False or (fixed and "items" not in schema and least <= len(fixed)):
            most = len(fixed) if most is None else min(most, len(fixed))
        if most is not None and least > most:
            raise NoTexts
        pairs = list[tuple[str, bool]]()
        for place, one in enumerate(fixed[:most]):
            pairs.append((self.value(one), place < least or "items" not in schema))
        left = None if most is None else most - len(pairs)
        if left == 0:
            return f'"[" {self._in_order(pairs)} "]"'
        item = self.value(items)
        counted = f"{{{max(least - len(pairs) - 1, 0)},{'' if left is None else left - 1}}}"
        more = item if left == 1 else f"{item} ( {self._comma} {item} ){counted}"
        return f'"[" {self._in_order([*pairs, (more, least > len(pairs))])} "]"'

    def _in_order(self, pairs: Sequence[tuple[str, bool]]) -> str:
        """Items, each of which may only follow the one before; "" for none."""
        written = ""
        for place in range(len(pairs) - 1, -1, -1):
            item, required = pairs[place]
            inner = f"{item} {written}" if place == 0 else f"{self._comma} {item} {written}"
            written = inner if required else f"( {inner} )?"
        return written

    def _written(self, value: Any) -> str:
        """Exactly one value."""
        quote = self._notation.quote
        if isinstance(value, str) and quote:
            return f"{self._rules.text(quote)} {quoted(value)} {self._rules.text(quote)}"
        if isinstance(value, bool) or value is None:
            return self._notation.word(json.dumps(value))
        written = quoted(as_json(value))
        if isinstance(value, str) and value.isprintable() and not {"'", "\\"} & {*value}:
            return f"{written} | {quoted(repr(value))}"
        return written


def alternatives(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 4
) -> Sequence[Mapping[str, Any]]:
    """The schemas, without branches, of which an object has to satisfy one."""
    found = merged([schema], root)
    keyword = next((one for one in ("anyOf", "oneOf") if isinstance(found.get(one), list) and found[one]), "")
    if not keyword or not depth:
        return [found]
    rest = {key: part for key, part in found.items() if key != keyword}
    whole = (merged([rest, one], root) for one in found[keyword])
    return [way for one in whole if one.get("type", "") != [] for way in alternatives(one, root, depth - 1)]


def members_of(schema: Mapping[str, Any]) -> dict[str, tuple[Any, bool]]:
    """The schema of each member that an object may have, and whether it must."""
    names, properties = schema.get("required"), schema.get("properties")
    required = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    found = dict(properties) if isinstance(properties, Mapping) else {}
    for name in required:
        if name not in found:
            found[name] = _other(schema, name)
    return {name: (part, name in required) for name, part in found.items()}


def _other(schema: Mapping[str, Any], name: str) -> Any:
    """The schema of a member that `properties` do not have."""
    patterns = schema.get("patternProperties")
    for pattern, part in patterns.items() if isinstance(patterns, Mapping) else ():
        with suppress(re.error):
            if re.search(pattern, name):
                return part
    return schema.get("additionalProperties", {})


def implied_types(schema: Mapping[str, Any]) -> str | list[str]:
    """The types of a schema that names none."""
    if "properties" in schema or "required" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    if "pattern" in schema or "minLength" in schema or "maxLength" in schema or "format" in schema:
        return "string"
    return "number" if any(key in schema for key in NUMERIC) else [*_TYPES]
