"""What machine code says of its kernel's parameters: `.nv.info` of a cubin, an ELF file.

Records are a format byte, an attribute byte, and a 16-bit value (or, of format 4, the length of what
follows). Names and numbers: "CUDA Binary Utilities" and the listings of `cuobjdump -elf`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

MAX_THREADS, KPARAM_INFO, CBANK_PARAM_SIZE = 0x05, 0x17, 0x19
_LONG = 4
_NO_BITS = 8


def _sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    start = struct.unpack_from("<Q", image, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", image, start + size * i) for i in range(count)]
    for name, kind, _, _, at, length in heads:
        first = heads[names][4] + name
        text = image[first : image.index(b"\0", first)].decode()
        yield text, b"" if kind == _NO_BITS else image[at : at + length]


def attributes(image: bytes, kernel: str) -> Iterator[tuple[int, bytes]]:
    """Attributes of a kernel and what is said of each. Raises ValueError where the image has no such
    kernel."""
    for name, data in _sections(image):
        if name == f".nv.info.{kernel}":
            at = 0
            while at < len(data):
                form, attribute, length = struct.unpack_from("<BBH", data, at)
                rest = data[at + 4 : at + 4 + length] if form == _LONG else data[at + 2 : at + 4]
                yield attribute, rest
                at += 4 + (length if form == _LONG else 0)
            return
    raise ValueError(f"no .nv.info.{kernel} in this image")


def parameters(image: bytes, kernel: str) -> list[tuple[int, int]]:
    """Offset and size of each parameter, in their order."""
    found = {}
    for attribute, data in attributes(image, kernel):
        if attribute == KPARAM_INFO:
            _, ordinal, offset, word = struct.unpack("<IHHI", data)
            found[ordinal] = offset, word >> 18
    return [found[i] for i in range(len(found))]


def number(image: bytes, kernel: str, attribute: int) -> int:
    """The first number of an attribute."""
    data = next(data for found, data in attributes(image, kernel) if found == attribute)
    return int.from_bytes(data[: min(4, len(data))], "little")
