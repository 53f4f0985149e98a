"""LFM3-VL (the code of `transformers`): a tower over pictures that keep their shape, most of whose layers are
gated convolutions over the grid of patches; the others are attention with rotary positions. Squares of
patches are joined to one token. A patch covers two frames of a video, and of a picture twice the same.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial

import numpy as np

from engine.drain import drain
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, linear, norm
from engine.models.headers.keys import Keys
from engine.models.headers.refusals import not_kinds, unsupported, unsupported_layer
from engine.models.layers.parts import Block, GatedMlp
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.grid_encoder import GridDesign, GridParts
from engine.vision.encoders.joined import together
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_WIDTH,
    activation,
    divisible,
    inner,
    normalisation,
    pixel_limits,
    prefix_of,
    resampling,
    rotated_dim,
    square,
)
from engine.vision.layers.grid import Axial, frequencies
from engine.vision.layers.grid_convolution import ConvolutionBlock
from engine.vision.layers.grid_passes import Head
from engine.vision.layers.projector import Projector, ProjectorNames, ProjectorShape, projector
from engine.vision.layers.tower import TowerNames, TowerShape, tower_layers
from engine.vision.pictures.images import Normalisation
from engine.vision.pictures.sizes import MOST_TOKENS, dynamic_size

SPEC = VisionSpec("lfm3_vl", "<|image_pad|>", "<|image_pad|>", around=("<|vision_start|>", "<|vision_end|>"))
_CONVOLUTION, _ATTENTION = "conv", "full_attention"
_LEAST, _MOST = 56 * 56, 28 * 28 * 1280
"""Pixels, where the image processor's settings do not say."""
_BASE, _EPS = 1e6, 1e-6
_MOST_KERNEL = 31
_PREFIXES = ("model.vision_tower.", "vision_tower.")
_NAMES = TowerNames(
    "layers.{}.", "operator_norm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.out_proj", "ffn_norm", "feed_forward.w3", "feed_forward.w2", "feed_forward.w1",
    query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm",
)  # fmt: skip
"""The names in files; those of the classes of `transformers` are others for three tensors."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """`tower` and what else is needed: which layers are `convolutions`, the side of their `kernels`, the side
    of a `patch` in pixels and its `frames`, that of a token in patches, and of the `last` layers.
    """

    tower: TowerShape
    convolutions: tuple[bool, ...]
    kernel: int
    patch: int
    frames: int
    factor: int
    last: ProjectorShape
    base: float


def _parts(shape: _Shape, prefix: str, source: WeightSource) -> Generator[int, None, GridParts]:
    """As `GridDesign.make`; `prefix` begins the names of the tower."""
    tower, width, names, start = shape.tower, shape.tower.width, _NAMES.under(prefix), "patchifier"
    if source.has(prefix + "patch_embed.weight"):
        names = replace(names, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm")
        start = "patch_embed"
    first = linear(source, prefix + start, width, 3 * shape.frames * shape.patch**2, False)
    before = norm(source, prefix + "embedding_norm", width, tower.eps, layer_norm=False, bias=False)
    blocks = list[Block | ConvolutionBlock]()
    for number, convolves in enumerate(shape.convolutions):
        if convolves:
            blocks.append(_convolution(shape, names, names.layer.format(number), source))
        else:
            blocks += drain(tower_layers(source, tower, names, number + 1, number)).blocks
        yield number + 1
    at = prefix.replace("vision_tower.", "multi_modal_projector.")
    each = norm(source, at + "layer_norm", width, _EPS, layer_norm=True, bias=True)
    last = projector(source, shape.last, ProjectorNames(at + "linear_1", at + "linear_2"))
    whole = Projector(last.last, replace(each, heads=shape.factor**2))
    return GridParts((first,), tuple(blocks), Head(together, shape.last.inputs, whole), before=before)


def _convolution(shape: _Shape, names: TowerNames, at: str, source: WeightSource) -> ConvolutionBlock:
    """The layer whose names begin with `at`."""
    tower, size = shape.tower, shape.kernel
    width, inner = tower.width, tower.mlp_width
    norms = [
        norm(source, at + name, width, tower.eps, layer_norm=False, bias=False)
        for name in (names.attention_norm, names.mlp_norm)
    ]
    kernels = source.vector(at + "conv.spatial_conv.weight", width, 1, size, size)
    gate, up = (linear(source, at + name, inner, width, False) for name in (names.gate, names.up))
    return ConvolutionBlock(
        norms[0], linear(source, at + "conv.in_proj", 3 * width, width, False),
        np.ascontiguousarray(kernels.reshape(width, size, size).transpose(1, 2, 0)),
        linear(source, at + "conv.out_proj", width, width, False), norms[1],
        GatedMlp(gate, up, linear(source, at + names.down, width, inner, False), inner, tower.activation),
    )  # fmt: skip


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Lfm3VlForConditionalGeneration`. Raises `BadCheckpoint` and `UnsupportedModel`."""
    vision = inner(config, "vision_config")
    heads = vision.integer("num_attention_heads", 1, MOST_HEADS, 16)
    groups = vision.integer("num_key_value_heads", 1, heads, min(8, heads))
    divisible(heads, groups, "num_key_value_heads")
    width = divisible(vision.integer("hidden_size", 1, MOST_WIDTH, 1024), heads, "num_attention_heads")
    tower = TowerShape(
        width, vision.integer("num_hidden_layers", 1, MOST_LAYERS, 14), heads,
        vision.integer("intermediate_size", 1, MOST_WIDTH, 2560), vision.number("norm_eps", 0.0, 1.0, 1e-5),
        "silu", gated=True, layer_norm=False, qk_norm="head", rms_qk_norm=True, rotated=True, kv_heads=groups,
    )  # fmt: skip
    kernel = vision.integer("conv_kernel_size", 1, _MOST_KERNEL, 3)
    if kernel % 2 == 0:  # which would make a larger grid
        raise unsupported("conv_kernel_size", kernel)
    factor = vision.integer("spatial_merge_size", 1, 64, 2)
    last = ProjectorShape(
        factor**2 * width, inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 2048),
        config.integer("projector_hidden_size", 1, MOST_WIDTH, 4096),
        activation(config, "projector_hidden_act", "gelu"),
    )  # fmt: skip
    rope = inner(vision, "rope_parameters")
    shape = _Shape(
        tower, _kinds(vision, tower.layers), kernel, square(vision, "patch_size", 16),
        square(vision, "temporal_patch_size", 2), factor, last, rope.number("rope_theta", 1.0, 1e12, _BASE),
    )  # fmt: skip
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    prefix = prefix_of(tensors, "embedding_norm.weight", _PREFIXES)
    return _design(shape, prefix, pixels, pixel_limits(processor, _LEAST, _MOST), resampling(processor))


