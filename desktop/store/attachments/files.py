"""Reads the text of a file to attach: detects its encoding, extracts PDF pages, refuses anything else."""

from __future__ import annotations

import codecs
import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desktop.store.attachments.message_format import Attachment
from engine.platform.regular_file import regular_file
from engine.printable import one_line
from engine.units import size_text
from engine.words import _

if TYPE_CHECKING:
    import subprocess

__all__ = ["MOST_BYTES", "MOST_PAGES", "Unreadable", "decoded", "read_attachment", "too_large"]

MOST_BYTES = 8 << 20
"""Bytes of a text file, and characters of a PDF's text: about two million tokens."""
MOST_PDF_BYTES = 200 << 20
MOST_PAGES = 500
MOST_PDF_S = 30.0
_MOST_PAGE_BYTES = 8 << 20
_MOST_PDF_MEMORY = 3 << 30
_GRACE_S = 5.0
"""Time beyond the reader's own limit, which it checks between two pages."""
_LOOK_S = 0.05
_GUESSED_BYTES = 64 << 10
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
"""Byte order marks; UTF-32's come before UTF-16's, which are prefixes of them."""
_CONTROLS = frozenset(range(32)) - {7, 8, 9, 10, 12, 13, 27}


class Unreadable(Exception):
    """A file that cannot be attached; the message is one sentence for the user."""

    def __str__(self) -> str:
        return one_line(super().__str__())


def read_attachment(path: Path, stop: threading.Event) -> Attachment:
    """The text of the file; for a long PDF, its first pages. Raises `Unreadable`.

    A PDF is read by a separate process, which `stop` ends at once.
    """
    try:
        size = regular_file(path).st_size
        with path.open("rb") as file:
            head = file.read(1024)
            if head.lstrip()[:5] == b"%PDF-":
                return _pdf(path, size, stop)
            if size > MOST_BYTES:
                raise Unreadable(too_large(path.name, size))
            data = head + file.read(MOST_BYTES)
    except IsADirectoryError as error:
        raise Unreadable(_("“{path}” is a folder. Choose files in it instead.", path=path.name)) from error
    except OSError as error:
        raise Unreadable(
            _("“{path}” cannot be read: {strerror}.", path=path.name, strerror=error.strerror or error)
        ) from error
    text = decoded(data)
    if text is None:
        raise Unreadable(
            _(
                "“{path}” is neither text nor a picture. You can attach text, code, Markdown, CSV, PDF "
                "and picture files.",
                path=path.name,
            )
        )
    if not text.strip():
        raise Unreadable(_("“{path}” is empty.", path=path.name))
    return Attachment(one_line(path.name), _clean(text))


def too_large(name: str, size: int) -> str:
    """Why a text of `size` bytes cannot be attached."""
    return _(
        "“{path}” is {size}, but at most {most} of text can be attached. Attach the relevant part.",
        path=name,
        size=size_text(size),
        most=size_text(MOST_BYTES),
    )


def decoded(data: bytes) -> str | None:
    """The text of a file; None if it is not text.

    Decodes by byte order mark, as UTF-8, as UTF-16 without a mark, or else as the likeliest charset.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                break
    if _binary(data):
        return _bare_utf16(data)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    from charset_normalizer import from_bytes

    matches = from_bytes(data[:_GUESSED_BYTES])
    best = matches.best()
    western = best is not None and any(
        match.encoding == "cp1252" and match.chaos <= best.chaos for match in matches
    )
    # among equally likely charsets, the most common one
    for encoding in ("cp1252" if best is None or western else best.encoding, "cp1252"):
        try:
            return data.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return None


def _binary(data: bytes) -> bool:
    """Whether it contains bytes that no text has."""
    sample = data[:_GUESSED_BYTES]
    return 0 in data or sum(byte in _CONTROLS for byte in sample) > len(sample) // 50


def _bare_utf16(data: bytes) -> str | None:
    """UTF-16 without a byte order mark, where every other byte of Latin text is zero."""
    sample = data[:4096]
    pairs = len(sample) // 2
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if pairs and sample[first::2].count(0) > 0.4 * pairs and sample[1 - first :: 2].count(0) == 0:
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                return None
    return None


def _clean(text: str) -> str:
    """Normalise line ends; remove marks inside the text, trailing space, and lone surrogates (PDF fonts can
    yield them).
    """
    text = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "").replace("\x00", "").rstrip()


def _pdf(path: Path, size: int, stop: threading.Event) -> Attachment:
    """The text of a PDF's pages, within the limits on pages, characters, time and memory."""
    if size > MOST_PDF_BYTES:
        raise Unreadable(
            _(
                "“{path}” is {size}, but PDF files can be at most {most}. Attach a smaller file.",
                path=path.name,
                size=size_text(size),
                most=size_text(MOST_PDF_BYTES),
            )
        )
    broken = _(
        "“{path}” is damaged: its pages cannot be read. Save it again in the program that "
        "created it, then attach it again.",
        path=path.name,
    )
    answer = _ask_reader(path, stop)
    if answer is None:
        raise Unreadable(
            _(
                "“{path}” was not read completely: reading was stopped, or took too long or too much memory.",
                path=path.name,
            )
        )
    if answer.get("trouble") == "locked":
        raise Unreadable(
            _("“{path}” is encrypted. Save a copy without a password, then attach the copy.", path=path.name)
        )
    if "pages" not in answer:
        raise Unreadable(broken)
    pages, total = [str(page) for page in answer["pages"]], int(answer["total"])
    text = "\n\n".join(page for page in pages if page)
    if not text.strip():
        raise Unreadable(
            _("“{path}” contains only images. Run text recognition (OCR) on it first.", path=path.name)
        )
    note = f"first {len(pages):,} of {total:,} pages" if len(pages) < total else ""
    if answer.get("cut"):
        note = f"first {len(text):,} characters"
    return Attachment(one_line(path.name), _clean(text), note)


def _ask_reader(path: Path, stop: threading.Event) -> dict[str, Any] | None:
    """What `pdf_text` answers from a separate process; None if it was stopped, took too long or hit its
    limits.
    """
    # not needed to start the window
    import subprocess

    from engine.platform.python_process import NO_WINDOW, python_command

    limits = (MOST_PAGES, MOST_BYTES, round(MOST_PDF_S), _MOST_PAGE_BYTES, _MOST_PDF_MEMORY)
    # its input ends with this process, however that ends: nothing waits for this thread to kill the reader
    given, held = os.pipe()
    try:
        reader = subprocess.Popen(
            python_command("desktop.store.attachments.pdf_text", str(path.absolute()), *map(str, limits)),
            stdin=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, creationflags=NO_WINDOW,
        )  # fmt: skip
        return _answer_of(reader, stop)
    finally:
        os.close(given)
        os.close(held)


def _answer_of(reader: subprocess.Popen[bytes], stop: threading.Event) -> dict[str, Any] | None:
    from subprocess import TimeoutExpired

    until = time.monotonic() + MOST_PDF_S + _GRACE_S
    try:
        while True:
            try:
                out, _unused = reader.communicate(timeout=_LOOK_S)
                break
            except TimeoutExpired:
                if stop.is_set() or time.monotonic() > until:
                    return None
    finally:
        if reader.poll() is None:
            reader.kill()
            reader.communicate()
    try:
        answer = json.loads(out)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
