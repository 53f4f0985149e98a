"""LLaVA-NeXT (LLaVA 1.6, its authors' report of January 2024), Granite Vision (arXiv 2502.09927) and
LLaVA-OneVision (arXiv 2408.03326): LLaVA's encoder over the whole picture, and over the tiles of the picture
with bars beside it. Of these, what shows bars is left out, and each line of patches has a row for its end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes, Floats
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign
from engine.vision.families.fixed_size import llava
from engine.vision.headers import MOST_SIDE, prefix_of, resampling, whole_patches
from engine.vision.pictures.images import BICUBIC, resized
from engine.vision.pictures.interpolation import linear, resized_grid
from engine.words import _

SPEC = VisionSpec("llava_next", "<image>", "<image>")
ONE_SPEC = VisionSpec("llava_onevision", "<image>", "<image>")
_ONE = {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"}
_ONE_SIDE, _ONE_MOST = 384, 6
_ONE_GRIDS = tuple(
    (_ONE_SIDE * high, _ONE_SIDE * wide)
    for high in range(1, _ONE_MOST + 1)
    for wide in range(1, _ONE_MOST + 1)
)
_SHRINKS = re.compile(r"anyres_max_(\d{1,3})")
_ENLARGED = 1.1
"""Tiles with fewer than this many times the sides that they may have keep all patches."""
_GRIDS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
_HF_PREFIXES = "model.", "", "language_model.model."
_LINE_ENDS = ("v.image_newline", "model.image_newline")
"""The name of the row for the end of a line in mmproj files, and in those of the first converter."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cutting of `LlavaNextImageProcessor`: tiles of `side` pixels square in one of the `grids` (height,
    width in pixels): the one that keeps most pixels, and of these the smallest. The patches of all tiles are
    shrunk to those of `most` tiles, unless this is 0.
    """

    side: int
    patch: int
    filter: int
    grids: tuple[tuple[int, int], ...]
    most: int = 0

    @property
    def most_patches(self) -> int:
        """Of one tile."""
        return (self.side // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: the whole, then all tiles at once."""
        cells = self.side // self.patch
        rows, columns = self._kept(*map(len, self.shown(width, height)))
        whole, tiles = Span(cells, cells), Span(rows, columns + 1)
        return (whole, tiles) if rows else (whole,)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        high, wide = self._grid(width, height)
        down, across = high / height, wide / width
        if across < down:
            inner = wide, min(math.ceil(height * across), high)
        else:
            inner = min(math.ceil(width * down), wide), high
        canvas = np.zeros((high, wide, 3), np.uint8)
        left, top = (wide - inner[0]) // 2, (high - inner[1]) // 2
        canvas[top : top + inner[1], left : left + inner[0]] = resized(picture, *inner, self.filter)
        side = self.side
        tiles = [
            canvas[y : y + side, x : x + side] for y in range(0, high, side) for x in range(0, wide, side)
        ]
        return (resized(picture, side, side, self.filter), *tiles)

    def spans(
        self, crops: Sequence[Floats], width: int, height: int, line_end: Floats | None
    ) -> Sequence[Floats]:
        """As `Assemble`."""
        assert line_end is not None
        rows, columns = self.shown(width, height)
        if not len(rows):
            return (crops[0],)
        cells = self.side // self.patch
        wide = self._grid(width, height)[1] // self.side
        tiles = np.stack(crops[1:]).reshape(-1, wide, cells, cells, len(line_end))
        whole = tiles.transpose(0, 2, 1, 3, 4).reshape(-1, wide * cells, len(line_end))
        shown = whole[rows.start : rows.stop, columns.start : columns.stop]
        kept = self._kept(len(rows), len(columns))
        shown = shown if kept == shown.shape[:2] else resized_grid(shown, *kept, linear)
        ends = np.broadcast_to(line_end, (kept[0], 1, len(line_end)))
        return crops[0], np.concatenate([shown, ends], axis=1).reshape(-1, len(line_end))

    def shown(self, width: int, height: int) -> tuple[range, range]:
        """The rows and columns of all tiles' patches that show the picture."""
        cells = self.side // self.patch
        high, wide = (pixels // self.side * cells for pixels in self._grid(width, height))
        if width / height > wide / high:
            bar = (high - int(round(height * (wide / width), 7))) // 2
            return range(bar, high - bar), range(wide)
        bar = (wide - int(round(width * (high / height), 7))) // 2
        columns = range(bar, wide - bar)
        return range(high), columns

    def _kept(self, rows: int, columns: int) -> tuple[int, int]:
        """The rows and columns of what shows the picture, once it is shrunk."""
        if not self.most:
            return rows, columns
        ratio = math.sqrt(rows * columns / (self.most * (self.side // self.patch) ** 2))
        return (rows, columns) if ratio <= _ENLARGED else (int(rows // ratio), int(columns // ratio))

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """The height and width of all tiles."""

        def kept(grid: tuple[int, int]) -> tuple[int, int]:
            scale = min(grid[1] / width, grid[0] / height)
            pixels = min(int(width * scale) * int(height * scale), width * height)
            return pixels, pixels - grid[0] * grid[1]

        return max(self.grids, key=kept)


def from_hf_one(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`LlavaOnevisionForConditionalGeneration`."""
    design = llava.from_hf(config.over(_ONE), processor, tensors)
    found = config.text("vision_aspect_ratio", "anyres_max_9")
    match = _SHRINKS.fullmatch(found)
    if match is None or not int(match[1]):
        raise UnsupportedModel(
            _(
                "The vision encoder's vision_aspect_ratio is {found!r}; only anyres_max_ with a number is "
                "supported. Choose another model.",
                found=found,
            )
        )
    line_end = prefix_of(tensors, "image_newline", _HF_PREFIXES) + "image_newline"
    grids = _grids(config, "image_grid_pinpoints", _ONE_GRIDS)
    return _design(design, line_end, resampling(processor), grids, ONE_SPEC, int(match[1]))


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`LlavaNextForConditionalGeneration`, and `LlavaNextVideoForConditionalGeneration`, which reads pictures
    as this does.
    """
    design = llava.from_hf(config, processor, tensors)
    line_end = prefix_of(tensors, "image_newline", _HF_PREFIXES) + "image_newline"
    grids = _grids(config, "image_grid_pinpoints", _GRIDS)
    return _design(design, line_end, resampling(processor), grids)


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`mlp` in llama.cpp's mmproj files, which LLaVA 1.5 has, too: that has no row for the end of a line."""
    design = llava.from_gguf(keys, tensors)
    line_end = next((name for name in _LINE_ENDS if name in tensors), "")
    if not line_end or not keys.has("image_grid_pinpoints"):
        return design
    flat = keys.integers("image_grid_pinpoints", 1, MOST_SIDE)
    if len(flat) % 2:
        raise _odd(list(flat))
    return _design(design, line_end, BICUBIC, tuple(zip(flat[::2], flat[1::2], strict=True)))


def _grids(keys: Keys, name: str, usual: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """A list of heights and widths in pixels; the `usual` ones where there is none."""
    found = keys.raw(name)
    if found is None:
        return usual
    pairs = list[tuple[int, int]]()
    for pair in found if isinstance(found, list) and found else [None]:
        sides = Keys({name: pair}, "config.json").integers(name, 1, MOST_SIDE)
        if len(sides) != 2:
            raise _odd(found)
        pairs.append((sides[0], sides[1]))
    return tuple(pairs)


def _odd(found: object) -> BadCheckpoint:
    return BadCheckpoint(
        _(
            "image_grid_pinpoints is {found}, but heights and widths were expected; the file is damaged.",
            found=repr(found)[:80],
        )
    )


def _design(
    design: PatchDesign, line_end: str, filter: int, grids: tuple[tuple[int, int], ...],
    spec: VisionSpec = SPEC, most: int = 0,
) -> PatchDesign:  # fmt: skip
    assert isinstance(design.cutter, llava.OneCrop)
    side = design.cutter.side
    for pixels in {pixels for grid in grids for pixels in grid}:
        whole_patches(pixels, side)
    tiles = Tiles(side, design.patch, filter, grids, most)
    names = replace(design.names, line_end=line_end)
    return replace(design, spec=spec, names=names, cutter=tiles, assemble=tiles.spans)


LLAVA_NEXT = Family(
    "llava_next", ("LlavaNextForConditionalGeneration", "LlavaNextVideoForConditionalGeneration"), ("mlp",),
    from_hf, from_gguf, (llava.CLIP, llava.SIGLIP_TOWER),
)  # fmt: skip
LLAVA_ONEVISION = Family(
    "llava_onevision", ("LlavaOnevisionForConditionalGeneration",), (), from_hf_one, None,
    (llava.SIGLIP_TOWER,),
)  # fmt: skip