def _kinds(vision: Keys, layers: int) -> tuple[bool, ...]:
    """Which layers are convolutions: where config.json does not say, the first two and every second one."""
    kinds = vision.raw("layer_types")
    if kinds is None:
        return tuple(number < 2 or number % 2 == 1 for number in range(layers))
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise not_kinds("layer_types", layers)
    other = next((kind for kind in kinds if kind not in (_CONVOLUTION, _ATTENTION)), None)
    if other is not None:
        raise unsupported_layer(other)
    return tuple(kind == _CONVOLUTION for kind in kinds)


def _design(
    shape: _Shape, prefix: str, pixels: Normalisation, limits: tuple[int, int], filter: int,
    tokens: int = MOST_TOKENS,
) -> GridDesign:  # fmt: skip
    side, dim = shape.patch * shape.factor, rotated_dim(shape.tower)
    most = min(limits[1], tokens * side**2)
    pairs = frequencies(dim // 4, dim // 2, shape.base)
    return GridDesign(
        SPEC, shape.tower, shape.patch, shape.factor, shape.last.outputs, pixels,
        partial(dynamic_size, factor=side, least=min(limits[0], most), most=most), filter,
        max(1, most // side**2) * shape.factor**2, Axial(pairs, pairs), partial(_parts, shape, prefix),
        frames=shape.frames, of_tokens=partial(_design, shape, prefix, pixels, limits, filter),
    )  # fmt: skip


LFM3_VL = Family("lfm3_vl", ("Lfm3VlForConditionalGeneration",), (), from_hf, None)
