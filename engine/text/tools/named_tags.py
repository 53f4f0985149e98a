"""Calls in tags that name the tool, as models write them whose form is another one."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping

from engine.text.tools.calls import CallReader
from engine.text.tools.form import CDATA
from engine.text.tools.json_text import BLANKS, QUOTES, JsonReader, Malformed, Reading, quoted
from engine.text.tools.values import ANY_TYPE, STRING, argument_types, bare_value

__all__ = ["TAG_LETTERS", "NamedTagReader"]

TAG_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:|/｜▁")
"""What the names of tags around calls consist of."""
_CALL = re.compile(r"(?:invoke|function|tool|call)$", re.IGNORECASE)
_ARGUMENT = re.compile(r"(?:param|parameter|arg|argument)$", re.IGNORECASE)
_TEXT = re.compile(r"""string\s*=\s*["']?true|type\s*=\s*["']?str""", re.IGNORECASE)
_LONGEST = 200
"""The most characters of what a tag says besides its name."""


class NamedTagReader(CallReader):
    """Reads a call such as `<function=NAME>...</function>` or `<invoke name="NAME">...</invoke>`, after the
    name of its tag.

    In it stand the arguments as a JSON object, or each in a tag: `<parameter=KEY>`, `<param name="KEY">`, or
    one that is named as the argument. As in forms of the kind "tagged", values become what the schema says;
    white space around strings is kept but for a line break at each end. Attributes may say that a value is a
    string.
    """

    def named(self, tag: str, char: str) -> Reading:
        """The rest of a call whose first tag is called `tag`, after which `char` has been read. Raises
        `Malformed`.
        """
        name, _attributes = yield from self._name_in(tag, char)
        if not _CALL.search(tag) or not self._sink.offers(name):
            raise Malformed
        char = yield from self._chars.after_blanks()
        if char == "{":
            self._chars.back(char)
            yield from self._arguments(name)
            yield from self._chars.literal(f"</{tag}>")
            return
        arguments: JsonReader | None = None
        while True:
            if char != "<":
                raise Malformed
            inner, char = yield from self._tag()
            if inner == f"/{tag}" and char == ">":
                break
            key, attributes = yield from self._key(name, inner, char)
            prefix = ", " if arguments is not None else ""
            if arguments is None:
                arguments = self._sink.begin(name)
                arguments.open("{", "}")
            yield from self._value(
                arguments, f"{prefix}{quoted(key)}: ", self._types(name, key, attributes), inner
            )
            char = yield from self._chars.after_blanks()
        if arguments is None:
            self._at_once(name, "")
        else:
            arguments.shut()

    def _tag(self) -> Generator[None, str, tuple[str, str]]:
        """The name of a tag after its first character, and the character after it."""
        name = ""
        while (char := (yield from self._chars.next())) in TAG_LETTERS:
            name += char
        return name, char

    def _name_in(self, tag: str, char: str) -> Generator[None, str, tuple[str, str]]:
        """What a tag names, `=NAME>` or ` name="NAME">`, and its other attributes."""
        if char in BLANKS:
            yield from self._chars.literal("name=")
        elif char != "=" or not tag:
            raise Malformed
        text = yield from self._short(">")
        name = text.strip()
        if not name or name[0] not in QUOTES:
            return name, ""
        name, _quote, attributes = name[1:].partition(name[0])
        return name, attributes

    def _short(self, end: str) -> Generator[None, str, str]:
        """The text before `end`, of one line."""
        text = ""
        while (char := (yield from self._chars.next())) != end:
            text += char
            if char in "<\n" or len(text) > _LONGEST:
                raise Malformed
        return text

    def _key(self, name: str, tag: str, char: str) -> Generator[None, str, tuple[str, str]]:
        """The name of the argument whose tag has begun, and the other attributes of that."""
        if char == ">":
            if tag not in self._properties(name):
                raise Malformed
            return tag, ""
        if not _ARGUMENT.search(tag):
            raise Malformed
        key, attributes = yield from self._name_in(tag, char)
        if not key:
            raise Malformed
        return key, attributes

    def _properties(self, name: str) -> Mapping[str, object]:
        found = self._sink.parameters(name).get("properties")
        return found if isinstance(found, Mapping) else {}

    def _types(self, name: str, key: str, attributes: str) -> frozenset[str]:
        """The types that the value of an argument may have."""
        known, schema = self._properties(name), self._sink.parameters(name)
        types = argument_types(known[key], schema) if key in known else ANY_TYPE
        return STRING if "string" in types and _TEXT.search(attributes) else types

    def _value(self, arguments: JsonReader, prefix: str, types: frozenset[str], tag: str) -> Reading:
        """A value and the tag that closes it; strings are passed on as they grow."""
        end = f"</{tag}>"
        yield from self._chars.beginning("\n")
        begun = yield from self._chars.beginning(CDATA[0])
        wrapped = begun == CDATA[0]
        if types == STRING or wrapped:
            arguments.open(prefix + '"', '"')
            if wrapped:
                yield from arguments.until("", CDATA[1])
                yield from self._chars.literal(end)
            else:
                yield from arguments.until("\n", end, begun)
        else:
            text = yield from self._chars.until(end, begun)
            arguments.open(prefix + bare_value(text.removesuffix("\n"), types), "")
        arguments.shut()
