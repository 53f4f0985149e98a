"""What Qt's PDF lacks: an outline, and page numbers with the total. Added to the finished file with pypdf."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from desktop.services.transfer.pdf.paginator import Mark
from engine.words import _

if TYPE_CHECKING:
    from pypdf.generic import DictionaryObject

__all__ = ["add_marks"]

_SIZE, _GREY = 8.5, 0.36
_WIDTHS = {" ": 0.278, "o": 0.556, "f": 0.278} | dict.fromkeys("0123456789", 0.556)
"""Widths in ems of characters in Helvetica, which every PDF reader has."""
_CODES = re.compile(rb"\[[^\]]*\]")


def add_marks(
    path: Path, marks: Sequence[Mark], margins: tuple[float, float], about: Mapping[str, str]
) -> None:
    """Add an outline, page numbers and `about` (with pypdf's keys, such as "/Title") to the PDF at `path`.

    `margins` are the top and bottom ones in points; a pixel is 3/4 of a point. Raises `OSError` if the file
    cannot be written, and pypdf's `PyPdfError` if it cannot be read.
    """
    from pypdf import PdfWriter
    from pypdf.generic import ArrayObject, DecodedStreamObject, DictionaryObject, Fit, NameObject

    top, bottom = margins
    writer = PdfWriter(clone_from=io.BytesIO(path.read_bytes()))
    names = {
        "/Type": "/Font",
        "/Subtype": "/Type1",
        "/BaseFont": "/Helvetica",
        "/Encoding": "/WinAnsiEncoding",
    }
    font = writer._add_object(
        DictionaryObject({NameObject(name): NameObject(value) for name, value in names.items()})
    )
    total = len(writer.pages)
    mended: set[int] = set()
    for number, page in enumerate(writer.pages):
        content = DecodedStreamObject()
        content.set_data(
            _number(
                _("{number} of {total}", number=number + 1, total=total), float(page.mediabox.width), bottom
            )
        )
        resources = page["/Resources"].get_object()
        assert isinstance(resources, DictionaryObject)
        fonts = resources.setdefault(NameObject("/Font"), DictionaryObject()).get_object()
        for name in fonts:
            _mend_spaces(fonts[name], mended)
        fonts[NameObject("/PageNumber")] = font
        page[NameObject("/Contents")] = ArrayObject([writer._add_object(content), page.raw_get("/Contents")])
    for mark in marks:
        page = writer.pages[mark.page]
        fit = Fit.xyz(left=0, top=round(float(page.mediabox.height) - top - mark.top * 0.75 + 6))
        writer.add_outline_item(title=mark.words or "…", page_number=mark.page, fit=fit)
    if len(marks) > 1:
        writer.page_mode = "/UseOutlines"
    writer.add_metadata(dict(about))
    with path.open("wb") as file:
        writer.write(file)
        file.flush()
        os.fsync(file.fileno())


def _mend_spaces(font: DictionaryObject, mended: set[int]) -> None:
    """Qt maps the glyph of a space to a tab, which would be copied as such."""
    from pypdf.generic import NullObject, StreamObject

    table = font.get("/ToUnicode", NullObject()).get_object()
    if isinstance(table, StreamObject) and id(table) not in mended:
        mended.add(id(table))
        table.set_data(_CODES.sub(lambda codes: codes[0].replace(b"<0009>", b"<0020>"), table.get_data()))


def _number(words: str, width: float, bottom: float) -> bytes:
    """The content stream for the number in the middle of the bottom margin; it precedes the page's own, which
    changes the scale.
    """
    left = (width - _SIZE * sum(_WIDTHS[letter] for letter in words)) / 2
    return (
        f"q BT /PageNumber {_SIZE} Tf {_GREY} g {left:.2f} {bottom * 0.5:.2f} Td ({words}) Tj ET Q\n".encode(
            "ascii"
        )
    )
