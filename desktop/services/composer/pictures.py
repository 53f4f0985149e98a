"""Pictures on their way into a message: checked, shrunk and encoded again, so that nothing but the picture is
left of a file: no place, no camera, no comment. These functions take long, so they belong on another thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QSize, Qt
from PySide6.QtGui import QColorSpace, QImage, QImageReader, QImageWriter, QPainter, QTransform

from desktop.store.attachments.files import Unreadable
from desktop.store.attachments.picture_kinds import HEIC, KIND_BYTES, has_metadata, picture_kind
from desktop.store.attachments.pictures import StoredPicture
from engine.errors import BadPicture
from engine.platform.regular_file import regular_file
from engine.printable import one_line
from engine.words import _

__all__ = ["LONGEST_SIDE", "MOST_BYTES", "ReadPicture", "encoded", "is_picture", "picture_bytes", "shrunk"]

LONGEST_SIDE = 2048
"""Pixels: larger pictures are shrunk by servers anyway."""
MOST_BYTES = 1_500_000
"""Bytes of a picture as it is stored and sent."""
MOST_FILE_BYTES = 64 << 20
MOST_PIXELS = 64_000_000
"""Of a file: a picture of more pixels takes more than 256 MB in memory. The header tells, before anything is
decoded.
"""
_ORIENTATIONS = {
    2: (-1, 0, 0, 1), 3: (-1, 0, 0, -1), 4: (1, 0, 0, -1), 5: (0, 1, 1, 0), 6: (0, 1, -1, 0),
    7: (0, -1, -1, 0), 8: (0, -1, 1, 0),
}  # fmt: skip
"""The matrix of `QTransform` that sets a picture upright, by its orientation (EXIF 2.3, section 4.6.4)."""
_QUALITIES = (90, 80, 65)
_SMALLEST_SIDE = 256


class ReadPicture(NamedTuple):
    """A picture that can be attached."""

    name: str
    picture: StoredPicture


def is_picture(path: Path) -> bool:
    """Whether a file is a picture, by its first bytes; False if it cannot be read."""
    try:
        regular_file(path)
        with path.open("rb") as file:
            return bool(picture_kind(file.read(KIND_BYTES)))
    except OSError:
        return False


def picture_bytes(path: Path) -> bytes:
    """The bytes of a file for `encoded`, of a larger one the first `MOST_FILE_BYTES` + 1. Raises
    `Unreadable`.
    """
    try:
        with path.open("rb") as file:
            return file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise Unreadable(
            _(
                "“{path}” cannot be read: {strerror}.",
                path=one_line(path.name),
                strerror=error.strerror or error,
            )
        ) from error


def encoded(data: bytes, name: str) -> StoredPicture:
    """The picture in the bytes of a file, to be stored; of an animation its first one. A PNG or JPEG file
    that has nothing else and is small enough stays as it is. Raises `Unreadable`.
    """
    kind = picture_kind(data[:KIND_BYTES])
    if kind == HEIC:
        raise Unreadable(
            _("“{path}” is a HEIC or AVIF picture. Save it as JPEG, then attach that file.", path=name)
        )
    if len(data) > MOST_FILE_BYTES:
        raise Unreadable(
            _(
                "“{path}” is larger than {most:,.0f} MB. Attach a smaller picture.",
                path=name,
                most=MOST_FILE_BYTES / 1e6,
            )
        )
    buffer = QBuffer()
    buffer.setData(QByteArray(data))
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer, QByteArray(kind.encode()))
    reader.setAutoTransform(True)
    size = reader.size() if kind else QSize()
    if size.isValid() and size.width() * size.height() > MOST_PIXELS:
        raise Unreadable(
            _(
                "“{path}” has {width:,} × {height:,} pixels, but at most {most:,} million pixels can be "
                "read. Attach a smaller picture.",
                path=name,
                width=size.width(),
                height=size.height(),
                most=MOST_PIXELS // 1_000_000,
            )
        )
    image = reader.read() if kind and not size.isEmpty() else QImage()
    if image.isNull():
        raise Unreadable(
            _(
                "“{path}” is damaged: the picture in it cannot be read. Save it again, then attach it.",
                path=name,
            )
        )
    small = max(image.width(), image.height()) <= LONGEST_SIDE and len(data) <= MOST_BYTES
    if not has_metadata(kind, data):
        if small:
            return StoredPicture(f"image/{kind}", image.width(), image.height(), data)
    elif kind in ("png", "webp"):
        image = _upright(image, data)
    return shrunk(image, lossless=kind in ("png", "gif", "bmp"))


def _upright(image: QImage, data: bytes) -> QImage:
    """The picture as it is shown: of these kinds of files, Qt does not read the orientation."""
    from engine.vision.pictures.images import orientation  # imports Pillow

    try:
        matrix = _ORIENTATIONS.get(orientation(data))
    except BadPicture:  # Qt has read it all the same
        return image
    return image if matrix is None else image.transformed(QTransform(*matrix, 0, 0))


def shrunk(image: QImage, lossless: bool = True) -> StoredPicture:
    """A picture with sides of at most `LONGEST_SIDE` and at most `MOST_BYTES`: as PNG if it has transparent
    parts or may be `lossless` and is small enough so, else as JPEG on white.
    """
    if max(image.width(), image.height()) > LONGEST_SIDE:
        image = _scaled(image, LONGEST_SIDE)
    plain = _plain(image)
    if lossless or image.hasAlphaChannel():
        data = _written(plain, b"png", -1)
        if len(data) <= MOST_BYTES:
            return StoredPicture("image/png", plain.width(), plain.height(), data)
    for picture in _smaller_and_smaller(_on_white(plain)):
        for quality in _QUALITIES:
            data = _written(picture, b"jpeg", quality)
            if len(data) <= MOST_BYTES:
                return StoredPicture("image/jpeg", picture.width(), picture.height(), data)
    raise AssertionError("a picture of 256 by 256 pixels exceeds a megabyte")


def _smaller_and_smaller(image: QImage) -> Iterator[QImage]:
    side = max(image.width(), image.height())
    yield image
    while side > _SMALLEST_SIDE:
        side = max(_SMALLEST_SIDE, side * 3 // 4)
        yield _scaled(image, side)


def _scaled(image: QImage, side: int) -> QImage:
    size = image.size().scaled(side, side, Qt.AspectRatioMode.KeepAspectRatio).expandedTo(QSize(1, 1))
    return image.scaled(
        size, Qt.AspectRatioMode.IgnoreAspectRatio, Qt.TransformationMode.SmoothTransformation
    )


def _plain(image: QImage) -> QImage:
    """The pixels in the colours of every screen, without the texts and the profile of the file."""
    if image.colorSpace().isValid() and image.colorSpace() != QColorSpace(QColorSpace.NamedColorSpace.SRgb):
        image = image.convertedToColorSpace(QColorSpace(QColorSpace.NamedColorSpace.SRgb))
    alpha = image.hasAlphaChannel()
    image = image.convertToFormat(QImage.Format.Format_ARGB32 if alpha else QImage.Format.Format_RGB32)
    return QImage(
        image.constBits(), image.width(), image.height(), image.bytesPerLine(), image.format()
    ).copy()


def _on_white(image: QImage) -> QImage:
    if not image.hasAlphaChannel():
        return image
    ground = QImage(image.size(), QImage.Format.Format_RGB32)
    ground.fill(Qt.GlobalColor.white)
    painter = QPainter(ground)
    painter.drawImage(0, 0, image)
    painter.end()
    return ground


def _written(image: QImage, format: bytes, quality: int) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QImageWriter(buffer, QByteArray(format))
    writer.setQuality(quality)
    writer.write(image)
    return bytes(buffer.data().data())
