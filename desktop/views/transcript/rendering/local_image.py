"""Local pictures that a message names: read with care, and never from the network.

A path is only followed when it is absolute and names an ordinary file of bounded size in a format that cannot
refer to other files.
"""

from __future__ import annotations

import stat
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QSize, Qt, QUrl
from PySide6.QtGui import QImage, QImageReader

from desktop.views.transcript.rendering.math_image import Picture

__all__ = ["LARGEST", "decoded", "local_path", "read_picture"]

LARGEST = 32 * 1024 * 1024
"""The size in bytes of the largest file that is read."""
_PIXELS = 100_000_000
_FORMATS = {
    ".png": b"png",
    ".jpg": b"jpeg",
    ".jpeg": b"jpeg",
    ".gif": b"gif",
    ".bmp": b"bmp",
    ".webp": b"webp",
}


def local_path(address: str) -> str:
    """The absolute local path that `address` (a path or a file: address) means; empty for everything else.

    `//server/share` and `\\\\server\\share` are network paths.
    """
    if address.lower().startswith("file:"):
        url = QUrl(address)
        if url.host() not in ("", "localhost"):
            return ""
        address = QUrl.fromLocalFile(url.path(QUrl.ComponentFormattingOption.FullyDecoded)).toLocalFile()
    if address.startswith(("//", "\\\\", "/\\", "\\/")) or "\0" in address:
        return ""
    path = Path(address)
    return address if path.is_absolute() and path.suffix.lower() in _FORMATS else ""


def read_picture(path: str, width: int, ratio: float) -> Picture | None:
    """The picture at `path`, shrunk to `width` logical pixels; None when it cannot be shown."""
    kind = _FORMATS.get(Path(path).suffix.lower())
    data = _read(path) if kind is not None else None
    return decoded(data, width, ratio, kind) if data is not None and kind is not None else None


def decoded(data: bytes, width: int, ratio: float, kind: bytes = b"") -> Picture | None:
    """The picture in the bytes of a file of this `kind`, as `read_picture`."""
    buffer = QBuffer()
    buffer.setData(QByteArray(data))
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer, QByteArray(kind))
    reader.setAutoTransform(True)
    size = reader.size()
    if not size.isValid() or size.isEmpty() or size.width() * size.height() > _PIXELS:
        return None
    image = reader.read()
    if image.isNull():
        return None
    shown = _fitted(image.size(), width)
    scaled = QSize(round(shown.width() * ratio), round(shown.height() * ratio))
    if scaled.width() < image.width():
        image = image.scaled(
            scaled, Qt.AspectRatioMode.IgnoreAspectRatio, Qt.TransformationMode.SmoothTransformation
        )
    return Picture(
        image.convertToFormat(QImage.Format.Format_ARGB32_Premultiplied), shown.width(), shown.height(), 0
    )


def _fitted(size: QSize, width: int) -> QSize:
    """At most `width` wide and not higher than that either."""
    if size.width() <= width and size.height() <= width:
        return size
    return size.scaled(width, width, Qt.AspectRatioMode.KeepAspectRatio).expandedTo(QSize(1, 1))


def _read(path: str) -> bytes | None:
    """The bytes of an ordinary file, None when it is too large or cannot be read."""
    try:
        about = Path(path).stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            return None
        with Path(path).open("rb") as file:
            return file.read(LARGEST + 1)[:LARGEST]
    except (OSError, ValueError):
        return None
