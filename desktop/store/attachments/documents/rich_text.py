"""Rich Text Format (.rtf)."""

from __future__ import annotations

__all__ = ["read"]


def read(path: str) -> str:
    """The text, without pictures."""
    from striprtf.striprtf import rtf_to_text

    with open(path, encoding="latin-1") as file:  # RTF is ASCII, and other bytes are of its own code page
        text: str = rtf_to_text(file.read(), errors="replace")
    return text.strip()
