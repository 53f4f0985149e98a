"""Picture files for tests, good and bad."""

from __future__ import annotations

import struct
import zlib

from PySide6.QtCore import QBuffer, QByteArray, QIODevice
from PySide6.QtGui import QColor, QImage, QImageWriter

__all__ = ["PLACE", "bomb", "chunk", "drawn", "jpeg_with_place", "saved"]

PLACE = b"GPSLatitude 48.8584 N"


def drawn(width: int = 64, height: int = 48, colour: str = "#3070c0", noise: bool = False) -> QImage:
    """A picture with a frame of one colour in another, or of noise, which no format makes small."""
    image = QImage(width, height, QImage.Format.Format_RGB32)
    if noise:
        state, rows = 12345, bytearray()
        for _ in range(width * height):
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF
            rows += struct.pack("<I", state)
        return QImage(bytes(rows), width, height, QImage.Format.Format_RGB32).copy()
    image.fill(QColor(colour))
    for x in range(width // 4, width // 2):
        for y in range(height // 4, height // 2):
            image.setPixelColor(x, y, QColor("#f0c020"))
    return image


def saved(image: QImage, format: bytes = b"png", quality: int = -1) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QImageWriter(buffer, QByteArray(format))
    writer.setQuality(quality)
    assert writer.write(image)
    return bytes(buffer.data().data())


def jpeg_with_place(image: QImage) -> bytes:
    """A JPEG file that says where it was taken (an APP1 segment)."""
    data = saved(image, b"jpeg", 90)
    exif = b"Exif\0\0" + PLACE
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(side: int = 50_000) -> bytes:
    """A small PNG file whose header promises `side` by `side` pixels."""
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )
