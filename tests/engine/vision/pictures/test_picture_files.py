"""What the headers of picture files say, and the sentences about files that are none."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image

from engine.errors import BadPicture
from engine.vision.pictures.picture_files import MOST_BYTES, picture_from, read_picture


def file_of(kind: str, size: tuple[int, int] = (30, 20), turn: int = 0) -> bytes:
    """A picture file, with Exif's orientation `turn`."""
    out = io.BytesIO()
    more = {}
    if turn:
        exif = Image.Exif()
        exif[0x0112] = turn
        more = {"exif": exif.tobytes()}
    Image.new("RGB", size, (200, 30, 60)).save(out, kind, **more)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_the_kinds_that_are_read(kind: str) -> None:
    data = file_of(kind)
    picture = picture_from(data, "a.bin")
    assert (picture.width, picture.height, picture.data) == (30, 20, data)
    assert (picture.media_type, picture.name) == (f"image/{kind.lower()}", "a.bin")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize(("turn", "size"), [(1, (30, 20)), (3, (30, 20)), (6, (20, 30)), (8, (20, 30))])
def test_a_quarter_turn_of_exif_swaps_width_and_height(kind: str, turn: int, size: tuple[int, int]) -> None:
    picture = picture_from(file_of(kind, turn=turn), "a")
    assert (picture.width, picture.height) == size


def test_a_turn_after_the_pixels_of_a_png_file_counts() -> None:
    data = file_of("PNG", turn=6)
    at = data.index(b"eXIf") - 4
    length = 12 + struct.unpack(">I", data[at : at + 4])[0]
    chunk, rest = data[at : at + length], data[:at] + data[at + length :]
    end = rest.index(b"IEND") - 4
    moved = rest[:end] + chunk + rest[end:]
    assert picture_from(moved, "a").width == 20


@pytest.mark.parametrize(
    "data", [b"", b"no picture", file_of("PNG")[:20], b"\x89PNG\r\n\x1a\n" + b"\0" * 100]
)
def test_what_is_no_picture(data: bytes) -> None:
    with pytest.raises(BadPicture, match="The picture cannot be read: it is damaged, or of no format"):
        picture_from(data, "a.png")


def png_header(width: int, height: int) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = b"IDAT" + zlib.compress(b"")
    chunks = b"".join(
        struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
        for body in (head, pixels, b"IEND")
    )
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize("size", [(12_000, 12_000), (1, 140_000_000)])
def test_too_many_pixels_are_refused_by_the_header(size: tuple[int, int]) -> None:
    with pytest.raises(BadPicture, match="pixels, but at most 134 million pixels can be read"):
        picture_from(png_header(*size), "a.png")


def test_too_many_bytes() -> None:
    with pytest.raises(BadPicture, match=r"has 21.0 MB, but at most 21 MB are read; make it smaller"):
        picture_from(b"\0" * (MOST_BYTES + 1), "a")


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BadPicture, match=r"“a\.png” cannot be read: No such file or directory"):
        read_picture(tmp_path / "a.png")
    with pytest.raises(BadPicture, match="cannot be read: Is a directory"):
        read_picture(tmp_path)
    (tmp_path / "c.jpg").write_bytes(b"text")
    with pytest.raises(BadPicture, match=r"c\.jpg: The picture cannot be read"):
        read_picture(tmp_path / "c.jpg")
    (tmp_path / "b.jpg").write_bytes(file_of("JPEG"))
    assert read_picture(tmp_path / "b.jpg").name == "b.jpg"
