"""A separate program that extracts the text of one PDF, so that a hard page cannot block the window or use
all memory. It ends when its standard input does, as the end of the program that started it makes it.

Its arguments: FILE PAGES CHARACTERS SECONDS PAGE_BYTES MEMORY_BYTES.
Writes one line of JSON: {"total": pages, "pages": [text of each page read], "cut": whether the last one is
cut off} or {"trouble": "locked" | "broken"}.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from typing import Any

__all__ = ["read_pages"]

_BROKEN = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, RecursionError,
    OverflowError, NotImplementedError, MemoryError, OSError, ArithmeticError,
)  # fmt: skip
"""What pypdf raises for files that break the rules."""


def read_pages(
    path: str, most_pages: int, most_characters: int, most_s: float, page_bytes: int
) -> dict[str, Any]:
    """The answer described above.

    A page whose content stream is longer than `page_bytes` is a drawing and counts as empty.
    """
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns about every small fault in a file
    until = time.monotonic() + most_s
    pages: list[str] = []
    total, cut = 0, False
    try:
        with PdfReader(path) as reader:
            if reader.is_encrypted and not reader.decrypt(""):
                return {"trouble": "locked"}
            total = len(reader.pages)
            for number in range(min(total, most_pages)):
                left = most_characters - sum(map(len, pages))
                if time.monotonic() > until or left <= 0:
                    break
                page = reader.pages[number]
                contents = page.get_contents()
                drawn_only = contents is None or len(contents.get_data()) > page_bytes
                text = "" if drawn_only else page.extract_text().strip()
                cut = len(text) > left
                pages.append(text[:left])
    except DependencyError:
        return {"trouble": "locked"}
    except (PyPdfError, *_BROKEN):
        return {"trouble": "broken"}
    return {"total": total, "pages": pages, "cut": cut}


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
    """Print the answer for the arguments FILE PAGES CHARACTERS SECONDS PAGE_BYTES MEMORY_BYTES."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    file, *numbers = sys.argv[1:]
    pages, characters, seconds, page_bytes, memory = (int(number) for number in numbers)
    if sys.platform != "darwin":  # where address spaces start out with gigabytes
        _bound(memory)
    sys.stdout.write(json.dumps(read_pages(file, pages, characters, seconds, page_bytes)) + "\n")
