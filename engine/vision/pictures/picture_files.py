"""Picture files: from their bytes to a `Picture`, by their headers."""

from __future__ import annotations

from pathlib import Path

from engine.core import Picture
from engine.errors import BadPicture
from engine.platform.regular_file import regular_file
from engine.printable import one_line
from engine.words import _

MOST_BYTES = 20 << 20
"""Of a picture file."""


def picture_from(data: bytes, name: str = "") -> Picture:
    """The bytes of a picture file as a picture, with the width and height that it is shown with. Its pixels
    are not read. Raises `BadPicture`.
    """
    from engine.vision.pictures.images import media_type, picture_size  # imports Pillow

    if len(data) > MOST_BYTES:
        raise BadPicture(
            _(
                "The picture has {size:,.1f} MB, but at most {most:,.0f} MB are read; make it smaller, and "
                "add it again.",
                size=len(data) / 1e6,
                most=MOST_BYTES / 1e6,
            )
        )
    width, height = picture_size(data)
    return Picture(name, "", width, height, media_type(data), data)


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
    try:
        return picture_from(data, path.name)
    except BadPicture as error:
        raise BadPicture(_("{path}: {reason}", path=one_line(path.name), reason=error)) from error
