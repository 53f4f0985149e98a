"""The file types that the program opens, and its icon as each system needs it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import resources
from engine.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from PySide6.QtGui import QImage

__all__ = ["ICON_SIZES", "KINDS", "EntryError", "FileKind", "write_picture"]

ICON_SIZES = (16, 22, 24, 32, 48, 64, 128, 256, 512)


class EntryError(Exception):
    """The entry could not be added or removed; the message is one sentence for the user."""


@dataclass(frozen=True)
class FileKind:
    """A file type: its name for the user, MIME type and extension, and its ProgID on Windows."""

    label: str
    mime: str
    suffix: str
    prog_id: str


KINDS = (
    FileKind("Language model (GGUF)", "application/x-gguf", ".gguf", "Inglenook.Model"),
    FileKind("Inglenook chats", "application/x-inglenook-chats+json", ".inglenook.json", "Inglenook.Chats"),
)


def write_picture(path: Path, size: int = 256) -> None:
    """Write the program's icon, `size` by `size` pixels, in the format of the extension: .png, .ico or .icns.

    Raises OSError.
    """
    if not _picture(size).save(str(path)):
        raise OSError(errno.EIO, "the icon cannot be written", str(path))


def _picture(size: int) -> QImage:
    from PySide6.QtCore import QByteArray, QRectF, Qt
    from PySide6.QtGui import QImage, QPainter
    from PySide6.QtSvg import QSvgRenderer

    picture = QImage(size, size, QImage.Format.Format_ARGB32)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    QSvgRenderer(QByteArray(resources.text("icons/inglenook.svg").encode())).render(
        painter, QRectF(0, 0, size, size)
    )
    painter.end()
    return picture
