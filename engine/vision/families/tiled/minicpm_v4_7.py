"""MiniCPM-V 4.7 (the code of `transformers`): the encoder of version 4.6, whose slices and whole picture lie
on one canvas: the rotary positions of all tokens are a row and a column of it, those of the marks around
them, too. So a picture is one span, in which marks are rows as well; a line break that follows belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes, Floats
from engine.vision.base import NUMBER, Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign
from engine.vision.families.tiled import minicpm_v4_6
from engine.vision.families.tiled.minicpm_v import Slices
from engine.vision.layers.embedded import embeddings

SPEC = VisionSpec("minicpm_v4_7", "<|image_pad|>", "<|image_pad|>", sign="<slice>")
_MARKS = "image_start_id", "image_end_id", "slice_start_id", "slice_end_id", "newline_id"
_START, _END, _SLICE, _SLICE_END, _LINE = range(5)
_TOKEN = -1
"""A token of a crop, among the numbers of marks."""
_TABLE = "model.language_model.embed_tokens.weight"
_MOST_ID = 1 << 24
_Places = list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Canvas:
    """The cutting of `slices`, and where their tokens lie. The canvas is as large as all slices together, or
    as the whole picture if there are none; the whole is stretched to it.
    """

    slices: Slices

    @property
    def most_patches(self) -> int:
        """Of one crop."""
        return self.slices.most_patches

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: all of the picture, then the line break that may follow."""
        marks, places, advance = self.placed(width, height)
        number = (f"<image_id>{NUMBER}</image_id>",) if self.slices.numbered else ()
        back = (-advance, -advance, -advance)  # it has the position of the picture's beginning
        return (*number, Span(1, len(marks), tuple(places), advance), Span(1, 1, (back,), 0))

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        return self.slices.crops(picture)

    def placed(self, width: int, height: int) -> tuple[list[int], _Places, int]:
        """Of each token of a picture the number of its mark and its place, and by how much the position of
        what follows is after the picture's.
        """
        grid = self.slices.grid(width, height)
        whole, *others = [self._cells(size) for size in self.slices.sizes(width, height)]
        wide, high = grid or (1, 1)
        rows, columns = others[0] if others else whole
        canvas = high * rows, wide * columns
        marks, places = [_START], [(0, -1, -1)]

        def add(mark: int, row: int, column: int) -> None:
            marks.append(mark)
            places.append((0, row, column))

        for row in _spread(canvas[0], whole[0]):
            for column in _spread(canvas[1], whole[1]):
                add(_TOKEN, row, column)
        add(_END, *canvas)
        for number in range(wide * high if grid else 0):
            top, left = (at * size for at, size in zip(divmod(number, wide), (rows, columns), strict=True))
            if number and not left:
                add(_LINE, top - 1, canvas[1])
            add(_SLICE, top, left)
            for at in range(rows * columns):
                add(_TOKEN, top + at // columns, left + at % columns)
            add(_SLICE_END, top + rows - 1, left + columns - 1)
        return marks, places, max(canvas) + 1

    def _cells(self, size: tuple[int, int]) -> tuple[int, int]:
        """The rows and columns of tokens of a crop of this width and height."""
        return size[1] // self.slices.cell, size[0] // self.slices.cell

    def rows(
        self, crops: Sequence[Floats], width: int, height: int, embedded: Floats | None
    ) -> Sequence[Floats]:
        """As `Assemble`, with the embeddings of the marks."""
        assert embedded is not None
        marks = np.array(self.placed(width, height)[0])
        found = embedded[marks]
        found[marks == _TOKEN] = np.concatenate(crops)
        return found, embedded[_LINE:]


def _spread(size: int, count: int) -> list[int]:
    """`count` places from 0 to `size` - 1, as far apart as each other but for rounding, in 32-bit numbers and
    from both ends, as PyTorch has them.
    """
    step = np.float32(size - 1) / np.float32(max(count - 1, 1))
    numbers = np.arange(count, dtype=np.float32)
    first, last = step * numbers, np.float32(size - 1) - step * (np.float32(count - 1) - numbers)
    found = np.where(np.arange(count) < count // 2, first, last) if count > 1 else np.zeros(1, np.float32)
    return [int(each) for each in np.rint(found)]


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`MiniCPMV4_7ForConditionalGeneration`. Raises `BadCheckpoint` and `UnsupportedModel`."""
    design = minicpm_v4_6.from_hf(config, processor, tensors)
    assert isinstance(design, PatchDesign)
    assert isinstance(design.cutter, Slices)
    ids = [config.integer(name, 0, _MOST_ID) for name in _MARKS]
    canvas = Canvas(design.cutter)
    return replace(
        design, spec=replace(SPEC, joined=ids[_LINE]), cutter=canvas, assemble=canvas.rows,
        marks=partial(embeddings, table=tensors.get(_TABLE), name=_TABLE, ids=ids, width=design.width),
    )  # fmt: skip


MINICPM_V4_7 = Family("minicpm_v4_7", ("MiniCPMV4_7ForConditionalGeneration",), (), from_hf, None)
