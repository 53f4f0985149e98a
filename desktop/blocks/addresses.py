"""Bare addresses in Markdown become links, as in GitHub Flavored Markdown (section 6.9), on the screen and in
exports.

markdown-it's own rule, with `linkify-it-py`, takes quadratic time for hostile text (7 s for 48 KB of
"http://a"); here each letter is read a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

__all__ = ["add_addresses", "with_addresses"]

_ENDS = r"\s<>\"“”‘’«»「」『』（）《》【】、。，；：！？"
"""In Chinese and Japanese no space follows an address."""
_ADDRESS = re.compile(
    rf"""(?<![A-Za-z0-9_./@+<-])(?:
        (?: https?:// (?=[\w\[]) | ftp:// (?=\w) | mailto: (?=[\w.+-]{{1,64}}@)
        | (?P<www> www\. (?=[\w-]{{1,63}}\.[^\W\d_]{{2}}) ) )
        [^{_ENDS}]{{1,2000}}
    | (?P<mail> [A-Za-z0-9_.+-]{{1,64}} @ [A-Za-z0-9_-]{{1,63}}
        (?: \. [A-Za-z0-9_-]{{1,63}} ){{1,8}} (?![\w@]) )
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_TRAILING = frozenset("?!.,:*_~'")
_ENTITY = re.compile(r"(?:&[A-Za-z0-9]{1,32})?;\Z")
_PAIRS = {")": "(", "]": "[", "}": "{"}


def add_addresses(markdown: MarkdownIt) -> MarkdownIt:
    """Let `markdown` find bare addresses of pages and mail; file names like "main.py" are not addresses."""
    markdown.core.ruler.after("inline", "addresses", _mark)
    return markdown


def with_addresses(markdown: MarkdownIt, children: Sequence[Token]) -> Sequence[Token]:
    """The tokens of a text with links around the addresses that are not part of a link yet."""
    if not any(child.type == "text" and _ADDRESS.search(child.content) for child in children):
        return children
    return list(_linked(markdown, children))


def _mark(state: StateCore) -> None:
    for token in state.tokens:
        if token.type == "inline" and token.children:
            token.children = list(with_addresses(state.md, token.children))


def _linked(markdown: MarkdownIt, children: Sequence[Token]) -> Iterator[Token]:
    links = 0
    for child in children:
        links += child.nesting if child.type in ("link_open", "link_close") else 0
        if child.type == "text" and not links:
            yield from _cut(markdown, child)
        else:
            yield child


def _cut(markdown: MarkdownIt, child: Token) -> Iterator[Token]:
    from markdown_it.token import Token

    text, done = child.content, 0
    for match in _ADDRESS.finditer(text):
        words = _trimmed(match[0])
        if match["mail"] and words[-1] in "-_":
            continue
        address = markdown.normalizeLink(
            ("http://" if match["www"] else "mailto:" if match["mail"] else "") + words
        )
        if not markdown.validateLink(address):
            continue
        if match.start() > done:
            yield Token("text", "", 0, content=text[done : match.start()], level=child.level)
        yield Token(
            "link_open", "a", 1, attrs={"href": address}, level=child.level, markup="linkify", info="auto"
        )
        yield Token("text", "", 0, content=words, level=child.level + 1)
        yield Token("link_close", "a", -1, level=child.level, markup="linkify", info="auto")
        done = match.start() + len(words)
    if done < len(text):
        yield Token("text", "", 0, content=text[done:], level=child.level)


def _trimmed(words: str) -> str:
    """`words` without the punctuation or character reference that ends them; a closing bracket stays when its
    opening one is inside.
    """
    surplus = {closing: words.count(closing) - words.count(opening) for closing, opening in _PAIRS.items()}
    end = len(words)
    while end and (
        words[end - 1] in _TRAILING or words[end - 1] == ";" or surplus.get(words[end - 1], 0) > 0
    ):
        if words[end - 1] in surplus:
            surplus[words[end - 1]] -= 1
        entity = _ENTITY.search(words, max(0, end - 34), end) if words[end - 1] == ";" else None
        end = entity.start() if entity is not None else end - 1
    return words[:end]
