"""A separate program that extracts the text of one document, so that a hard one cannot block the window or
use all memory. It ends when its standard input does, as the end of the program that started it makes it.

Its arguments: FILE PAGES CHARACTERS SECONDS MEMORY_BYTES.
Writes one line of JSON: {"total": pages, "pages": [text of each page read], "cut": whether the last one is
cut off} or {"trouble": "locked" | "broken" | "old" | "unknown"}. Only PDF files have several pages.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any
from zipfile import ZipFile

from desktop.store.attachments.documents.kinds import OLE, PDF, RTF, ZIP
from desktop.store.attachments.documents.packages import Locked, NotSupported, kind_of_package

__all__ = ["read_document"]


class _Old(Exception):
    """A document of an Office that is older than 2007."""


def read_document(path: str, most_pages: int, most_characters: int, most_s: float) -> dict[str, Any]:
    """The answer described above."""
    try:
        with open(path, "rb") as file:
            head = file.read(1024).lstrip()
        if head.startswith(PDF):
            from desktop.store.attachments.documents import pdf

            pages, total, cut = pdf.read(path, most_pages, most_characters, most_s)
            return {"total": total, "pages": pages, "cut": cut}
        text = _text(path, head, most_characters)
    except Locked:
        return {"trouble": "locked"}
    except _Old:
        return {"trouble": "old"}
    except NotSupported:
        return {"trouble": "unknown"}
    except MemoryError:
        raise  # no answer: the file is not said to be damaged
    except BaseException:  # noqa: BLE001 - whatever it is, also a panic of a library in Rust
        return {"trouble": "broken"}
    return {"total": 1, "pages": [text[:most_characters]], "cut": len(text) > most_characters}


def _text(path: str, head: bytes, most_characters: int) -> str:
    """The text of a document that is no PDF file; its reader is found by its content."""
    from desktop.store.attachments.documents import notebook, rich_text, sheets

    if head.startswith(ZIP):
        with ZipFile(path) as archive:
            return _text_of_package(path, archive, most_characters)
    if head.startswith(OLE):
        _check_old(path)
        return sheets.read(path, most_characters)
    return rich_text.read(path) if head.startswith(RTF) else notebook.read(path)


def _text_of_package(path: str, archive: ZipFile, most_characters: int) -> str:
    from desktop.store.attachments.documents import epub, open_document, sheets, slides, word

    kind = kind_of_package(archive)
    if kind == "word":
        return word.read(path)
    if kind == "sheets":
        return sheets.read(path, most_characters)
    if kind == "slides":
        return slides.read(archive)
    return epub.read(archive, most_characters) if kind == "epub" else open_document.read(archive)


def _check_old(path: str) -> None:
    """Raise unless this is a spreadsheet."""
    from olefile import OleFileIO

    with OleFileIO(path) as file:
        if file.exists("EncryptedPackage"):
            raise Locked
        if file.exists("WordDocument") or file.exists("PowerPoint Document"):
            raise _Old
        if not (file.exists("Workbook") or file.exists("Book")):
            raise NotSupported


def _end_with_input() -> None:
    """Wait for the end of the input, then end this process."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def _bound(memory: int) -> None:
    """Limit the address space, where the system can."""
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(
            resource.RLIMIT_AS, (memory if hard == resource.RLIM_INFINITY else min(memory, hard), hard)
        )


def main() -> None:
    """Print the answer for the arguments FILE PAGES CHARACTERS SECONDS MEMORY_BYTES."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    file, *numbers = sys.argv[1:]
    pages, characters, seconds, memory = (int(number) for number in numbers)
    if sys.platform != "darwin":  # where address spaces start out with gigabytes
        _bound(memory)
    sys.stdout.write(json.dumps(read_document(file, pages, characters, seconds)) + "\n")
