"""FastVLM (arXiv 2412.13303): FastViTHD over one square picture, whose sides it makes 64 times shorter, and
two linear layers.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import numpy as np

from engine.backends.base import Array, Backend, Ops
from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.layers.parts import Linear
from engine.tensors import Floats
from engine.vision.base import PictureRows, Piece, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.families.fixed_size.llava import OneCrop, one_crop
from engine.vision.headers import (
    MOST_SIDE,
    MOST_WIDTH,
    activation,
    divisible,
    inner,
    normalisation,
    prefix_of,
    rows_of,
    whole_patches,
)
from engine.vision.layers.convolution import convolution
from engine.vision.layers.fastvit import (
    HEAD_DIM,
    BlockShape,
    HalfParts,
    Own,
    Parts,
    StageShape,
    half,
    own_convolution,
    stage_parts,
)
from engine.vision.layers.mobilenet import Block, convolved
from engine.vision.layers.tower import activated
from engine.vision.passes import OfPasses, Pieces
from engine.vision.pictures.images import Normalisation, read_picture

SPEC = VisionSpec("fast_vlm", "<image>", "<image>")
_TOWER = "fastvit_mci3"
"""What the package that its tower is from calls FastViTHD."""
_SIDE, _CELL, _STAGES = 1024, 64, 5
_MOST_BLOCKS = 1 << 9
_SMALLEST = np.float32(-80)
"""Below it, the weight of a channel is less than what any sum of 32-bit numbers keeps."""
_PREFIXES = ("model.vision_tower.timm_model.", "vision_tower.timm_model.")


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What `_Design.build` makes: the `stem`'s convolution over all channels, blocks, then a convolution of
    each channel, whose results are weighted by what `squeeze` makes of their means (arXiv 1709.01507):
    matrices and biases.
    """

    stem: Linear
    blocks: tuple[Parts, ...]
    last: Own
    squeeze: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
    first: Linear
    second: Linear


