"""A persona's picture in a circle: its image, or its emoji or initials on a neutral background."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QImage,
    QImageReader,
    QPainter,
    QPainterPath,
    QPalette,
    QPixmap,
)

from desktop.store.conversations.personas import LARGEST_IMAGE
from desktop.store.database.database import StoreError
from engine.platform.regular_file import regular_file
from engine.words import _

__all__ = ["avatar", "face_of", "read_picture"]

_SIDE = 256
"""Device pixels of a stored picture, enough for a large avatar on a high-density screen."""
_MOST_PIXELS = 100_000_000


def face_of(name: str, chosen: str) -> str:
    """What is shown without a picture: what the user chose, else the initials of the name."""
    if chosen:
        return chosen
    words = [word for word in name.split() if word[0].isalnum()] or name.split()
    return "".join(word[0] for word in (words[:1] if len(words) < 2 else (words[0], words[-1]))).upper()


def avatar(name: str, chosen: str, image: bytes, side: int, ratio: float, palette: QPalette) -> QPixmap:
    """A round picture of `side` pixels at the screen's `ratio`. An unreadable image is ignored."""
    role = QPalette.ColorRole
    colours = (
        palette.color(role.Highlight).name(),
        palette.color(role.Window).name(),
        palette.color(role.WindowText).name(),
    )
    return _draw(face_of(name, chosen), image, side, ratio, colours)


@lru_cache(maxsize=64)
def _draw(face: str, image: bytes, side: int, ratio: float, colours: tuple[str, str, str]) -> QPixmap:
    pixels = max(1, round(side * ratio))
    made = QPixmap(pixels, pixels)
    made.fill(Qt.GlobalColor.transparent)
    painter = QPainter(made)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
    circle = QPainterPath()
    circle.addEllipse(QRectF(0, 0, pixels, pixels))
    painter.setClipPath(circle)
    picture = QImage.fromData(image) if image else QImage()
    if not picture.isNull():
        painter.drawImage(QRectF(0, 0, pixels, pixels), picture, _middle(picture.size()))
    else:
        accent, ground, text = (QColor(name) for name in colours)
        painter.fillPath(circle, ground)
        accent.setAlphaF(0.22)
        painter.fillPath(circle, accent)
        font = QFont()
        font.setPixelSize(max(1, round(pixels * (0.56 if len(face) < 2 else 0.42))))
        font.setWeight(QFont.Weight.DemiBold)
        wide = QFontMetricsF(font).horizontalAdvance(face)
        if wide > pixels * 0.8:
            font.setPixelSize(max(1, round(font.pixelSize() * pixels * 0.8 / wide)))
        painter.setFont(font)
        painter.setPen(text)
        painter.drawText(QRectF(0, 0, pixels, pixels), int(Qt.AlignmentFlag.AlignCenter), face)
    painter.end()
    made.setDevicePixelRatio(ratio)
    return made


def read_picture(path: Path) -> bytes:
    """A picture file as a square PNG (JPEG if that is too large) of at most 256 pixels and 256 KiB.

    Raises `StoreError`.
    """
    try:
        regular_file(path)
    except OSError as error:
        raise StoreError(
            _("{path} cannot be read: {strerror}.", path=path.name, strerror=error.strerror)
        ) from error
    reader = QImageReader(str(path))
    reader.setAutoTransform(True)
    size = reader.size()
    if size.isValid() and size.width() * size.height() > _MOST_PIXELS:
        raise StoreError(
            _(
                "The picture {path} is too large ({width:,} × {height:,} pixels). Choose a smaller one.",
                path=path.name,
                width=size.width(),
                height=size.height(),
            )
        )
    picture = reader.read()
    if picture.isNull():
        raise StoreError(
            _(
                "{path} is not a readable picture ({errorstring}). Choose a PNG, JPEG, WebP or GIF file.",
                path=path.name,
                errorstring=reader.errorString(),
            )
        )
    picture = picture.copy(_middle(picture.size()).toRect())
    if picture.width() > _SIDE:
        picture = picture.scaled(
            _SIDE, _SIDE, Qt.AspectRatioMode.IgnoreAspectRatio, Qt.TransformationMode.SmoothTransformation
        )
    png = _encoded(picture, "PNG")
    return (
        png
        if len(png) <= LARGEST_IMAGE
        else _encoded(picture.convertToFormat(QImage.Format.Format_RGB32), "JPG")
    )


def _encoded(picture: QImage, kind: str) -> bytes:
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    picture.save(buffer, kind, 90 if kind == "JPG" else -1)  # type: ignore[call-overload]
    return bytes(data.data())


def _middle(size: QSize) -> QRectF:
    """The largest square in the middle of a picture."""
    side = min(size.width(), size.height())
    return QRectF((size.width() - side) / 2, (size.height() - side) / 2, side, side)
