"""Pixtral (arXiv 2410.07073), and Mistral Small 3.1, Ministral 3, Mistral Large 4 and LightOnOCR (their model
cards).

Pictures keep their shape; a row of tokens ends with [IMG_BREAK], the last one with [IMG_END], except in
LightOnOCR. Later models merge squares of patches to one token.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, norm
from engine.models.headers.keys import Keys
from engine.models.layers.parts import FeedForward, Linear
from engine.tensors import Floats
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.grid_encoder import GridDesign, GridParts, Layout, one_span
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_SIDE,
    MOST_WIDTH,
    activation,
    divisible,
    feature_layers,
    inner,
    normalisation,
    prefix_of,
    resampling,
    rotated_dim,
    square,
    tower_from_gguf,
)
from engine.vision.layers.grid import Axial, frequencies
from engine.vision.layers.grid_passes import Head
from engine.vision.layers.tower import GGUF, TowerNames, TowerShape, activated, patch_linear, tower_layers
from engine.vision.pictures.images import BICUBIC, Normalisation
from engine.vision.pictures.sizes import size_within

SPEC = VisionSpec("pixtral", "[IMG]", "[IMG]")
_BREAK, _END = "[IMG_BREAK]", "[IMG_END]"
_EPS = 1e-5
_LATER = "ministral3", "mistral_large4_text"
"""Text models whose norms have the epsilon of the tower."""
_LARGE = {
    "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 30, "patch_size": 14,
    "image_size": 1540, "hidden_act": "silu",
}  # fmt: skip
"""The tower of Mistral Large 4, where config.json says nothing of it."""
_BASE = 10000.0
_PREFIXES = ("", "model.")


def lines(rows: int, columns: int) -> tuple[Piece, ...]:
    """The layout of this many rows and columns of tokens."""
    found = list[Piece]()
    for row in range(rows):
        found += [Span(1, columns), _END if row == rows - 1 else _BREAK]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How pictures stand in prompts, and the names of the tower and of what follows it in folders."""

    spec: VisionSpec
    layout: Layout
    tower: str
    projector: str


