"""GBNF, the grammars of llama.cpp, written as Lark grammars of llguidance.

Source of the syntax: "GBNF Guide" in llama.cpp's `grammars/README.md`. Left recursion is allowed, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from engine.constraint.gbnf_words import ALL, Node, expression, ranges_without, with_words
from engine.errors import BadSetting
from engine.words import N_, _, translate

__all__ = ["is_gbnf", "lark_of"]

_MOST_REPEATS = 2_000
_MOST_CHAIN = 4
_MOST_RULES = 2_000
_MOST_DEPTH = 60
_MOST_IN_A_LINE = 8
"""Groups in each other; llguidance reads up to about 28 in a line."""
_RULE = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)
_NAME = re.compile(r"[\w-]+", re.ASCII)
_BLANKS, _ALL_BLANKS = (re.compile(rf"(?:[{blanks}]|#[^\r\n]*)*") for blanks in (r" \t", r" \t\r\n"))
_COUNTS = re.compile(r"\{\s*(\d{1,9})\s*(?:(,)\s*(\d{1,9})?\s*)?\}", re.ASCII)
_ESCAPE = re.compile(r'\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([nrt"\\\[\]]))', re.ASCII)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_END = N_("the end")


def is_gbnf(grammar: str) -> bool:
    """Whether a grammar is GBNF: a line of it begins with a name and "::="."""
    return _RULE.search(grammar) is not None


def lark_of(grammar: str) -> str:
    """The Lark grammar of the same texts, whose first rule is `start`.

    Rules that do not refer to themselves become terminals as far as `root` is one of them; in other grammars
    a terminal is one character, or a text with an end that no other part begins like, so that no text is
    lost to a terminal that reads too far. Raises `BadSetting` with a sentence for what is no GBNF.
    """
    rules = _Reader(grammar).rules()
    used = _used(rules)
    open_ = _recursive({name: rules[name] for name in used})
    if open_:
        rules = with_words({name: rules[name] for name in used}, open_)
        used = _used(rules)
    names = {name: f"{'r' if open_ else 'R'}{i}" for i, name in enumerate(used)}
    lines = [f"start: {names['root']}"]
    for name in used:
        lines += _Lines(names, names[name]).of(rules[name])
    return "\n".join(lines)


class _Lines:
    """The lines of Lark that one rule becomes: several where its groups are nested deeper than llguidance
    reads them.
    """

    def __init__(self, names: dict[str, str], name: str) -> None:
        self._names, self._name = names, name
        self._deep: list[str] = []

    def of(self, node: Node) -> list[str]:
        """The rule itself first."""
        return [f"{self._name}: {self._text(node, 0)}", *self._deep]

    def _text(self, node: Node, depth: int) -> str:
        if node.kind in ("class", "word"):
            return f"/{expression(node, {})}/"
        if node.kind == "rule":
            return self._names[node.text]
        grouped = node.kind != "all"
        if grouped and depth == _MOST_IN_A_LINE:
            text, name = self._text(node, 0), f"{self._name}_{len(self._deep)}"
            self._deep.append(f"{name}: {text}")
            return name
        inner = [self._text(part, depth + grouped) for part in node.parts]
        if not grouped:
            return " ".join(inner) or '""'
        if node.kind == "any":
            return f"({' | '.join(inner)})"
        least, most = node.counts
        return f"({inner[0]}){{{least},{'' if most is None else most}}}" if most != 0 else '""'


def _references(node: Node) -> Iterator[Node]:
    if node.kind == "rule":
        yield node
    for part in node.parts:
        yield from _references(part)


def _used(rules: dict[str, Node]) -> list[str]:
    """The rules that `root` needs, `root` first."""
    if "root" not in rules:
        raise BadSetting(_("The grammar has no rule named root; a GBNF grammar begins with it."))
    used, seen = ["root"], {"root"}
    for name in used:
        for reference in _references(rules[name]):
            if reference.text not in rules:
                _fail(
                    reference.line,
                    _("the rule {name!r} has no definition; write one", name=reference.text[:40]),
                )
            if reference.text not in seen:
                seen.add(reference.text)
                used.append(reference.text)
    return used


def _recursive(rules: dict[str, Node]) -> set[str]:
    """The rules that refer to themselves, at first or second hand, or need one that does."""
    open_ = {name: {reference.text for reference in _references(node)} for name, node in rules.items()}
    while done := {name for name, needs in open_.items() if not needs}:
        open_ = {name: needs - done for name, needs in open_.items() if name not in done}
    return set(open_)


def _fail(line: int, reason: str) -> NoReturn:
    raise BadSetting(_("The grammar is not valid at line {line}: {reason}.", line=line, reason=reason))


class _Reader:
    """Reads the rules of a grammar."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._counted, self._lines = 0, 1

    def rules(self) -> dict[str, Node]:
        """The rules by name; of two with one name the last counts. Raises `BadSetting`."""
        rules: dict[str, Node] = {}
        self._skip(_ALL_BLANKS)
        while self._at < len(self._text):
            name = self._take(_NAME)
            if name is None:
                self._expected(_("the name of a rule"))
            self._skip(_BLANKS)
            if not self._literal("::="):
                self._expected("::=")
            self._skip(_ALL_BLANKS)
            rules[name[0]] = self._choice(False)
            if len(rules) > _MOST_RULES:
                _fail(self._line(), _("there are more than {most:,} rules; simplify it", most=_MOST_RULES))
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                self._expected(_("a new line or a part of the rule"))
            self._skip(_ALL_BLANKS)
        return rules

    def _choice(self, nested: bool) -> Node:
        parts = [self._sequence(nested)]
        while self._literal("|"):
            self._skip(_ALL_BLANKS)
            parts.append(self._sequence(nested))
        return Node("any", parts=parts) if len(parts) > 1 else parts[0]

    def _sequence(self, nested: bool) -> Node:
        parts: list[Node] = []
        chain = 0
        while self._at < len(self._text):
            counts = self._counts()
            if counts is not None:
                if not parts:
                    self._expected(_("something to repeat"), back=True)
                chain += 1
                if chain > _MOST_CHAIN:
                    _fail(self._line(), _("too many repetitions follow each other; write one"))
                parts[-1] = Node("repeat", parts=[parts[-1]], counts=counts)
            elif (part := self._part()) is not None:
                parts.append(part)
                chain = 0
            else:
                break
            self._skip(_ALL_BLANKS if nested else _BLANKS)
        return Node("all", parts=parts)

    def _part(self) -> Node | None:
        if name := self._take(_NAME):
            return Node("rule", name[0], line=self._line())
        if self._literal('"'):
            return Node(
                "all", parts=[Node("class", ranges=[(ord(one), ord(one))]) for one in self._until('"')]
            )
        if self._literal("["):
            return self._class()
        if self._literal("."):
            return Node("class", ranges=ALL)
        if self._literal("("):
            self._depth += 1
            if self._depth > _MOST_DEPTH:
                _fail(self._line(), _("groups are nested too deeply; use rules for them"))
            self._skip(_ALL_BLANKS)
            inner = self._choice(True)
            if not self._literal(")"):
                self._expected(")")
            self._depth -= 1
            return inner if inner.kind == "any" else Node("any", parts=[inner])
        if self._text[self._at] in "<!":
            _fail(self._line(), _("tokens in angle brackets are not followed; write texts in quotes"))
        return None

    def _class(self) -> Node:
        negated = self._literal("^")
        ranges = []
        for first in (characters := self._until("]")):
            last = first
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = next(characters, first)
                if last < first:
                    _fail(self._line(), _("a range of characters ends before it begins"))
            ranges.append((ord(first), ord(last)))
        found = ranges_without(ranges) if negated else ranges
        if not found:
            _fail(self._line(), _("a class in brackets is empty; write characters into it"))
        return Node("class", ranges=found)

    def _until(self, end: str) -> Iterator[str]:
        """The characters before a closing quote or bracket, which is read, too."""
        start = self._line()
        while not self._literal(end):
            if self._at >= len(self._text):
                _fail(start, _("{end} is missing at the end of what begins here", end=end))
            if self._text[self._at] != "\\":
                self._at += 1
                yield self._text[self._at - 1]
                continue
            escape = self._take(_ESCAPE)
            if escape is None:
                self._expected(r"\n, \r, \t, \", \\, \[, \], \xNN, \uNNNN, \UNNNNNNNN")
            number = int(escape[1] or escape[2] or escape[3] or "0", 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                _fail(self._line(), _("{escape} is not a character", escape=escape[0]))
            yield _LETTERS.get(escape[4], escape[4]) if escape[4] else chr(number)

    def _counts(self) -> tuple[int, int | None] | None:
        one = self._text[self._at]
        if one in _REPEATS:
            self._at += 1
            return _REPEATS[one]
        if one != "{":
            return None
        found = self._take(_COUNTS)
        if found is None:
            self._expected("{m}, {m,} {m,n}")
        least = int(found[1])
        most = int(found[3]) if found[3] else None if found[2] else least
        if max(least, most or 0) > _MOST_REPEATS:
            _fail(
                self._line(),
                _("more than {most:,} repetitions are not possible; write {{m,}}", most=_MOST_REPEATS),
            )
        if most is not None and most < least:
            _fail(self._line(), _("the repetitions end before they begin"))
        return least, most

    def _expected(self, what: str, back: bool = False) -> NoReturn:
        shown = self._text[self._at - back : self._at - back + 12].partition("\n")[0]
        found: Any = repr(shown) if shown else translate(_END)
        _fail(self._line(), _("found {found}, expected {what}", found=found, what=what))

    def _line(self) -> int:
        self._lines += self._text.count("\n", self._counted, self._at)
        self._counted = max(self._counted, self._at)
        return self._lines

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found

    def _skip(self, pattern: re.Pattern[str]) -> None:
        self._take(pattern)

    def _literal(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found
