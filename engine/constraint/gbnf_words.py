"""Terminals of recursive GBNF grammars: the texts in them that end by themselves."""

from __future__ import annotations

from dataclasses import field

from engine.lazy_dataclass import dataclass

__all__ = ["ALL", "Node", "expression", "ranges_without", "with_words"]

Ranges = list[tuple[int, int]]
"""Code points from the first to the last of each pair."""
ALL: Ranges = [(0, 0x10FFFF)]
_LONGEST = 20_000
"""Characters of a terminal's regular expression."""
_MOST = 500
"""Terminals, or ranges of one, that are compared; a grammar with more gets no words."""


@dataclass(slots=True)
class Node:
    """Part of a rule: `kind` is "class" (one character of `ranges`), "rule" (a name in `text`), "all" (one
    after the other), "any" (one of them), "repeat" (of the one part, `counts` times), or "word" (a
    terminal, with its regular expression in `text` and the characters it begins with in `ranges`).
    """

    kind: str
    text: str = ""
    parts: list[Node] = field(default_factory=list)
    counts: tuple[int, int | None] = (1, 1)
    line: int = 0
    ranges: Ranges = field(default_factory=list)


def ranges_without(ranges: Ranges) -> Ranges:
    """The characters that are not in `ranges`."""
    rest, begin = [], 0
    for low, high in [*sorted(ranges), (0x110000, 0x110000)]:
        end = low - 1
        first, last = (
            (0xE000 if 0xD800 <= begin < 0xE000 else begin),
            (0xD7FF if 0xD800 <= end < 0xE000 else end),
        )
        if first <= last:
            rest.append((first, last))
        begin = max(begin, high + 1)
    return rest


def expression(node: Node, rules: dict[str, Node]) -> str:
    """The regular expression of a part that refers to no rules but `rules`. Raises `OverflowError` for more
    than 20,000 characters.
    """
    if node.kind == "word":
        return node.text
    if node.kind == "class":
        return "[" + "".join(f"\\x{{{low:X}}}-\\x{{{high:X}}}" for low, high in node.ranges) + "]"
    if node.kind == "rule":
        return f"(?:{expression(rules[node.text], rules)})"
    inner = [expression(part, rules) for part in node.parts]
    if sum(map(len, inner)) > _LONGEST:
        raise OverflowError
    if node.kind == "repeat":
        return f"(?:{inner[0]}){{{node.counts[0]},{'' if node.counts[1] is None else node.counts[1]}}}"
    return "".join(inner) if node.kind == "all" else f"(?:{'|'.join(inner)})"


def with_words(rules: dict[str, Node], recursive: set[str]) -> dict[str, Node]:
    """The same rules with terminals of more than one character where these change nothing.

    Terminals are read as far as possible. So a word is a terminal only if no text of it begins another of
    its texts, and if no other terminal begins with a character that it begins with.
    """
    closed = {name: node for name, node in rules.items() if name not in recursive}
    refused: set[str] = set()
    while True:
        found = {name: _worded(node, closed, refused) for name, node in rules.items()}
        terminals = _terminals(found)
        if len(terminals) > _MOST:
            return rules
        wrong = {
            one.text
            for one in terminals
            if one.kind == "word"
            for other in terminals
            if (other.kind, other.text) != (one.kind, one.text) and _meet(one.ranges, other.ranges)
        }
        if not wrong:
            return found
        refused |= wrong


def _terminals(rules: dict[str, Node]) -> list[Node]:
    """The different terminals that `root` needs."""
    found: dict[tuple[str, str, tuple[tuple[int, int], ...]], Node] = {}
    seen, left = {"root"}, [rules["root"]]
    while left:
        node = left.pop()
        if node.kind in ("class", "word"):
            found[node.kind, node.text, tuple(node.ranges)] = node
        if node.kind == "rule" and node.text not in seen:
            seen.add(node.text)
            left.append(rules[node.text])
        left += node.parts
    return list(found.values())


def _worded(node: Node, closed: dict[str, Node], refused: set[str]) -> Node:
    """A part with words in it, but not those of `refused`."""
    if node.kind != "all":
        parts = [_worded(part, closed, refused) for part in node.parts]
        return Node(node.kind, node.text, parts, node.counts, node.line, node.ranges)
    left, parts = _flat(node), []
    while left:
        size = _size(left, closed)
        word = _text(left[:size], closed)
        if word and word not in refused:
            parts.append(Node("word", word, ranges=left[0].ranges))
        else:
            size = 1
            parts.append(_worded(left[0], closed, refused))
        left = left[size:]
    return Node("all", parts=parts)


def _text(parts: list[Node], closed: dict[str, Node]) -> str:
    """The regular expression of a word; "" for no parts and for one that is too long."""
    try:
        return expression(Node("all", parts=parts), closed)
    except OverflowError:
        return ""


def _flat(node: Node) -> list[Node]:
    if node.kind != "all":
        return [node]
    return [one for part in node.parts for one in _flat(part)]


def _size(parts: list[Node], closed: dict[str, Node]) -> int:
    """How many of the first parts are a word: a character, a repetition, and what ends it; 0 for none."""
    repeats = [i for i, part in enumerate(parts[:8]) if part.kind == "repeat"]
    if parts[0].kind != "class" or not repeats:
        return 0
    size = repeats[0] + 2
    return size if size <= len(parts) and _first(Node("all", parts=parts[:size]), closed, 12, {}) else 0


def _first(node: Node, closed: dict[str, Node], depth: int, known: dict[str, Ranges | None]) -> Ranges | None:
    """The characters that a part begins with if none of its texts begins another; None otherwise."""
    if node.kind == "class":
        return node.ranges
    if not depth:
        return None
    if node.kind == "rule":
        if node.text in closed and node.text not in known:
            known[node.text] = _first(closed[node.text], closed, depth - 1, known)
        return known.get(node.text)
    if node.kind == "any":
        begun: Ranges = []
        for part in node.parts:
            first = _first(part, closed, depth - 1, known)
            if first is None or len(begun) > _MOST or _meet(begun, first):
                return None
            begun = begun + first
        return begun
    after: Ranges | None = None
    for part in reversed(node.parts if node.kind == "all" else [node]):
        repeats = part.kind == "repeat"
        first = _first(part.parts[0] if repeats else part, closed, depth - 1, known)
        if first is None:
            return None
        if repeats and (part.counts[0] != part.counts[1] or not part.counts[0]):
            if after is None or _meet(first, after):
                return None
            first = first + after if part.counts[0] == 0 else first
        after = first
    return after


def _meet(one: Ranges, other: Ranges) -> bool:
    if len(one) * len(other) > _MOST * _MOST:
        return True
    return any(low <= last and first <= high for low, high in one for first, last in other)
