"""LFM2-VL (arXiv 2511.23404 and its model cards): a SigLIP 2 tower (arXiv 2502.14786, NaFlex) over a picture
of any shape, or over square tiles of a large one; squares of patches are joined to one token.
"""

from __future__ import annotations

import math
from functools import partial

from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.families.fixed_size.llava import PREFIXES
from engine.vision.headers import (
    HALF,
    MOST_WIDTH,
    PATCHES,
    activation,
    folder_patches,
    gguf_names,
    inner,
    normalisation,
    prefix_of,
    resampling,
    rows_of,
    square,
    tower_from_gguf,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import SIGLIP, TowerShape
from engine.vision.pictures.images import BILINEAR, Normalisation, resized
from engine.vision.pictures.interpolation import resampled, smooth_linear
from engine.vision.pictures.tiling import best_grid, tiles_of

SPEC = VisionSpec("lfm2_vl", "<image>", "<image>")
_START, _END, _THUMBNAIL = "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"
_TOWER = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "patch_size": 16, "num_patches": 256,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cutting of `Lfm2VlImageProcessor`: a picture of `least_tokens` to `most_tokens` tokens of `cell`
    pixels square, or if it has more than `tolerance` times as many, a grid of tiles and a thumbnail.
    """

    patch: int
    cell: int
    filter: int
    tile: int = 512
    least_tiles: int = 2
    most_tiles: int = 10
    least_tokens: int = 64
    most_tokens: int = 256
    tolerance: float = 2.0
    thumbnail: bool = True

    @property
    def most_patches(self) -> int:
        """Of a tile, or of a picture that is none, which may be so narrow that rounding gives it more."""
        factor = self.cell // self.patch
        return max((self.tile // self.patch) ** 2, self.most_tokens * factor**2)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`."""
        wide, high = self._grid(width, height)
        whole = self._whole(width, height)
        last = Span(whole[1] // self.cell, whole[0] // self.cell)
        if wide * high == 1:
            return (_START, last, _END)
        side, found = self.tile // self.cell, list[Piece]()
        for row in range(1, high + 1):
            for column in range(1, wide + 1):
                start = "" if found else _START
                found += [f"{start}<|img_row_{row}_col_{column}|>", Span(side, side)]
        return (*found, _THUMBNAIL, last, _END) if self.thumbnail else (*found, _END)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        wide, high = self._grid(width, height)
        whole = resized(picture, *self._whole(width, height), self.filter)
        if wide * high == 1:
            return (whole,)
        tiles = tiles_of(picture, wide, high, self.tile, self.filter)
        return (*tiles, whole) if self.thumbnail else tiles

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """How many tiles are side by side, and one above another; 1, 1 for a picture that is not cut."""
        sides = (max(self.patch, round(side / self.cell) * self.cell) for side in (width, height))
        small = math.prod(sides) <= self.most_tokens * self.cell**2 * self.tolerance
        if small or self.most_tiles == 1:
            return 1, 1
        return best_grid(width, height, self.tile, self.least_tiles, self.most_tiles)

    def _whole(self, width: int, height: int) -> tuple[int, int]:
        """The size of a picture in one piece: of nearly its shape, within the numbers of tokens."""
        cell, pixels = self.cell, width * height
        least, most = self.least_tokens * cell**2, self.most_tokens * cell**2
        wide, high = (max(cell, round(side / cell) * cell) for side in (width, height))
        longest = self.most_tokens * cell  # of a picture that is as narrow as one token
        if wide * high > most:
            shrink = math.sqrt(pixels / most)
            wide, high = (max(cell, math.floor(side / shrink / cell) * cell) for side in (width, height))
        elif wide * high < least:
            grow = math.sqrt(least / pixels)
            wide, high = (math.ceil(side * grow / cell) * cell for side in (width, height))
        return min(wide, longest), min(high, longest)


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Lfm2VlForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(_TOWER)
    tower = prefix_of(tensors, "embeddings.patch_embedding.weight", PREFIXES)
    whole = tower[: tower.index("vision_tower.")] + "multi_modal_projector."
    norm = whole + "layer_norm" if config.flag("projector_use_layernorm", True) else ""
    names = PatchNames(
        SIGLIP.under(tower), *folder_patches(tower),
        ProjectorNames(whole + "linear_1", whole + "linear_2", norm), tower + "post_layernorm",
    )  # fmt: skip
    patch = square(vision, "patch_size")
    factor = config.integer("downsample_factor", 1, 64, 2)
    splits = processor.flag("do_image_splitting", True)
    most = processor.integer("max_tiles", 1, 1 << 10, 10) if splits else 1
    tiles = Tiles(
        patch, patch * factor, resampling(processor, BILINEAR),
        processor.integer("tile_size", 1, 1 << 12, 512),
        processor.integer("min_tiles", 1, most, min(2, most)) if splits else 1, most,
        processor.integer("min_image_tokens", 1, 1 << 14, 64),
        processor.integer("max_image_tokens", 1, 1 << 14, 256),
        processor.number("max_pixels_tolerance", 0.0, 1e6, 2.0), processor.flag("use_thumbnail", True),
    )  # fmt: skip
    return _design(
        tower_from_hf(vision, "gelu_pytorch_tanh"), names, tiles, vision.integer("num_patches", 1, 1 << 20),
        inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 2560),
        config.integer("projector_hidden_size", 1, MOST_WIDTH, 2560),
        activation(config, "projector_hidden_act", "gelu"), normalisation(processor, HALF, HALF), flat=True,
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`lfm2` in llama.cpp's mmproj files."""
    shape, patch = tower_from_gguf(keys), keys.integer("patch_size", 1, 1 << 10)
    norm = "mm.input_norm" if "mm.input_norm.weight" in tensors else ""
    names = PatchNames(
        gguf_names(tensors, shape), *PATCHES, ProjectorNames("mm.1", "mm.2", norm), "v.post_ln"
    )
    rows = [rows_of(tensors, name) for name in ("v.position_embd.weight", "mm.1.weight", "mm.2.weight")]
    factor = keys.integer("projector.scale_factor", 1, 64, 2)
    return _design(
        shape, names, Tiles(patch, patch * factor, BILINEAR), rows[0], rows[2], rows[1], "gelu",
        normalisation(keys, HALF, HALF), flat=False,
    )  # fmt: skip


def _design(
    shape: TowerShape, names: PatchNames, tiles: Tiles, table: int, width: int, hidden: int, activation: str,
    pixels: Normalisation, *, flat: bool,
) -> PatchDesign:  # fmt: skip
    whole_patches(tiles.tile, tiles.patch, tiles.cell // tiles.patch)
    whole_patches(math.isqrt(table) ** 2, table)
    projector = ProjectorShape(
        shape.width * (tiles.cell // tiles.patch) ** 2, width, hidden, activation,
        norm="layer" if names.projector.norm else "none", factor=tiles.cell // tiles.patch,
    )  # fmt: skip
    return PatchDesign(
        SPEC, shape, names, tiles.patch, table, pixels, tiles, projector, (shape.layers,),
        partial(resampled, weights=smooth_linear),
        flat, colours_last=flat,
    )  # fmt: skip


LFM2_VL = Family("lfm2_vl", ("Lfm2VlForConditionalGeneration",), ("lfm2",), from_hf, from_gguf)
