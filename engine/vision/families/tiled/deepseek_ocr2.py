"""DeepSeek-OCR 2 (arXiv 2601.20552, section 3): the image encoder of Segment Anything, whose rows a small
decoder reads, Qwen 2 without its table of tokens: rows of a picture attend to each other, and learned queries
that follow them to these and to the queries before. What becomes of the queries are the tokens.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from engine.backends.base import Array, Backend, Ops, RotaryTable
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.attention import Attention
from engine.models.building.source import WeightSource, norm
from engine.models.headers.keys import Keys
from engine.models.layers.parts import Block, Norm, RopeTables
from engine.models.layers.whole import Blocks
from engine.tensors import Bytes, Floats
from engine.vision.base import Piece, Span
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.sam_encoder import SamDesign
from engine.vision.families.tiled.deepseek_ocr import GGUF_SAM, SPEC, Tiles, gguf_sam, hf_sam, sam_shape
from engine.vision.headers import (
    HALF,
    MOST_HEADS,
    MOST_WIDTH,
    divisible,
    inner,
    layer_count,
    normalisation,
    rotated_dim,
    rows_of,
    whole_patches,
)
from engine.vision.layers.grid import frequencies
from engine.vision.layers.sam import SamNames, SamShape
from engine.vision.layers.tower import GGUF, TowerNames, TowerShape, tower_layers
from engine.vision.passes import OfPasses, Pass
from engine.vision.pictures.images import Normalisation

_SPEC = replace(SPEC, family="deepseek_ocr2")
_TILE, _LEAST, _MOST = 768, 2, 6
"""The side of a tile in pixels, and how many a picture has."""
_EPS, _BASE, _HEADS = 1e-6, 1e6, 14
"""Of the decoder, of which the original config.json has the width alone."""
_LAYERS = TowerNames(
    "layers.{}.", "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.o_proj", "post_attention_layernorm", "mlp.up_proj", "mlp.down_proj", "mlp.gate_proj",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueriedTiles:
    """`Tiles` each of which becomes `tile_tokens`, and the whole `side_tokens`, one after the other; another
    one ends the picture.
    """

    tiles: Tiles
    tile_tokens: int
    side_tokens: int

    @property
    def most_patches(self) -> int:
        """As `Cutter.most_patches`."""
        return self.tiles.most_patches

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: one span with all tokens."""
        wide, high = self.tiles.grid(width, height)
        return (Span(1, wide * high * self.tile_tokens + self.side_tokens + 1),)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        return self.tiles.crops(picture)

    def spans(
        self, crops: Sequence[Floats], width: int, height: int, marks: Sequence[Floats]
    ) -> Sequence[Floats]:
        """As `Assemble`; the mark is the end of the picture."""
        return (np.concatenate([*crops, marks[0][None]]),)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """`queries` are those of a tile and of the whole, each (Q, E)."""

    queries: tuple[Floats, Floats]
    blocks: Blocks
    after: Norm


@dataclass(frozen=True, slots=True)
class ReaderShape:
    """A `SecondShape`: the decoder. `queries` name those of a tile, which becomes `least` rows, and of the
    whole, which becomes `most`; `counts` are how many there are. `base` is that of rope.
    """

    tower: TowerShape
    names: TowerNames
    after: str
    queries: tuple[str, str]
    base: float = _BASE
    counts: tuple[int, int] = (1, 1)
    least: int = 1
    most: int = 1

    @property
    def layers(self) -> int:
        return self.tower.layers

    @property
    def outputs(self) -> int:
        return self.tower.width

    def build(self, source: WeightSource) -> Generator[int, None, _Parts]:
        width = self.tower.width
        first, second = (
            source.vector(name, count, width) for name, count in zip(self.queries, self.counts, strict=True)
        )
        blocks = yield from tower_layers(source, self.tower, self.names, self.tower.layers)
        after = norm(source, self.after, width, self.tower.eps, layer_norm=False, bias=False)
        return _Parts((first, second), blocks, after)

    def second(self, backend: Backend, parts: _Parts) -> _Reader:
        return _Reader(self, backend, parts)


