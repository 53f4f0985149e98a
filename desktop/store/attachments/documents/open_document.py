"""Texts and presentations of LibreOffice and others (.odt, .odp). OpenDocument 1.3, part 3, sections 4-10."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element
from zipfile import ZipFile

from desktop.store.attachments.documents.markdown import table
from desktop.store.attachments.documents.packages import attribute, local, tree

__all__ = ["read"]

_UNSAID = frozenset({
    "annotation", "annotation-end", "tracked-changes", "title", "desc", "bookmark", "note-citation",
    "sequence-decls", "forms", "settings", "date-time-decl", "footer-decl", "header-decl",
})  # fmt: skip
"""Comments, deleted text, and what describes pictures."""
_MOST_LEVEL = 6
_MOST_SPACES = 100


def read(archive: ZipFile) -> str:
    """The text as Markdown, without pictures and comments; each slide under a heading."""
    body = next((found for found in tree(archive, "content.xml") if local(found) == "body"), None)
    return "\n\n".join(_blocks(body)) if body is not None else ""


def _blocks(element: Element) -> Iterator[str]:
    """Headings, paragraphs, lists and tables inside an element, in order."""
    slides = 0
    for child in element:
        name = local(child)
        if name in _UNSAID:
            continue
        if name == "h":
            level = attribute(child, "outline-level")
            depth = min(int(level), _MOST_LEVEL) if level.isdigit() and int(level) else 1
            found = ["#" * depth + " " + " ".join(_inline(child).split())]
        elif name == "p":
            found = [_inline(child), *_boxes(child)]
        elif name == "list":
            found = ["\n".join(_items(child, 0))]
        elif name == "table":
            found = [table([[*map(_cell, _named(row, "table-cell"))] for row in _named(child, "table-row")])]
        elif name == "page":
            slides += 1
            found = [f"## Slide {slides}", *_blocks(child)]
        elif name == "notes":
            found = [f"Notes: {text}" for text in _blocks(child)]
        else:
            found = [*_blocks(child)]
        yield from filter(str.strip, found)


def _items(element: Element, depth: int) -> Iterator[str]:
    """The lines of a list."""
    for item in element:
        if local(item) not in ("list-item", "list-header"):
            continue
        first = True
        for child in item:
            if local(child) == "list":
                yield from _items(child, depth + 1)
            elif text := " ".join(_inline(child).split()):
                yield "  " * depth + ("- " if first else "  ") + text
                first = False


def _cell(cell: Element) -> str:
    return " ".join(_blocks(cell))


def _named(element: Element, name: str) -> Iterator[Element]:
    """The rows or cells of a table, those that others cover too, not those of tables inside it."""
    for child in element:
        if local(child).removeprefix("covered-") == name:
            yield child
        elif local(child).startswith("table-"):  # groups of rows, and the rows of the head
            yield from _named(child, name)


def _boxes(paragraph: Element) -> Iterator[str]:
    """The text of boxes that are anchored in a paragraph."""
    for child in paragraph:
        if local(child) == "frame":
            yield from _blocks(child)
        elif local(child) not in _UNSAID:
            yield from _boxes(child)


def _inline(element: Element) -> str:
    """The text of a paragraph; notes stand in parentheses where they are referred to."""
    pieces = [element.text or ""]
    for child in element:
        name = local(child)
        if name == "s":
            count = attribute(child, "c")
            pieces.append(" " * (min(int(count), _MOST_SPACES) if count.isdigit() else 1))
        elif name in ("tab", "line-break"):
            pieces.append("\t" if name == "tab" else "\n")
        elif name == "note":
            pieces.append(" (" + " ".join(" ".join(_blocks(child)).split()) + ")")
        elif name not in _UNSAID and name != "frame":
            pieces.append(_inline(child))
        pieces.append(child.tail or "")
    return "".join(pieces).strip("\n")
