"""Markdown of one block -> the tokens of markdown-it: CommonMark 0.31 with GitHub's tables, strikethrough,
tasks and bare addresses.

Two rules are more tolerant than CommonMark's. Emphasis also begins and ends next to Chinese, Japanese and
Korean letters and punctuation, where no spaces are written. And the few HTML elements that format words are
tokens `html_open` and `html_close` with their `tag`; all other HTML is text. Importing this module imports
markdown-it, which is too slow for start-up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from unicodedata import category

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_core import StateCore, text_join
from markdown_it.rules_inline.state_inline import Delimiter, Scanned, StateInline
from markdown_it.token import Token

from desktop.blocks.addresses import with_addresses
from desktop.blocks.unfinished import settled
from engine.lazy_dataclass import dataclass

__all__ = [
    "HTML_TAGS",
    "Cell",
    "References",
    "definitions",
    "parse",
    "parse_table",
    "table_rows",
    "with_html",
]

References = Mapping[str, Any]
"""Link reference definitions as markdown-it keeps them, by normalised label."""
HTML_TAGS = frozenset(
    {"b", "code", "del", "em", "i", "ins", "kbd", "mark", "s", "strong", "sub", "summary", "sup", "u"}
)
"""HTML elements that format text when they are closed in the same paragraph."""
_NESTING = 200
"""Nesting levels after which markdown-it drops content."""
_TOO_DEEP = re.compile(r"^(?:[ \t]*(?:[>*+-]|\d{1,9}[.)])){40}", re.MULTILINE)
"""Text with this many markers on a line is shown as it is."""
_TAG = re.compile(r"<(/?)([a-z]+)(?:\s[^<>]*)?\s*/?>$", re.IGNORECASE)
_CELL_END = re.compile(r"(?<!\\)\|")
_SIGNS = re.compile(r"[\\`*_~\[\]!<&\n]")
"""Text without any of these characters has no inline Markdown."""
_MOST_BRACKETS, _MOST_SIGNS = 200, 1000
"""Text with more of them is shown as it is: parsing it would take seconds."""
_DETAILS = re.compile(r"</?details(?:\s[^<>]*)?>$", re.IGNORECASE)
_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u303f\u3040-\u30ff\u3100-\u31ff\u3200-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f"
    "\uff00-\uffef\U0001b000-\U0001b2ff\U0001f200-\U0001f2ff\U00020000-\U0003fffd]"
)


def parse(source: str, references: References | None = None, growing: bool = False) -> list[Token]:
    """The tokens of `source`; links may name one of the `references` that `definitions` found.

    While it is `growing`, marks that are open at its end are closed there, as in `unfinished`.
    """
    if _TOO_DEEP.search(source):
        return _as_text(source)
    return _parser().parse(source, _environment(references) | {"growing": growing})


def definitions(source: str) -> tuple[dict[str, Any], bool]:
    """The references that a paragraph defines, and whether it has other text too."""
    found = _environment(None)
    rest = _parser().parse(source, found)
    return found["references"], bool(rest)


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a table cell, and its alignment `side`: "left", "right", "center" or empty."""

    children: Sequence[Token]
    side: str = ""


def parse_table(source: str, references: References | None = None, growing: bool = False) -> list[list[Cell]]:
    """The cells of a table block, without the row of dashes: as many in each row as in the head.

    While it is `growing`, marks that are open in the last cell are closed there, as in `unfinished`.
    """
    lines = [_CELL_END.split(line.strip()[1:-1]) for line in source.rstrip("\n").split("\n")]
    dashes = [cell.strip() for cell in (lines[1] if len(lines) > 1 else ["-"] * len(lines[0]))]
    sides = [(cell[:1] == ":", cell[-1:] == ":") for cell in dashes]
    names = [
        {(True, True): "center", (True, False): "left", (False, True): "right"}.get(side, "")
        for side in sides
    ]
    env = _environment(references)
    rows = []
    for number, line in enumerate(shown := (lines[0], *lines[2:])):
        texts = [text.strip().replace("\\|", "|") for text in (line + [""] * len(names))[: len(names)]]
        if growing and number == len(shown) - 1:
            last = max((place for place, text in enumerate(texts) if text), default=0)
            texts[last] = env["open"] = settled(texts[last])
        rows.append([Cell(_words(text, env), side) for text, side in zip(texts, names, strict=True)])
    return rows