class _Reader(OfPasses):
    """A `Second`: a pass over the rows of a picture, and one over the queries that follow."""

    def __init__(self, shape: ReaderShape, backend: Backend, parts: _Parts) -> None:
        self._shape, self._parts = shape, parts
        width, asked = shape.tower.width, max(shape.counts)
        self._rows = np.zeros((shape.most, width), np.float32)
        self._queries = np.zeros((asked, width), np.float32)
        places = np.arange(shape.most + asked, dtype=np.float32)[:, None]
        dim = shape.tower.attention.head_dim
        angles = places * frequencies(dim // 2, dim, shape.base)
        tables = RopeTables(RotaryTable(np.cos(angles), np.sin(angles), False))
        both_ways, one_way = _numbered(parts.blocks, True), _numbered(parts.blocks, False)

        def read(ops: Ops) -> Array:
            return ops.last_rows(both_ways(ops, ops.given(self._rows), tables))

        def ask(ops: Ops) -> Array:
            return ops.last_rows(parts.after(ops, one_way(ops, ops.given(self._queries), tables)))

        layers, own = shape.tower.layers, shape.tower.attention
        self._read = Pass(backend, read, shape.most, own, layers, more=asked)
        self._ask = Pass(backend, ask, asked, after=self._read)
        super().__init__(self._read, self._ask)

    def rows(self, grid: Floats) -> Generator[Waiting, None, Floats]:
        count = len(grid) ** 2
        queries = self._parts.queries[0 if count <= self._shape.least else 1]
        self._rows[:count] = grid.reshape(count, -1)
        self._queries[: len(queries)] = queries
        yield from self._read.steps(count)
        return (yield from self._ask.steps(len(queries), count)).copy()


def _numbered(blocks: Blocks, both_ways: bool) -> Blocks:
    """Layers each of which has keys and values of its own, and attends in both directions or to what came
    before.
    """
    found = list[Block]()
    for number, block in enumerate(blocks.blocks):
        own = block.attention
        assert isinstance(own, Attention)
        shape = replace(own.shape, bidirectional=both_ways)
        found.append(replace(block, attention=replace(own, layer=number, shape=shape)))
    return replace(blocks, blocks=tuple(found))


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`DeepseekOCR2ForCausalLM`, as its authors publish it, and as transformers saves it."""
    vision, names = inner(config, "vision_config"), hf_sam("model.sam_model.")
    if (saved := vision.table("sam_config")) is not None:
        words = "hidden_size", "num_hidden_layers", "num_attention_heads"
        sam = sam_shape(saved, words, names, tensors)
    else:
        sam = sam_shape(
            inner(inner(vision, "width"), "sam_vit_b"), ("width", "layers", "heads"), names, tensors
        )
    own, at = inner(vision, "encoder_config"), "model.qwen2_model."
    heads = own.integer("num_attention_heads", 1, MOST_HEADS, _HEADS)
    eps, rope = own.number("rms_norm_eps", 0.0, 1.0, _EPS), own.table("rope_parameters") or own
    layers = _LAYERS.under(at + "model.model.")
    reader = ReaderShape(
        _tower(sam, heads, eps, layers, tensors), layers, at + "model.model.norm",
        (at + "query_768.weight", at + "query_1024.weight"), rope.number("rope_theta", 1.0, 1e12, _BASE),
    )  # fmt: skip
    text = config.table("text_config") or inner(config, "language_config")
    width = text.integer("hidden_size", 1, MOST_WIDTH, 1280)
    tile = processor.integer("tile_size", sam.patch, sam.side, min(_TILE, sam.side))
    return _design(
        sam, names, reader, normalisation(processor, HALF, HALF), "model.projector.layers", width,
        "model.view_seperator", tile, tensors,
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`deepseekocr2` in llama.cpp's mmproj files."""
    sam, heads = gguf_sam(keys, tensors), keys.integer("attention.head_count", 1, MOST_HEADS)
    eps = keys.number("attention.layer_norm_epsilon", 0.0, 1.0, _EPS)
    reader = ReaderShape(
        _tower(sam, heads, eps, GGUF, tensors), GGUF, "v.post_ln",
        ("v.resample_query_768.weight", "v.resample_query_1024.weight"),
    )  # fmt: skip
    return _design(
        sam, GGUF_SAM, reader, normalisation(keys, HALF, HALF), "mm.model.fc",
        rows_of(tensors, "mm.model.fc.weight"), "v.view_seperator", min(_TILE, sam.side), tensors,
    )  # fmt: skip


def _tower(sam: SamShape, heads: int, eps: float, names: TowerNames, tensors: Tensors) -> TowerShape:
    """The shape of the decoder, whose sizes are those of tensors."""
    width, first = divisible(sam.channels[-1], heads, "num_attention_heads"), names.layer.format(0)
    layers = layer_count(tensors, f"{names.layer}{names.query}.weight")
    groups = max(1, rows_of(tensors, first + names.key + ".weight") // (width // heads))
    divisible(heads, groups, "num_key_value_heads")
    shape = TowerShape(
        width, layers, heads, rows_of(tensors, first + names.up + ".weight"), eps, "silu", gated=True,
        layer_norm=False, rotated=True, kv_heads=groups,
    )  # fmt: skip
    rotated_dim(shape)
    return shape


def _design(
    sam: SamShape, names: SamNames, reader: ReaderShape, pixels: Normalisation, projector: str, width: int,
    mark: str, tile: int, tensors: Tensors,
) -> SamDesign:  # fmt: skip
    whole_patches(tile, sam.patch)
    small, large = (rows_of(tensors, name) for name in reader.queries)
    least, most = sam.rows(tile) ** 2, sam.rows(sam.side) ** 2
    reader = replace(reader, counts=(small, large), least=least, most=most)
    tiles = Tiles(sam.side, tile, sam.rows(sam.side), sam.rows(tile), least=_LEAST, most=_MOST)
    cutter = QueriedTiles(tiles, small, large)
    return SamDesign(
        _SPEC, sam, names, pixels, cutter, projector, width, cutter.spans, (mark,), reader
    )  # fmt: skip


DEEPSEEK_OCR2 = Family(
    "deepseek_ocr2", ("DeepseekOCR2ForCausalLM", "DeepseekOcr2ForConditionalGeneration"), ("deepseekocr2",),
    from_hf, from_gguf,
)  # fmt: skip
