"""How documents begin."""

from __future__ import annotations

__all__ = ["OLE", "PDF", "RTF", "ZIP", "is_document"]

PDF, ZIP, RTF = b"%PDF-", b"PK\x03\x04", b"{\\rtf"
OLE = bytes.fromhex("d0cf11e0a1b11ae1")
"""Files of Office that are older than 2007, or encrypted. [MS-CFB] section 2.2."""


def is_document(head: bytes, name: str) -> bool:
    """Whether a file that begins with `head` is a document, or something else that is not text."""
    return head.lstrip().startswith((PDF, ZIP, RTF, OLE)) or name.lower().endswith(".ipynb")