_MISTRAL = _Kind(SPEC, lines, "vision_tower.", "multi_modal_projector.")
_LIGHTON = _Kind(
    VisionSpec("lightonocr", "<|image_pad|>", "<|image_pad|>"), one_span, "vision_encoder.",
    "vision_projection.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of an encoder's tensors, without ".weight" and ".bias"."""

    tower: TowerNames
    first: str
    before: str
    norm: str
    merger: str
    linears: tuple[str, str]


_MAKERS = _Names(
    TowerNames(
        "vision_encoder.transformer.layers.{}.", "attention_norm", "attention.wq", "attention.wk",
        "attention.wv", "attention.wo", "ffn_norm", "feed_forward.w3", "feed_forward.w2", "feed_forward.w1",
    ),
    "vision_encoder.patch_conv", "vision_encoder.ln_pre", "pre_mm_projector_norm",
    "patch_merger.merging_layer", ("vision_language_adapter.w_in", "vision_language_adapter.w_out"),
)  # fmt: skip
"""Mistral AI's, which folders of Mistral Large 4 keep; queries and keys are in the order of pairs."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """`tower` and what else is needed; `layers` of it are run. `projector_eps` and `activation` are those
    behind it.
    """

    tower: TowerShape
    layers: int
    patch: int
    factor: int
    outputs: int
    activation: str
    projector_eps: float
    base: float
    longest: int
    merged: bool


@dataclass(frozen=True, slots=True)
class _Projector:
    """Merged rows (T, K) -> (T, N): a `merger`, if there is one, then two linear layers."""

    merger: Linear | None
    last: FeedForward

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.last(ops, self.merger(ops, x) if self.merger else x)


def _parts(shape: _Shape, names: _Names, source: WeightSource) -> Generator[int, None, GridParts]:
    """As `GridDesign.make`."""
    tower, width = shape.tower, shape.tower.width
    first = patch_linear(source, names.first, width, shape.patch, None)
    before = norm(source, names.before, width, tower.eps, layer_norm=False, bias=False)
    blocks = yield from tower_layers(source, tower, names.tower, shape.layers)
    after = merger = None
    inputs = width * shape.factor**2
    if shape.merged:
        after = norm(source, names.norm, width, shape.projector_eps, layer_norm=False, bias=False)
        merger = linear(source, names.merger, width, inputs, False)
    up, down = (
        linear(source, name, shape.outputs, columns, None)
        for name, columns in zip(names.linears, (width, shape.outputs), strict=True)
    )
    head = Head(by_channel, inputs, _Projector(merger, activated(up, down, shape.activation)))
    return GridParts((first,), blocks.blocks, head, before=before, after=after)


def by_channel(cells: Floats) -> Floats:
    """The patches of each token as one row, in which the numbers of a channel stand together."""
    return np.ascontiguousarray(cells.transpose(0, 2, 1)).reshape(len(cells), -1)


def _design(
    kind: _Kind, shape: _Shape, names: _Names, pixels: Normalisation, filter: int, *, interleaved: bool
) -> GridDesign:
    side, dim = shape.patch * shape.factor, rotated_dim(shape.tower)
    pairs = frequencies(dim // 2, dim, shape.base)
    return GridDesign(
        kind.spec, replace(shape.tower, layers=shape.layers), shape.patch, shape.factor, shape.outputs,
        pixels,
        partial(size_within, factor=side, longest=shape.longest), filter,
        (-(-shape.longest // side) * shape.factor) ** 2,
        Axial(np.ascontiguousarray(pairs[::2]), np.ascontiguousarray(pairs[1::2]), interleaved),
        partial(_parts, shape, names), kind.layout,
        of_tokens=partial(_limited, kind, shape, names, pixels, filter, interleaved),
    )  # fmt: skip


def _limited(
    kind: _Kind, shape: _Shape, names: _Names, pixels: Normalisation, filter: int, interleaved: bool,
    tokens: int,
) -> GridDesign:  # fmt: skip
    """The design whose square pictures have at most this many tokens, and others fewer."""
    longest = min(shape.longest, shape.patch * shape.factor * max(1, math.isqrt(tokens)))
    return _design(kind, replace(shape, longest=longest), names, pixels, filter, interleaved=interleaved)


def _from_hf(kind: _Kind, config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Mistral3ForConditionalGeneration`, `MistralLarge4ForConditionalGeneration`,
    `LightOnOcrForConditionalGeneration`, and `LlavaForConditionalGeneration` with such a tower; Mistral AI's
    own folders, whose config has no "text_config".
    """
    vision, text = inner(config, "vision_config"), config.table("text_config") or config
    names = _MAKERS if _MAKERS.first + ".weight" in tensors else _names(kind, tensors)
    if not vision.source and config.text("model_type", "") == "mistral_large4":
        vision = vision.over(_LARGE)
    merged = config.text("model_type", "mistral3") != "llava"
    if text is config:
        merged = names.merger + ".weight" in tensors
    # without a vision_config, the tower is that of the first model; with a part of one, the rest is usual
    patch = square(vision, "patch_size", 14 if merged and not vision.source else 16)
    heads = vision.integer("num_attention_heads", 1, MOST_HEADS, 16)
    shape = TowerShape(
        divisible(vision.integer("hidden_size", 1, MOST_WIDTH, 1024), heads, "num_attention_heads"),
        vision.integer("num_hidden_layers", 1, MOST_LAYERS, 24), heads,
        vision.integer("intermediate_size", 1, MOST_WIDTH, 4096), _EPS,
        activation(vision, "hidden_act", "gelu"), gated=True, layer_norm=False, rotated=True,
    )  # fmt: skip
    (layers,) = feature_layers(config, "vision_feature_layer", shape.layers, -1)[:1]
    rope = vision.table("rope_parameters") or vision
    eps = _EPS if text is config or text.text("model_type", "") in _LATER else 1e-6
    whole = _Shape(
        shape, layers, patch, config.integer("spatial_merge_size", 1, 64, 2) if merged else 1,
        text.integer("hidden_size", 1, MOST_WIDTH, 5120 if text is config else 4096),
        activation(config, "projector_hidden_act", "gelu"),
        text.number("rms_norm_eps", 0.0, 1.0, eps), rope.number("rope_theta", 1.0, 1e12, _BASE),
        _longest(processor, square(vision, "image_size", 1024)), merged,
    )  # fmt: skip
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    return _design(kind, whole, names, pixels, resampling(processor), interleaved=names is _MAKERS)


def _names(kind: _Kind, tensors: Tensors) -> _Names:
    """Those of transformers."""
    prefix = prefix_of(tensors, kind.tower + "patch_conv.weight", _PREFIXES)
    tower, projector = prefix + kind.tower, prefix + kind.projector
    return _Names(
        TowerNames(
            tower + "transformer.layers.{}.", "attention_norm", "attention.q_proj", "attention.k_proj",
            "attention.v_proj", "attention.o_proj", "ffn_norm", "feed_forward.up_proj",
            "feed_forward.down_proj", "feed_forward.gate_proj",
        ),
        tower + "patch_conv", tower + "ln_pre", projector + "norm",
        projector + "patch_merger.merging_layer", (projector + "linear_1", projector + "linear_2"),
    )  # fmt: skip


def _longest(processor: Keys, default: int) -> int:
    """The longest side of a picture by the image processor's settings, which may state a square."""
    sizes = inner(processor, "size", "preprocessor_config.json")
    name = next((each for each in ("longest_edge", "height") if sizes.has(each)), "longest_edge")
    return sizes.integer(name, 1, MOST_SIDE, default)


def _from_gguf(kind: _Kind, keys: Keys, tensors: Tensors) -> Design:
    """`pixtral` and `lightonocr` in llama.cpp's mmproj files, where queries and keys are in the order of
    pairs.
    """
    tower = replace(tower_from_gguf(keys), gated=True, layer_norm=False, rotated=True)
    if tower.activation == "gelu_tanh":  # which the keys do not tell apart
        tower = replace(tower, activation="gelu")
    merged = "mm.patch_merger.weight" in tensors
    shape = _Shape(
        tower, tower.layers, keys.integer("patch_size", 1, 1 << 10),
        keys.integer("spatial_merge_size", 1, 64, 1) if merged else 1,
        keys.integer("projection_dim", 1, MOST_WIDTH), "gelu", tower.eps, _BASE,
        keys.integer("image_size", 1, MOST_SIDE), merged,
    )  # fmt: skip
    names = _Names(GGUF, "v.patch_embd", "v.pre_ln", "mm.input_norm", "mm.patch_merger", ("mm.1", "mm.2"))
    return _design(
        kind, shape, names, normalisation(keys, CLIP_MEAN, CLIP_DEVIATION), BICUBIC, interleaved=True
    )


PIXTRAL = Family(
    "pixtral",
    (
        "Mistral3ForConditionalGeneration", "LlavaForConditionalGeneration", "MistralForCausalLM",
        "MinistralForCausalLM", "Ministral3ForCausalLM", "Mistral4ForCausalLM",
        "MistralLarge4ForConditionalGeneration",
    ),
    ("pixtral",),
    partial(_from_hf, _MISTRAL), partial(_from_gguf, _MISTRAL), ("pixtral",),
)  # fmt: skip
LIGHTON_OCR = Family(
    "lightonocr", ("LightOnOcrForConditionalGeneration", "LightOnOCRForConditionalGeneration"),
    ("lightonocr",), partial(_from_hf, _LIGHTON), partial(_from_gguf, _LIGHTON),
)  # fmt: skip
