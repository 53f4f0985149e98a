"""Puts formulas, footnote references and pictures into a document, at the places that `mark_spans` marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from PySide6.QtCore import QUrl
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFont,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextImageFormat,
)

from desktop.blocks import Span, SpanKind
from desktop.services.formulas.rich_text import formula_size, fragments, set_descent
from desktop.store.attachments.picture_marks import ADDRESS
from desktop.views.transcript.rendering.image_loader import ImageKey, ImageLoader
from desktop.views.transcript.rendering.local_image import local_path
from desktop.views.transcript.rendering.math_image import Picture
from desktop.views.transcript.style import Style

__all__ = [
    "FOOTNOTE_SCHEME",
    "SPOKEN",
    "InlineObject",
    "fit_pictures",
    "put_inlays",
    "selected_source",
    "source_length",
]

FOOTNOTE_SCHEME = "footnote:"
"""The scheme of links from a footnote's number to its text."""
_SOURCE = QTextFormat.Property.UserProperty.value + 1
_NATURAL = QTextFormat.Property.UserProperty.value + 2
SPOKEN = QTextFormat.Property.UserProperty.value + 3
"""The property of a formula that is written in words: its Markdown source."""
_OBJECT = "\ufffc"


class InlineObject(NamedTuple):
    """The source of pictures, the `ink` of formulas, and the device pixels per logical pixel."""

    pictures: ImageLoader
    ink: QColor
    ratio: float

    def math_key(self, span: Span, font: QFont) -> ImageKey:
        """The key of a formula among letters of `font`."""
        display = span.kind is SpanKind.DISPLAY
        return ImageKey(span.content, formula_size(font), self.ink.name(), display, 0, self.ratio)


def put_inlays(
    document: QTextDocument, spans: Mapping[str, Span], style: Style, inlay: InlineObject | None,
    spoken: Callable[[str], str] | None = None,
) -> set[ImageKey]:  # fmt: skip
    """Replace every mark; returns the pictures that are still being made, whose source is shown until then.

    With `spoken`, which turns LaTeX into words, formulas are written in words.
    """
    places: list[tuple[int, Span]] = []
    block = document.begin()
    while block.isValid():
        offset = block.position()
        for letter in block.text():
            if letter in spans:
                places.append((offset, spans[letter]))
            offset += 2 if letter > "\uffff" else 1
        block = block.next()
    pending: set[ImageKey] = set()
    cursor = QTextCursor(document)
    for position, span in reversed(places):
        cursor.setPosition(position)
        cursor.setPosition(position + 1, QTextCursor.MoveMode.KeepAnchor)
        if span.kind is SpanKind.FOOTNOTE:
            _put_reference(cursor, span, style)
        elif spoken is not None and span.kind is not SpanKind.IMAGE:
            shape = QTextCharFormat(cursor.charFormat())
            shape.setProperty(SPOKEN, span.source)
            cursor.insertText(spoken(span.content), shape)
        else:
            pending |= _put_picture(document, cursor, span, style, inlay)
    return pending


def _put_reference(cursor: QTextCursor, span: Span, style: Style) -> None:
    shape = cursor.charFormat()
    shape.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignSuperScript)
    shape.setAnchor(True)
    shape.setAnchorHref(FOOTNOTE_SCHEME + span.content)
    shape.setForeground(QBrush(style.colours.link))
    shape.setProperty(_SOURCE, span.source)
    cursor.insertText(span.content, shape)


