"""Perception LM (arXiv 2504.13180): the Perception Encoder (arXiv 2504.13181), a tower with learned positions
and rope by column and row, over the whole picture and over square tiles of it; two linear layers, and the
mean of each square of what they make of patches.
"""

from __future__ import annotations

import math
from functools import cache, partial

from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other, unsupported
from engine.tensors import Bytes
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.families.tiled.llama4 import angles
from engine.vision.headers import (
    HALF,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_WIDTH,
    divisible,
    inner,
    normalisation,
    prefix_of,
    resampling,
    rotated_dim,
    rows_of,
    square,
    whole_patches,
)
from engine.vision.layers.projector import AveragedShape, ProjectorNames, ProjectorShape
from engine.vision.layers.tower import TowerNames, TowerShape
from engine.vision.pictures.images import resized
from engine.vision.pictures.tiling import tiles_of

SPEC = VisionSpec("perception_lm", "<|image|>", "<|image|>")
_TILED = "thumb+tile"
_MOST_TILES = 1 << 8
_EPS, _BASE = 1e-5, 10000.0
_PREFIXES = ("model.vision_tower.timm_model.", "vision_tower.timm_model.")
_LAYERS = TowerNames(
    "blocks.{}.", "norm1", "", "", "", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2",
    query_key_value="attn.qkv", scales=("gamma_1", "gamma_2"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tower:
    """What a name of a tower stands for: its width, layers and side, the first number of a column or row,
    whether there is a row of the class, and whether there is a norm after all layers.
    """

    width: int
    layers: int
    side: int
    first: int
    has_class: bool
    normed: bool


_TOWERS = {
    "vit_pe_core_large_patch14_336": _Tower(1024, 24, 336, 1, True, True),
    "vit_pe_core_gigantic_patch14_448": _Tower(1536, 50, 448, 0, False, True),
    "vit_pe_lang_large_patch14_448": _Tower(1024, 23, 448, 1, True, False),
    "vit_pe_lang_gigantic_patch14_448": _Tower(1536, 47, 448, 0, False, False),
}
"""By the names of the package that has them; folders state what differs."""
_HANDLED = (
    "embed_dim", "depth", "img_size", "global_pool", "use_post_transformer_norm", "init_values",
    "ref_feat_shape", "num_heads", "patch_size", "mlp_ratio", "use_fc_norm", "num_classes",
)  # fmt: skip
"""Of what a folder may state of its tower."""


@cache
def _by_shape(most: int) -> dict[float, list[tuple[int, int]]]:
    """Grids (columns, rows) of `most` tiles or fewer by width over height, the larger ones first."""
    found: dict[float, list[tuple[int, int]]] = {}
    for count in range(most, 0, -1):
        for wide in range(1, count + 1):
            if count % wide == 0:
                found.setdefault(wide / (count // wide), []).append((wide, count // wide))
    return found


@dataclass(frozen=True, slots=True)
class Tiles:
    """The whole picture, made to fit a square of `side` pixels, then at most `most` tiles (0: none): in the
    grid in which it becomes largest, if there is one that it fits into, or else in one that is nearly of its
    shape. It is stretched to the grid.
    """

    side: int
    patch: int
    cell: int
    filter: int
    most: int

    @property
    def most_patches(self) -> int:
        """Of one crop."""
        return (self.side // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`."""
        wide, high = self.grid(width, height)
        return (Span(self.side // self.cell, self.side // self.cell),) * (1 + wide * high)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        whole = resized(picture, self.side, self.side, self.filter)
        if not self.most:
            return (whole,)
        return (whole, *tiles_of(picture, *self.grid(width, height), self.side, self.filter))

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """How many tiles are side by side, and one above another."""
        if not self.most:
            return 0, 0
        best, largest = None, 0.0
        for wide, high in (grid for grids in _by_shape(self.most).values() for grid in grids):
            if wide * self.side >= width and high * self.side >= height:
                short = self._short(width, height, wide, high)
                if best is None or short >= largest:
                    best, largest = (wide, high), short
        return best or self._closest(width / height)

    def _short(self, width: int, height: int, wide: int, high: int) -> float:
        """The shorter side of the picture, enlarged until it fills a grid without losing its shape."""
        shape, grow = width / height, min(wide * self.side / width, high * self.side / height)
        if shape == 1:
            return grow * height
        return math.floor(grow * width / shape if shape > 1 else grow * height * shape)

    def _closest(self, shape: float) -> tuple[int, int]:
        """Of the grids that are not wider (of upright pictures: wider) than the picture, the largest of those
        whose shape is closest.
        """
        grids = _by_shape(self.most)
        if shape >= 1:
            key = min((each for each in grids if each <= shape), key=lambda each: shape - each)
        else:
            key = min((each for each in grids if each > shape), key=lambda each: abs(1 / each - 1 / shape))
        return grids[key][0]


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`PerceptionLMForConditionalGeneration`. Raises `BadCheckpoint` and `UnsupportedModel`."""
    vision = inner(config, "vision_config")
    known = _TOWERS.get(vision.text("architecture", ""))
    if known is None:
        raise unsupported("architecture", vision.raw("architecture"))
    stated = inner(vision, "model_args")
    other = next((name for name in stated.source if name not in _HANDLED), None)
    if other is not None:
        raise unsupported(other, stated.raw(other))
    tower = prefix_of(tensors, "patch_embed.proj.weight", _PREFIXES)
    side, patch = square(stated, "img_size", known.side), square(stated, "patch_size", 14)
    pool = config.integer("projector_pooling_ratio", 1, 64, 1)
    cells = whole_patches(side, patch, pool)
    if square(stated, "ref_feat_shape", known.side // 14) != cells:
        raise unsupported("ref_feat_shape", stated.raw("ref_feat_shape"))
    refuse_other(config, "vision_use_cls_token", known.has_class)
    refuse_other(processor, "tile_size", side)
    shape = _shape(known, stated, rows_of(tensors, tower + "blocks.0.mlp.fc1.weight"))
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 4096)
    last = tower.replace("vision_tower.timm_model.", "multi_modal_projector.")
    names = PatchNames(
        _LAYERS.under(tower), tower + "patch_embed.proj", tower + "pos_embed",
        ProjectorNames(last + "linear_1", last + "linear_2"),
        tower + "norm" if stated.flag("use_post_transformer_norm", known.normed) else "",
        tower + "norm_pre", tower + "cls_token" if known.has_class else "",
    )  # fmt: skip
    most = processor.integer("max_num_tiles", 1, _MOST_TILES, 36)
    tiled = processor.text("vision_input_type", _TILED) == _TILED
    tiles = Tiles(side, patch, patch * pool, resampling(processor), most if tiled else 0)
    projector = AveragedShape(ProjectorShape(shape.width, width, width), pool)
    return PatchDesign(
        SPEC, shape, names, patch, cells**2, normalisation(processor, HALF, HALF), tiles, projector,
        (shape.layers,), angles=partial(angles, rotated_dim(shape), _BASE, first=known.first),
    )  # fmt: skip


def _shape(known: _Tower, stated: Keys, inside: int) -> TowerShape:
    """The tower's, whose layers have this many numbers inside."""
    heads = stated.integer("num_heads", 1, MOST_HEADS, 16)
    width = divisible(stated.integer("embed_dim", 1, MOST_WIDTH, known.width), heads, "num_heads")
    layers = stated.integer("depth", 1, MOST_LAYERS, known.layers)
    return TowerShape(width, layers, heads, inside, _EPS, "gelu", rotated=True)


PERCEPTION_LM = Family("perception_lm", ("PerceptionLMForConditionalGeneration",), (), from_hf, None)
