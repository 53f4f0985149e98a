"""Writes documents of office programs, e-books and notebooks with what a test needs of them."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

OFFICE = "http://schemas.openxmlformats.org/"
RELATIONS = OFFICE + "officeDocument/2006/relationships"
W = f'xmlns:w="{OFFICE}wordprocessingml/2006/main" xmlns:r="{RELATIONS}"'
P = (
    f'xmlns:p="{OFFICE}presentationml/2006/main" xmlns:a="{OFFICE}drawingml/2006/main" '
    f'xmlns:r="{RELATIONS}" xmlns:mc="{OFFICE}markup-compatibility/2006"'
)
S = f'xmlns="{OFFICE}spreadsheetml/2006/main" xmlns:r="{RELATIONS}"'
ODF = "urn:oasis:names:tc:opendocument:xmlns:"
XML = " ".join(
    f'xmlns:{name}="{ODF}{name if name != "draw" else "drawing"}:1.0"'
    for name in ("office", "text", "table", "draw", "presentation")
)  # fmt: skip


def package(parts: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def relations(**targets: str) -> str:
    """The references of an Office part: the type and the target of each, by its id."""
    lines = [
        f'<Relationship Id="{name}" Type="{RELATIONS}/{kind}" Target="{target}"/>'
        for name, (kind, _, target) in ((name, text.partition(" ")) for name, text in targets.items())
    ]
    return f'<Relationships xmlns="{OFFICE}package/2006/relationships">{"".join(lines)}</Relationships>'


def types(main: str, kind: str) -> str:
    kind = f"application/vnd.openxmlformats-officedocument.{kind}.main+xml"
    return (
        f'<Types xmlns="{OFFICE}package/2006/content-types"><Default Extension="xml" ContentType="text/xml"/>'
        f'<Override PartName="/{main}" ContentType="{kind}"/></Types>'
    )


def word(body: str, **parts: str) -> bytes:
    return package({
        "[Content_Types].xml": types("word/document.xml", "wordprocessingml.document"),
        "_rels/.rels": relations(a="officeDocument word/document.xml"),
        "word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
        "word/styles.xml": f"<w:styles {W}>{style('T', 'Title')}{style('H', 'heading 2')}</w:styles>",
        "word/_rels/document.xml.rels": relations(s="styles styles.xml", f="footnotes footnotes.xml"),
        "word/footnotes.xml": f'<w:footnotes {W}><w:footnote w:id="2">{line("A note.")}</w:footnote>'
        "</w:footnotes>",
        **parts,
    })  # fmt: skip


def style(id: str, name: str) -> str:
    return f'<w:style w:type="paragraph" w:styleId="{id}"><w:name w:val="{name}"/></w:style>'


def line(text: str, style: str = "") -> str:
    style = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{style}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def cells(*texts: str) -> str:
    return "<w:tr>" + "".join(f"<w:tc>{line(text)}</w:tc>" for text in texts) + "</w:tr>"


def presentation(*bodies: str, **notes: str) -> bytes:
    parts = {
        "_rels/.rels": relations(a="officeDocument ppt/presentation.xml"),
        "ppt/presentation.xml": f"<p:presentation {P}><p:sldIdLst>"
        + "".join(f'<p:sldId id="{256 + n}" r:id="s{n}"/>' for n in reversed(range(len(bodies))))
        + "</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(
            **{f"s{n}": f"slide slides/slide{n}.xml" for n in range(len(bodies))}
        ),
    }
    for n, body in enumerate(bodies):
        parts[f"ppt/slides/slide{n}.xml"] = f"<p:sld {P}><p:cSld><p:spTree>{body}</p:spTree></p:cSld></p:sld>"
    for name, body in notes.items():
        n = name.removeprefix("n")
        parts[f"ppt/slides/_rels/slide{n}.xml.rels"] = relations(n=f"notesSlide ../notesSlides/{name}.xml")
        parts[f"ppt/notesSlides/{name}.xml"] = (
            f"<p:notes {P}><p:cSld><p:spTree>{body}</p:spTree></p:cSld></p:notes>"
        )
    return package(parts)


def shape(*lines: str, kind: str | None = None) -> str:
    place = "" if kind is None else "<p:ph" + (f' type="{kind}"' if kind else "") + "/>"
    text = "".join(
        f'<a:p><a:pPr lvl="{text.count(">")}"/><a:r><a:t>{text.lstrip(">")}</a:t></a:r></a:p>'
        for text in lines
    )
    return f"<p:sp><p:nvSpPr><p:nvPr>{place}</p:nvPr></p:nvSpPr><p:txBody>{text}</p:txBody></p:sp>"


def workbook(*found: tuple[str, str, str]) -> bytes:
    """A file of sheets: the name, the state and the rows of each."""
    listed = "".join(
        f'<sheet name="{name}" sheetId="{n}" state="{state}" r:id="s{n}"/>'
        for n, (name, state, _rows) in enumerate(found, 1)
    )
    return package({
        "[Content_Types].xml": types("xl/workbook.xml", "spreadsheetml.sheet"),
        "_rels/.rels": relations(a="officeDocument xl/workbook.xml"),
        "xl/workbook.xml": f"<workbook {S}><sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": relations(
            **{f"s{n}": f"worksheet worksheets/s{n}.xml" for n in range(1, len(found) + 1)}
        ),
        **{
            f"xl/worksheets/s{n}.xml": f"<worksheet {S}><sheetData>{rows}</sheetData></worksheet>"
            for n, (_name, _state, rows) in enumerate(found, 1)
        },
    })  # fmt: skip


def row(number: int, **found: Any) -> str:
    texts = [
        f'<c r="{column}{number}" t="inlineStr"><is><t>{value}</t></is></c>'
        if isinstance(value, str)
        else f'<c r="{column}{number}"'
        + (' t="b"' if isinstance(value, bool) else "")
        + f"><v>{value:d}</v></c>"
        if isinstance(value, int)
        else f'<c r="{column}{number}"><v>{value}</v></c>'
        for column, value in found.items()
    ]
    return f'<row r="{number}">{"".join(texts)}</row>'


def open_document(kind: str, body: str, **parts: str) -> bytes:
    return package({
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "META-INF/manifest.xml": "<manifest/>",
        "content.xml": f"<office:document {XML}><office:body>{body}</office:body></office:document>",
        **parts,
    })  # fmt: skip


def book(chapters: Mapping[str, str], order: str, **parts: str) -> bytes:
    items = "".join(f'<item id="{n}" href="{name}"/>' for n, name in zip("abc", chapters, strict=False))
    return package({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles>'
        "</container>",
        "OEBPS/book.opf": f"<package><manifest>{items}</manifest><spine>"
        + "".join(f'<itemref idref="{n}"/>' for n in order)
        + "</spine></package>",
        **{f"OEBPS/{name.replace('%20', ' ')}": text for name, text in chapters.items()},
        **parts,
    })  # fmt: skip


def notebook(*found: Mapping[str, Any], **more: Any) -> bytes:
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": found, **more}).encode()


def old_file(*streams: str) -> bytes:
    """A compound file with these streams, of no bytes each ([MS-CFB], sections 2.2 and 2.6)."""
    none, last = 0xFFFFFFFF, 0xFFFFFFFE
    head = struct.pack("<8s16x5H6x", bytes.fromhex("d0cf11e0a1b11ae1"), 0x3E, 3, 0xFFFE, 9, 6)
    head += struct.pack("<9I", 0, 1, 1, 0, 4096, last, 0, last, 0) + struct.pack("<109I", 0, *[none] * 108)
    entries = [("Root Entry", 5, none, 1 if streams else none)]
    entries += [(name, 2, at + 1 if at < len(streams) else none, none) for at, name in enumerate(streams, 1)]
    directory = b"".join(
        struct.pack(
            "<64sHBB3I36xIQ",
            name.encode("utf-16-le"),
            2 * len(name) + 2,
            kind,
            1,
            none,
            right,
            child,
            last,
            0,
        )
        for name, kind, right, child in entries
    )
    return head + struct.pack("<128I", 0xFFFFFFFD, last, *[none] * 126) + directory.ljust(512, b"\0")


def encrypted_zip() -> bytes:
    """An archive whose part says that it is encrypted."""
    data = package({"word/document.xml": "x", "mimetype": "application/epub+zip"})
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"mimetype"))
    return data[: at + 8] + b"\x01\x00" + data[at + 10 :]


def packed(name: str, begin: bytes, unit: bytes, count: int, end: bytes, **parts: str) -> bytes:
    """A small file with a part of megabytes."""
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for other, content in parts.items():
            archive.writestr(other, content)
        with archive.open(name, "w") as file:
            file.write(begin)
            for _unused in range(count):
                file.write(unit)
            file.write(end)
    return out.getvalue()
