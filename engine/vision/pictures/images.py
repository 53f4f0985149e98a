"""Picture files as pixels: reading, resizing, cutting into patches.

Everything is done on RGB pixels of 8 bits, as the image processors of Hugging Face's models do with Pillow.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import numpy as np
from PIL import Image

from engine.errors import BadPicture
from engine.lazy_dataclass import dataclass
from engine.tensors import Bytes, Floats
from engine.words import _

FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF", "JPEG2000", "ICO", "PPM")
"""The formats that are read: of pixels, by Pillow itself. Others may start programs, as PostScript does."""
MOST_PIXELS = 1 << 27
"""More are refused: 134 million pixels are 400 MB in memory, and no camera of today takes more by default."""
NEAREST, LANCZOS, BILINEAR, BICUBIC = range(4)
"""Pillow's numbers of filters, which image processors' settings have, too."""
_ORIENTATION = 0x0112
_SIDEWAYS = range(5, 9)
"""Values of the orientation (EXIF 2.3, section 4.6.4) that swap width and height."""
_TURNED_PNG = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")
"""What a PNG file with an orientation has, perhaps after its pixels, which Pillow would decode to look."""
_UNREADABLE = (
    OSError, ValueError, SyntaxError, EOFError, TypeError, KeyError, IndexError, AttributeError,
    OverflowError, ArithmeticError, NotImplementedError, RuntimeError, struct.error, zlib.error,
)  # fmt: skip
"""What Pillow raises for files that are damaged."""


def picture_size(data: bytes) -> tuple[int, int]:
    """The width and height of a picture file as it is shown, from its headers. Raises `BadPicture`."""
    with _opened(data) as image:
        width, height = image.size
        upright = image.format == "TIFF"  # whose size Pillow has turned
        upright |= image.format == "PNG" and not any(mark in data for mark in _TURNED_PNG)
        return (height, width) if not upright and _orientation(image) in _SIDEWAYS else (width, height)


def media_type(data: bytes) -> str:
    """The media type of a picture file, such as "image/png". Raises `BadPicture`."""
    with _opened(data) as image:
        return Image.MIME.get(image.format or "", "application/octet-stream")


def read_picture(data: bytes) -> Bytes:
    """The pixels of a picture file as it is shown, uint8 (height, width, 3): red, green, blue.

    The camera's orientation is applied, transparent pixels are on white, and of an animation the first
    picture is taken. Raises `BadPicture`.
    """
    with _opened(data) as image:
        if image.mode == "F":
            pixels = _grey(np.asarray(image, np.float32))  # whose white is 1
        elif image.mode.startswith("I"):  # 16 bits, which Pillow would not scale
            pixels = _grey(np.asarray(image, np.float32) / np.float32(65535))
        else:
            pixels = np.asarray(_opaque(image))
        orientation = _orientation(image)
    return np.ascontiguousarray(_upright(pixels, orientation))


def resized(picture: Bytes, width: int, height: int, filter: int) -> Bytes:
    """A picture (H, W, 3) with another size, (height, width, 3), by one of Pillow's filters."""
    if picture.shape[:2] == (height, width):
        return picture
    image = Image.fromarray(picture).resize((width, height), Image.Resampling(filter))
    return np.asarray(image)


def padded_to_square(picture: Bytes, colour: tuple[int, int, int]) -> Bytes:
    """A picture (H, W, 3) in the middle of a square of one colour."""
    height, width = picture.shape[:2]
    side = max(width, height)
    found = np.empty((side, side, 3), np.uint8)
    found[:] = colour
    top, left = (side - height) // 2, (side - width) // 2
    found[top : top + height, left : left + width] = picture
    return found


