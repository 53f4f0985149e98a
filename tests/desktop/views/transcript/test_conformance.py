"""The examples of CommonMark and of GitHub's extensions, shown as rows and documents, against the tree of
markdown-it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from PySide6.QtGui import QFont, QTextBlock, QTextFormat, QTextListFormat, QTextTable
from PySide6.QtWidgets import QApplication

from desktop.blocks import Kind
from desktop.items.chats.messages import MessageItem
from desktop.services.formulas.rich_text import fragments
from desktop.views.transcript.message_rows import MessageRows
from desktop.views.transcript.rendering.markdown import QUOTES, SafeDocument, set_markdown
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.style import Style, TranscriptColours, make_style

EXAMPLES = json.loads((Path(__file__).parents[3] / "golden" / "markdown_examples.json").read_text("utf-8"))


@dataclass
class Leaf:
    """A paragraph, heading, line, code block or cell: the number of lists around it, the marker of the item
    that it begins, the number of lists around each quote around it, and its words in their styles.
    """

    kind: str
    lists: int = 0
    marker: str = ""
    quotes: tuple[int, ...] = ()
    runs: list[tuple[str, frozenset[str]]] = field(default_factory=list)

    def add(self, text: str, styles: frozenset[str]) -> None:
        if self.runs and self.runs[-1][1] == styles:
            self.runs[-1] = (self.runs[-1][0] + text, styles)
        elif text:
            self.runs.append((text, styles))

    def plain(self) -> tuple[object, ...]:
        return (self.kind, self.lists, self.marker, self.quotes, tuple(self.runs))


_STYLES = {"em": "italic", "strong": "bold", "s": "struck"}


def tree(source: str, github: bool = False) -> list[tuple[object, ...]]:
    """The leaves of markdown-it's tree: CommonMark, with GitHub's extensions too; HTML is text."""
    parser = MarkdownIt(
        "gfm-like2" if github else "commonmark", {"html": False, "tasklists": False, "alerts": False}
    )
    leaves: list[Leaf] = []
    around: list[str] = []
    numbers: list[int] = []
    marker = ""
    for token in parser.parse(source):
        kind = token.type
        if kind in ("bullet_list_open", "ordered_list_open"):
            around.append("list")
            numbers.append(int(token.attrs.get("start", 1)) if kind.startswith("o") else -1)
        elif kind in ("bullet_list_close", "ordered_list_close"):
            around.pop()
            numbers.pop()
        elif kind == "list_item_open":
            marker = "-" if numbers[-1] < 0 else f"{numbers[-1]}{token.markup}"
            numbers[-1] += numbers[-1] >= 0
        elif kind == "list_item_close" and marker:
            leaves.append(_leaf("p", around, marker))  # an empty item
            marker = ""
        elif kind == "blockquote_open":
            around.append("quote")
        elif kind == "blockquote_close":
            around.pop()
        elif kind in ("fence", "code_block"):
            leaves.append(_leaf("code", around, marker))
            leaves[-1].add(token.content.removesuffix("\n"), frozenset())
            marker = ""
        elif kind == "hr":
            leaves.append(_leaf("hr", around, marker))
            marker = ""
        elif kind in ("paragraph_open", "heading_open", "th_open", "td_open"):
            leaves.append(_leaf(token.tag, around, marker))
            marker = ""
        elif kind == "inline":
            _words(leaves[-1], token.children or [])
    return [leaf.plain() for leaf in leaves]


def _leaf(kind: str, around: list[str], marker: str) -> Leaf:
    quotes = tuple(around[:place].count("list") for place, name in enumerate(around) if name == "quote")
    return Leaf(kind, around.count("list"), marker, quotes)


def _words(leaf: Leaf, children: list[Token]) -> None:
    styles: list[str] = []
    for token in children:
        if token.type == "link_open":
            styles.append("->" + str(token.attrs["href"]))
        elif token.type == "link_close":
            styles.remove(next(style for style in styles if style.startswith("->")))
        elif token.nesting > 0:
            styles.append(_STYLES[token.tag])
        elif token.nesting < 0:
            styles.remove(_STYLES[token.tag])
        elif token.type == "image":
            own = {style for style in styles if not style.startswith("->")}
            leaf.add(token.content or "picture", frozenset({*own, f"->{token.attrs['src']}"}))
        elif token.type == "code_inline":
            leaf.add(token.content, frozenset([*styles, "code"]))
        else:
            leaf.add(
                {"softbreak": " ", "hardbreak": "\u2028"}.get(token.type, token.content), frozenset(styles)
            )


def shown(source: str, style: Style) -> list[tuple[object, ...]]:
    """The leaves of the rows of a message with this text."""
    leaves: list[Leaf] = []
    for row in MessageRows(MessageItem(1, "assistant", source)).rows:
        block = row.block
        if block is None:
            continue
        lists = 1 if block.indent >= 2 else 0
        if row.kind is RowKind.CODE:
            leaves.append(Leaf("code", lists, "", (), [(row.text, frozenset())] if row.text else []))
        elif row.kind is RowKind.RULE:
            leaves.append(Leaf("hr", lists))
        elif row.kind in (RowKind.TEXT, RowKind.TABLE):
            leaves += _document(row, lists, style)
    return [leaf.plain() for leaf in leaves]


def _document(row: Row, lists: int, style: Style) -> Iterator[Leaf]:
    block = row.block
    assert block is not None
    document = SafeDocument()
    set_markdown(document, row.text, style, block.kind, None, row.references)
    base = (lists,) if block.kind is Kind.QUOTE else ()
    tables = {frame for frame in document.rootFrame().childFrames() if isinstance(frame, QTextTable)}
    place = document.begin()
    while place.isValid():
        inside = next((table for table in tables if table.cellAt(place.position()).isValid()), None)
        if inside is None and tables and not place.text():
            place = place.next()
            continue
        yield _paragraph(place, lists, base, inside)
        place = place.next()


def _paragraph(place: QTextBlock, lists: int, base: tuple[int, ...], table: QTextTable | None) -> Leaf:
    shape, found = place.blockFormat(), place.textList()
    depth = found.format().indent() if found is not None else shape.indent()
    marker = ""
    if found is not None:
        marker = found.itemText(place) if found.format().style() == QTextListFormat.Style.ListDecimal else "-"
    inner = shape.property(QUOTES) or []
    quotes = (*base, *(int(number) + lists for number in inner))
    kind = "p"
    if shape.headingLevel():
        kind = f"h{shape.headingLevel()}"
    elif shape.hasProperty(QTextFormat.Property.BlockCodeFence.value):
        kind = "code"
    elif shape.hasProperty(QTextFormat.Property.BlockTrailingHorizontalRulerWidth.value):
        kind = "hr"
    elif table is not None:
        kind = "th" if table.cellAt(place.position()).row() == 0 else "td"
    leaf = Leaf(kind, depth + lists, marker, quotes)
    for start, length, text_shape in fragments(place):
        text = place.text()[start - place.position() : start - place.position() + length]
        if kind == "code":
            leaf.add(text.replace("\u2028", "\n"), frozenset())
            continue
        strong = text_shape.fontWeight() >= QFont.Weight.Bold and kind != "th"
        styles = {"bold"} if strong else set()
        styles |= {"italic"} if text_shape.fontItalic() else set()
        styles |= {"struck"} if text_shape.fontStrikeOut() else set()
        styles |= {"code"} if text_shape.fontFixedPitch() else set()
        styles |= {f"->{text_shape.anchorHref()}"} if text_shape.isAnchor() else set()
        leaf.add(text, frozenset(styles))
    return leaf


@pytest.fixture(scope="module")
def style(qapp: QApplication) -> Style:
    return make_style(QFont(), 100, TranscriptColours.from_palette(QApplication.palette()))


_CHOSEN = {
    "LaTeX's brackets are formulas": (12, 14, 18),
    "HTML that formats words does so, and a tag is one piece of text": (
        21,
        31,
        164,
        166,
        168,
        344,
        475,
        476,
        477,
        524,
        536,
        630,
        631,
        642,
        643,
    ),
    "an address is a link without marks, as on GitHub": (608, 611, 612),
    "a fence may stand at any depth, as models write it in lists": (132, 133, 134, 136, 137, 237),
}
"""Examples that are shown differently on purpose."""
_LIMITS = {
    "indented code is cut at empty lines": (85, 110, 111, 112, 236, 289),
    "a code block at the start of an item has no marker": (278, 318, 324),
    "a link to nothing is text": (200, 485, 486, 567),
    "definitions stand in paragraphs of their own": (215, 216, 218),
    "a line of equals signs after a quote belongs to it": (93,),
    "a quote's unclosed code keeps its last line end; tabs in a quote's code stay": (6, 128),
    "a line end written as a number is a space": (39,),
    "a picture in a picture's name is one of its own": (574,),
}
"""Examples that rows and Qt's documents cannot show, or do not."""
_GITHUB = {
    "a table ends at a line without a bar": (5,),
    "a table may have fewer dashes than columns": (6,),
    "a task's box is drawn": (9, 10),
    "as GitHub has it, and markdown-it not": (17, 18, 21, 22, 23),
}


def test_commonmark(style: Style) -> None:
    examples = EXAMPLES["commonmark"]
    assert len(examples) == 652
    different = {number for number, _, source in examples if tree(source) != shown(source, style)}
    listed = {number for numbers in (*_CHOSEN.values(), *_LIMITS.values()) for number in numbers}
    assert different == listed


def test_github(style: Style) -> None:
    examples = EXAMPLES["gfm"]
    assert len(examples) == 24
    different = {
        number for number, _, source in examples if tree(source, github=True) != shown(source, style)
    }
    assert different == {number for numbers in _GITHUB.values() for number in numbers}
