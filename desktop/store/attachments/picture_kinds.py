"""What kind of picture a file is, by its first bytes, whatever its name."""

from __future__ import annotations

import re

__all__ = ["HEIC", "KIND_BYTES", "has_metadata", "picture_kind"]

HEIC = "heic"
"""The kind of HEIC, HEIF and AVIF files, which cannot be read here."""
KIND_BYTES = 12
"""The first bytes of a file that tell its kind."""
_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"hevx", b"mif1", b"msf1", b"avif", b"avis")
_PNG_METADATA = (b"eXIf", b"tEXt", b"iTXt", b"zTXt", b"tIME", b"iCCP")


def picture_kind(head: bytes) -> str:
    """ "png", "jpeg", "gif", "bmp", "webp", `HEIC`, or "" for no picture."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    if head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS:
        return HEIC
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":  # reserved, in a file that is no text
        return "bmp"
    return ""


def has_metadata(kind: str, data: bytes) -> bool:
    """Whether a PNG or JPEG file has anything but the picture: a place, a camera, a comment, a profile, or
    bytes after its end. Unknown kinds count as having some.

    Sources: https://www.w3.org/TR/png-3/ (chunks), https://www.w3.org/Graphics/JPEG/itu-t81.pdf (markers).
    """
    if kind == "png":
        place = 8
        while place + 8 <= len(data):
            size, name = int.from_bytes(data[place : place + 4]), data[place + 4 : place + 8]
            place += 12 + size
            if name in _PNG_METADATA:
                return True
            if name == b"IEND":
                return place != len(data)
        return True
    if kind != "jpeg" or not data.endswith(b"\xff\xd9"):
        return True
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker, size = data[place + 1], int.from_bytes(data[place + 2 : place + 4])
        if marker == 0xDA:  # the picture itself; what follows its end is no part of it
            return re.search(rb"\xff\xd9(?!\Z)", data[place:]) is not None
        if 0xE1 <= marker <= 0xEF or marker == 0xFE:
            return True
        place += 2 + size
    return True
