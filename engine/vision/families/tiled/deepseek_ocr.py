"""DeepSeek-OCR (arXiv 2510.18234, section 3.2): the image encoder of Segment Anything, whose 16 times fewer
rows are the patches of a CLIP tower; rows of both, side by side, become tokens. Tiles of a large picture come
before the whole of it; each line of tokens has a row for its end, and another one ends the picture.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, norm
from engine.models.headers.keys import Keys
from engine.models.layers.parts import Norm
from engine.models.layers.whole import Blocks
from engine.tensors import Bytes, Floats
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.sam_encoder import SamDesign
from engine.vision.headers import (
    HALF,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    divisible,
    inner,
    normalisation,
    rows_of,
    square_number,
    whole_patches,
)
from engine.vision.layers.sam import SamNames, SamShape
from engine.vision.layers.tower import GGUF, NO_ROPE, QUICK, TowerNames, TowerShape, tower_layers
from engine.vision.passes import OfPasses, Pass
from engine.vision.pictures.images import BICUBIC, Normalisation, resized
from engine.vision.pictures.interpolation import resampled, smooth_cubic
from engine.vision.pictures.tiling import best_grid, tiles_of

SPEC = VisionSpec("deepseek_ocr", "<image>", "<image>")
_TILE = 640
_MOST_TILES = 1 << 8
_GREY = 127
_EPS = 1e-5
_PATCH, _WINDOW = 16, 14
_CLIP, _SAM = "clip-l-14-224", "sam_vit_b"
"""What the two encoders are called in the original config.json."""
_CLIP_NAMES = TowerNames(
    "model.vision_model.transformer.layers.{}.", "layer_norm1", "", "", "", "self_attn.out_proj",
    "layer_norm2", "mlp.fc1", "mlp.fc2", query_key_value="self_attn.qkv_proj",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tiles:
    """From `least` to `most` tiles of `tile` pixels square, of a picture with a side that is longer, then the
    whole with a longer side of `side` pixels, in the middle of a grey square. Their sides become this many
    tokens.
    """

    side: int
    tile: int
    side_tokens: int
    tile_tokens: int
    filter: int = BICUBIC
    least: int = 2
    most: int = 9

    @property
    def most_patches(self) -> int:
        """Of the whole."""
        return self.side_tokens**2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: one span with all tokens, line ends and the end."""
        wide, high = self.grid(width, height)
        tiles = high * self.tile_tokens * (wide * self.tile_tokens + 1)
        return (Span(1, tiles + self.side_tokens * (self.side_tokens + 1) + 1),)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        wide, high = self.grid(width, height)
        tiles = tiles_of(picture, wide, high, self.tile, self.filter) if wide else ()
        return (*tiles, self._whole(picture))

    def spans(
        self, crops: Sequence[Floats], width: int, height: int, marks: Sequence[Floats]
    ) -> Sequence[Floats]:
        """As `Assemble`; the marks are the end of a line and that of the picture."""
        line_end, end = marks
        found, wide = list[Floats](), self.grid(width, height)[0]
        for cells, count, parts in ((self.tile_tokens, wide, crops[:-1]), (self.side_tokens, 1, crops[-1:])):
            if parts:
                grid = np.stack(parts).reshape(-1, count, cells, cells, len(end))
                lines = grid.transpose(0, 2, 1, 3, 4).reshape(-1, count * cells, len(end))
                ends = np.broadcast_to(line_end, (len(lines), 1, len(end)))
                found.append(np.concatenate([lines, ends], axis=1).reshape(-1, len(end)))
        return (np.concatenate([*found, end[None]]),)

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """How many tiles are side by side, and one above another; none of a small picture."""
        if max(width, height) <= self.tile:
            return 0, 0
        return best_grid(width, height, self.tile, self.least, self.most)

    def _whole(self, picture: Bytes) -> Bytes:
        height, width = picture.shape[:2]
        longest, side = max(width, height), self.side
        wide, high = (max(1, round(side * each / longest)) for each in (width, height))
        canvas = np.full((side, side, 3), _GREY, np.uint8)
        left, top = round((side - wide) / 2), round((side - high) / 2)
        canvas[top : top + high, left : left + wide] = resized(picture, wide, high, self.filter)
        return canvas


