"""Idefics3 (arXiv 2408.12637), SmolVLM and SmolVLM2 (arXiv 2504.05299), Granite Docling 258M.

A SigLIP tower. A picture is enlarged or made smaller to a longest side and cut into square tiles; all of it
follows as one more tile. Squares of patches are joined to one token of the language model.
"""

from __future__ import annotations

import math

import numpy as np

from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes, Floats
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.headers import (
    HALF,
    MOST_SIDE,
    PATCHES,
    fitting_patches,
    gguf_names,
    inner,
    normalisation,
    prefix_of,
    resampling,
    square,
    tower_from_gguf,
    tower_from_hf,
)
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import SIGLIP, TowerShape
from engine.vision.pictures.images import LANCZOS, Normalisation, resized
from engine.words import _

SPEC = VisionSpec("idefics3", "<image>", "<image>")
_AROUND, _WHOLE = "<fake_token_around_image>", "<global-img>"
MOST_TILES = 32
"""Of one side of a picture."""
_LARGEST = 4096
"""Longest side of any picture, in pixels."""
_PREFIXES = ("model.vision_model.", "vision_model.", "model.model.vision_model.")


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cutting of `Idefics3ImageProcessor`: a longest side of `longest` pixels, tiles of `tile` pixels
    square (a token for each `cell` pixels). Without `splits`, the picture is one tile.
    """

    longest: int
    tile: int
    patch: int
    cell: int
    filter: int
    splits: bool = True

    @property
    def most_patches(self) -> int:
        """Of one tile."""
        return (self.tile // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: of each tile its row and column, and at last the whole."""
        span = Span(self.tile // self.cell, self.tile // self.cell)
        wide, high = self._grid(width, height)
        if wide * high <= 1:
            return (_AROUND + _WHOLE, span, _AROUND)
        found = list[Piece]()
        for row in range(1, high + 1):
            for column in range(1, wide + 1):
                line = "\n" if column == 1 and row > 1 else ""
                found += [f"{line}{_AROUND}<row_{row}_col_{column}>", span]
        return (*found, f"\n\n{_AROUND}{_WHOLE}", span, _AROUND)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        tile = self.tile
        if self.longest:
            picture = resized(picture, *self.first_size(width, height), self.filter)
        wide, high = self._grid(width, height)
        if wide * high <= 1:
            return (resized(picture, tile, tile, self.filter),)
        picture = resized(picture, wide * tile, high * tile, self.filter)
        tiles = [
            picture[tile * row : tile * (row + 1), tile * column : tile * (column + 1)]
            for row in range(high)
            for column in range(wide)
        ]
        return (*tiles, resized(picture, tile, tile, self.filter))

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """How many tiles are side by side, and one above another."""
        if not self.splits:
            return 1, 1
        width, height = self.first_size(width, height)
        ratio, tile = width / height, self.tile
        if width >= height:
            wide = math.ceil(width / tile)
            return wide, math.ceil(int(wide * tile / ratio) / tile)
        high = math.ceil(height / tile)
        return math.ceil(int(high * tile * ratio) / tile), high

    def first_size(self, width: int, height: int) -> tuple[int, int]:
        """The size with the longest side, whose shorter one is even."""
        ratio = width / height
        if width >= height:
            width, height = self.longest, int(self.longest / ratio)
            height = max(1, height + height % 2)
        else:
            width, height = int(self.longest * ratio), self.longest
            width = max(1, width + width % 2)
        if max(width, height) <= _LARGEST:
            return width, height
        ratio = width / height
        if width >= height:
            return _LARGEST, max(1, int(_LARGEST / ratio))
        return max(1, int(_LARGEST * ratio)), _LARGEST


def placed(table: Floats, rows: int, columns: int) -> Floats:
    """Positions by the share of the picture that is before a patch, for grids of any size, with 32-bit
    numbers as in the tower's code (NaViT, arXiv 2307.06304).
    """
    side = math.isqrt(len(table))
    bounds = np.arange(1 / side, 1.0, 1 / side).astype(np.float32)
    places = list[np.ndarray]()
    for count in (rows, columns):
        shares = np.arange(count, dtype=np.float32) * (np.float32(1) / np.float32(count))
        places.append(np.searchsorted(bounds, np.minimum(shares, np.float32(1 - 1e-6)), side="right"))
    found: Floats = table[(places[0][:, None] * side + places[1][None, :]).reshape(-1)]
    return found


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Idefics3ForConditionalGeneration` and its like."""
    vision = inner(config, "vision_config").over(
        {"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 16}
    )
    prefix = prefix_of(tensors, "embeddings.patch_embedding.weight", _PREFIXES)
    tile = _side(processor, "max_image_size", square(vision, "image_size", 224))
    names = PatchNames(
        SIGLIP.under(prefix), prefix + "embeddings.patch_embedding",
        prefix + "embeddings.position_embedding.weight",
        ProjectorNames(prefix.removesuffix("vision_model.") + "connector.modality_projection.proj"),
        prefix + "post_layernorm",
    )  # fmt: skip
    return _design(
        tower_from_hf(vision, "gelu_pytorch_tanh"), names, square(vision, "image_size", 224),
        square(vision, "patch_size", 32), config.integer("scale_factor", 1, 64, 2),
        normalisation(processor, HALF, HALF), tile, _side(processor, "size", 4 * tile),
        inner(config, "text_config").integer("hidden_size", 1, 1 << 20, 4096),
        resampling(processor, LANCZOS), processor.flag("do_image_splitting", True),
    )  # fmt: skip


def _side(processor: Keys, name: str, default: int) -> int:
    """The longest side of an image processor's size."""
    sizes = processor.table(name)
    return default if sizes is None else sizes.integer("longest_edge", 1, MOST_SIDE, default)


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`idefics3` in llama.cpp's mmproj files."""
    side, shape = keys.integer("image_size", 1, MOST_SIDE), tower_from_gguf(keys)
    names = PatchNames(gguf_names(tensors, shape), *PATCHES, ProjectorNames("mm.model.fc"), "v.post_ln")
    return _design(
        shape, names, side, keys.integer("patch_size", 1, 1 << 10),
        keys.integer("projector.scale_factor", 1, 64), normalisation(keys, HALF, HALF), side,
        keys.integer("preproc_image_size", 1, MOST_SIDE, 4 * side),
        keys.integer("projection_dim", 1, 1 << 20), LANCZOS,
    )  # fmt: skip


def _design(
    shape: TowerShape, names: PatchNames, side: int, patch: int, factor: int, pixels: Normalisation,
    tile: int, longest: int, width: int, filter: int, splits: bool = True,
) -> PatchDesign:  # fmt: skip
    fitting_patches(tile, patch, factor)
    if longest > MOST_TILES * tile:
        raise BadCheckpoint(
            _(
                "The vision encoder would cut a side of {longest} pixels into tiles of {tile}; at most "
                "{most} of them were expected. The file is damaged.",
                longest=longest,
                tile=tile,
                most=MOST_TILES,
            )
        )
    projector = ProjectorShape(shape.width * factor**2, width, factor=factor)
    return PatchDesign(
        SPEC, shape, names, patch, fitting_patches(side, patch) ** 2, pixels,
        Tiles(longest, tile, patch, patch * factor, filter, splits), projector, (shape.layers,), placed,
    )  # fmt: skip


IDEFICS3 = Family(
    "idefics3",
    ("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"),
    ("idefics3",), from_hf, from_gguf,
)  # fmt: skip
