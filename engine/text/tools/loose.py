"""Calls as JSON or Python, as models write them that do not keep to their form: without its tags, as a list,
in a code block.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from engine.text.tools.calls import CallReader, Sink
from engine.text.tools.form import KNOWN, CallForm
from engine.text.tools.json_text import BLANKS, Chars, JsonReader, Malformed, Reading
from engine.text.tools.named_tags import NamedTagReader
from engine.text.tools.values import may_be_arguments

__all__ = ["FIRST_CHARACTERS", "NOT_IN_CODE", "LooseReader"]

FIRST_CHARACTERS = frozenset("{[`<A")
"""With one of these, such calls begin."""
NOT_IN_CODE = "A"
"""Those of them that begin no call within a block of code."""
_FENCE = "```"
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_CALLING = re.compile(r"tool|function|call|python|action", re.IGNORECASE)
_CLOSING = re.compile(r"/|end", re.IGNORECASE)
_MOST_TAGS = 3
"""The most tags around a call."""
_PYTHON = CallForm("python")
_GLM = dict(KNOWN)["<arg_key>"]
_ACTION, _INPUT = "Action:", "Action Input:"
"""Of ReAct (Yao et al. 2022), as LangChain and Qwen-Agent ask for it."""
_NAMES = ("name", "tool_name", "action", "tool", "function_name", "recipient_name")
_ARGUMENTS = ("arguments", "parameters", "action_input", "args", "input", "tool_input")
_WRAPPERS = ("tool_calls", "tool_call", "function_call")
"""Keys under which the messages of OpenAI's API have their calls."""
_LANGUAGE = re.compile(r"tool|call", re.IGNORECASE)
"""In the names of blocks of code for calls, as Gemma 3's `tool_code`."""
_IDS = ("id", "tool_call_id", "call_id", "index")
_TYPES = ("function", "tool_call", "tool_use")
_TAG = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\S")