@dataclass(frozen=True, slots=True)
class _Design:
    """A `Design`. `features` are the channels after the tower, `squeezed` those between the two matrices that
    weight them; `tower` and `projector` begin names.
    """

    spec: VisionSpec
    tower: str
    projector: str
    stages: tuple[StageShape, ...]
    features: int
    squeezed: int
    outputs: int
    activation: str
    pixels: Normalisation
    crop: OneCrop

    @property
    def width(self) -> int:
        return self.outputs

    @property
    def layers(self) -> int:
        return sum(len(stage.blocks) for stage in self.stages)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`."""
        return self.crop.layout(width, height)

    def build(self, source: WeightSource) -> Generator[int, None, _Parts]:
        tower, features, last = self.tower, self.features, self.tower + "final_conv."
        start = self.stages[0].blocks[0].width
        stem = convolution(source, tower + "stem.0.reparam_conv", start, 3, 3, True)
        blocks: list[Parts] = [half(source, tower + "stem.1", tower + "stem.2", start, 3)]
        done = 0
        for stage in self.stages:
            blocks += stage_parts(source, stage)
            done += len(stage.blocks)
            yield done
        squeeze = tuple(
            (
                source.vector(name + ".weight", rows, columns, 1, 1).reshape(rows, columns),
                source.vector(name + ".bias", rows),
            )
            for name, rows, columns in (
                (last + "se.fc1", self.squeezed, features), (last + "se.fc2", features, self.squeezed),
            )
        )  # fmt: skip
        return _Parts(
            stem, tuple(blocks), own_convolution(source, last + "reparam_conv", features, 3),
            (squeeze[0], squeeze[1]),
            linear(source, self.projector + "linear_1", self.outputs, features, None),
            linear(source, self.projector + "linear_2", self.outputs, self.outputs, None),
        )  # fmt: skip

    def encoder(self, spec: VisionSpec, parts: _Parts, backend: Backend) -> _Encoder:
        return _Encoder(self, spec, parts, backend)


class _Encoder(OfPasses):
    """A `VisionEncoder` of one design, with its weights."""

    def __init__(self, design: _Design, spec: VisionSpec, parts: _Parts, backend: Backend) -> None:
        self.spec = spec
        self._design, self._parts = design, parts
        self._stem = Pieces(backend, partial(_stem, parts.stem), (27,))
        side, self._blocks = design.crop.side // 2, list[Block]()
        for each in parts.blocks:
            side //= 2 if isinstance(each, HalfParts) else 1
            self._blocks.append(each.run(backend, side**2))
        last = activated(parts.first, parts.second, design.activation)

        def rows(ops: Ops, x: Array) -> Array:
            return last(ops, ops.activate(x, "gelu"))

        self._last = Pieces(backend, rows, (design.features,))
        super().__init__(self._stem, *self._blocks, self._last)

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        return self._design.layout(width, height)

    def encode(self, data: bytes) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        (crop,) = self._design.crop.crops(read_picture(data))
        grid = np.ascontiguousarray(self._design.pixels.of(crop).transpose(1, 2, 0))
        grid = yield from convolved(self._stem, grid, 3, 2, False, centred=True)
        for block in self._blocks:
            grid = yield from block.grid(grid)
        states = self._parts.last.of(grid).reshape(-1, self._design.features)
        yield Waiting()
        (first, first_bias), (second, second_bias) = self._parts.squeeze
        squeezed = np.maximum(first @ states.mean(axis=0) + first_bias, 0)
        weights = 1 / (1 + np.exp(-np.maximum(second @ squeezed + second_bias, _SMALLEST)))
        return (PictureRows((yield from self._last.rows(states * weights))),)


def _stem(first: Linear, ops: Ops, x: Array) -> Array:
    return ops.activate(first(ops, x), "gelu")


def _stages(tensors: Tensors, tower: str) -> tuple[StageShape, ...]:
    """The shapes of all blocks, by the names and shapes of their tensors. Raises `BadCheckpoint`."""
    found, before = list[StageShape](), 0
    for number in range(_STAGES):
        at, blocks = f"{tower}stages.{number}.", list[BlockShape]()
        width = rows_of(tensors, f"{at}blocks.0.mlp.fc2.weight")
        while not blocks or (f"{blocks[-1].at}mlp.fc1.weight" in tensors and len(blocks) < _MOST_BLOCKS):
            own = f"{at}blocks.{len(blocks)}."
            blocks.append(
                BlockShape(
                    own, width, rows_of(tensors, own + "mlp.fc1.weight"), own + "norm.weight" in tensors
                )
            )  # fmt: skip
        blocks = blocks[:-1] or blocks  # the absence of a stage's tensors is found later
        if any(block.attends for block in blocks):
            divisible(width, HEAD_DIM, "head_dim")
        divisible(width, before or 1, "in_chs")
        found.append(StageShape(at, before, tuple(blocks), at + "pos_emb.reparam_conv.weight" in tensors))
        before = width
    return tuple(found)


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`FastVlmForConditionalGeneration`. Raises `BadCheckpoint` and `UnsupportedModel`."""
    refuse_other(inner(config, "vision_config"), "architecture", _TOWER)
    refuse_other(config, "vision_feature_select_strategy", "full")
    refuse_other(config, "vision_feature_layer", -1)
    tower = prefix_of(tensors, "stem.0.reparam_conv.weight", _PREFIXES)
    if isinstance(processor.raw("crop_size"), int):
        processor = processor.replaced("crop_size", {"height": processor.raw("crop_size")})
    side = inner(processor, "crop_size").integer("height", 1, MOST_SIDE, _SIDE)
    whole_patches(side, _CELL)
    stages = _stages(tensors, tower)
    features = divisible(
        rows_of(tensors, tower + "final_conv.reparam_conv.weight"), stages[-1].width, "in_chs"
    )
    return _Design(
        SPEC, tower, tower.replace("vision_tower.timm_model.", "multi_modal_projector."), stages, features,
        rows_of(tensors, tower + "final_conv.se.fc1.weight"),
        inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 3584),
        activation(config, "projector_hidden_act", "gelu"),
        normalisation(processor, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), one_crop(processor, side, _CELL),
    )  # fmt: skip


FAST_VLM = Family("fast_vlm", ("FastVlmForConditionalGeneration",), (), from_hf, None)
