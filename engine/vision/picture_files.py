"""Picture files: from their bytes to a `Picture`, by their headers."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from engine.core import Picture
from engine.errors import BadPicture
from engine.platform.regular_file import regular_file
from engine.printable import one_line
from engine.words import _

MOST_BYTES = 20 << 20
"""Of a picture file."""
MOST_PIXELS = 64_000_000
"""A picture of more pixels takes more than 256 MB of memory while it is read."""
MEDIA_TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
"""The kinds of files that are read, by Pillow's names."""
_ORIENTATION, _SWAPPED = 0x0112, (5, 6, 7, 8)
"""The tag of Exif that says how a picture is turned, and its values for a quarter turn."""
_LATE_ORIENTATION = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")
"""What a PNG file has that may say it, perhaps after the pixels."""

Image.MAX_IMAGE_PIXELS = None  # which warns and raises errors of its own; `MOST_PIXELS` is checked here


def picture_from(data: bytes, name: str) -> Picture:
    """The bytes of a PNG, JPEG, WebP, GIF or BMP file as a picture; its width and height are those that it is
    shown with, after the turn that Exif may tell. The pixels are not read. Raises `BadPicture`.
    """
    shown = one_line(name)
    if len(data) > MOST_BYTES:
        raise BadPicture(
            _(
                "“{path}” has {size:,.1f} MB, but at most {most:,.0f} MB are read; use a smaller one.",
                path=shown,
                size=len(data) / 1e6,
                most=MOST_BYTES / 1e6,
            )
        )
    try:
        with Image.open(io.BytesIO(data), formats=list(MEDIA_TYPES)) as image:
            kind, (width, height) = image.format, image.size
            if width * height <= MOST_PIXELS and _turned(image, data):
                width, height = height, width
    except Exception as error:  # Pillow raises errors of many kinds for broken files
        raise BadPicture(
            _(
                "“{path}” is not a picture that can be read, or is damaged; use a PNG, JPEG, WebP, GIF or "
                "BMP file.",
                path=shown,
            )
        ) from error
    if width * height > MOST_PIXELS:
        raise BadPicture(
            _(
                "“{path}” has {width:,} × {height:,} pixels, but at most {most:,} million pixels are read; "
                "use a smaller one.",
                path=shown,
                width=width,
                height=height,
                most=MOST_PIXELS // 1_000_000,
            )
        )
    return Picture(name, "", width, height, MEDIA_TYPES[str(kind)], data)


def _turned(image: Image.Image, data: bytes) -> bool:
    """Whether width and height change places when the picture is shown."""
    if image.format == "PNG" and not any(mark in data for mark in _LATE_ORIENTATION):
        return False  # Pillow would decode all to look for it
    return image.getexif().get(_ORIENTATION) in _SWAPPED


def read_picture(path: Path) -> Picture:
    """The picture in a file. Raises `BadPicture`, also for a file that cannot be read."""
    try:
        regular_file(path)
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadPicture(
            _("“{path}” cannot be read: {reason}.", path=one_line(path.name), reason=error.strerror or error)
        ) from error
    return picture_from(data, path.name)
