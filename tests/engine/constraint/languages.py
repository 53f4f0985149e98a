"""Regular languages over bytes, by derivatives (Brzozowski 1964): which bytes can go on, without any
automaton or library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Node:
    """kind: none, empty, bytes (one of `of`), then, or, star."""

    kind: str
    parts: tuple[Node, ...] = ()
    of: frozenset[int] = frozenset()


NONE, EMPTY = Node("none"), Node("empty")


def then(*parts: Node) -> Node:
    result = EMPTY
    for part in reversed(parts):
        if NONE in (part, result):
            return NONE
        result = result if part == EMPTY else part if result == EMPTY else Node("then", (part, result))
    return result


def either(*parts: Node) -> Node:
    flat = dict.fromkeys(
        inner for part in parts for inner in (part.parts if part.kind == "or" else (part,)) if inner != NONE
    )
    return NONE if not flat else next(iter(flat)) if len(flat) == 1 else Node("or", tuple(flat))


def star(part: Node) -> Node:
    return EMPTY if part in (EMPTY, NONE) else Node("star", (part,))


def literal(data: bytes) -> Node:
    return then(*(Node("bytes", of=frozenset({byte})) for byte in data))


def complete(node: Node) -> bool:
    """Whether the empty text is in the language."""
    if node.kind == "then":
        return all(map(complete, node.parts))
    return node.kind in ("empty", "star") or (node.kind == "or" and any(map(complete, node.parts)))


def after(node: Node, byte: int) -> Node:
    """What can follow a byte; `NONE` when it cannot begin any text."""
    if node.kind == "bytes":
        return EMPTY if byte in node.of else NONE
    if node.kind == "or":
        return either(*(after(part, byte) for part in node.parts))
    if node.kind == "star":
        return then(after(node.parts[0], byte), node)
    if node.kind == "then":
        first, rest = node.parts
        gone = then(after(first, byte), rest)
        return either(gone, after(rest, byte)) if complete(first) else gone
    return NONE


def after_all(node: Node, data: bytes) -> Node:
    for byte in data:
        node = after(node, byte)
    return node


def _between(low: int, high: int) -> Node:
    return Node("bytes", of=frozenset(range(low, high + 1)))


_TAIL = _between(0x80, 0xBF)
ANY_CHARACTER = either(
    Node("bytes", of=frozenset(range(0x80)) - {10}),
    then(_between(0xC2, 0xDF), _TAIL),
    then(_between(0xE0, 0xE0), _between(0xA0, 0xBF), _TAIL),
    then(_between(0xE1, 0xEC), _TAIL, _TAIL),
    then(_between(0xED, 0xED), _between(0x80, 0x9F), _TAIL),
    then(_between(0xEE, 0xEF), _TAIL, _TAIL),
    then(_between(0xF0, 0xF0), _between(0x90, 0xBF), _TAIL, _TAIL),
    then(_between(0xF1, 0xF3), _TAIL, _TAIL, _TAIL),
    then(_between(0xF4, 0xF4), _between(0x80, 0x8F), _TAIL, _TAIL),
)
"""What a dot matches: every character but the line feed, as UTF-8 has them (RFC 3629)."""

Expression = tuple[str, Node]


def expressions(characters: str) -> st.SearchStrategy[Expression]:
    """Regular expressions with their languages."""
    one = st.sampled_from(characters).map(lambda char: (re.escape(char), literal(char.encode())))
    several = st.text(characters, min_size=1, max_size=3)
    word = several.map(lambda text: (re.escape(text), literal(text.encode())))
    group = several.map(
        lambda text: (f"[{re.escape(text)}]", either(*(literal(char.encode()) for char in text)))
    )
    return st.recursive(st.one_of(one, word, group, st.just((".", ANY_CHARACTER))), _larger, max_leaves=6)


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    row = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        row.map(
            lambda found: ("".join(f"(?:{text})" for text, _ in found), then(*(node for _, node in found)))
        ),
        row.map(
            lambda found: (f"(?:{'|'.join(text for text, _ in found)})", either(*(node for _, node in found)))
        ),
        inner.map(lambda one: (f"(?:{one[0]})*", star(one[1]))),
        inner.map(lambda one: (f"(?:{one[0]})+", then(one[1], star(one[1])))),
        inner.map(lambda one: (f"(?:{one[0]})?", either(one[1], EMPTY))),
        inner.map(lambda one: (f"(?:{one[0]}){{1,3}}", then(one[1], *[either(one[1], EMPTY)] * 2))),
    )
