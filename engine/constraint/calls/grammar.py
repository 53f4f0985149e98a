"""The grammar of a model's calls: its form, the names of the tools, and arguments that fit their schemas."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any

from engine.constraint.calls.elements import Elements
from engine.constraint.calls.lark import LarkRules, quoted
from engine.constraint.calls.schema import argument_schema, as_json, in_order
from engine.constraint.calls.texts import FREE, NoTexts, texts_of
from engine.constraint.calls.values import Values, alternatives, braces, members_of, python
from engine.constraint.grammar_source import GrammarSource
from engine.core import Tool
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.text.template.channels import HARMONY, ID, ChannelFormat
from engine.text.template.reasoning import Tag
from engine.text.tools.form import CHANNELS, CallForm
from engine.text.tools.values import STRING, argument_types, resolved
from engine.words import _

__all__ = ["MOST_CALLS", "CallGrammar", "trigger"]

_NAME = "the grammar of the tools"
MOST_CALLS = 32
"""Calls of one reply; a model that finds no end has to be stopped."""
_ARGUMENT_KEYS = ("arguments", "parameters")
_BLANK = "W?"
_BLANKS = r"W: / |\r?\n(?: {0,24}|\t{0,12})/"
_ID = r"/[A-Za-z0-9_-]{1,40}/"


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """What the grammars of one request's calls are made of.

    Attributes:
        tokens: (text, id) of the tokens that the form's texts are written with.
        lenient: keywords of the schemas that cannot be enforced are ignored, not refused.
        several: whether more than one call may be made.
        channels: how the messages are marked in which calls stand; None without channels.
        begun: the prompt ended with `form.begun`.
    """

    form: CallForm
    tools: tuple[Tool, ...]
    tokens: tuple[tuple[str, int], ...] = ()
    lenient: bool = False
    several: bool = True
    channels: ChannelFormat | None = None
    begun: bool = False

    def whole(
        self, tags: tuple[Tag, ...] = (), opened: str = "", content: GrammarSource | None = None
    ) -> GrammarSource:
        """A whole reply that makes calls, or is one of the texts of `content`.

        Before that there may be a thought in one of `tags`, or of a channel, or is the rest of one that
        `opened` closes.
        Raises `BadSetting`.
        """
        return _whole(self, tags, opened, content)

    def rest(self, *, after_marker: bool) -> GrammarSource:
        """A call, or a section of calls, as it begins, or from its marker on. Raises `BadSetting`."""
        return _rest(self, after_marker)


@lru_cache(64)
def _whole(
    grammar: CallGrammar, tags: tuple[Tag, ...], opened: str, content: GrammarSource | None
) -> GrammarSource:
    if grammar.channels is not None:
        return _whole_channels(grammar, grammar.channels, opened, content)
    written = _Written(grammar)
    rules, form = written.rules, grammar.form
    calls = written.section(form.opening.lstrip().removeprefix(form.begun if grammar.begun else ""))
    # without a marker or a section, only the beginning of a reply is a call
    if form.marker and not form.section[1].strip() and grammar.several:
        again = f"{rules.loose(form.between + form.opening)} {written.call()}"
        calls = f"{calls} ( {again} ){{0,{MOST_CALLS - 1}}}"
    if content is not None:
        answer = rules.text(form.answer) if grammar.begun else ""
        body = f"( {rules.rule(calls)} | {answer} {rules.embedded(content)} )"
    else:
        body = rules.rule(calls)
    blank = r"/[ \t\r\n]{0,4}/"
    if opened:
        body = f"{rules.until(opened)} {blank} {body}"
    elif tags:
        # a closing tag alone says that there is no thought
        ways = [
            way for begin, end in tags for way in (f"{rules.text(begin)} {rules.until(end)}", rules.text(end))
        ]
        thoughts = " | ".join(f"{way} {blank}" for way in ways)
        body = f"( {thoughts} )? {body}"
    return written.source(body)


@lru_cache(64)
def _rest(grammar: CallGrammar, after_marker: bool) -> GrammarSource:
    written = _Written(grammar)
    if grammar.form == CHANNELS:
        return written.source(written.message("<|channel|>commentary"))
    opening = grammar.form.opening.lstrip()
    return written.source(written.section(opening.removeprefix(grammar.form.marker if after_marker else "")))


def _whole_channels(
    grammar: CallGrammar, format: ChannelFormat, opened: str, content: GrammarSource | None
) -> GrammarSource:
    """A message to a function, or the answer, perhaps after a thought or the rest of one."""
    written = _Written(grammar)
    text = written.rules.text
    bodies = [written.messages(format)]
    if format is HARMONY:
        to = '" to=functions."'
        bodies = [
            f"{to} {written.message('<|channel|>commentary')}",
            f"{text('<|channel|>commentary')} {to} {written.message('')}",
        ]
    if content is not None:
        bodies.append(f"{text(format.answer)} {written.rules.embedded(content)}")
    begins, ends = format.thought
    rest = f"{written.rules.until(ends)} {text(format.joint)}"
    lead = rest if opened else f"( {text(begins)} {rest} )?"
    return written.source(f"{lead} ( {' | '.join(bodies)} )")


class _Written:
    """The rules for the calls of one grammar."""

    def __init__(self, grammar: CallGrammar) -> None:
        self._grammar, self._form = grammar, grammar.form
        self.rules = LarkRules(dict(grammar.tokens))
        self._call = ""

    def source(self, start: str) -> GrammarSource:
        """The grammar with this beginning."""
        found = self.rules.source(f"{start}\n{_BLANKS}", _NAME)
        return dataclasses.replace(found, may_be_cut=True)

    def section(self, opening: str) -> str:
        """`opening`, a call, and in forms with a text around all calls, the others and the end."""
        form, text = self._form, self._loose
        end, parts = form.section[1].rstrip(), [text(opening), self.call()]
        if end.strip() and self._grammar.several:
            parts.append(f"( {text(form.between + form.call[0])} {self.call()} ){{0,{MOST_CALLS - 1}}}")
        blank = _BLANK if end.strip() and not end[0].isspace() else ""  # models break the line there
        return " ".join([*parts, blank, text(end)])

    def messages(self, format: ChannelFormat) -> str:
        """The calls in their messages, from the header of the first one on."""
        form = self._form
        calls = f"{self._loose(format.call)} {self.section(form.opening)}"
        if form.section[1].strip() or not self._grammar.several:
            return calls
        joint = format.ends[0] + format.joint + format.call if format.apart else ""
        again = f"{self._loose(joint + form.opening)} {self.call()}"
        return f"{calls} ( {again} ){{0,{MOST_CALLS - 1}}}"

    def _loose(self, text: str, write: Callable[[str], str] | None = None) -> str:
        """A text, with any id for `ID`, whatever its white space unless `write` says otherwise."""
        first, *others = map(write or self.rules.loose, text.split(ID))
        return " ".join([first, *(f"{self.rules.rule(_ID)} {part}" for part in others)])

    def call(self) -> str:
        """One call, after the text before it."""
        if not self._call:
            self._call = self.rules.rule(" | ".join(self._checked(tool) for tool in self._grammar.tools))
        return self._call

    def message(self, channel: str) -> str:
        """A message to a function, from its name on; `channel` may follow it."""
        some = []
        for tool in self._grammar.tools:
            json = self.rules.json(argument_schema(tool, self._grammar.lenient))
            some.append(f"{quoted(tool.name)} {self.rules.rule(self._content_type(channel))} {json}")
        return self.rules.rule(" | ".join(some))

    def _content_type(self, channel: str) -> str:
        text = self.rules.text
        first = f"( {text(channel)} )?" if channel else ""
        return f'{first} ( " " )? ( {text("<|constrain|>")} )? ( "json" )? {text("<|message|>")}'

    def _checked(self, tool: Tool) -> str:
        """The call of one tool. Raises `BadSetting`."""
        try:
            return self._one(tool)
        except NoTexts:
            raise BadSetting(
                _(
                    "No arguments satisfy the schema of the tool {tool!r}; check what it requires.",
                    tool=tool.name,
                )
            ) from None
        except RecursionError:
            raise BadSetting(
                _(
                    "The schema of the tool {tool!r} refers to itself in a way that cannot be "
                    "enforced; make it simpler.",
                    tool=tool.name,
                )
            ) from None

    def _one(self, tool: Tool) -> str:
        form, text = self._form, self.rules.text
        schema = argument_schema(tool, self._grammar.lenient)
        schema = in_order(schema) if form.in_order else schema
        end = self.rules.loose(form.call[1].rstrip())
        if form.kind == "object":
            return f"{self._object(tool, schema)} {end}"
        name = quoted(tool.name)
        before, after = form.after_name
        between = self._loose(f"{before}{ID}{after}" if after.strip() else before, text)
        if form.kind == "named":
            return f"{name} {between} {self.rules.json(schema)} {end}"
        if form.kind == "tagged":
            return f"{name} {between} {self._parameters(schema)} {end}"
        if form.kind == "elements":
            elements = Elements(self.rules, form, schema, lenient=self._grammar.lenient)
            return f"{name} {between} {elements.members(schema)} {end}"
        if form.kind == "braces":
            values = Values(self.rules, braces(form.quote), schema, lenient=self._grammar.lenient)
            return f'{name} "{{" {values.members(schema, ":", bare=True)} "}}" {end}'
        values = Values(self.rules, python(), schema, lenient=self._grammar.lenient)
        return f'{name} "(" {values.members(schema, "=", bare=True)} ")" {end}'

    def _object(self, tool: Tool, schema: Mapping[str, Any]) -> str:
        form, json = self._form, self.rules.json(schema)
        name = quoted(as_json(tool.name))
        if not form.name_key:
            return f'"{{" {_BLANK} {name} {_BLANK} ":" {_BLANK} {json} {_BLANK} "}}"'
        others = [f'( {_member(key, self._id())} {_BLANK} "," {_BLANK} )?' for key in form.before]
        after = [f'( {_BLANK} "," {_BLANK} {_member(key, self._id())} )?' for key in form.after]
        return " ".join([
            '"{"', _BLANK, *others, _member(form.name_key, name), _BLANK, '","', _BLANK,
            self._either_key(json), *after, _BLANK, '"}"',
        ])  # fmt: skip

    def _either_key(self, json: str) -> str:
        """The arguments under the key of the form, or under another one that models mix up with it."""
        keys = dict.fromkeys((self._form.arguments_key, *_ARGUMENT_KEYS))
        return f'( {" | ".join(quoted(as_json(key)) for key in keys)} ) {_BLANK} ":" {_BLANK} {json}'

    def _id(self) -> str:
        return self.rules.rule(r"/\"[A-Za-z0-9_-]{1,40}\"/")

    def _parameters(self, schema: Mapping[str, Any]) -> str:
        ways = list[str]()
        for one in alternatives(schema, schema):
            found = list[str]()
            for name, (part, required) in members_of(one).items():
                if part is not False:
                    rule = self.rules.rule(self._parameter(name, part, schema))
                    found.append(rule if required else f"{rule}?")
                elif required:
                    break  # there is no such object
            else:
                ways.append(" ".join(found))
        if not ways:
            raise NoTexts
        return ways[0] if len(ways) == 1 else f"( {' | '.join(self.rules.rule(way) for way in ways)} )"

    def _parameter(self, name: str, schema: Any, root: Mapping[str, Any]) -> str:
        form, text = self._form, self.rules.text
        begins, middle, after = form.parameter
        types, head = argument_types(schema, root), f"{text(begins)} {quoted(name)}"
        definitions = {key: root[key] for key in ("$defs", "definitions", "x-guidance") if key in root}
        if form.quoted:
            whole = {**definitions, **(schema if isinstance(schema, Mapping) else {})}
            return f"{head} {text(middle)} {self.rules.json(whole)} {text(after)}"
        texts = ""
        if "string" in types:
            with suppress(NoTexts) if types != STRING else nullcontext():
                texts = texts_of(schema, root, lenient=self._grammar.lenient)
        # where strings stand there as they are, any text is one of them, unless their schema says more
        if types == STRING or (texts == FREE and not form.json_value):
            return f"{head} {text(middle)} {self._raw(texts, after)}"
        whole = {**definitions, **_without_strings(schema, root, 8)}
        kind = self._loose(form.json_value or middle, text)
        value = self.rules.json(whole)
        if not form.json_value and (words := _python_words(schema, root, 8)):
            value = f"( {' | '.join([value, *map(quoted, words)])} )"
        json = f"{head} {kind} {value} {text(after)}"
        return f"{head} {text(middle)} {self._raw(texts, after)} | {json}" if texts else json

    def _raw(self, texts: str, after: str) -> str:
        """A string as it is, of the expression `texts`, and what ends it."""
        trail, free = after[: len(after) - len(after.lstrip())], texts == FREE
        begins, ends = self._form.wrapped
        rest, wrapped = self.rules.text(after[len(after.rstrip()) :]), ""
        if begins:
            wrapped = f"{quoted(begins)} {self.rules.until(ends, texts)} {self.rules.text(after.strip())}"
            # what begins like a wrapped text is one, so that the lexer need not choose
            texts = f"/([^{begins[0]}]{FREE.strip('/')})?/" if free else texts
        end = quoted(trail)[1:-1]  # white space as an expression has it
        if trail and free:
            texts = f"{texts[:-1]}({end})?/"
        elif trail:  # one at the end is not part of the string
            texts = f"( {texts} & ~/(?s:.*){end}/ ) | ( {texts} /{end}/ )"
        ended = self.rules.until(after.strip(), texts)
        return f"( {ended} | {wrapped} ) {rest}" if wrapped else f"{ended} {rest}"


def _without_strings(schema: Any, root: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
    """What a schema says of its values that are no strings; these are written as JSON."""
    types = argument_types(schema, root)
    if "string" not in types or not depth:
        return schema if isinstance(schema, Mapping) else {}
    found = {key: value for key, value in resolved(schema, root).items() if key != "$ref"}
    if isinstance(found.get("enum"), list):
        found["enum"] = [value for value in found["enum"] if not isinstance(value, str)]
    for keyword in ("anyOf", "oneOf"):
        if isinstance(found.get(keyword), list):
            others = [one for one in found[keyword] if argument_types(one, root) != STRING]
            return {**found, keyword: [_without_strings(one, root, depth - 1) for one in others]}
    return {**found, "type": sorted(types - STRING)}


def _python_words(schema: Any, root: Mapping[str, Any], depth: int) -> Sequence[str]:
    """Python's words for those of true, false and null that a schema allows. Where values stand without
    quotes, templates write them so (Qwen3-Coder's, Seed-OSS's), and thus their models.
    """
    found = resolved(schema, root)
    if not depth or "allOf" in found:
        return ()
    if "const" in found or isinstance(found.get("enum"), list):
        values = [found["const"]] if "const" in found else found["enum"]
        return [str(value) for value in (True, False, None) if any(value is one for one in values)]
    branches = [one for keyword in ("anyOf", "oneOf") for one in found.get(keyword) or ()]
    if branches:
        return [*dict.fromkeys(word for one in branches for word in _python_words(one, root, depth - 1))]
    declared = found.get("type")
    kinds = declared if isinstance(declared, list) else [declared]
    return [*("True", "False") * ("boolean" in kinds), *("None",) * ("null" in kinds)]


def _member(key: str, value: str) -> str:
    return f'{quoted(as_json(key))} {_BLANK} ":" {_BLANK} {value}'


def trigger(
    form: CallForm, tools: Sequence[Tool], tokens: Mapping[str, int]
) -> tuple[re.Pattern[bytes], bool]:
    """What shows, in free text, that a call begins, and whether only its marker does.

    A marker that is a token of its own means nothing else; otherwise a text is a call only once it has the
    name of a tool.
    """
    if form == CHANNELS:
        header = rb"(?:\A|<\|start\|>assistant|<\|channel\|>[a-z]+)\s?to=functions\."
        return re.compile(header), True
    names = "|".join(re.escape(tool.name) for tool in sorted(tools, key=lambda one: -len(one.name)))
    if form.begun:  # what texts begin with, too
        return re.compile(
            rf"{re.escape(form.begun)}(?=(?:{names}){re.escape(form.after_name[0])})".encode()
        ), True
    if form.marker in tokens or form.notice:
        return re.compile(re.escape(form.marker.encode())), True
    opening = r"\s*".join(map(re.escape, form.opening.split())).replace(ID, r"[A-Za-z0-9_.-]{1,64}")
    if form.kind == "object":
        keys = "".join(rf'(?:"{re.escape(key)}"\s*:\s*"[^"]*"\s*,\s*)?' for key in form.before)
        key = rf'"{re.escape(form.name_key)}"\s*:\s*' if form.name_key else ""
        pattern = rf'{opening}\s*\{{\s*{keys}{key}"(?:{names})"'
    else:
        pattern = rf"{opening}\s*(?:{names})(?![A-Za-z0-9_./-])(?=[\s\S])"
    return re.compile((pattern if form.marker else rf"\A\s*{pattern}").encode()), False
