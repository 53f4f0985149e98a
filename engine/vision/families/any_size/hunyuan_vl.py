"""HunyuanOCR (arXiv 2511.19575): a tower over pictures that keep their shape, with a table of positions that
is stretched to them; convolutions make one row of 2 * 2 patches, a learned row ends each line, and one
stands before and after a picture.

Rotary positions have a section for the place in the text, and sections for the column, the row and the number
of the picture.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import numpy as np

from engine.backends.base import Array, Ops
from engine.errors import BadCheckpoint
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear, norm
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other
from engine.models.layers.parts import Linear, Norm
from engine.vision.base import Piece, Positions, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.grid_encoder import GridDesign, GridParts, Lines
from engine.vision.families.any_size.pixtral import by_channel
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_SIDE,
    MOST_WIDTH,
    folder_patches,
    inner,
    normalisation,
    pixel_limits,
    prefix_of,
    square,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.grid import Axial
from engine.vision.layers.grid_passes import Head
from engine.vision.layers.tower import SIGLIP, TowerNames, TowerShape, activated, patch_linear, tower_layers
from engine.vision.pictures.images import BICUBIC, Normalisation
from engine.vision.pictures.interpolation import linear as between_two
from engine.vision.pictures.interpolation import resampled
from engine.vision.pictures.sizes import PAGE_TOKENS, dynamic_size
from engine.words import _

_START, _END, _TOKEN = (f"<｜hy_place▁holder▁no▁{number}｜>" for number in (100, 101, 102))
_TOWER = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "patch_size": 16, "rms_norm_eps": 1e-5,
}  # fmt: skip
_LEAST, _MOST = 512**2, 2048**2
"""Pixels, where the image processor's settings do not say."""
_PREFIXES = ("vit.", "model.vit.")
_AXES = 4
"""Of rotary positions: the place in the text, which may lack, the column, the row, the number of the picture.
"""
_INNER, _OUTER = 2, 4
"""How many times the tower's width what the two convolutions make has."""
_NONE = Axial(np.zeros(0, np.float32), np.zeros(0, np.float32))


@dataclass(frozen=True, slots=True)
class _Shape:
    """`tower`, the side of a `patch` in pixels and that of a row in patches, and the side of the table of
    positions.
    """

    tower: TowerShape
    patch: int
    factor: int
    outputs: int
    side: int


@dataclass(frozen=True, slots=True)
class _Normed:
    """norm(linear(x))."""

    linear: Linear
    norm: Norm

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.norm(ops, self.linear(ops, x))


def _parts(shape: _Shape, at: str, source: WeightSource) -> Generator[int, None, GridParts]:
    """As `GridDesign.make`; names begin with `at`."""
    tower, width = shape.tower, shape.tower.width
    patches, positions = folder_patches(at)
    first = patch_linear(source, patches, width, shape.patch, None)
    table = source.vector(positions, shape.side**2 + 1, width)[1:]  # the first is that of a class
    layers = TowerNames(
        at + "layers.{}.", "input_layernorm", SIGLIP.query, SIGLIP.key, SIGLIP.value, "self_attn.o_proj",
        "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    )  # fmt: skip
    blocks = yield from tower_layers(source, tower, layers, tower.layers)
    merger, inputs, outer = at + "perceive.", width * shape.factor**2, _OUTER * width
    kernel = View(kernel=(width, shape.factor, shape.factor))
    whole = View(kernel=(_INNER * width, 1, 1))
    project = activated(
        linear(source, merger + "proj.0", _INNER * width, inputs, None, kernel),
        linear(source, merger + "proj.2", outer, _INNER * width, None, whole),
        tower.activation,
    )

    def rms(name: str, size: int) -> Norm:
        return norm(source, merger + name, size, tower.eps, layer_norm=False, bias=False)

    last = rms("after_rms", shape.outputs)
    begin, end = (source.vector(merger + name, shape.outputs) for name in ("image_begin", "image_end"))
    lines = Lines(
        source.vector(merger + "image_newline", outer),
        _Normed(linear(source, merger + "mlp", shape.outputs, outer, None), last),
        (_normed(last, begin), _normed(last, end)),
    )
    return GridParts(
        (first,), blocks.blocks, Head(by_channel, inputs, project), lines=lines,
        place=partial(resampled, table, weights=between_two), after=rms("before_rms", width),
    )  # fmt: skip


def _normed(norm: Norm, row: np.ndarray) -> np.ndarray:
    """The row (N,) as the RMS norm makes it."""
    scale = np.sqrt(np.mean(row.astype(np.float32) ** 2) + np.float32(norm.eps))
    found: np.ndarray = (row / scale * norm.weight).astype(np.float32)
    return found


def _lined(rows: int, columns: int) -> tuple[Piece, ...]:
    """The row before the picture, its lines with their ends, and the row after it."""
    return Span(1, 1), Span(rows, columns + 1), Span(1, 1)


def _design(
    shape: _Shape, at: str, positions: Positions, pixels: Normalisation, limits: tuple[int, int],
    tokens: int = PAGE_TOKENS,
) -> GridDesign:  # fmt: skip
    side = shape.patch * shape.factor
    most = min(limits[1], tokens * side**2)
    return GridDesign(
        VisionSpec("hunyuan_vl", _TOKEN, _TOKEN, around=(_START, _END), positions=positions), shape.tower,
        shape.patch, shape.factor, shape.outputs, pixels,
        partial(dynamic_size, factor=side, least=min(limits[0], most), most=most), BICUBIC,
        max(1, most // side**2) * shape.factor**2, _NONE, partial(_parts, shape, at), _lined,
        of_tokens=partial(_design, shape, at, positions, pixels, limits),
    )  # fmt: skip


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`HunYuanVLForConditionalGeneration`. Raises `UnsupportedModel`."""
    vision = inner(config, "vision_config").renamed(layer_norm_eps="rms_norm_eps").over(_TOWER)
    refuse_other(vision, "interpolate_mode", "bilinear")
    text = config.table("text_config") or config
    patch = square(vision, "patch_size")
    shape = _Shape(
        tower_from_hf(vision, "gelu", 1e-5), patch, vision.integer("spatial_merge_size", 2, 64, 2),
        text.integer("hidden_size", 1, MOST_WIDTH, 4096),
        whole_patches(vision.integer("max_image_size", 1, MOST_SIDE, 2048), patch),
    )  # fmt: skip
    at = prefix_of(tensors, "embeddings.patch_embedding.weight", _PREFIXES)
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    return _design(shape, at, _positions(text), pixels, pixel_limits(processor, _LEAST, _MOST))


def _positions(text: Keys) -> Positions:
    """The sections of rope. Raises `BadCheckpoint` if there are not three or four."""
    found: tuple[int, ...] = ()
    for name in ("rope_parameters", "rope_scaling"):
        scaling = inner(text, name)
        found = (
            found
            or scaling.integers("mrope_section", 0, 1 << 14)
            or scaling.integers("xdrope_section", 0, 1 << 14)
        )
    if len(found) not in (_AXES - 1, _AXES):
        raise BadCheckpoint(
            _(
                "config.json: {name} is not a list of {count} numbers; the file is damaged.",
                name="xdrope_section",
                count=_AXES,
            )
        )
    return Positions(found, counted=True)


HUNYUAN_VL = Family("hunyuan_vl", ("HunYuanVLForConditionalGeneration",), (), from_hf, None)