class LooseReader(NamedTagReader):
    """Reads calls that are JSON objects with a name and arguments, whatever the form says of what stands
    around them; as in OpenAI's API, `function` may hold both. They may be a list, follow one another, or
    stand in a code block or in tags that speak of calls. Forms of Python calls, and those without a marker,
    may also have a list of these. Tags may themselves name the tool (`NamedTagReader`). After a marker, and
    in tags, the names may stand before the arguments, which are Python's, JSON or GLM's.

    Anything else raises `Malformed` as early as it can be told, so that other JSON is not held back. After a
    `marker` of the form, the tags that end its calls are read, too. `in_code` says that a block of code has
    begun before.
    """

    def __init__(
        self, form: CallForm, chars: Chars, sink: Sink, *, marker: bool = False, in_code: bool = False
    ) -> None:
        super().__init__(form, chars, sink)
        self._certain, self._in_code = marker, in_code
        self._bare = marker or not form.marker  # the arguments may be missing
        ends = form.call[1] + form.section[1] if marker else ""
        self._ends = tuple(dict.fromkeys(_TAG.findall(ends)))

    def calls(self) -> Reading:
        """All calls, and what belongs to them."""
        char = yield from self._chars.after_blanks()
        if fenced := char == _FENCE[0]:
            language = yield from self._language()
            self._in_code, self._certain = True, self._certain or bool(_LANGUAGE.search(language))
            char = yield from self._chars.after_blanks()
        tags = 0
        while char == "<":
            tag, char = yield from self._tag()
            if char != ">":
                yield from self._tagged_calls(tag, char)
                break
            if tags == _MOST_TAGS or not _CALLING.search(tag) or "/" in tag:
                raise Malformed
            tags, self._certain = tags + 1, True
            char = yield from self._chars.after_blanks()
        else:
            yield from self._written(char)
        if fenced:
            yield from self._end((_FENCE,))
        yield from self.ends()

    def ends(self) -> Reading:
        """What closes calls, as far as it follows: tags, and braces that are too many."""
        yield from self._end(("}", *self._ends))
        yield from self._closing_tags()

    def _written(self, char: str) -> Reading:
        """Calls that begin with `char`, in no tag of their own."""
        if char == "[":
            char = yield from self._chars.after_blanks()
            self._chars.back(char)
            yield from self._list() if char == "{" else self._python_list()
        elif char == "{":
            yield from self._objects()
        elif char == _ACTION[0] and not (self._certain or self._in_code):
            yield from self._action()
        elif self._certain:
            yield from self._names(char)
        else:
            raise Malformed

    def _action(self) -> Reading:
        """ReAct's line with the name, which has begun, and the one with the arguments; or LangChain's object
        with both.
        """
        if (yield from self._chars.beginning(_ACTION[1:])) != _ACTION[1:]:
            raise Malformed
        blanks, char = yield from self._past_blanks()
        if "\n" in blanks:
            if fenced := char == _FENCE[0]:
                yield from self._language()
                char = yield from self._chars.after_blanks()
            if char != "{":
                raise Malformed
            yield from self._json_call()
        else:
            self._chars.back(char)
            name = (yield from self._name()).strip("`")
            if not self._sink.offers(name):
                raise Malformed
            yield from self._chars.literal(_INPUT)
            char = yield from self._chars.after_blanks()
            if fenced := char == _FENCE[0]:
                yield from self._language()
            else:
                self._chars.back(char)
            yield from self._arguments(name)
            self._sink.end()
        if fenced:
            yield from self._end((_FENCE,))

    def _names(self, char: str) -> Reading:
        """Calls that begin with their names: of Python, with a JSON object, or with GLM's tags."""
        while True:
            self._chars.back(char)
            name = yield from self._name()
            blanks, char = yield from self._past_blanks()
            if not self._sink.offers(name.removesuffix(".call")) or char not in "({<":
                raise Malformed
            self._chars.back(blanks + char)
            if char == "{" and self._form.kind == "braces":
                self._chars.back(name)
                yield from CallReader(_braces(self._form), self._chars, self._sink)._call()
            elif char == "{":
                yield from self._arguments(name)
            else:
                self._chars.back(name)
                yield from CallReader(_PYTHON if char == "(" else _GLM, self._chars, self._sink)._call()
            self._sink.end()
            if char == "<":  # with what closes it
                return
            read, char = yield from self._past_blanks()
            if char in ",;":
                more, char = yield from self._past_blanks()
                read += more
            begun = char
            while self._sink.may_offer(begun) and not self._sink.offers(begun):
                begun += yield from self._chars.next()
            if not self._sink.offers(begun):
                self._chars.back(read + begun)
                return
            char = begun

    def _language(self) -> Generator[None, str, str]:
        """The rest of the line that begins a code block, which names the language."""
        for expected in _FENCE[1:]:
            if (yield from self._chars.next()) != expected:
                raise Malformed
        language = ""
        while (char := (yield from self._chars.next())) != "\n":
            if char not in _LETTERS and char not in BLANKS:
                raise Malformed
            language += char
        return language

    def _tagged_calls(self, tag: str, char: str) -> Reading:
        """Calls in tags that name the tool, of which the first one has begun."""
        while True:
            yield from self.named(tag, char)
            self._sink.end()
            read, char = yield from self._past_blanks()
            if char != "<":
                self._chars.back(read + char)
                return
            tag, char = yield from self._tag()
            if char == ">" or not tag:
                self._chars.back(f"{read}<{tag}{char}")
                return

    def _closing_tags(self) -> Reading:
        """Tags that close calls, as many as follow."""
        while True:
            blanks, char = yield from self._past_blanks()
            if char != "<":
                self._chars.back(blanks + char)
                return
            tag, char = yield from self._tag()
            if char != ">" or not _CALLING.search(tag) or not _CLOSING.search(tag):
                self._chars.back(f"{blanks}<{tag}{char}")
                return

    def _list(self) -> Reading:
        between = ""
        while (yield from self._chars.another("]", first=not between)):
            yield from self._chars.literal("{")
            yield from self._json_call()
            between = ","

    def _objects(self) -> Reading:
        """Objects, of which the first one has begun, perhaps with `;` or `,` between them."""
        while True:
            yield from self._json_call()
            read, char = yield from self._past_blanks()
            if char in ";,":
                more, char = yield from self._past_blanks()
                read = ";" + more if char == "{" else f"{read};{more}"
            if char != "{":
                self._chars.back(read + char)
                return

    def _python_list(self) -> Reading:
        if self._form.kind != "python" and self._form.marker and not self._certain:
            raise Malformed
        form = CallForm("python", ("", "]"), between=", ", unquoted=self._form.unquoted)
        yield from CallReader(form, self._chars, self._sink).calls()

    def _json_call(self) -> Reading:
        yield from self._function()
        self._sink.end()

    def _function(self, *, inner: bool = False) -> Reading:
        """The members of an object that has begun, in any order; with `inner`, of one under `function`."""
        form, name, held, begun, first = self._form, "", "", False, True
        while (key := (yield from JsonReader(self._chars, _ignored).member(first))) is not None:
            alone, first = first, False
            if not form.name_key and not begun and self._sink.offers(key):
                yield from self._arguments(key)
                begun = True
            elif key in (form.name_key, *_NAMES) and not (name or begun):
                name = yield from self._offered()
            elif key in (form.arguments_key, *_ARGUMENTS) and not (begun or held):
                if name:
                    yield from self._arguments(name)
                    begun = True
                else:
                    held = yield from self._value_text()
            elif key == "function" and not (name or begun or held or inner):
                begun = yield from self._nested()
                name = name if begun else (yield from self._offered())
            elif alone and not inner and key in _WRAPPERS:
                yield from self._wrapped()
                return
            elif alone and not inner and self._sink.offers(key):
                yield from self._only_member(key)
                return
            else:
                yield from self._aside(key)
        if not begun:
            if not name or not (held or self._bare):
                raise Malformed
            self._at_once(name, held)

    def _wrapped(self) -> Reading:
        """A call, or a list of these, that is an object's only member, and the object's end."""
        char = yield from self._chars.after_blanks()
        if several := char == "[":
            char = yield from self._chars.after_blanks()
        if char != "{":
            raise Malformed
        if several:
            self._chars.back(char)
            yield from self._list()
        else:
            yield from self._function(inner=True)
            self._sink.end()
        if (yield from self._chars.another("}", first=False)):
            raise Malformed

    def _only_member(self, name: str) -> Reading:
        """The value of an object's only member, whose key is the name of a tool, and the object's end."""
        char = yield from self._chars.after_blanks()
        self._chars.back(char)
        if char != "{" or (self._in_code and not self._certain):
            raise Malformed
        text = yield from self._value_text()
        if not self._certain and not may_be_arguments(text, self._sink.parameters(name)):
            raise Malformed
        if (yield from self._chars.another("}", first=False)):
            raise Malformed
        self._at_once(name, text)

    def _offered(self) -> Generator[None, str, str]:
        """The name of a tool."""
        name = yield from JsonReader(self._chars, _ignored).string()
        if not self._sink.offers(name):
            raise Malformed
        return name

    def _nested(self) -> Generator[None, str, bool]:
        """Whether an object follows, which is read."""
        char = yield from self._chars.after_blanks()
        if char != "{":
            self._chars.back(char)
            return False
        yield from self._function(inner=True)
        return True

    def _aside(self, key: str) -> Reading:
        """The value of a member that says nothing of the call but that it is one."""
        if key not in ("type", *_IDS, *self._form.before, *self._form.after):
            raise Malformed
        char = yield from self._chars.after_blanks()
        self._chars.back(char)
        if char in "{[":
            raise Malformed
        text = yield from self._value_text()
        if key == "type" and text.strip('"') not in _TYPES:
            raise Malformed

    def _past_blanks(self) -> Generator[None, str, tuple[str, str]]:
        """White space, and the character after it."""
        blanks = ""
        while (char := (yield from self._chars.next())) in BLANKS:
            blanks += char
        return blanks, char

    def _end(self, tags: tuple[str, ...]) -> Reading:
        """As many of these as follow."""
        while tags:
            blanks, char = yield from self._past_blanks()
            read = char
            while any(tag.startswith(read) for tag in tags) and read not in tags:
                read += yield from self._chars.next()
            if read not in tags:
                self._chars.back(blanks + read)
                return
            if tags == (_FENCE,):
                return


def _braces(form: CallForm) -> CallForm:
    """A form of braces without what stands around its calls."""
    return CallForm("braces", quote=form.quote)


def _ignored(text: str) -> None:
    """Takes what is not needed."""
