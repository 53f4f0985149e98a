"""Gemma 3n (its model card): MobileNetV5 over one square picture. The grids after the last two stages are
joined in the larger one's size and averaged to 16 * 16 tokens; the mark that ends a picture has an embedding
of the encoder's own, so it counts as one more.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, norm
from engine.models.headers.keys import Keys
from engine.models.layers.parts import Linear, Norm, bare_norm
from engine.tensors import Floats
from engine.vision.base import PictureRows, Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.families.fixed_size.llava import OneCrop
from engine.vision.headers import (
    HALF,
    MOST_SIDE,
    MOST_WIDTH,
    inner,
    normalisation,
    prefix_of,
    resampling,
    rows_of,
    whole_patches,
)
from engine.vision.layers.convolution import convolution
from engine.vision.layers.merging import averaged
from engine.vision.layers.mobilenet import EDGE, EPS, BlockParts, BlockShape, build_block, convolved
from engine.vision.passes import OfPasses, Pieces
from engine.vision.pictures.images import BILINEAR, Normalisation, read_picture

SPEC = VisionSpec("gemma3n", "<image_soft_token>", "<image_soft_token>")
_BEFORE, _AFTER = "\n\n<start_of_image>", "\n\n"
_SIDE, _TOKENS = 768, 16
_SHRINKS = 16
"""Pixels of a side that become one place after the last stage but one."""
_FIRST_PLACE, _PLACES = 262_144, 128
"""The first id, and the number of those, whose embeddings are the encoder's."""
_STAGES = 4
_MOST_BLOCKS = 1 << 9
_PREFIXES = ("model.vision_tower.timm_model.", "vision_tower.timm_model.")


@dataclass(frozen=True, slots=True)
class _Names:
    """The beginnings of names: of the tower, of its blocks, in which {} are the numbers of stage and block,
    and those of the parts that make rows of the tower's. In mmproj files, the stem's bias is a `grid`.
    """

    tower: str
    block: str
    soft_norm: str
    hard_norm: str
    projection: str
    embedding: str
    grid: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What `_Design.build` makes; `mark` (1, C) is the embedding of the mark at a picture's end."""

    stem: Linear
    stem_norm: Norm
    stages: tuple[tuple[BlockParts, ...], ...]
    expand: Linear
    expanded: Norm
    project: Linear
    projected: Norm
    last: Norm
    soft_norm: Norm
    hard_norm: Norm
    projection: Linear
    mark: Floats