def _put_picture(
    document: QTextDocument, cursor: QTextCursor, span: Span, style: Style, inlay: InlineObject | None
) -> set[ImageKey]:
    shape = QTextCharFormat(cursor.charFormat())
    key: ImageKey | None = None
    if inlay is not None and span.kind is SpanKind.IMAGE:
        own = span.content.startswith(ADDRESS)
        path = span.content if own else local_path(span.content)
        key = ImageKey(path, width=style.column, ratio=inlay.ratio) if path else None
    elif inlay is not None:
        key = inlay.math_key(
            span,
            shape.font() if shape.hasProperty(QTextFormat.Property.FontPointSize.value) else style.text_font,
        )
    picture = inlay.pictures.get(key) if inlay is not None and key is not None else None
    if picture is not None:
        cursor.insertImage(_image_format(document, picture, span, style, shape))
        if span.kind is SpanKind.IMAGE:  # a proportional line height would add too much
            single = QTextBlockFormat()
            single.setLineHeight(100.0, QTextBlockFormat.LineHeightTypes.SingleHeight.value)
            cursor.mergeBlockFormat(single)
        return set()
    if span.kind is SpanKind.IMAGE:
        shape.setAnchor(True)
        shape.setAnchorHref(span.content)
        shape.setForeground(QBrush(style.colours.link))
        cursor.insertText(span.words or "picture", shape)
    else:
        shape.setFontFamilies(style.code_font.families() or [style.code_font.family()])
        shape.setFontPointSize(style.text_font.pointSizeF() * 0.93)
        cursor.insertText(span.source, shape)
    if inlay is None or key is None or inlay.pictures.known(key):
        return set()
    inlay.pictures.want(key)
    return {key}


def _image_format(
    document: QTextDocument, picture: Picture, span: Span, style: Style, around: QTextCharFormat
) -> QTextImageFormat:
    name = f"inlay:{hash((span, picture.width, picture.height)) & 0xFFFFFFFFFFFF:x}"
    document.addResource(QTextDocument.ResourceType.ImageResource.value, QUrl(name), picture.image)
    made = QTextImageFormat()
    made.setName(name)
    made.setProperty(_SOURCE, span.source)
    made.setProperty(_NATURAL, [picture.width, picture.height, picture.descent])
    if around.isAnchor():
        made.setAnchor(True)
        made.setAnchorHref(around.anchorHref())
    _set_size(made, style.text_font, picture.width, picture.height, picture.descent)
    return made


def _set_size(made: QTextImageFormat, font: QFont, width: int, height: int, descent: int) -> None:
    set_descent(made, font, min(descent, height))
    made.setWidth(width)
    made.setHeight(height)


def fit_pictures(document: QTextDocument, style: Style, width: float) -> None:
    """Shrink pictures that are wider than `width` to it, and show others in their natural size."""
    cursor = QTextCursor(document)
    block = document.begin()
    while block.isValid():
        for start, length, shape in fragments(block):
            natural = shape.property(_NATURAL) if shape.isImageFormat() else None
            if not natural:
                continue
            wide, high, descent = natural
            share = min(1.0, max(16.0, width) / wide)
            made = shape.toImageFormat()
            if made.width() != round(wide * share):
                _set_size(
                    made,
                    style.text_font,
                    round(wide * share),
                    max(1, round(high * share)),
                    round(descent * share),
                )
                cursor.setPosition(start)
                cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
                cursor.setCharFormat(made)
        block = block.next()


def source_length(shape: QTextCharFormat, length: int) -> int:
    """The number of characters of Markdown source behind a run of `length` characters of this format."""
    return length * len(str(shape.property(_SOURCE) or _OBJECT)) if shape.isImageFormat() else length


def selected_source(cursor: QTextCursor) -> str:
    """The selected text, with the Markdown source of pictures."""
    text = cursor.selectedText()
    if _OBJECT not in text:
        return text
    sources: list[str] = []
    block = cursor.document().findBlock(cursor.selectionStart())
    while block.isValid() and block.position() < cursor.selectionEnd():
        for start, _, shape in fragments(block):
            if cursor.selectionStart() <= start < cursor.selectionEnd() and shape.isImageFormat():
                sources.append(str(shape.property(_SOURCE) or ""))
        block = block.next()
    parts = text.split(_OBJECT)
    sources += [""] * (len(parts) - 1 - len(sources))
    return "".join(part + source for part, source in zip(parts, [*sources, ""], strict=False))
