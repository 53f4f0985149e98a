"""Tiny models that read pictures, made by transformers, and what the engine makes of the same pictures."""

from __future__ import annotations

from collections.abc import Generator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from transformers.utils.logging import disable_progress_bar

from engine.core import Waiting
from engine.drain import drain
from engine.vision import PictureRows, Piece
from engine.vision.opening import open_vision
from engine.weights import open_checkpoint

disable_progress_bar()  # it starts a thread
Floats = npt.NDArray[np.float32]
TEXT = {
    "hidden_size": 40, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 64,
}  # fmt: skip
"""Of a language model that is as small as it can be: only its width counts here."""
SIZES = ((300, 200), (10, 7), (1, 900), (2000, 10), (640, 640), (182, 182), (97, 531))
"""Widths and heights: ordinary, tiny, tall, wide, square, exactly fitting, odd."""


def picture(width: int, height: int) -> Image.Image:
    """Noise over a slope, so that a pixel in the wrong place or colour shows."""
    rng = np.random.default_rng(width * 7919 + height)
    slope = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[:, :, None] + [0, 60, 120]
    return Image.fromarray(((slope + rng.integers(0, 64, (height, width, 3))) % 256).astype(np.uint8))


def png(image: Image.Image) -> bytes:
    """A picture as a PNG file."""
    file = BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def randomise(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Give all parameters random values of a size that keeps every part of the model noticeable."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "norm" in name and name.endswith("weight"):
            torch.nn.init.uniform_(parameter, 0.5, 1.5, generator=generator)
        else:
            torch.nn.init.normal_(parameter, std=0.15, generator=generator)
    return model.eval()


def save(model: Any, processor: Any, folder: Path) -> Path:
    """Save a model and its image processor as transformers does. Returns `folder`."""
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


class Encoded:
    """The engine's encoder of a file or folder: `spec`, and what it makes of pictures."""

    def __init__(self, path: Path, tokens: int = 0) -> None:
        self.path = path
        checkpoint = open_checkpoint(path)
        self._encoder = drain(open_vision(checkpoint, 2, tokens))
        self.spec = self._encoder.spec
        checkpoint.close()

    def steps(self, image: Image.Image) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        return self._encoder.encode(png(image))

    def rows(self, image: Image.Image) -> tuple[PictureRows, ...]:
        return drain(self.steps(image))

    def states(self, image: Image.Image) -> Floats:
        """The rows of all spans, one after the other, which must fit to the layout."""
        rows, layout = self.rows(image), self.layout(*image.size)
        spans = [piece.tokens for piece in layout if not isinstance(piece, str)]
        assert [len(each.states) for each in rows] == spans
        return np.concatenate([each.states for each in rows])

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        return self._encoder.layout(width, height)

    def text(self, width: int, height: int) -> str:
        """The layout as the processors of transformers write it."""
        pieces = self.layout(width, height)
        return "".join(p if isinstance(p, str) else self.spec.token * p.tokens for p in pieces)

    def close(self) -> None:
        self._encoder.close()


def assert_close(found: Floats, expected: Floats) -> None:
    """Equal up to the rounding of float32 in another order."""
    assert found.shape == expected.shape
    scale = float(np.abs(expected).max())
    assert scale > 0.05
    assert np.abs(found - expected).max() <= 2e-5 * max(1.0, scale)