@dataclass(frozen=True, slots=True, eq=False)
class _ClipParts:
    """`places` are those of the class and of a square of rows, (1 + S * S, E)."""

    places: Floats
    class_row: Floats
    before: Norm
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class ClipShape:
    """A `SecondShape`: a CLIP tower without a layer over patches. `table` positions are stored, with that of
    the class; `most` are the rows of a crop at most. Its rows are followed by those that it was given.
    """

    tower: TowerShape
    names: TowerNames
    class_row: str
    positions: str
    before: str
    table: int
    most: int

    @property
    def layers(self) -> int:
        return self.tower.layers

    @property
    def outputs(self) -> int:
        return 2 * self.tower.width

    def build(self, source: WeightSource) -> Generator[int, None, _ClipParts]:
        width, eps = self.tower.width, self.tower.eps
        places = source.vector(self.positions, self.table, width)
        row = source.vector(self.class_row, width)
        before = norm(source, self.before, width, eps, layer_norm=True, bias=True)
        blocks = yield from tower_layers(source, self.tower, self.names, self.tower.layers)
        return _ClipParts(places, row, before, blocks)

    def second(self, backend: Backend, parts: _ClipParts) -> _Clip:
        return _Clip(self, backend, parts)


class _Clip(OfPasses):
    """A `Second`."""

    def __init__(self, shape: ClipShape, backend: Backend, parts: _ClipParts) -> None:
        self._parts = parts
        self._given = np.zeros((1 + shape.most, shape.tower.width), np.float32)

        def forward(ops: Ops) -> Array:
            x = parts.before(ops, ops.given(self._given))
            return ops.last_rows(parts.blocks(ops, x, NO_ROPE))

        self._run = Pass(backend, forward, len(self._given), shape.tower.attention)
        super().__init__(self._run)

    def rows(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        cells, places = len(grid), self._parts.places
        states = grid.reshape(cells**2, -1)
        self._given[0] = self._parts.class_row + places[0]
        self._given[1 : 1 + cells**2] = states + resampled(places[1:], cells, cells, smooth_cubic)
        found = yield from self._run.steps(1 + cells**2)
        return np.concatenate([found[1:], states], axis=1)


def hf_sam(prefix: str) -> SamNames:
    """The original names of Segment Anything's encoder."""
    return SamNames(
        prefix + "patch_embed.proj", prefix + "pos_embed", prefix + "blocks.{}.",
        ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.lin1", "mlp.lin2"),
        ("attn.rel_pos_h", "attn.rel_pos_w"),
        (prefix + "neck.0", prefix + "neck.1", prefix + "neck.2", prefix + "neck.3"),
        (prefix + "net_2", prefix + "net_3"),
    )  # fmt: skip


GGUF_SAM = SamNames(
    "v.sam.patch_embd", "v.sam.pos_embd.weight", "v.sam.blk.{}.",
    ("pre_ln", "attn.qkv", "attn.out", "post_ln", "mlp.lin1", "mlp.lin2"),
    ("attn.pos_h.weight", "attn.pos_w.weight"),
    ("v.sam.neck.0", "v.sam.neck.1", "v.sam.neck.2", "v.sam.neck.3"),
    ("v.sam.net_2", "v.sam.net_3"),
)  # fmt: skip


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`DeepseekOCRForCausalLM`, as its authors publish it."""
    parts = inner(inner(config, "vision_config"), "width")
    sam, clip = inner(parts, _SAM), inner(parts, _CLIP)
    first, after = "model.sam_model.", "model.vision_model."
    names = hf_sam(first)
    sizes = ("width", "layers", "heads")
    shape = sam_shape(sam, sizes, names, tensors)
    tower = _tower(shape, _sizes(clip, sizes, (1024, 24, 16)), _CLIP_NAMES, tensors)
    places = after + "embeddings.position_embedding.weight"
    second = ClipShape(
        tower, _CLIP_NAMES, after + "embeddings.class_embedding", places, after + "pre_layrnorm",
        max(2, rows_of(tensors, places)), shape.rows(shape.side) ** 2,
    )  # fmt: skip
    width = inner(config, "language_config").integer("hidden_size", 1, MOST_WIDTH, 1280)
    marks = "model.image_newline", "model.view_seperator"
    pixels = normalisation(processor, HALF, HALF)
    tiles = processor.integer("tile_size", _PATCH, shape.side, min(_TILE, shape.side)), 2, 9
    return _design(shape, names, second, pixels, "model.projector.layers", width, marks, tiles)


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`deepseekocr` in llama.cpp's mmproj files."""
    names = GGUF_SAM
    shape = gguf_sam(keys, tensors)
    own = ("embedding_length", "block_count", "attention.head_count")
    layers = gguf_layers(tensors)
    tower = _tower(shape, _sizes(keys, own, None), layers, tensors)
    places = PATCHES[1]
    second = ClipShape(
        tower, layers, "v.class_embd", places, "v.pre_ln", max(2, rows_of(tensors, places)),
        shape.rows(shape.side) ** 2,
    )  # fmt: skip
    most = keys.integer("preproc_max_tiles", 1, _MOST_TILES, 9)
    tiles = min(_TILE, shape.side), keys.integer("preproc_min_tiles", 1, most, min(2, most)), most
    width = rows_of(tensors, "mm.model.fc.weight")
    marks = "v.image_newline", "v.view_seperator"
    return _design(shape, names, second, normalisation(keys, HALF, HALF), "mm.model.fc", width, marks, tiles)


def gguf_layers(tensors: Tensors) -> TowerNames:
    """The names of the CLIP tower's layers in mmproj files."""
    return replace(GGUF, query_key_value="attn_qkv" if "v.blk.0.attn_qkv.weight" in tensors else "")


def _sizes(keys: Keys, names: tuple[str, str, str], usual: tuple[int, int, int] | None) -> tuple[int, ...]:
    """Width, layers and heads."""
    limits = MOST_WIDTH, MOST_LAYERS, MOST_HEADS
    return tuple(
        keys.integer(name, 1, most, *([] if usual is None else [usual[at]]))
        for at, (name, most) in enumerate(zip(names, limits, strict=True))
    )


def gguf_sam(keys: Keys, tensors: Tensors) -> SamShape:
    """As `sam_shape`, of an mmproj file."""
    sizes = ("sam.embedding_length", "sam.block_count", "sam.head_count")
    return sam_shape(keys, sizes, GGUF_SAM, tensors, None)


def sam_shape(
    keys: Keys, words: tuple[str, str, str], names: SamNames, tensors: Tensors,
    usual: tuple[int, int, int] | None = (768, 12, 12),
) -> SamShape:  # fmt: skip
    """The shape of Segment Anything's encoder, whose width, layers and heads are under these `words`, and its
    other sizes those of tensors: layers without windows have more distances.
    """
    window = keys.integer("window_size", 1, MOST_SIDE, _WINDOW)
    width, layers, heads = _sizes(keys, words, usual)
    channels = tuple(rows_of(tensors, name + ".weight") for name in (names.neck[2], *names.halves))
    positions = tensors.get(names.positions)
    cells = positions.shape[-2] if positions is not None and len(positions.shape) > 2 else 1
    window = min(window, cells)
    distances = (rows_of(tensors, names.layer.format(at) + names.relative[0]) for at in range(layers))
    whole = frozenset(at for at, count in enumerate(distances) if count != 2 * window - 1)
    return SamShape(
        divisible(width, heads, "heads"), layers, heads,
        rows_of(tensors, names.layer.format(0) + names.parts[4] + ".weight"), cells * _PATCH, _PATCH,
        window, whole, channels,
    )  # fmt: skip


def _tower(sam: SamShape, sizes: tuple[int, ...], names: TowerNames, tensors: Tensors) -> TowerShape:
    """The shape of the CLIP tower, whose patches are the other's rows."""
    width, (_width, layers, heads) = sam.channels[-1], sizes
    mlp = rows_of(tensors, names.layer.format(0) + names.up + ".weight")
    return TowerShape(divisible(width, heads, "heads"), layers, heads, mlp, _EPS, QUICK)


def _design(
    shape: SamShape, names: SamNames, second: ClipShape, pixels: Normalisation, projector: str, width: int,
    marks: tuple[str, str], tiles: tuple[int, int, int],
) -> SamDesign:  # fmt: skip
    """`tiles` are the side of one in pixels, and the fewest and the most of a picture."""
    square_number(second.table - 1)
    tile, least, most = tiles
    whole_patches(tile, shape.patch)
    cutter = Tiles(shape.side, tile, shape.rows(shape.side), shape.rows(tile), least=least, most=most)
    return SamDesign(
        SPEC, shape, names, pixels, cutter, projector, width, cutter.spans, marks, second
    )  # fmt: skip


DEEPSEEK_OCR = Family("deepseek_ocr", ("DeepseekOCRForCausalLM",), ("deepseekocr",), from_hf, from_gguf)
