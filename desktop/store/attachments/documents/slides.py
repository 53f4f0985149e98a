"""Presentations of PowerPoint (.pptx). ECMA-376, part 1, sections 19 and 21."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element
from zipfile import ZipFile

from desktop.store.attachments.documents.markdown import table
from desktop.store.attachments.documents.packages import attribute, children, local, related, tree

__all__ = ["read"]

_TITLES = ("title", "ctrTitle")
_UNSAID = ("sldNum", "dt", "ftr", "hdr")
"""Placeholders that are the same on every slide."""


def read(archive: ZipFile) -> str:
    """The slides in their order, each under a heading with its number and title, and with its notes."""
    main = next((name for kind, name in related(archive, "").values() if kind == "officeDocument"), "")
    main = main or "ppt/presentation.xml"
    parts = related(archive, main)
    shown = children(tree(archive, main), "sldId")
    names = [parts[found][1] for one in shown if (found := _reference(one)) in parts]
    return "\n\n".join(_slide(archive, number, name) for number, name in enumerate(names, 1))


def _reference(slide: Element) -> str:
    """The id of the reference to a slide's part: the attribute `id` that has a namespace."""
    return next((value for key, value in slide.attrib.items() if key.endswith("}id")), "")


def _slide(archive: ZipFile, number: int, name: str) -> str:
    title, texts = "", list[str]()
    for kind, text in _shapes(tree(archive, name)):
        if kind in _TITLES and not title:
            title = " ".join(text.split())
        elif kind not in _UNSAID:
            texts.append(text)
    for kind, notes in related(archive, name).values():
        if kind == "notesSlide":
            said = [text for shape, text in _shapes(tree(archive, notes)) if shape == "body"]
            texts += [f"Notes: {text}" for text in said]
    return "\n\n".join([f"## Slide {number}" + (f": {title}" if title else ""), *texts])


def _shapes(element: Element) -> Iterator[tuple[str, str]]:
    """The kind of placeholder, if it is one, and the text of each shape that has any."""
    for child in element:
        name = local(child)
        if name == "Fallback":  # for programs that do not know what stands beside it
            continue
        if name in ("sp", "graphicFrame"):
            kind = next((attribute(found, "type") or "body" for found in children(child, "ph")), "")
            rows = [
                [_text(cell) for cell in children(row, "tc")]
                for found in children(child, "tbl")
                for row in children(found, "tr")
            ]
            if text := table(rows) if rows else _text(child):
                yield kind, text
        else:
            yield from _shapes(child)


def _text(element: Element) -> str:
    """The paragraphs of a shape or a cell, indented by their levels."""
    lines = []
    for paragraph in children(element, "p"):
        level = next((attribute(found, "lvl") for found in paragraph if local(found) == "pPr"), "")
        pieces = [
            (found.text or "") if local(found) == "t" else "\n"
            for found in paragraph.iter()
            if local(found) in ("t", "br")
        ]
        if text := "".join(pieces).strip():
            lines.append("  " * (int(level) if level.isdigit() else 0) + text)
    return "\n".join(lines)
