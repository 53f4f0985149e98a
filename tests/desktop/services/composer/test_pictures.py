"""Pictures from files: what is refused, what is left of a file, how large it gets."""

from __future__ import annotations

import threading
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PySide6.QtGui import QColor, QImage

from desktop.services.composer import pictures
from desktop.services.composer.attachment_reading import read_files
from desktop.services.composer.pictures import LONGEST_SIDE, MOST_BYTES, encoded, shrunk
from desktop.services.session.pictures import not_sent, sent, with_data
from desktop.store.attachments.files import Unreadable
from desktop.store.attachments.picture_kinds import has_metadata, picture_kind
from desktop.store.attachments.picture_marks import mark_of
from desktop.store.attachments.pictures import StoredPicture
from engine.core import ChatRequest, Message
from engine.vision.pictures.images import read_picture
from tests.desktop.picture_files import PLACE, bomb, chunk, drawn, jpeg_with_place, saved

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 40
COMMENT = chunk(b"tEXt", b"Comment\0" + PLACE)


def decoded(picture: StoredPicture) -> QImage:
    image = QImage.fromData(picture.data)
    assert (image.width(), image.height()) == (picture.width, picture.height)
    return image


@pytest.mark.qt_log_ignore("JPEG", extend=True)
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (bomb(), "“x” has 50,000 × 50,000 pixels, but at most 64 million pixels can be read"),
        (saved(drawn())[:100], "“x” is damaged"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "“x” is damaged"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 500, "“x” is damaged"),
        (b"", "“x” is damaged"),
        (b"just words", "“x” is damaged"),
        (HEIC, "“x” is a HEIC or AVIF picture. Save it as JPEG"),
    ],
    ids=["bomb", "cut", "broken header", "broken jpeg", "empty", "text", "heic"],
)
def test_what_cannot_be_attached_gets_one_sentence(data: bytes, says: str, monkeypatch) -> None:
    if data == bomb():
        monkeypatch.setattr(pictures.QImageReader, "read", lambda reader: pytest.fail("decoded"))
    with pytest.raises(Unreadable) as caught:
        encoded(data, "x")
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_a_huge_file_and_a_missing_one_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(pictures, "MOST_FILE_BYTES", 100)
    (tmp_path / "a.png").write_bytes(saved(drawn(200, 200)))
    found = list(read_files([tmp_path / "a.png", tmp_path / "b.png"], threading.Event()))
    for sentence, says in zip(found, ("is larger than", "cannot be read: No such"), strict=True):
        assert says in str(sentence)


@pytest.mark.parametrize("format", [b"png", b"jpeg", b"bmp", b"webp"])
def test_every_format_is_read_and_becomes_png_or_jpeg(format: bytes, qapp) -> None:
    data = saved(drawn(), format, 100)
    assert picture_kind(data[:12]) == format.decode()
    made = encoded(data, "x")
    image = decoded(made)
    assert made.media_type in ("image/png", "image/jpeg")
    assert image.pixelColor(2, 2).blue() > 150
    assert image.pixelColor(24, 18).red() > 180


def test_of_an_animation_the_first_picture_is_taken(qapp) -> None:
    frame = b"\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02%s\x01\0"  # one pixel: colour 0, then colour 1
    gif = (
        b"GIF89a\x01\0\x01\0\x80\0\0\xff\0\0\0\0\xff"
        + frame % b"\x44"
        + b"\x21\xf9\x04\0\x0a\0\0\0"
        + frame % b"\x4c"
        + b";"
    )
    assert decoded(encoded(gif, "x")).pixelColor(0, 0) == QColor("#ff0000")


def test_place_and_comments_are_left_out(qapp) -> None:
    png = saved(drawn())
    commented = png[:33] + COMMENT + png[33:]
    for data in (jpeg_with_place(drawn()), commented, png + PLACE, saved(drawn(), b"jpeg") + PLACE):
        assert PLACE in data
        made = encoded(data, "x")
        assert PLACE not in made.data
        assert not has_metadata(made.media_type.removeprefix("image/"), made.data)
        assert decoded(made).width() == 64


