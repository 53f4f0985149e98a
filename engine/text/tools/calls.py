"""Reading calls of tools character by character, in each of the forms."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any, Protocol

from engine.text.template.channels import ID
from engine.text.tools.elements import ElementReader
from engine.text.tools.form import CallForm
from engine.text.tools.json_text import BLANKS, Chars, JsonReader, Malformed, Reading, quoted
from engine.text.tools.python_text import in_brackets
from engine.text.tools.values import (
    ANY_TYPE,
    STRING,
    argument_types,
    bare_value,
    keyword_of,
    python_arguments,
)

__all__ = ["CallReader", "Sink"]

_NOT_IN_NAMES = frozenset(BLANKS + "<>\"'(){}[],=:|｜")
_ID = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_NAMESPACE = "functions."
"""Stands before names, or not: models have seen both."""


class Sink(Protocol):
    """What takes the calls."""

    def begin(self, name: str) -> JsonReader:
        """A call begins; its arguments are written by this reader. Raises `Malformed` for no such tool."""
        ...

    def end(self) -> None:
        """The call is complete."""
        ...

    def offers(self, name: str) -> bool:
        """Whether a tool has this name."""
        ...

    def may_offer(self, text: str) -> bool:
        """Whether the name of a tool begins with this text."""
        ...

    def parameters(self, name: str) -> Mapping[str, Any]:
        """The schema of a tool's arguments."""
        ...


