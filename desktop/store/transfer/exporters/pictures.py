"""The pictures of messages in exported texts: as addresses that hold them, so that a file is complete."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from html import escape

from desktop.store.attachments.picture_marks import MARK, PictureMark, in_words, marks, replaced
from desktop.store.attachments.pictures import StoredPicture

__all__ = ["as_html", "as_markdown", "text_and_pictures"]

Pictures = Mapping[str, StoredPicture]


def _address(picture: StoredPicture) -> str:
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode('ascii')}"


def as_markdown(text: str, pictures: Pictures) -> str:
    """Markdown with its pictures; the names of those that are not there."""

    def shown(mark: PictureMark) -> str:
        found = pictures.get(mark.key)
        return f"![{mark.name}]({_address(found)})" if found is not None else mark.words

    return replaced(text, shown)


def as_html(text: str, pictures: Pictures) -> str:
    """Text as typed, with its pictures, as HTML."""
    return "".join(part if is_html else escape(part) for is_html, part in text_and_pictures(text, pictures))


def text_and_pictures(text: str, pictures: Pictures) -> Iterator[tuple[bool, str]]:
    """The parts of a text as typed: (False, text as it is) and (True, HTML of a picture)."""
    rest = 0
    for match, mark in zip(MARK.finditer(text), marks(text), strict=True) if marks(text) else ():
        found = pictures.get(mark.key)
        if match.start() > rest:
            yield False, text[rest : match.start()]
        rest = match.end()
        if found is None:
            yield False, mark.words
        else:
            name = escape(mark.name)
            yield True, f'<img src="{_address(found)}" alt="{name}" width="{mark.width}">'
    if text[rest:] or not rest:
        yield False, in_words(text[rest:])
