"""MiniCPM-V (arXiv 2408.01800) from Llama3-V 2.5 on, and MiniCPM-o, which here reads pictures alone: a SigLIP
tower over the whole picture and over slices of it, which keep their shape, and as many tokens for each.
"""

from __future__ import annotations

import math

from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes
from engine.vision.base import NUMBER, Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.families.fixed_size.llava import stored_layers
from engine.vision.families.tiled.idefics3 import placed
from engine.vision.headers import (
    HALF,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    folder_patches,
    gguf_names,
    inner,
    normalisation,
    rows_of,
    square,
    tower_from_gguf,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.projector import ProjectorNames
from engine.vision.layers.resampler import HEAD_DIM, ResamplerNames, ResamplerShape
from engine.vision.layers.tower import SIGLIP, TowerShape
from engine.vision.pictures.images import BICUBIC, Normalisation, resized
from engine.vision.pictures.tiling import tiles_of
from engine.words import _

SPEC = VisionSpec("minicpm_v", "(<image>./</image>)", "<unk>", sign="<slice>")
_SIDE, _MOST = 448, 9
MOST_SLICES, _MOST_QUERIES = 1 << 8, 1 << 12
LARGEST_TOWER = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "image_size": 980, "patch_size": 14,
}  # fmt: skip
_FOLDER = ResamplerNames(
    "resampler.query", "resampler.kv_proj", ("resampler.ln_kv", "resampler.ln_q", "resampler.ln_post"),
    "resampler.attn.out_proj", "resampler.proj", transposed=True, fused="resampler.attn.in_proj_",
)  # fmt: skip
_GGUF = ResamplerNames(
    "resampler.query", "resampler.kv", ("resampler.ln_kv", "resampler.ln_q", "resampler.ln_post"),
    "resampler.attn.out", "resampler.proj.weight",
    separate=("resampler.attn.q", "resampler.attn.k", "resampler.attn.v"),
)  # fmt: skip
_FIRST = 2
"""What mmproj files call version 2.5, whose slices stand in prompts in another way."""


