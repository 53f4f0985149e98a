"""PDF files."""

from __future__ import annotations

import logging
import time

from desktop.store.attachments.documents.packages import Locked

__all__ = ["read"]

_MOST_PAGE_BYTES = 8 << 20
"""A page whose content stream is longer is a drawing, and counts as empty."""


def read(path: str, most_pages: int, most_characters: int, most_s: float) -> tuple[list[str], int, bool]:
    """The text of each page that was read, the number of pages, and whether the last one is cut off."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns about every small fault in a file
    until = time.monotonic() + most_s
    pages: list[str] = []
    cut = False
    try:
        with PdfReader(path) as reader:
            if reader.is_encrypted and not reader.decrypt(""):
                raise Locked
            total = len(reader.pages)
            for number in range(min(total, most_pages)):
                left = most_characters - sum(map(len, pages))
                if time.monotonic() > until or left <= 0:
                    break
                page = reader.pages[number]
                contents = page.get_contents()
                drawn_only = contents is None or len(contents.get_data()) > _MOST_PAGE_BYTES
                text = "" if drawn_only else page.extract_text().strip()
                cut = len(text) > left
                pages.append(text[:left])
    except DependencyError as error:
        raise Locked from error
    except PyPdfError as error:
        raise ValueError(str(error)) from error
    return pages, total, cut
