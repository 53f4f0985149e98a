"""A vision encoder whose rows are simple functions of a picture's bytes."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from engine.core import Loading, Picture, Waiting
from engine.vision import PictureRows, Piece, Span, VisionSpec

WIDTH = 8


class FakeEncoder:
    """Makes spans of as many rows and columns as a picture has pixels. `encoded` are the bytes it saw."""

    def __init__(
        self, spec: VisionSpec | None = None, width: int = WIDTH, around: tuple[str, str] = ("", "")
    ):
        self.spec = spec or VisionSpec("fake", "<image>", "<image>")
        self.encoded: list[bytes] = []
        self.closed = False
        self._width, self._around = width, around

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        before, after = self._around
        return tuple(piece for piece in (before, Span(height, width), after) if piece)

    def encode(self, data: bytes) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        self.encoded.append(data)
        yield Waiting()
        width, height = data[0], data[1]
        noise = np.random.default_rng(list(data)).standard_normal
        deep = tuple(
            noise((width * height, self._width)).astype(np.float32) for _unused in range(self.spec.deep)
        )
        return (PictureRows(noise((width * height, self._width)).astype(np.float32), deep),)

    def load(self) -> Generator[Loading, None, FakeEncoder]:
        yield Loading("Reading the vision encoder", 0, 1)
        return self

    def close(self) -> None:
        self.closed = True


def picture(width: int, height: int, name: str = "a.png", more: int = 0) -> Picture:
    """A picture for `FakeEncoder`."""
    return Picture(name, "", width, height, "image/png", bytes([width, height, more]))