@dataclass(frozen=True, slots=True)
class _Design:
    """A `Design`. `stages` are the blocks, `channels` those of the stem, inside the joining part, and after
    it. `place` is the row of the mark's embedding among `places`.
    """

    spec: VisionSpec
    names: _Names
    stages: tuple[tuple[BlockShape, ...], ...]
    channels: tuple[int, int, int]
    outputs: int
    pixels: Normalisation
    crop: OneCrop
    place: int
    places: int

    @property
    def width(self) -> int:
        return self.outputs

    @property
    def layers(self) -> int:
        return sum(map(len, self.stages))

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`."""
        return (_BEFORE, Span(1, _TOKENS**2 + 1), _AFTER)

    def build(self, source: WeightSource) -> Generator[int, None, _Parts]:
        tower, (stem, hidden, outputs) = self.names.tower, self.channels
        first = convolution(source, tower + "conv_stem.conv", stem, 3, 3)
        bias = source.vector(tower + "conv_stem.conv.bias", stem, *([1, 1] if self.names.grid else []))
        stages, done = list[tuple[BlockParts, ...]](), 0
        for blocks in self.stages:
            made = list[BlockParts]()
            for shape in blocks:
                made.append(build_block(source, shape))
                done += 1
                yield done
            stages.append(tuple(made))
        joined = sum(blocks[-1].outputs for blocks in self.stages[-2:])
        rms = partial(norm, source, layer_norm=False, bias=False)
        last = rms(name=tower + "msfa.norm", size=outputs, eps=EPS)
        names = self.names
        table = source.vector(names.embedding, self.places, outputs)
        return _Parts(
            replace(first, bias=bias.reshape(stem)), rms(name=tower + "conv_stem.bn", size=stem, eps=EPS),
            tuple(stages),
            convolution(source, tower + "msfa.ffn.pw_exp.conv", hidden, joined, 1),
            rms(name=tower + "msfa.ffn.pw_exp.bn", size=hidden, eps=EPS),
            convolution(source, tower + "msfa.ffn.pw_proj.conv", outputs, hidden, 1),
            rms(name=tower + "msfa.ffn.pw_proj.bn", size=outputs, eps=EPS),
            replace(last, weight=last.weight * np.float32(outputs**0.5)),
            rms(name=names.soft_norm, size=outputs, eps=EPS),
            rms(name=names.hard_norm, size=outputs, eps=EPS),
            linear(source, names.projection, self.outputs, outputs, False),
            np.ascontiguousarray(table[self.place : self.place + 1]),
        )  # fmt: skip

    def encoder(self, spec: VisionSpec, parts: _Parts, backend: Backend) -> _Encoder:
        return _Encoder(self, spec, parts, backend)


class _Encoder(OfPasses):
    """A `VisionEncoder` of one design, with its weights."""

    def __init__(self, design: _Design, spec: VisionSpec, parts: _Parts, backend: Backend) -> None:
        self.spec = spec
        self._design, self._mark = design, parts.mark
        self._stem = Pieces(backend, partial(_activated, parts.stem, parts.stem_norm), (27,))
        self._stages = [[block.run(backend) for block in stage] for stage in parts.stages]
        joined = sum(blocks[-1].outputs for blocks in design.stages[-2:])
        self._join = Pieces(backend, partial(_joined, parts), (joined,))
        width = design.channels[-1]
        self._rows = Pieces(backend, partial(_soft, parts), (width,), _TOKENS**2)
        self._end = Pieces(backend, partial(_projected, parts, parts.hard_norm), (width,), 1)
        super().__init__(self._stem, *chain.from_iterable(self._stages), self._join, self._rows, self._end)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        return self._design.layout(width, height)

    def encode(self, data: bytes) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        (crop,) = self._design.crop.crops(read_picture(data))
        table = self._design.pixels.table()
        grid = np.stack([table[colour][crop[:, :, colour]] for colour in range(3)], axis=2)
        grid, kept = (yield from convolved(self._stem, grid, 3, 2, False)), list[Floats]()
        for stage in self._stages:
            for block in stage:
                grid = yield from block.grid(grid)
            kept.append(grid)
        large, small = kept[-2:]
        times = len(large) // len(small)
        states = np.concatenate([large, small.repeat(times, 0).repeat(times, 1)], axis=2)
        cells = len(large)
        states = yield from self._join.rows(states.reshape(cells**2, -1))
        states = yield from self._rows.rows(averaged(states, cells, cells, cells // _TOKENS))
        end = yield from self._end.rows(self._mark)
        return (PictureRows(np.concatenate([states, end])),)


def _activated(first: Linear, after: Norm, ops: Ops, x: Array) -> Array:
    return ops.activate(after(ops, first(ops, x)), "gelu_tanh")


def _joined(parts: _Parts, ops: Ops, x: Array) -> Array:
    x = _activated(parts.expand, parts.expanded, ops, x)
    return parts.projected(ops, parts.project(ops, x))


def _soft(parts: _Parts, ops: Ops, x: Array) -> Array:
    return _projected(parts, parts.soft_norm, ops, parts.last(ops, x))


def _projected(parts: _Parts, before: Norm, ops: Ops, x: Array) -> Array:
    y = parts.projection(ops, before(ops, x))
    return bare_norm(parts.projection.weight.shape[0], EPS, 1)(ops, y)


def _stages(tensors: Tensors, block: str) -> tuple[tuple[BlockShape, ...], ...]:
    """The shapes of all blocks, by the names and shapes of their tensors."""
    found = list[tuple[BlockShape, ...]]()
    for stage in range(_STAGES):
        shapes = list[BlockShape]()
        while len(shapes) < _MOST_BLOCKS:
            shape = _block(tensors, block.format(stage, len(shapes)), 1 if shapes else 2)
            if shape is None:
                break
            shapes.append(shape)
        # the absence of its tensors is found later
        found.append(tuple(shapes) or (BlockShape(block.format(stage, 0), 1, 1, 1),))
    return tuple(found)


def _block(tensors: Tensors, at: str, step: int) -> BlockShape | None:
    """The shape of the block whose tensors begin with `at`; None if there is none."""

    def sizes(name: str) -> tuple[int, ...]:
        tensor = tensors.get(f"{at}{name}.weight")
        return (1,) * 4 if tensor is None or len(tensor.shape) != 4 or 0 in tensor.shape else tensor.shape

    def side(name: str) -> int:
        return sizes(name)[3] if f"{at}{name}.weight" in tensors else 0

    scaled = at + "layer_scale.gamma" in tensors
    if at + "conv_exp.weight" in tensors:
        hidden, inputs = sizes("conv_exp")[:2]
        return BlockShape(at + EDGE, inputs, hidden, sizes("conv_pwl")[0], step=step)
    if at + "attn.query.proj.weight" in tensors:
        hidden, inputs = sizes("attn.query.proj")[:2]
        dim = sizes("attn.key.proj")[0]
        return BlockShape(
            at, inputs, hidden - hidden % dim, inputs, middle=side("attn.key.down_conv"), dim=dim,
            scaled=scaled,
        )  # fmt: skip
    if at + "pw_exp.conv.weight" in tensors:
        hidden, inputs = sizes("pw_exp.conv")[:2]
        return BlockShape(
            at, inputs, hidden, sizes("pw_proj.conv")[0], side("dw_start.conv"), side("dw_mid.conv"), step,
            scaled=scaled,
        )  # fmt: skip
    return None


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Gemma3nForConditionalGeneration`."""
    tower = prefix_of(tensors, "conv_stem.conv.weight", _PREFIXES)
    own = tower.replace("vision_tower.timm_model.", "embed_vision.")
    names = _Names(
        tower, tower + "blocks.{}.{}.", own + "soft_embedding_norm", own + "hard_embedding_norm",
        own + "embedding_projection", own + "embedding.weight",
    )  # fmt: skip
    vision = inner(config, "vision_config")
    first = vision.integer("vocab_offset", 0, 1 << 30, _FIRST_PLACE)
    end = config.integer("eoi_token_id", first, first + _PLACES - 1, first)
    size = inner(processor, "size", "preprocessor_config.json").integer("height", 1, MOST_SIDE, _SIDE)
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 2048)
    pixels = normalisation(processor, HALF, HALF)
    if not processor.has("do_normalize"):
        pixels = normalisation(processor.replaced("do_normalize", False), HALF, HALF)
    return _design(
        names, tensors, size, width, pixels, resampling(processor, BILINEAR), end - first
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`gemma3nv` in llama.cpp's mmproj files."""
    names = _Names(
        "v.", "v.blk.{}.{}.", "mm.soft_emb_norm", "mm.hard_emb_norm", "mm.input_projection",
        "mm.embedding.weight", True,
    )  # fmt: skip
    size = keys.integer("image_size", 1, MOST_SIDE)
    pixels = normalisation(keys, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    width = rows_of(tensors, "mm.input_projection.weight")
    return _design(names, tensors, size, width, pixels, BILINEAR, 0)


def _design(
    names: _Names, tensors: Tensors, side: int, width: int, pixels: Normalisation, filter: int, place: int
) -> _Design:
    whole_patches(side, _SHRINKS, _TOKENS)
    channels = tuple(
        rows_of(tensors, f"{names.tower}{name}.weight")
        for name in ("conv_stem.conv", "msfa.ffn.pw_exp.conv", "msfa.ffn.pw_proj.conv")
    )
    return _Design(
        SPEC, names, _stages(tensors, names.block), (channels[0], channels[1], channels[2]), width, pixels,
        OneCrop(side, _SHRINKS, _SHRINKS, filter), place, max(place + 1, rows_of(tensors, names.embedding)),
    )  # fmt: skip


GEMMA3N = Family("gemma3n", ("Gemma3nForConditionalGeneration",), ("gemma3nv",), from_hf, from_gguf)