@dataclass(frozen=True, slots=True)
class Slices:
    """The whole picture with about `side`^2 pixels, and if it has more, at most `most` slices of as many, in
    the grid whose shape is nearest to the picture's. Each is `queries` tokens, or one for each `cell` pixels
    square, of which its sides are multiples. In prompts, pictures may be `numbered`; in those of the `first`
    version, all slices stand in one pair of marks.
    """

    side: int
    patch: int
    most: int
    queries: int
    first: bool = False
    numbered: bool = True
    cell: int = 0

    @property
    def most_patches(self) -> int:
        """Of one crop: of those whose shape is kept, some have more patches than a square."""
        return self._most_cells * (self._cell // self.patch) ** 2

    @property
    def _cell(self) -> int:
        return self.cell or self.patch

    @property
    def _most_cells(self) -> int:
        return (self.side // self._cell) ** 2 * 3 // 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`."""
        grid, *spans = self.grid(width, height), *map(self._span, self.sizes(width, height))
        number = f"<image_id>{NUMBER}</image_id>" if self.numbered else ""
        found: list[Piece] = [number + "<image>", spans[0], "</image>"]
        if grid is None:
            return tuple(found)
        before, after = ("<image>", "</image>") if self.first else ("<slice>", "</slice>")
        found.append("<slice>" if self.first else "")
        for at in range(grid[0] * grid[1]):
            line = "\n" if at and at % grid[0] == 0 else ""
            found += [line + before, spans[1], after]
        return _joined([*found, "</slice>" if self.first else ""])

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        grid, (size, *slices) = self.grid(width, height), self.sizes(width, height)
        whole = resized(picture, *size, BICUBIC)
        return (whole,) if grid is None else (whole, *tiles_of(picture, *grid, slices[0], BICUBIC))

    def _span(self, size: tuple[int, int]) -> Span:
        """The tokens of a crop of this width and height."""
        return Span(1, self.queries) if not self.cell else Span(size[1] // self.cell, size[0] // self.cell)

    def sizes(self, width: int, height: int) -> list[tuple[int, int]]:
        """The width and height of the whole picture's crop, and those of each slice, if there are any."""
        grid = self.grid(width, height)
        found = [self._size(width, height, grow=grid is None)]
        if grid is None:
            return found
        each = (max(1, round(side / count)) for side, count in zip((width, height), grid, strict=True))
        return [*found, self._size(*each, grow=True)]

    def _size(self, width: int, height: int, *, grow: bool) -> tuple[int, int]:
        """The width and height of a crop, in whole cells. A very long one loses its shape."""
        if grow or width * height > self.side**2:
            ratio = width / height
            height = int(self.side / math.sqrt(ratio))
            width = int(height * ratio)
        wide, high = (max(1, round(each / self._cell)) for each in (width, height))
        wide = min(wide, max(1, self._most_cells // high))
        return wide * self._cell, min(high, self._most_cells // wide) * self._cell

    def grid(self, width: int, height: int) -> tuple[int, int] | None:
        """How many slices are side by side, and one above another; None for the whole picture alone."""
        count = min(math.ceil(width * height / self.side**2), self.most)
        if count <= 1:
            return None
        counts = (each for each in (count - 1, count, count + 1) if 1 < each <= self.most)
        grids = [(wide, each // wide) for each in counts for wide in range(1, each + 1) if each % wide == 0]
        shape = math.log(width / height)
        return min(grids, key=lambda grid: abs(shape - math.log(grid[0] / grid[1])))


def _joined(pieces: list[Piece]) -> tuple[Piece, ...]:
    """The same with texts that follow one another as one."""
    found = list[Piece]()
    for piece in pieces:
        if found and isinstance(piece, str) and isinstance(found[-1], str):
            found[-1] += piece
        else:
            found.append(piece)
    return tuple(found)


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`MiniCPMV` and `MiniCPMO`."""
    vision = inner(config, "vision_config").over(LARGEST_TOWER)
    shape = tower_from_hf(vision, "gelu_pytorch_tanh")
    shape = stored_layers(shape, tensors, "vpm.encoder.layers.{}.layer_norm1.weight")
    names = PatchNames(SIGLIP.under("vpm."), *folder_patches("vpm."), ProjectorNames(), "vpm.post_layernorm")
    slices = inner(config, "slice_config")
    side, most = (
        processor.integer(name, 1, limit, slices.integer(name, 1, limit, default))
        for name, limit, default in (
            ("scale_resolution", MOST_SIDE, _SIDE), ("max_slice_nums", MOST_SLICES, _MOST),
        )
    )  # fmt: skip
    most = most if processor.flag("slice_mode", True) else 1
    queries = config.integer("query_num", 1, _MOST_QUERIES, 64)
    patch = square(vision, "patch_size")
    first, numbered = not processor.has("use_image_id"), processor.flag("use_image_id", False)
    cutter = Slices(side, patch, most, queries, first, numbered)
    width = config.integer("hidden_size", 1, MOST_WIDTH)
    pixels = normalisation(processor, HALF, HALF, ("norm_mean", "norm_std"))
    table = whole_patches(square(vision, "image_size"), patch) ** 2
    return _design(shape, names, cutter, table, pixels, width, _FOLDER)


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`resampler` in llama.cpp's mmproj files."""
    shape = stored_layers(tower_from_gguf(keys), tensors)
    names = PatchNames(gguf_names(tensors, shape), *PATCHES, ProjectorNames(), "v.post_ln")
    version = Keys(keys.source, _("The mmproj file"), "clip.").integer("minicpmv_version", 0, 1 << 31, _FIRST)
    queries = tensors.get("resampler.query")
    count, width = queries.shape[-2:] if queries is not None and len(queries.shape) > 1 else (1, HEAD_DIM)
    side, patch = keys.integer("image_size", 1, MOST_SIDE), keys.integer("patch_size", 1, 1 << 10)
    first = version <= _FIRST
    cutter = Slices(side, patch, _MOST, min(count, _MOST_QUERIES), first, not first)
    table = rows_of(tensors, PATCHES[1])
    return _design(shape, names, cutter, table, normalisation(keys, HALF, HALF), width, _GGUF)


def _design(
    shape: TowerShape, names: PatchNames, cutter: Slices, table: int, pixels: Normalisation, width: int,
    resampler: ResamplerNames,
) -> PatchDesign:  # fmt: skip
    if width % HEAD_DIM or cutter.side < cutter.patch:
        raise BadCheckpoint(
            _(
                "The vision encoder makes rows of {width} numbers, of pictures that are {side} pixels wide; "
                "multiples of {dim} numbers and of {patch} pixels were expected. The file is damaged.",
                width=width,
                side=cutter.side,
                dim=HEAD_DIM,
                patch=cutter.patch,
            )
        )
    last = ResamplerShape(shape.width, width, cutter.queries, resampler)
    return PatchDesign(
        SPEC, shape, names, cutter.patch, table, pixels, cutter, last, (shape.layers,), placed
    )  # fmt: skip


MINICPM_V = Family("minicpm_v", ("MiniCPMV", "MiniCPMO"), ("resampler",), from_hf, from_gguf)
