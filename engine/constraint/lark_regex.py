"""Lark grammars whose texts a regular expression describes: those in which no rule needs itself.

Where a text stands inside another format, as the input of a custom tool in the JSON of a call, an expression
can be followed and a grammar cannot. Source: Lark's grammar reference (lark-parser.readthedocs.io).
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import lru_cache

from engine.lazy_dataclass import dataclass

__all__ = ["regex_of_lark"]

_LONGEST = 20_000
"""Characters of an expression; a longer one would not be compiled in time."""
_DEEPEST = 100
_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*|\#[^\n]*)*(?:
    (?P<head>[?!]*(?P<defined>[_A-Za-z]\w*)(?:\.-?\d+)?[ \t]*:)
    |(?P<directive>%\w+)
    |(?P<alias>->\s*\w+)
    |(?P<range>"(?:\\.|[^"\\\n])"\s*\.\.\s*"(?:\\.|[^"\\\n])")
    |(?P<text>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?!/)(?:\\.|[^/\\\n])+/[imslux]*)
    |(?P<name>[_A-Za-z][\w.]*)
    |(?P<count>\{\s*\d+\s*(?:,\s*\d*\s*)?\}|~\s*\d+(?:\s*\.\.\s*\d+)?|[?*+])
    |(?P<sign>[()\[\]|,])
    |(?P<end>\Z))""",
    re.VERBOSE,
)
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$/&~#-]")
_CLASSES = re.compile(r"\\[^bBAZ1-9]|\[\^?\]?(?:\\.|[^\]\\])*\]")
_SETS = re.compile(r"\[|&&|--|~~|\|\|")
"""What is an operator on sets in the classes of other dialects."""
_ANCHORS = re.compile(r"[\^$]|\\|\(\?(?!:|[is]+[:)])|[*+?}][?+]")
"""What no automaton follows: ends of lines and words, references, looking around, and what is lazy or
possessive.
"""
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_FLOAT = r"(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_COMMON = {
    "DIGIT": "[0-9]", "HEXDIGIT": "[a-fA-F0-9]", "INT": "[0-9]+", "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"(?:[0-9]+\.[0-9]*|\.[0-9]+)", "FLOAT": _FLOAT, "SIGNED_FLOAT": f"[+-]?{_FLOAT}",
    "NUMBER": f"(?:{_FLOAT}|[0-9]+)", "SIGNED_NUMBER": f"[+-]?(?:{_FLOAT}|[0-9]+)",
    "LCASE_LETTER": "[a-z]", "UCASE_LETTER": "[A-Z]", "LETTER": "[A-Za-z]", "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*", "WS_INLINE": r"[ \t]+", "WS": r"[ \t\f\r\n]+",
    "CR": r"\r", "LF": r"\n", "NEWLINE": r"(?:\r?\n)+", "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "SH_COMMENT": r"#[^\n]*", "CPP_COMMENT": r"\/\/[^\n]*", "SQL_COMMENT": r"--[^\n]*",
}  # fmt: skip
"""The terminals of Lark's library `common`, as expressions."""


class _NotRegular(Exception):
    """A grammar that no expression is made of."""


@lru_cache(64)
def regex_of_lark(grammar: str) -> str | None:
    """The regular expression of all texts of a Lark grammar, whose first rule is `start`.

    None if there is none (a rule needs itself), if it would be too long, or if the grammar uses what is not
    read here, such as templates.
    """
    try:
        return _Reader(grammar).read().expression()
    except (_NotRegular, RecursionError):
        return None


@dataclass(slots=True)
class _Part:
    """Part of a definition: `kind` is "regex" (the expression `text`), "name" (the definition `text`), "all"
    (one after the other), "any" (one of them) or "repeat" (`text` is how often, as an expression has it).
    """

    kind: str
    text: str = ""
    parts: list[_Part] = field(default_factory=list)


class _Grammar:
    """Definitions by name, and what may stand between terminals without a word about it."""

    def __init__(self) -> None:
        self.definitions: dict[str, _Part] = {}
        self.ignored: list[_Part] = []
        self._known: dict[str, str] = {}
        self._open: list[str] = []

    def expression(self) -> str:
        """Of all texts. Raises `_NotRegular`."""
        blank = self._blank()
        return self._named("start", blank) + blank

    def _blank(self) -> str:
        ways = [self._of(part, "") for part in self.ignored]
        return f"(?:{'|'.join(ways)})*" if ways else ""

    def _named(self, name: str, blank: str) -> str:
        """The expression of a definition; inside of a terminal there is no `blank`."""
        terminal = name.lstrip("_")[:1].isupper()
        if terminal and blank:
            return blank + self._named(name, "")
        if name not in self._known:
            if name not in self.definitions or name in self._open or len(self._open) > _DEEPEST:
                raise _NotRegular
            self._open.append(name)
            self._known[name] = f"(?:{self._of(self.definitions[name], blank)})"
            self._open.pop()
        return self._known[name]

    def _of(self, part: _Part, blank: str) -> str:
        if part.kind == "regex":
            return blank + part.text
        if part.kind == "name":
            return self._named(part.text, blank)
        inner = [self._of(one, blank) for one in part.parts]
        if sum(map(len, inner)) > _LONGEST:
            raise _NotRegular
        if part.kind == "repeat":
            return f"(?:{inner[0]}){part.text}"
        if part.kind == "all" or len(inner) == 1:
            return "".join(inner)
        return f"(?:{'|'.join(inner)})"


