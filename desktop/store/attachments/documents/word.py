"""Documents of Word (.docx)."""

from __future__ import annotations

from typing import Any

from desktop.store.attachments.documents.markdown import from_html

__all__ = ["read"]

_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"
"""Besides mammoth's own."""


def read(path: str) -> str:
    """The document as Markdown: headings, lists, tables, notes and links, without pictures and comments."""
    import mammoth

    def no_picture(image: Any) -> dict[str, str]:
        return {}

    with open(path, "rb") as file:
        found = mammoth.convert_to_html(
            file, convert_image=mammoth.images.img_element(no_picture), style_map=_STYLES
        )
    return from_html(found.value)
