"""Arguments as elements of XML that are named after them: the grammar of a schema."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from engine.constraint.calls.lark import LarkRules, quoted
from engine.constraint.calls.merged import fits
from engine.constraint.calls.texts import FREE, NoTexts, texts_of
from engine.constraint.calls.values import NUMERIC, alternatives, implied_types, members_of
from engine.text.tools.form import CallForm
from engine.text.tools.values import STRING, argument_types, resolved

__all__ = ["Elements"]

_NAME = r"/[A-Za-z_][A-Za-z0-9_.-]{0,40}/"
_MOST_OTHERS = 4
"""Members of an object that its schema does not name."""


class Elements:
    """The grammar of the elements of one schema, whose document is `root`.

    What cannot be enforced raises `BadSetting`, unless the grammar is `lenient`.
    """

    def __init__(self, rules: LarkRules, form: CallForm, root: Mapping[str, Any], *, lenient: bool) -> None:
        self._rules, self._form, self._root, self._lenient = rules, form, root, lenient
        self._references: dict[str, str] = {}

    def members(self, schema: Mapping[str, Any]) -> str:
        """The elements of an object, in the order of its schema. Raises `NoTexts` if there is no such
        object.
        """
        ways = [self._members(one) for one in alternatives(schema, self._root)]
        return self._either(ways)

    def _members(self, schema: Mapping[str, Any]) -> str:
        known, parts = members_of(schema), list[str]()
        for name, (part, required) in known.items():
            try:
                rule = self._rules.rule(self._element(quoted(name), part))
                parts.append(rule if required else f"{rule}?")
            except NoTexts:
                if required:
                    raise
        others = schema.get("additionalProperties", not known)
        if others is not False and "patternProperties" not in schema:
            element = self._rules.rule(self._element(self._rules.terminal(_NAME), others))
            least = max(schema.get("minProperties", 0) - len(known), 0)
            most = max(least, min(schema.get("maxProperties", 1 << 20) - len(known), _MOST_OTHERS))
            parts.append(f"{element}{{{least},{most}}}")
        return " ".join(parts)

    def _element(self, name: str, schema: Any) -> str:
        begins, middle, _ = map(self._rules.text, self._form.parameter)
        return f"{begins} {name} {middle} {self._value(schema)} {name} {middle}"

    def _value(self, schema: Any) -> str:
        """A value up to the name in what ends it. Raises `NoTexts` if there is none."""
        if schema is False:
            raise NoTexts
        schema = schema if isinstance(schema, Mapping) else {}
        reference = schema.get("$ref")
        if isinstance(reference, str) and len(schema) == 1:
            target = resolved(schema, self._root)
            return self._rules.reference(self._references, reference, lambda: self._body(target))
        return self._rules.rule(self._body(schema))

    def _body(self, schema: Mapping[str, Any]) -> str:
        begins, _, ends = self._form.parameter
        texts, ways = "", list[str]()
        some = [{"type": implied_types(one), **one} for one in alternatives(schema, self._root)]
        types = frozenset[str]().union(*(argument_types(one, self._root) for one in some))
        if "string" in types:
            with suppress(NoTexts):
                texts = texts_of(schema, self._root, lenient=self._lenient)
                nested = texts == FREE and not types.isdisjoint({"array", "object"})
                free = f"( {FREE} & ~/(?s:{re.escape(begins)}.*)/ )" if nested else texts
                ways.append(self._rules.until(ends, free))
        # any text is a string, also what would be a number, but not what begins with an element
        others = (way for one in some for way in self._others(one, scalar=texts != FREE))
        ways += [f"{way} {self._rules.text(ends)}" for way in others]
        return self._either(ways)

    def _scalars(self, schema: Mapping[str, Any], types: Collection[str]) -> Iterator[str]:
        """The values of these types, which are written as JSON."""
        if "const" in schema or isinstance(schema.get("enum"), list):
            values = [schema["const"]] if "const" in schema else schema["enum"]
            scalars = (value for value in values if not isinstance(value, str | list | dict))
            if some := [value for value in scalars if fits(value, schema)]:
                yield self._rules.json({"enum": some})
        elif types:
            limits = {key: schema[key] for key in NUMERIC if key in schema}
            also = [part for part in schema.get("allOf", ()) if part.keys() <= {*NUMERIC}]
            yield self._rules.json({"type": sorted(types), **limits, **({"allOf": also} if also else {})})

    def _others(self, schema: Mapping[str, Any], *, scalar: bool) -> Iterator[str]:
        """The values of a schema without branches that are no strings; `scalar` ones, too, or not."""
        types = argument_types(schema, self._root) - STRING
        if scalar:
            yield from self._scalars(schema, types - {"array", "object"})
        if "object" in types:
            with suppress(NoTexts):
                yield self._members(schema)
        if "array" in types:
            with suppress(NoTexts):
                yield self._items(schema)

    def _items(self, schema: Mapping[str, Any]) -> str:
        least, most, items = schema.get("minItems", 0), schema.get("maxItems"), schema.get("items", {})
        fixed = items if isinstance(items, list) else schema.get("prefixItems", [])
        rest = schema.get("additionalItems", {}) if isinstance(items, list) else items
        written = ""
        if most is None or most > len(fixed):
            with suppress(NoTexts):
                last = "" if most is None else most - len(fixed)
                written = f"{self._item(rest)}{{{max(least - len(fixed), 0)},{last}}}"
        for place in range(min(len(fixed), len(fixed) if most is None else most) - 1, -1, -1):
            written = f"{self._item(fixed[place])} {written}"
            written = written if place < least else f"( {written} )?"
        return written

    def _item(self, schema: Any) -> str:
        return self._rules.rule(self._element(quoted(self._form.item), schema))

    @staticmethod
    def _either(ways: Sequence[str]) -> str:
        """One of these. Raises `NoTexts` for none."""
        if not ways:
            raise NoTexts
        some = list(dict.fromkeys(way for way in ways if way.strip()))
        one = some[0] if len(some) == 1 else f"( {' | '.join(some)} )" if some else ""
        return f"( {one} )?" if one and len(some) < len(set(ways)) else one