@pytest.mark.parametrize("marker", [0xE1, 0xED, 0xEF, 0xFE])  # EXIF, IPTC, the last APPn, a comment
def test_every_segment_that_can_hold_words_is_found(marker: int) -> None:
    def picture(marker: int) -> bytes:
        return b"\xff\xd8\xff" + bytes((marker, 0, 4, 65, 66)) + b"\xff\xda\0\2 \xff\xd9"

    assert has_metadata("jpeg", picture(marker))
    assert not has_metadata("jpeg", picture(0xE0))  # JFIF, which holds none


def test_a_file_with_nothing_but_a_picture_stays_as_it_is(qapp) -> None:
    for format in (b"png", b"jpeg"):
        data = encoded(saved(drawn(), format), "x").data
        assert encoded(data, "x").data == data
    assert encoded(saved(drawn()), "x").media_type == "image/png"


def test_a_turned_photo_is_turned_back(qapp) -> None:
    tiff = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    data = saved(drawn(64, 32), b"jpeg", 95)
    exif = b"Exif\0\0" + tiff
    data = data[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2) + exif + data[2:]
    made = encoded(data, "x")
    assert (made.width, made.height) == (32, 64)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_model_sees_a_photo_as_the_window_shows_it(qapp, kind: str, orientation: int) -> None:
    """In files of each kind that can hold an orientation, which Qt reads in JPEG files alone."""
    ramp = np.linspace(0, 255, 48 * 32).reshape(32, 48).astype(np.uint8)
    exif, file = Image.Exif(), BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(np.dstack([ramp, ramp[::-1], ramp[:, ::-1]])).save(file, kind, exif=exif, quality=95)
    expected, found = (read_picture(data) for data in (file.getvalue(), encoded(file.getvalue(), "x").data))
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).mean() < 4


def test_large_pictures_are_shrunk_and_bounded(qapp) -> None:
    made = encoded(saved(drawn(4200, 100)), "x")
    assert (made.width, made.height) == (LONGEST_SIDE, 48)
    noisy = shrunk(drawn(1100, 1100, noise=True))
    assert noisy.media_type == "image/jpeg"
    assert len(noisy.data) <= MOST_BYTES
    decoded(noisy)


def test_transparent_parts_stay_or_become_white(qapp, monkeypatch) -> None:
    image = QImage(40, 40, QImage.Format.Format_ARGB32)
    image.fill(0)
    assert decoded(shrunk(image, lossless=False)).pixelColor(5, 5).alpha() == 0
    monkeypatch.setattr(pictures, "MOST_BYTES", 700)
    noise = drawn(40, 40, noise=True).convertToFormat(QImage.Format.Format_ARGB32)
    noise.setPixelColor(0, 0, QColor(0, 0, 0, 0))
    for x in range(16):
        for y in range(16):
            noise.setPixelColor(x, y, QColor(0, 0, 0, 0))
    monkeypatch.setattr(pictures, "MOST_BYTES", 4000)
    made = shrunk(noise)
    assert made.media_type == "image/jpeg"
    assert decoded(made).pixelColor(4, 4).lightness() > 240


MARK = mark_of("a [b]\nc.png", "0" * 32, 640, 480)


def test_a_message_has_its_pictures_without_their_marks() -> None:
    text = f"{MARK.text}\n\nWhat?"
    message = sent("user", text)
    assert message.content == "[picture: a (b) c.png]\n\nWhat?"
    assert [(each.key, each.width, each.height, each.data) for each in message.pictures] == [
        ("0" * 32, 640, 480, b"")
    ]
    assert sent("assistant", text).pictures == ()
    assert sent("user", "![x](http://a/b.png)") == Message("user", "![x](http://a/b.png)")


def test_the_bytes_are_read_when_a_request_goes_out() -> None:
    request = ChatRequest((Message("user", "Hi"), sent("user", MARK.text)))
    asked: list[str] = []

    def read(key: str) -> StoredPicture:
        asked.append(key)
        return StoredPicture("image/png", 1, 1, b"data")

    (picture,) = with_data(request, read).messages[1].pictures
    assert (picture.media_type, picture.data, asked) == ("image/png", b"data", ["0" * 32])
    assert with_data(request, lambda key: None) == request
    plain = ChatRequest((Message("user", "Hi"),))
    assert with_data(plain, lambda key: pytest.fail("read")) is plain


def test_nothing_is_said_where_nothing_is_left_out() -> None:
    assert not_sent([MARK.text], None) == ""