def plain_table(source: str, references: References | None = None) -> list[list[str]]:
    """The words in the cells of a table block, without marks, each on one line."""
    return [[_plain(cell.children) for cell in row] for row in parse_table(source, references)]


def _plain(tokens: Sequence[Token]) -> str:
    return " ".join("".join(" " if token.type == "hardbreak" else token.content for token in tokens).split())


def table_rows(tokens: Sequence[Token]) -> list[list[Cell]]:
    """The cells of the first table among `tokens`, row by row."""
    rows: list[list[Cell]] = []
    for place, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            rows[-1].append(
                Cell(
                    tokens[place + 1].children or (),
                    str(token.attrs.get("style", "")).removeprefix("text-align:"),
                )
            )
        elif token.type == "table_close":
            break
    return rows


def _words(text: str, env: dict[str, Any]) -> Sequence[Token]:
    if not text:
        return ()
    if _SIGNS.search(text) is None and not _may_link(text):
        return (Token("text", "", 0, content=text),)
    state = StateCore(text, _parser(), env)
    inline = Token("inline", "", 0, content=text, children=_parser().inline.parse(text, _parser(), env, []))
    state.tokens = [inline]
    text_join(state)
    _finish(state)
    return inline.children or ()


def _environment(references: References | None) -> dict[str, Any]:
    return {"references": dict(references or {})}


def _may_link(text: str) -> bool:
    return "://" in text or "@" in text or "www." in text.lower()


def _as_text(source: str) -> list[Token]:
    words = Token("text", "", 0, content=source)
    inline = Token("inline", "", 0, content=source, children=[words])
    return [Token("paragraph_open", "p", 1), inline, Token("paragraph_close", "p", -1)]


class _Inline(ParserInline):
    """Reads emphasis by the rules of `_flanking`."""

    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token]:
        if (
            _SIGNS.search(src) is None
            or src.count("[") > _MOST_BRACKETS
            or len(_SIGNS.findall(src)) > _MOST_SIGNS
        ):
            tokens.append(Token("text", "", 0, content=src))
            return tokens
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