@dataclass(frozen=True, slots=True)
class Normalisation:
    """What a tower reads of a pixel: (value * scale - mean) / deviation of its colour."""

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]
    scale: float = 1 / 255

    def table(self) -> Floats:
        """The numbers of all values of each colour, (3, 256) float32."""
        values = np.arange(256, dtype=np.float32) * np.float32(self.scale)
        mean, deviation = (np.array(each, np.float32)[:, None] for each in (self.mean, self.deviation))
        table: Floats = (values[None, :] - mean) / deviation
        return table

    def of(self, picture: Bytes | Floats) -> Floats:
        """The numbers (3, H, W) of a picture (H, W, 3)."""
        if picture.dtype == np.uint8:
            table = self.table()
            return np.stack([table[colour][picture[:, :, colour]] for colour in range(3)])
        mean, deviation = (np.array(each, np.float32) for each in (self.mean, self.deviation))
        values = (picture * np.float32(self.scale) - mean) / deviation
        return np.ascontiguousarray(values.transpose(2, 0, 1), np.float32)


def patches(
    picture: Bytes | Floats, size: int, normalisation: Normalisation, *, colours_last: bool = False
) -> Floats:
    """The patches of a picture (H, W, 3) from left to right and from top to bottom, `size` pixels square. Its
    values may be between those of bytes.

    (H / size * W / size, 3 * size * size) float32; of each patch first all of its red, as a convolution's
    kernel has it, or with `colours_last` the colours of its first pixel first.
    """
    rows, columns = picture.shape[0] // size, picture.shape[1] // size
    assert picture.shape == (rows * size, columns * size, 3)
    values = normalisation.of(picture)
    cells = values.reshape(3, rows, size, columns, size)
    order = (1, 3, 2, 4, 0) if colours_last else (1, 3, 0, 2, 4)
    return np.ascontiguousarray(cells.transpose(order)).reshape(rows * columns, 3 * size * size)


@contextmanager
def _opened(data: bytes) -> Iterator[Image.Image]:
    """The picture in `data`, of which only headers have been read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged headers, and of sizes that are checked here
            Image.init()  # registers all formats, the first time
            with Image.open(BytesIO(data), formats=[each for each in FORMATS if each in Image.OPEN]) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise _too_large(width, height)
                yield image
    except Image.DecompressionBombError as error:
        raise BadPicture(
            _("The picture has more pixels than can be read; make it smaller, and add it again.")
        ) from error
    except _UNREADABLE as error:
        raise BadPicture(
            _(
                "The picture cannot be read: it is damaged, or of no format that is supported ({formats}). "
                "Save it as PNG or JPEG, and add it again.",
                formats="PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF",
            )
        ) from error


def _too_large(width: int, height: int) -> BadPicture:
    return BadPicture(
        _(
            "The picture has {width} × {height} pixels, but at most {most} million pixels can be read; make "
            "it smaller, and add it again.",
            width=width,
            height=height,
            most=MOST_PIXELS // 1_000_000,
        )
    )


def orientation(data: bytes) -> int:
    """The orientation that a camera wrote into a picture file (EXIF 2.3, section 4.6.4); 1, upright, if there
    is none. Raises `BadPicture`.
    """
    with _opened(data) as image:
        return _orientation(image)


def _orientation(image: Image.Image) -> int:
    """The orientation that a camera wrote; 1, upright, if it cannot be read."""
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except _UNREADABLE:
        return 1
    return found if isinstance(found, int) else 1


def _upright(pixels: Bytes, orientation: int) -> Bytes:
    """The picture as it is shown (EXIF 2.3, section 4.6.4): mirrored, then turned."""
    if orientation in (2, 3, 7, 8):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 6, 7):
        pixels = pixels[::-1]
    return pixels.swapaxes(0, 1) if orientation in _SIDEWAYS else pixels


def _grey(values: Floats) -> Bytes:
    """Three colours of values from 0 to 1 (H, W)."""
    grey: Bytes = np.rint(np.clip(np.nan_to_num(values), 0, 1) * 255).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def _opaque(image: Image.Image) -> Image.Image:
    """The picture in RGB, on white where it is transparent."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    whole = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole).convert("RGB")