class _Reader:
    """Reads the definitions of a grammar."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._grammar = _Grammar()
        self._next = self._take()

    def read(self) -> _Grammar:
        """All of them. Raises `_NotRegular`."""
        while (kind := self._next.lastgroup) != "end":
            found, self._next = self._next, self._take()
            if found["defined"]:
                name = found["defined"]
                if name in self._grammar.definitions:
                    raise _NotRegular
                self._grammar.definitions[name] = self._choice()
            elif kind == "directive" and found["directive"] == "%ignore":
                self._grammar.ignored.append(self._choice())
            elif kind == "directive" and found["directive"] == "%import":
                self._import()
            else:
                raise _NotRegular
        return self._grammar

    def _import(self) -> None:
        """`common.A`, `common.A -> B`, or `common (A, B)`."""
        path, *names = self._all("name")[0].split(".")
        given = names[-1] if names else ""
        if names:
            if self._next["alias"]:
                given = self._all("alias")[0].removeprefix("->").strip()
        elif self._sign("("):
            names = self._all("name")
            while self._sign(","):
                names += self._all("name")
            if not self._sign(")"):
                raise _NotRegular
        known = {given or name for name in names} & set(self._grammar.definitions)
        if path != "common" or not set(names) <= set(_COMMON) or known:
            raise _NotRegular
        for name in names:
            self._grammar.definitions[given or name] = _Part("regex", _COMMON[name])

    def _all(self, kind: str) -> list[str]:
        """What comes, which must be of this kind."""
        text = self._next[kind]
        if text is None:
            raise _NotRegular
        self._next = self._take()
        return [text]

    def _choice(self) -> _Part:
        ways = [self._sequence()]
        while self._sign("|"):
            ways.append(self._sequence())
        return _Part("any", parts=ways)

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while (part := self._part()) is not None:
            if count := self._next["count"]:
                self._next = self._take()
                part = _Part("repeat", _times(count), [part])
            parts.append(part)
        if self._next["alias"]:
            self._next = self._take()
        return _Part("all", parts=parts)

    def _part(self) -> _Part | None:
        """The next part; None where a sequence ends."""
        found = self._next
        if self._sign("(") or self._sign("["):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise _NotRegular
            inner = self._choice()
            if not self._sign(")" if found["sign"] == "(" else "]"):
                raise _NotRegular
            self._depth -= 1
            return inner if found["sign"] == "(" else _Part("repeat", "?", [inner])
        makers = {"text": _literal, "range": _between, "regex": _written, "name": _reference}
        maker = makers.get(found.lastgroup or "")
        if maker is not None:
            self._next = self._take()
        return None if maker is None else maker(found[0].strip())

    def _sign(self, sign: str) -> bool:
        """Whether this sign comes, which is read then."""
        if self._next["sign"] != sign:
            return False
        self._next = self._take()
        return True

    def _take(self) -> re.Match[str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise _NotRegular
        self._at = found.end()
        return found


def _times(count: str) -> str:
    """How often something is repeated, as an expression has it."""
    if count in "?*+":
        return count
    if count[0] == "~":
        return "{" + ",".join(re.findall(r"\d+", count)) + "}"
    return re.sub(r"\s", "", count)


def _literal(written: str) -> _Part:
    flag = written.endswith("i")
    text = _SPECIAL.sub(r"\\\g<0>", _unescaped(written.removesuffix("i")[1:-1]))
    return _Part("regex", f"(?i:{text})" if flag else text)


def _between(written: str) -> _Part:
    first, last = (_unescaped(one[1:-1]) for one in re.findall(r'"(?:\\.|[^"\\])"', written))
    if last < first:
        raise _NotRegular
    return _Part("regex", "[{}-{}]".format(*(_SPECIAL.sub(r"\\\g<0>", one) for one in (first, last))))


def _written(written: str) -> _Part:
    body, flags = written[1:].rsplit("/", 1)
    classes = (found for found in _CLASSES.findall(body) if found.startswith("["))
    if any(_SETS.search(re.sub(r"\\.", "", found[1:])) for found in classes):
        raise _NotRegular
    try:
        re.compile(body)
    except (re.error, OverflowError):
        raise _NotRegular from None
    if "x" in flags or _ANCHORS.search(_CLASSES.sub("x", body)):
        raise _NotRegular
    kept = "".join(dict.fromkeys(one for one in flags if one in "is"))
    return _Part("regex", f"(?{kept}:{body})")


def _reference(written: str) -> _Part:
    return _Part("name", written)


def _unescaped(text: str) -> str:
    r"""A text with its escapes (\n, \xNN, \uNNNN, \\, \") as the characters they are."""
    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", _character, text)


def _character(found: re.Match[str]) -> str:
    if digits := found[1] or found[2]:
        return chr(int(digits, 16))
    return _ESCAPES.get(found[3], found[3])