class _State(StateInline):
    def __init__(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> None:
        super().__init__(src, md, env, tokens)
        self.hopeful: set[int] = set()
        """The delimiters outside links that look like the beginning of emphasis, whatever follows."""

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:
        end, marker = start, self.src[start]
        while end < self.posMax and self.src[end] == marker:
            end += 1
        before, after = self.src[start - 1 : start] or " ", self.src[end : end + 1] or " "
        left, right = _flanking(before, after)
        opens = left and (canSplitWord or not right or _is_mark(before))
        closes = right and (canSplitWord or not left or _is_mark(after))
        if not self._prev_delimiters and _begins(before, marker * (end - start), after):
            made = len(self.delimiters)
            self.hopeful.update(range(made, made + (1 if marker == "~" else end - start)))
        return Scanned(opens, closes, end - start)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark")
    made.inline = _Inline()
    made.configure("commonmark").enable(["table", "strikethrough"]).disable("html_block")
    made.options["html"], made.options["maxNesting"], made.options["strikethrough_single_tilde"] = (
        True,
        _NESTING,
        True,
    )
    made.core.ruler.before("inline", "unfinished", _settle)
    made.core.ruler.push("addresses", _finish)
    made.inline.ruler2.after("balance_pairs", "unfinished", _close_marks)
    return made


def _flanking(before: str, after: str) -> tuple[bool, bool]:
    """Whether a run of delimiters between two characters is left-flanking, and whether it is
    right-flanking.
    """
    behind, ahead = before.isspace(), after.isspace()
    cjk_before, cjk_after = _CJK.match(before) is not None, _CJK.match(after) is not None
    mark_before, mark_after = _is_mark(before) and not cjk_before, _is_mark(after) and not cjk_after
    left = not ahead and (not mark_after or behind or mark_before or cjk_before)
    right = not behind and (not mark_before or ahead or mark_after or cjk_after)
    return left, right


def _is_mark(letter: str) -> bool:
    return category(letter)[0] in "PS"


def _begins(before: str, marks: str, after: str) -> bool:
    """Whether delimiters between two characters look like the beginning of emphasis: not a product, a
    power or a footnote mark.
    """
    if before.isalnum() and _CJK.match(before) is None:
        return False
    if marks[0] == "~":
        return len(marks) == 2
    return len(marks) in (2, 3) or (len(marks) == 1 and (after.isalpha() or after in "\"'“‘«「`"))


def _settle(state: StateCore) -> None:
    """Close code and links at the end of a text that is growing."""
    last = next((token for token in reversed(state.tokens) if not token.type.endswith("_close")), None)
    if state.env.get("growing") and last is not None and last.type == "inline":
        last.content = state.env["open"] = settled(last.content)


def _close_marks(state: StateInline) -> None:
    """Close the emphasis that is open at the end of a text that is growing."""
    if not isinstance(state, _State) or state.src is not state.env.get("open"):
        return
    around, opened = -1, []
    for place, one in enumerate(state.delimiters):
        if one.open and one.end < 0 and place > around and place in state.hopeful:
            opened.append(one)
        around = max(around, one.end)
    for one in reversed(opened):
        token = state.push("text", "", 0)
        token.content = state.tokens[one.token].content
        one.end = len(state.delimiters)
        state.delimiters.append(Delimiter(one.marker, 0, len(state.tokens) - 1, -1, False, False))


def _finish(state: StateCore) -> None:
    for token in state.tokens:
        if token.type == "inline" and token.children:
            if any(child.type == "html_inline" for child in token.children):
                token.children = with_html(token.children, token.content is state.env.get("open"))
            if _may_link(token.content):
                token.children = list(with_addresses(_parser(), token.children))


def with_html(children: Sequence[Token], growing: bool = False) -> list[Token]:
    """Known and closed HTML elements as tokens of their own kinds, all other HTML as text. While the text is
    `growing`, elements that are open at its end are closed there.
    """
    last, opened = len(children) - 1, []
    for place, token in enumerate(children):
        found = _TAG.match(token.content) if token.type == "html_inline" else None
        tag = found[2].lower() if found is not None else ""
        if token.type != "html_inline":
            continue
        token.type = "text"
        if tag == "br":
            token.type, token.content = "hardbreak", ""
        elif _DETAILS.match(token.content) and (place in (0, last) or _at_break(children, place)):
            token.content = ""
        elif tag in HTML_TAGS and found is not None:
            if not found[1]:
                opened.append((tag, token))
                continue
            start = next((at for at in range(len(opened) - 1, -1, -1) if opened[at][0] == tag), -1)
            if start >= 0:
                _mark(opened[start][1], "html_open", tag)
                _mark(token, "html_close", tag)
                del opened[start:]
    ends = []
    for tag, token in reversed(opened) if growing else ():
        _mark(token, "html_open", tag)
        ends.append(Token("html_close", tag, 0))
    kept: list[Token] = []
    for child in (*children, *ends):
        if child.type != "text" or child.content:
            kept.append(child)
        if child.type == "html_close" and child.tag == "summary":
            kept.append(Token("hardbreak", "br", 0))
    for place, child in enumerate(kept):  # adjacent breaks of different kinds are one, without spaces
        if place and kept[place - 1].type == "hardbreak":
            if child.type == "softbreak":
                child.type = "text"
            elif child.type == "text":
                child.content = child.content.lstrip(" ")
    while kept and kept[0].type == "softbreak":
        del kept[0]
    while kept and kept[-1].type in ("softbreak", "hardbreak"):
        del kept[-1]
    return kept


def _at_break(children: Sequence[Token], place: int) -> bool:
    return children[place - 1].type == "softbreak" or children[place + 1].type == "softbreak"


def _mark(token: Token, kind: str, tag: str) -> None:
    token.type, token.tag, token.content = kind, tag, ""
