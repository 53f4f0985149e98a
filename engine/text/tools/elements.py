"""Reading arguments that are elements of XML, named after them and perhaps nested."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from engine.text.tools.form import CallForm
from engine.text.tools.json_text import Chars, JsonReader, Reading, quoted
from engine.text.tools.values import STRING, argument_types, bare_value, empty_value, keyword_of

__all__ = ["ElementReader"]


class ElementReader:
    """Reads the elements of one form."""

    def __init__(self, form: CallForm, chars: Chars) -> None:
        self._form, self._chars = form, chars

    def next(self, begun: bool = False) -> Generator[None, str, str | None]:
        """The name of the element that begins; None where `parameter[2]` follows instead."""
        begins, middle, ends = self._form.parameter
        if not begun:
            yield from self._chars.literal(begins)
        rest = ends.removeprefix(begins)
        read = yield from self._chars.beginning(rest)
        return None if read == rest else (yield from self._chars.until(middle, read)).strip()

    def nested(
        self, arguments: JsonReader, prefix: str, name: str | None, schema: Any, root: Mapping[str, Any]
    ) -> Reading:
        """An object or a list whose first element has this name, and the beginning of what ends it."""
        types, between = argument_types(schema, root), ""
        listed = "array" in types and (name == self._form.item or "object" not in types)
        known = {} if listed else keyword_of(schema, root, "properties")
        others = keyword_of(schema, root, "items" if listed else "additionalProperties")
        arguments.open(prefix + ("[" if listed else "{"), "]" if listed else "}")
        while name is not None:
            key, part = ("", others) if listed else (f"{quoted(name)}: ", known.get(name, others))
            yield from self._element(arguments, between + key, part, root)
            between = ", "
            name = yield from self.next()
        arguments.shut()

    def _element(self, arguments: JsonReader, prefix: str, schema: Any, root: Mapping[str, Any]) -> Reading:
        """A value and what ends it."""
        (begins, middle, ends), types = self._form.parameter, argument_types(schema, root)
        if "string" not in types:
            self._chars.back((yield from self._chars.after_blanks()))
        read = "" if types.isdisjoint(("array", "object")) else (yield from self._chars.beginning(begins))
        name = (yield from self.next(True)) if read == begins else None
        if name is not None:
            yield from self.nested(arguments, prefix, name, schema, root)
        elif types == STRING:
            arguments.open(prefix + '"', '"')
            yield from arguments.until("", ends)
            arguments.shut()
        else:
            text = "" if read == begins else (yield from self._chars.until(ends, read))
            arguments.open(prefix + (bare_value(text, types) if text else empty_value(types)), "")
            arguments.shut()
        yield from self._chars.until(middle)  # the name again