class CallReader:
    """Reads the calls of one form. Each of its methods but the constructor reads what its name says, and
    raises `Malformed` for anything else.
    """

    def __init__(self, form: CallForm, chars: Chars, sink: Sink) -> None:
        self._form = form
        self._chars = chars
        self._sink = sink

    def calls(self) -> Reading:
        """All calls, after the marker of the first one; or only the beginning of the answer."""
        form = self._form
        yield from self._fixed(form.opening.strip().removeprefix(form.marker).removesuffix(_NAMESPACE))
        if form.answer.strip() and (yield from self._answer()):
            return
        first, id, rest = (form.between + form.call[0]).removesuffix(_NAMESPACE).partition(ID)
        while True:
            yield from self._call()
            self._sink.end()
            if not form.section[1].strip():
                return
            if (yield from self._chosen(form.section[1], first)) == 0:
                return
            yield from self._fixed(id + rest)

    def _call(self) -> Reading:
        kind = self._form.kind
        if kind == "object":
            yield from self._object()
        elif kind == "named":
            yield from self._named()
        elif kind == "tagged":
            yield from self._tagged()
        elif kind == "elements":
            yield from self._elements()
        elif kind == "braces":
            yield from self._braces()
        else:
            yield from self._python()

    def _answer(self) -> Generator[None, str, bool]:
        """Whether the beginning of an answer follows; if not, nothing has been read."""
        read = yield from self._chars.beginning(self._form.answer)
        if read != self._form.answer:
            self._chars.back(read)
        return read == self._form.answer

    def _chosen(self, *texts: str) -> Generator[None, str, int]:
        """Which of `texts` follows, whatever the white space; an empty one stands for anything else."""
        left = {place: "".join(text.split()) for place, text in enumerate(texts)}
        other = next((place for place, text in left.items() if not text), -1)
        at = 0
        while True:
            char = yield from self._chars.after_blanks()
            left = {place: text for place, text in left.items() if text[at : at + 1] == char}
            if not left:
                if at or other < 0:
                    raise Malformed
                self._chars.back(char)
                return other
            at += 1
            done = next((place for place, text in left.items() if len(text) == at), -1)
            if done >= 0:
                return done

    def _fixed(self, text: str) -> Reading:
        """Exactly this text, with any id for `ID`."""
        first, *others = text.split(ID)
        yield from self._chars.literal(first)
        for part in others:
            char = yield from self._chars.after_blanks()
            while char in _ID:
                char = yield from self._chars.next()
            self._chars.back(char)
            yield from self._chars.literal(part)

    def _after_name(self) -> Reading:
        before, after = self._form.after_name
        yield from self._fixed(f"{before}{ID}{after}" if after.strip() else before)

    def _before_arguments(self) -> Reading:
        """What stands between a name and JSON. The id may be missing, or all of it."""
        before, after = self._form.after_name
        chosen = yield from self._chosen(before, after, "")
        if chosen == 0 and after.strip():
            yield from self._fixed(ID + after)

    def _name(self) -> Generator[None, str, str]:
        name = ""
        char = yield from self._chars.after_blanks()
        while char not in _NOT_IN_NAMES:
            name += char
            char = yield from self._chars.next()
        self._chars.back(char)
        return name.removeprefix(_NAMESPACE)

    def _arguments(self, name: str) -> Reading:
        """The arguments as a JSON object, or as a string that holds one; null is an empty one."""
        char = yield from self._chars.after_blanks()
        if char == "{":
            self._chars.back(char)
            yield from self._sink.begin(name).value()
            return
        if char == "n":
            yield from self._chars.literal("ull")
            self._at_once(name, "null")
            return
        self._chars.back(char)
        text = yield from JsonReader(self._chars, _ignored).string()
        self._at_once(name, text)

    def _at_once(self, name: str, text: str) -> None:
        try:
            arguments = json.loads(text or "{}")
        except (ValueError, RecursionError):
            raise Malformed from None
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise Malformed
        self._sink.begin(name).open(json.dumps(arguments, ensure_ascii=False)[:-1], "}")

    def _object(self) -> Reading:
        """A call as a JSON object, or several where one should be, and what closes it."""
        yield from self._one_object()
        closing = self._form.call[1].strip()
        while closing and closing[0] not in ",;" and (yield from self._another_object()):
            self._sink.end()
            yield from self._one_object()
        yield from self._chars.literal(closing)

    def _another_object(self) -> Generator[None, str, bool]:
        """Whether an object follows, perhaps after a comma or a semicolon."""
        char = yield from self._chars.after_blanks()
        after = (yield from self._chars.after_blanks()) if char in ",;" else ""
        self._chars.back(after or char)
        if after and after != "{":
            raise Malformed
        return "{" in (char, after)

    def _one_object(self) -> Reading:
        yield from self._chars.literal("{")
        if self._form.name_key:
            yield from self._members()
        else:
            name = yield from JsonReader(self._chars, _ignored).string()
            yield from self._chars.literal(":")
            yield from self._arguments(name)
            yield from self._chars.literal("}")

    def _members(self) -> Reading:
        """The members of a call's object, in any order."""
        form, name, held, begun = self._form, "", "", False
        first = True
        while (key := (yield from JsonReader(self._chars, _ignored).member(first))) is not None:
            first = False
            if key == form.name_key and not name:
                name = yield from JsonReader(self._chars, _ignored).string()
            elif key in (form.arguments_key, "arguments", "parameters") and not (begun or held):
                if name:
                    yield from self._arguments(name)
                    begun = True
                else:
                    held = yield from self._value_text()
            else:
                yield from self._value_text()
        if not begun:
            if not name:
                raise Malformed
            self._at_once(name, _unquoted(held))

    def _value_text(self) -> Generator[None, str, str]:
        parts: list[str] = []
        yield from JsonReader(self._chars, parts.append).value()
        return "".join(parts)

    def _named(self) -> Reading:
        name = yield from self._name()
        yield from self._before_arguments()
        yield from self._arguments(name)
        yield from self._chars.literal(self._form.call[1])

    def _tagged(self) -> Reading:
        name = yield from self._name()
        yield from self._after_name()
        schema = self._sink.parameters(name)
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        begins, middle, _ = self._form.parameter
        closing, *others = self._form.call[1].split(maxsplit=1) or [""]
        chosen = yield from self._chosen(begins, closing)
        arguments = self._sink.begin(name)
        arguments.open("{", "}")
        between = ""
        while chosen == 0:
            first = middle.strip()[:1]
            key = (yield from self._chars.until(first)).strip()
            types = argument_types(known[key], schema) if key in known else ANY_TYPE
            if self._form.json_value:
                written = first + (yield from self._chars.until(middle.strip()[-1])) + middle.strip()[-1]
                if "string" in types and types != STRING:
                    types = STRING if _same(written, middle) else types - STRING
            else:
                yield from self._chars.literal(middle.strip()[1:])
            yield from self._tagged_value(arguments, f"{between}{quoted(key)}: ", types)
            between = ", "
            chosen = yield from self._chosen(begins, closing)
        arguments.shut()
        yield from self._chars.literal("".join(others))

    def _tagged_value(self, arguments: JsonReader, prefix: str, types: frozenset[str]) -> Reading:
        """A value up to the text that ends it; strings are passed on as they grow."""
        _, middle, after = self._form.parameter
        end, lead = after.strip(), middle[len(middle.rstrip()) :]
        trail = after[: len(after) - len(after.lstrip())]
        yield from self._chars.beginning(lead)
        if self._form.quoted and "string" in types and (yield from self._chars.beginning('"')):
            self._chars.back('"')
            yield from arguments.value(prefix)
            yield from self._chars.literal(end)
            return
        wraps, unwraps = self._form.wrapped
        begun = yield from self._chars.beginning(wraps)
        wrapped = bool(wraps) and begun == wraps
        if types != STRING and not (wrapped and "string" in types):
            text = yield from self._chars.until(unwraps if wrapped else end, "" if wrapped else begun)
            if wrapped:
                yield from self._chars.literal(end)
            arguments.open(prefix + bare_value(text.removesuffix(trail), types), "")
            arguments.shut()
            return
        arguments.open(prefix + '"', '"')
        if wrapped:
            yield from arguments.until("", unwraps)
            yield from self._chars.literal(end)
        else:
            yield from arguments.until(trail, end, begun)
        arguments.shut()

    def _elements(self) -> Reading:
        name = yield from self._name()
        yield from self._after_name()
        schema, elements = self._sink.parameters(name), ElementReader(self._form, self._chars)
        arguments = self._sink.begin(name)
        first = yield from elements.next()
        yield from elements.nested(arguments, "", first, schema, schema)
        yield from self._chars.literal(self._form.call[1].strip().removeprefix(self._form.parameter[2]))

    def _braces(self) -> Reading:
        name = yield from self._name()
        yield from self._chars.literal("{")
        arguments, schema = self._sink.begin(name), self._sink.parameters(name)
        yield from self._brace_members(arguments, "", schema, schema)
        yield from self._chars.literal(self._form.call[1])

    def _brace_members(
        self, arguments: JsonReader, prefix: str, schema: Any, root: Mapping[str, Any]
    ) -> Reading:
        known = keyword_of(schema, root, "properties")
        arguments.open(prefix + "{", "}")
        between = ""
        while (yield from self._chars.another("}", first=not between)):
            key = (yield from self._chars.until(":")).replace(self._form.quote, "").strip().strip('"')
            yield from self._brace_value(arguments, f"{between}{quoted(key)}: ", known.get(key, {}), root)
            between = ", "
        arguments.shut()

    def _brace_value(
        self, arguments: JsonReader, prefix: str, schema: Any, root: Mapping[str, Any]
    ) -> Reading:
        char, quote = (yield from self._chars.after_blanks()), self._form.quote
        if char == "{":
            yield from self._brace_members(arguments, prefix, schema, root)
        elif char == "[":
            arguments.open(prefix + "[", "]")
            between = ""
            while (yield from self._chars.another("]", first=not between)):
                yield from self._brace_value(arguments, between, keyword_of(schema, root, "items"), root)
                between = ", "
            arguments.shut()
        elif char == quote[0]:
            yield from self._chars.literal(quote[1:])
            types = argument_types(schema, root)
            if "string" in types:
                arguments.open(prefix + '"', '"')
                yield from arguments.until("", quote)
            else:  # some put quotes around all values
                arguments.open(prefix + bare_value((yield from self._chars.until(quote)), types), "")
            arguments.shut()
        else:
            self._chars.back(char)
            yield from arguments.value(prefix)

    def _python(self) -> Reading:
        """A Python call; its arguments are passed on when it is complete."""
        name = yield from self._name()
        if not self._sink.offers(name):
            name = name.removesuffix(".call")  # as Llama 3.1 calls its own tools
        text = yield from in_brackets(self._chars)
        schema = self._sink.parameters(name)
        self._at_once(name, python_arguments(text, schema, unquoted=self._form.unquoted))
        yield from self._chars.literal(self._form.call[1])


def _ignored(text: str) -> None:
    """Takes what is not needed."""


def _same(one: str, other: str) -> bool:
    return "".join(one.split()) == "".join(other.split())


def _unquoted(text: str) -> str:
    """Arguments that came before the name: a JSON object, or a string that holds one."""
    if not text.startswith('"'):
        return text
    return str(json.loads(text))
