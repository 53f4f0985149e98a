"""Pictures as pixels, against Pillow's and torch's own functions; and files that are damaged."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from engine.errors import BadPicture
from engine.vision.pictures.images import (
    MOST_PIXELS,
    Normalisation,
    media_type,
    padded_to_square,
    patches,
    picture_size,
    read_picture,
)
from tests.engine.vision.tiny.encoding import picture

SIZE = 9, 5


def saved(image: Image.Image, kind: str = "PNG", **settings: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **settings)
    return file.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_orientations_of_cameras(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless = {"lossless": True} if kind == "WEBP" else {}
    data = saved(picture(*SIZE), kind, exif=exif, **lossless)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    found = read_picture(data)
    assert np.array_equal(found, expected)
    assert picture_size(data) == (found.shape[1], found.shape[0])


def test_what_is_transparent_is_white() -> None:
    pixels = np.asarray(picture(*SIZE))
    alpha = np.full((*SIZE[::-1], 1), 255, np.uint8)
    alpha[:, :4], alpha[:, 4:6] = 0, 51
    found = read_picture(saved(Image.fromarray(np.concatenate([pixels, alpha], axis=2))))
    assert (found[:, :4] == 255).all()
    mixed = pixels[:, 4:6] * 0.2 + 255 * 0.8
    assert np.abs(found[:, 4:6] - mixed).max() <= 1
    assert np.array_equal(found[:, 6:], pixels[:, 6:])


def test_a_transparent_colour_of_a_palette_is_white() -> None:
    image = Image.new("P", (4, 1))
    image.putpalette([10, 20, 30, 200, 100, 0])
    image.putdata([0, 1, 0, 1])
    found = read_picture(saved(image, transparency=1))
    assert found.tolist() == [[[10, 20, 30], [255] * 3, [10, 20, 30], [255] * 3]]


def test_grey_of_16_bits() -> None:
    values = np.array([[0, 257 * 100, 257 * 255]], np.uint16)
    found = read_picture(saved(Image.fromarray(values)))
    assert found.tolist() == [[[0] * 3, [100] * 3, [255] * 3]]


def test_grey_of_floats() -> None:
    values = np.array([[0.0, 0.4, 1.0, 7.0, np.nan]], np.float32)
    found = read_picture(saved(Image.fromarray(values), "TIFF"))
    assert found[:, :, 0].tolist() == [[0, 102, 255, 255, 0]]


def test_inks_become_colours() -> None:
    inks = Image.new("CMYK", (2, 2), (0, 255, 255, 0))  # red
    assert read_picture(saved(inks, "TIFF")).tolist() == [[[255, 0, 0]] * 2] * 2


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_picture(kind: str) -> None:
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue", "white")]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:])
    assert np.abs(read_picture(data).astype(int) - [255, 0, 0]).max() <= 3


def test_patches_are_those_of_a_convolution() -> None:
    pixels = np.asarray(picture(15, 10))
    means, deviations = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    kernels = torch.randn(7, 3, 5, 5, generator=torch.Generator().manual_seed(1))
    values = (torch.tensor(pixels.copy()).permute(2, 0, 1) / 255 - torch.tensor(means)[:, None, None]) / (
        torch.tensor(deviations)[:, None, None]
    )
    expected = torch.nn.functional.conv2d(values[None], kernels, stride=5)[0].flatten(1).T
    found = patches(pixels, 5, Normalisation(means, deviations))
    assert np.allclose(found @ kernels.flatten(1).numpy().T, expected.numpy(), atol=1e-4)
    flat = patches(pixels, 5, Normalisation(means, deviations), colours_last=True)
    assert np.array_equal(flat.reshape(6, 25, 3).transpose(0, 2, 1), found.reshape(6, 3, 25))


def test_bars_of_a_colour_make_a_square() -> None:
    pixels = np.asarray(picture(4, 9))
    found = padded_to_square(pixels, (1, 2, 3))
    assert found.shape == (9, 9, 3)
    assert np.array_equal(found[:, 2:6], pixels)
    assert (found[:, :2] == [1, 2, 3]).all()
    assert (found[:, 6:] == [1, 2, 3]).all()


def png_of_size(width: int, height: int) -> bytes:
    """The headers of a PNG file of this size, without pixels."""
    out = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        out += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return out


@pytest.mark.parametrize("size", [(100_000, 100_000), (MOST_PIXELS, 2), (2**31 - 1, 1)])
def test_more_pixels_than_can_be_read(size: tuple[int, int]) -> None:
    for read in (read_picture, picture_size):
        with pytest.raises(BadPicture, match="pixels"):
            read(png_of_size(*size))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "ICO"])
def test_cut_files_are_found_to_be_damaged(kind: str) -> None:
    data = saved(picture(64, 48), kind)
    assert read_picture(data).shape[2] == 3
    damaged = 0
    for length in range(0, len(data), max(1, len(data) // 24)):
        with contextlib.suppress(BadPicture):
            read_picture(data[:length])
            continue
        damaged += 1
    assert damaged >= 12


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "ICO"])
def test_files_with_wrong_bytes_are_read_or_told(kind: str) -> None:
    data, rng = saved(picture(40, 30), kind), np.random.default_rng(len(kind))
    for _ in range(60):
        wrong = bytearray(data)
        for at in rng.integers(0, min(len(data), 200), 4):
            wrong[at] = rng.integers(0, 256)
        try:
            found = read_picture(bytes(wrong))
        except BadPicture:
            continue
        assert found.dtype == np.uint8
        assert found.shape[2] == 3


def test_a_file_that_draws_is_not_run() -> None:
    """PostScript is a program, for which Pillow starts an interpreter."""
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    for read in (read_picture, picture_size, media_type):
        with pytest.raises(BadPicture, match="of no format that is supported"):
            read(data)


@pytest.mark.parametrize("kind", ["PCX", "TGA", "SGI", "EPS", "PDF"])
def test_other_formats_are_not_opened(kind: str) -> None:
    with pytest.raises(BadPicture, match="of no format that is supported"):
        picture_size(saved(picture(8, 6), kind))
