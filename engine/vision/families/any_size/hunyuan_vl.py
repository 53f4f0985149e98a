"""HunyuanOCR (arXiv 2511.19575): a tower over pictures that keep their shape, with a table of positions that
is stretched to them; convolutions make one row of 2 * 2 patches, a learned row ends each line, and one
stands before and after a picture.

Rotary positions have a section for the place in the text, and sections for the column, the row and the number
of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
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
    PATCHES,
    folder_patches,
    gguf_names,
    inner,
    normalisation,
    pixel_limits,
    prefix_of,
    rows_of,
    square,
    square_number,
    tower_from_gguf,
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
_MODELS = "hunyuan_vl", "hunyuan-dense"
"""What GGUF files call the architecture of the model."""
_SECTIONS = (16, 16, 16, 16)
"""Of rope, where such a file does not say."""
_AXES = 4
"""Of rotary positions: the place in the text, which may lack, the column, the row, the number of the picture.
"""
_INNER, _OUTER = 2, 4
"""How many times the tower's width what the two convolutions make has."""
_NONE = Axial(np.zeros(0, np.float32), np.zeros(0, np.float32))


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of its tensors, without ".weight" and ".bias"; `positions`, `line_end`, `begin` and `end` are
    whole names.
    """

    tower: TowerNames
    first: str
    positions: str
    before: str
    convolutions: tuple[str, str]
    line_end: str
    last: str
    begin: str
    end: str
    after: str


@dataclass(frozen=True, slots=True)
class _Shape:
    """`tower`, the side of a `patch` in pixels and that of a row in patches, the side of the table of
    positions, and how many rows are before these: one of a class, or none.
    """

    tower: TowerShape
    patch: int
    factor: int
    outputs: int
    side: int
    unused: int = 1


@dataclass(frozen=True, slots=True)
class _Normed:
    """norm(linear(x))."""

    linear: Linear
    norm: Norm

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.norm(ops, self.linear(ops, x))


def _parts(shape: _Shape, names: _Names, source: WeightSource) -> Generator[int, None, GridParts]:
    """As `GridDesign.make`."""
    tower, width = shape.tower, shape.tower.width
    first = patch_linear(source, names.first, width, shape.patch, None)
    table = source.vector(names.positions, shape.side**2 + shape.unused, width)[shape.unused :]
    blocks = yield from tower_layers(source, tower, names.tower, tower.layers)
    inputs, outer = width * shape.factor**2, _OUTER * width
    kernel = View(kernel=(width, shape.factor, shape.factor))
    whole = View(kernel=(_INNER * width, 1, 1))
    project = activated(
        linear(source, names.convolutions[0], _INNER * width, inputs, None, kernel),
        linear(source, names.convolutions[1], outer, _INNER * width, None, whole),
        tower.activation,
    )
    before, after = (
        norm(source, name, size, tower.eps, layer_norm=False, bias=False)
        for name, size in ((names.before, width), (names.after, shape.outputs))
    )
    begin, end = (source.vector(name, shape.outputs) for name in (names.begin, names.end))
    lines = Lines(
        source.vector(names.line_end, outer),
        _Normed(linear(source, names.last, shape.outputs, outer, None), after),
        (_normed(after, begin), _normed(after, end)),
    )
    return GridParts(
        (first,), blocks.blocks, Head(by_channel, inputs, project), lines=lines,
        place=partial(resampled, table, weights=between_two), after=before,
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
    shape: _Shape, names: _Names, positions: Positions, pixels: Normalisation, limits: tuple[int, int],
    tokens: int = PAGE_TOKENS,
) -> GridDesign:  # fmt: skip
    side = shape.patch * shape.factor
    most = min(limits[1], tokens * side**2)
    return GridDesign(
        VisionSpec("hunyuan_vl", _TOKEN, _TOKEN, around=(_START, _END), positions=positions), shape.tower,
        shape.patch, shape.factor, shape.outputs, pixels,
        partial(dynamic_size, factor=side, least=min(limits[0], most), most=most), BICUBIC,
        max(1, most // side**2) * shape.factor**2, _NONE, partial(_parts, shape, names), _lined,
        of_tokens=partial(_design, shape, names, positions, pixels, limits),
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
    return _design(shape, _names(at), _positions(text), pixels, pixel_limits(processor, _LEAST, _MOST))


def _names(at: str) -> _Names:
    """Those of a folder, which begin with `at`."""
    merger = at + "perceive."
    layers = TowerNames(
        at + "layers.{}.", "input_layernorm", SIGLIP.query, SIGLIP.key, SIGLIP.value, "self_attn.o_proj",
        "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    )  # fmt: skip
    return _Names(
        layers, *folder_patches(at), merger + "before_rms", (merger + "proj.0", merger + "proj.2"),
        merger + "image_newline", merger + "mlp", merger + "image_begin", merger + "image_end",
        merger + "after_rms",
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`hunyuanocr` in llama.cpp's mmproj files."""
    tower = replace(tower_from_gguf(keys), activation="gelu")
    names = _Names(
        gguf_names(tensors, tower), *PATCHES, "mm.pre_norm", ("mm.0", "mm.2"), "v.image_newline",
        "mm.model.fc", "mm.image_begin", "mm.image_end", "mm.post_norm",
    )  # fmt: skip
    rows = rows_of(tensors, PATCHES[1])
    unused = 0 if math.isqrt(rows) ** 2 == rows else 1
    shape = _Shape(
        tower, keys.integer("patch_size", 1, 1 << 10), keys.integer("spatial_merge_size", 2, 64, 2),
        rows_of(tensors, "mm.model.fc.weight"), math.isqrt(square_number(rows - unused)), unused,
    )  # fmt: skip
    limits = (
        keys.integer("image_min_pixels", 1, MOST_SIDE**2, _LEAST),
        keys.integer("image_max_pixels", 1, MOST_SIDE**2, _MOST),
    )
    pixels = normalisation(keys, CLIP_MEAN, CLIP_DEVIATION)
    return _design(shape, names, _positions_of_model(keys), pixels, limits)


def _positions_of_model(keys: Keys) -> Positions:
    """The sections of rope of the model beside an mmproj file, which end in a zero if there are three."""
    for name in _MODELS:
        model = Keys(keys.source, _("The GGUF metadata"), name + ".")
        found = model.integers("rope.dimension_sections", 0, 1 << 14)
        if any(found):
            return Positions(found[:3] if found[3:] == (0,) else found, counted=True)
    return Positions(_SECTIONS, counted=True)


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


HUNYUAN_VL = Family("hunyuan_vl", ("HunYuanVLForConditionalGeneration",), ("hunyuanocr",), from_hf, from_gguf)
