"""Documents of Word (.docx)."""

from __future__ import annotations

import io
import re
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile

from desktop.store.attachments.documents.markdown import from_html
from desktop.store.attachments.documents.packages import part

__all__ = ["read"]

_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"
"""Besides mammoth's own."""
_MAIN = "word/document.xml"
_RUBY = re.compile(rb"<w:ruby>.*?<w:rubyBase>(.*?)</w:rubyBase>.*?</w:ruby>", re.DOTALL)
"""Text with its reading above it (ECMA-376, part 1, section 17.3.3.25)."""


def read(path: str) -> str:
    """The document as Markdown: headings, lists, tables, notes and links, without pictures and comments."""
    import mammoth

    def no_picture(image: Any) -> dict[str, str]:
        return {}

    with _opened(path) as file:
        found = mammoth.convert_to_html(
            file, convert_image=mammoth.images.img_element(no_picture), style_map=_STYLES
        )
    return from_html(found.value)


def _opened(path: str) -> IO[bytes]:
    """The file; one with readings above its text without them: mammoth leaves out both."""
    with ZipFile(path) as archive:
        main = part(archive, _MAIN) if _MAIN in archive.namelist() else b""
        if b"<w:ruby>" not in main:
            return open(path, "rb")
        without = io.BytesIO()
        with ZipFile(without, "w", ZIP_DEFLATED) as copy:
            for name in archive.namelist():
                copy.writestr(name, _RUBY.sub(rb"\1", main) if name == _MAIN else part(archive, name))
    without.seek(0)
    return without
