"""Grammars in llguidance's Lark dialect, put together rule by rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.constraint.grammar_source import NO_FORCING, GrammarSource, checked_source

__all__ = ["LarkRules"]

_MOST_REFERENCES = 50_000
"""Of many tools, side by side; those of each schema are counted by themselves."""
_REGEX = re.compile(r"/(?:[^/\\]|\\.)*/")
_PARTS = re.compile(r"\s+|\S+")


class LarkRules:
    """The rules of one grammar. `tokens` are the texts of tokens that are written as these tokens only: their
    ids.
    """

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self._tokens = tokens
        longest = sorted(tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest)) or r"(?!)")
        self._rules: list[str] = []
        self._grammars: list[dict[str, Any]] = []
        self._known: dict[str, str] = {}

    def rule(self, body: str, attribute: str = "") -> str:
        """The name of a rule with this body."""
        key = f"{attribute}:{body}"
        if key not in self._known:
            name = self._known[key] = f"r{len(self._known)}"
            self._rules.append(f"{name}{attribute}: {body}")
        return self._known[key]

    def reference(self, names: dict[str, str], key: str, body: Callable[[], str]) -> str:
        """The name of the rule for `key` in `names`. The first use makes it, and its `body` may refer to it;
        if that raises an error, there is no such rule.
        """
        if key not in names:
            names[key] = name = f"r{len(self._known)}"
            self._known[name] = name
            try:
                self._rules.append(f"{name}: {body()}")
            except BaseException:
                del names[key]
                raise
        return names[key]

    def text(self, text: str) -> str:
        """Exactly this text."""
        # in pieces, as `loose` has it: of two texts that may follow, the lexer takes the longer one
        return self._sequence(text, lambda part: map(quoted, _PARTS.findall(part)))

    def loose(self, text: str) -> str:
        """This text; where it has white space there may be other, or none."""
        return self._sequence(text, _parts)

    def _sequence(self, text: str, parts: Callable[[str], Iterable[str]]) -> str:
        found, at = list[str](), 0
        for match in self._pattern.finditer(text):
            found += [*parts(text[at : match.start()]), f"<[{self._tokens[match[0]]}]>"]
            at = match.end()
        return " ".join([*found, *parts(text[at:])])

    def terminal(self, expression: str) -> str:
        """The name of a terminal, whose expression may join others by `&`, `|` and `~`."""
        key = f"terminal:{expression}"
        if key not in self._known:
            name = self._known[key] = f"T{len(self._known)}"
            self._rules.append(f"{name}: {expression}")
        return self._known[key]

    def until(self, end: str, content: str = r"/(?s:.*)/") -> str:
        """A text of the expression `content` up to the first `end`, which is read too."""
        content = content if _REGEX.fullmatch(content) else self.terminal(content)
        if end in self._tokens:
            return f"{self.rule(content)} <[{self._tokens[end]}]>"
        first = self._pattern.search(end)
        if first is None:
            return self.rule(content, f"[suffix={quoted(end)}]")
        if first.start():
            head = end[: first.start()]
            return f"{self.rule(content, f'[suffix={quoted(head)}]')} {self.text(end[len(head) :])}"
        return f"{self.rule(content)} {self.text(end)}"

    def json(self, schema: Mapping[str, Any]) -> str:
        """A JSON text that satisfies a schema."""
        key = "json:" + json.dumps(schema, ensure_ascii=False)
        if key not in self._known:
            name = self._known[key] = f"j{len(self._grammars)}"
            self._grammars.append({"name": name, "json_schema": schema})
        return f"@{self._known[key]}"

    def embedded(self, source: GrammarSource) -> str:
        """The texts of another grammar."""
        first, *others = json.loads(source.text)["grammars"]
        self._grammars += [{"name": "content", **first}, *others]
        return "@content"

    def source(self, start: str, name: str) -> GrammarSource:
        """The grammar, which begins with the rule `start`. Raises `BadSetting`."""
        lines = [NO_FORCING, f"start: {start}", *self._rules]
        grammars = [{"lark_grammar": "\n".join(lines)}, *self._grammars]
        return checked_source(name, grammars, frozenset(self._tokens.values()), _MOST_REFERENCES)


def quoted(text: str) -> str:
    """A text as Lark writes it."""
    return json.dumps(text, ensure_ascii=False)


def _parts(text: str) -> Iterable[str]:
    for part in _PARTS.findall(text):
        if part.isspace():
            kinds = dict.fromkeys((part, " ", "\n"))
            yield f"( {' | '.join(map(quoted, kinds))} )?"
        else:
            yield quoted(part)
