"""Reads the text of a file to attach: detects its encoding, has documents read, refuses anything else."""

from __future__ import annotations

import codecs
import threading
from pathlib import Path

from desktop.store.attachments.documents.kinds import is_document
from desktop.store.attachments.documents.reading import not_text, read_document
from desktop.store.attachments.message_format import Attachment
from desktop.store.attachments.unreadable import Unreadable
from engine.platform.regular_file import regular_file
from engine.printable import one_line
from engine.units import size_text
from engine.words import _

__all__ = ["MOST_BYTES", "Unreadable", "decoded", "read_attachment", "too_large"]

MOST_BYTES = 8 << 20
"""Bytes of a text file, and characters of a document's text: about two million tokens."""
_GUESSED_BYTES = 64 << 10
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
"""Byte order marks; UTF-32's come before UTF-16's, which are prefixes of them."""
_CONTROLS = frozenset(range(32)) - {7, 8, 9, 10, 12, 13, 27}


def read_attachment(path: Path, stop: threading.Event) -> Attachment:
    """The text of the file; for a long document, its beginning. Raises `Unreadable`.

    A document is read by a separate process, which `stop` ends at once.
    """
    try:
        size = regular_file(path).st_size
        with path.open("rb") as file:
            head = file.read(1024)
            if is_document(head, path.name):
                text, note = read_document(path, size, MOST_BYTES, stop)
                return Attachment(one_line(path.name), _clean(text), note)
            if size > MOST_BYTES:
                raise Unreadable(too_large(path.name, size))
            data = head + file.read(MOST_BYTES)
    except IsADirectoryError as error:
        raise Unreadable(_("“{path}” is a folder. Choose files in it instead.", path=path.name)) from error
    except OSError as error:
        raise Unreadable(
            _("“{path}” cannot be read: {strerror}.", path=path.name, strerror=error.strerror or error)
        ) from error
    found = decoded(data)
    if found is None:
        raise Unreadable(not_text(path.name))
    if not found.strip():
        raise Unreadable(_("“{path}” is empty.", path=path.name))
    return Attachment(one_line(path.name), _clean(found))


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

    Decodes by byte order mark, as UTF-8, as UTF-16 without a mark, or else as the likeliest charset. Where a
    file with the mark of UTF-8 is not UTF-8, the mark is not part of the text.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                data = data.removeprefix(codecs.BOM_UTF8)
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
        "cp1252" in match.could_be_from_charset and match.chaos <= best.chaos for match in matches
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
