"""GLM-4.1V, GLM-4.5V and GLM-4.6V (arXiv 2507.01006), and GLM-OCR (its model card).

A tower with rotary positions, and with positions that are stretched to the picture; GLM-OCR's has norms of
queries and keys in their place. A convolution makes one token of 2 * 2 patches. A patch covers two frames of
a video, and of a picture twice the same.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import View, WeightSource, linear, norm
from engine.models.headers.keys import Keys
from engine.models.layers.parts import GatedMlp, Linear, Norm
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.grid_encoder import GridDesign, GridParts
from engine.vision.families.any_size.pixtral import by_channel
from engine.vision.families.any_size.qwen_tower import frame_linears
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_SIDE,
    MOST_WIDTH,
    activation,
    divisible,
    inner,
    normalisation,
    pixel_limits,
    prefix_of,
    resampling,
    rotated_dim,
    rows_of,
    square,
    tower_from_gguf,
    whole_patches,
)
from engine.vision.layers.grid import Axial, frequencies
from engine.vision.layers.grid_passes import Head
from engine.vision.layers.tower import GGUF, TowerNames, TowerShape, tower_layers
from engine.vision.pictures.images import BICUBIC, Normalisation
from engine.vision.pictures.interpolation import cubic, resampled
from engine.vision.pictures.sizes import MOST_TOKENS, PAGE_TOKENS, dynamic_size

SPEC = VisionSpec("glm4v", "<|image|>", "<|image|>", around=("<|begin_of_image|>", "<|end_of_image|>"))
_LEAST, _MOST = 112 * 112, 28 * 28 * 15000
"""Pixels of both frames, where the image processor's settings do not say."""
_BASE = 10000.0
_EPS = 1e-5
_PREFIXES = ("model.visual.", "visual.")


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of an encoder's tensors, without ".weight" and ".bias"; `positions` is a whole name. Without
    positions there is no norm `before` the layers, either.
    """

    tower: TowerNames
    first: str
    before: str
    positions: str
    after: str
    downsample: str
    merger: str
    merger_norm: str
    gate: str
    up: str
    down: str


@dataclass(frozen=True, slots=True)
class _Shape:
    """`tower` and what else is needed: `frames` as in `frame_linears`, the side of the square of positions,
    or 0, and the width inside the merger.
    """

    tower: TowerShape
    patch: int
    factor: int
    outputs: int
    inside: int
    side: int
    frames: int
    activation: str


@dataclass(frozen=True, slots=True)
class _Projector:
    """Merged rows (T, K) -> (T, N): a convolution as a linear layer, then mlp(gelu(norm(merger(x))))."""

    downsample: Linear
    merger: Linear
    norm: Norm
    mlp: GatedMlp

    def __call__(self, ops: Ops, x: Array) -> Array:
        x = self.norm(ops, self.merger(ops, self.downsample(ops, x)))
        return self.mlp(ops, ops.activate(x, "gelu"))


def _parts(shape: _Shape, names: _Names, source: WeightSource) -> Generator[int, None, GridParts]:
    """As `GridDesign.make`."""
    tower, width, out = shape.tower, shape.tower.width, shape.outputs
    first = frame_linears(source, names.first, width, shape.patch, shape.frames)
    after = norm(source, names.after, width, tower.eps, layer_norm=False, bias=False)
    before = place = None
    if shape.side:
        before = norm(source, names.before, width, tower.eps, layer_norm=False, bias=False)
        table = source.vector(names.positions, shape.side**2, width)
        place = partial(resampled, table, weights=cubic)
    blocks = yield from tower_layers(source, tower, names.tower, tower.layers)
    inputs = width * shape.factor**2
    kernel = View(kernel=(width, shape.factor, shape.factor))
    gate, up = (linear(source, name, shape.inside, out, False) for name in (names.gate, names.up))
    down = linear(source, names.down, out, shape.inside, False)
    projector = _Projector(
        linear(source, names.downsample, out, inputs, None, kernel),
        linear(source, names.merger, out, out, False),
        norm(source, names.merger_norm, out, _EPS, layer_norm=True, bias=None),
        GatedMlp(gate, up, down, shape.inside, shape.activation),
    )
    head = Head(by_channel, inputs, projector)
    return GridParts(first, blocks.blocks, head, place=place, before=before, after=after)


def picture_size(width: int, height: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """As `dynamic_size`, after a side below `factor` has grown to that."""
    if min(width, height) < factor:
        grow = max(factor / height, factor / width)
        width, height = int(width * grow), int(height * grow)
    return dynamic_size(max(1, width), max(1, height), factor, least, most)


def _design(
    shape: _Shape, names: _Names, pixels: Normalisation, limits: tuple[int, int], filter: int,
    tokens: int | None = None,
) -> GridDesign:  # fmt: skip
    side, dim = shape.patch * shape.factor, rotated_dim(shape.tower)
    tokens = tokens or (MOST_TOKENS if shape.side else PAGE_TOKENS)  # GLM-OCR has no table of positions
    most = min(limits[1], tokens * side**2)
    pairs = frequencies(dim // 4, dim // 2, _BASE)
    return GridDesign(
        SPEC, shape.tower, shape.patch, shape.factor, shape.outputs, pixels,
        partial(picture_size, factor=side, least=min(limits[0], most), most=most), filter,
        max(1, most // side**2) * shape.factor**2, Axial(pairs, pairs), partial(_parts, shape, names),
        frames=max(1, shape.frames), of_tokens=partial(_design, shape, names, pixels, limits, filter),
    )  # fmt: skip


def _from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Glm4vForConditionalGeneration` and its mixture, and `Glm46VForConditionalGeneration`."""
    vision = inner(config, "vision_config")
    out, patch = vision.integer("out_hidden_size", 1, MOST_WIDTH, 4096), square(vision, "patch_size", 14)
    side = whole_patches(square(vision, "image_size", 336), patch)
    inside = vision.integer("intermediate_size", 1, MOST_WIDTH, 13696)
    tower = _tower(vision.over({"num_heads": 12, "hidden_size": 1536}), out)
    return _folder(vision, processor, tensors, tower, (out, inside, side))


def _from_hf_ocr(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`GlmOcrForConditionalGeneration`."""
    vision = inner(config, "vision_config")
    out = vision.integer("out_hidden_size", 1, MOST_WIDTH, 1536)
    tower = _tower(
        vision.over({"num_heads": 16, "hidden_size": 1024}),
        vision.integer("intermediate_size", 1, MOST_WIDTH, 4096),
    )
    tower = replace(tower, qk_norm="head", rms_qk_norm=True)
    return _folder(vision, processor, tensors, tower, (out, 3 * out, 0))


def _tower(vision: Keys, mlp_width: int) -> TowerShape:
    heads = vision.integer("num_heads", 1, MOST_HEADS)
    return TowerShape(
        divisible(vision.integer("hidden_size", 1, MOST_WIDTH), heads, "num_heads"),
        vision.integer("depth", 1, MOST_LAYERS, 24), heads, mlp_width,
        vision.number("rms_norm_eps", 0.0, 1.0, _EPS), activation(vision, "hidden_act", "silu"), gated=True,
        layer_norm=False, rotated=True,
    )  # fmt: skip


def _folder(
    vision: Keys, processor: Keys, tensors: Tensors, tower: TowerShape, sizes: tuple[int, int, int]
) -> GridDesign:
    """`sizes` are those of `_Shape`: `outputs`, `inside` and `side`."""
    prefix = prefix_of(tensors, "patch_embed.proj.weight", _PREFIXES)
    layer = TowerNames(
        prefix + "blocks.{}.", "norm1", "", "", "", "attn.proj", "norm2", "mlp.up_proj", "mlp.down_proj",
        "mlp.gate_proj", query_key_value="attn.qkv", query_norm="attn.q_norm", key_norm="attn.k_norm",
    )  # fmt: skip
    merger = prefix + "merger."
    names = _Names(
        layer, prefix + "patch_embed.proj", prefix + "post_conv_layernorm",
        prefix + "embeddings.position_embedding.weight", prefix + "post_layernorm", prefix + "downsample",
        merger + "proj", merger + "post_projection_norm", merger + "gate_proj", merger + "up_proj",
        merger + "down_proj",
    )  # fmt: skip
    patch, frames = square(vision, "patch_size", 14), vision.integer("temporal_patch_size", 1, 64, 2)
    factor = vision.integer("spatial_merge_size", 1, 64, 2)
    shape = _Shape(tower, patch, factor, *sizes, frames, tower.activation)
    least, most = pixel_limits(processor, _LEAST, _MOST)
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    return _design(shape, names, pixels, (least // frames, most // frames), resampling(processor))


def _from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`glm4v` in llama.cpp's mmproj files, also of GLM-OCR."""
    out, inside = keys.integer("projection_dim", 1, MOST_WIDTH), rows_of(tensors, "mm.gate.weight")
    patch, factor = keys.integer("patch_size", 1, 1 << 10), keys.integer("spatial_merge_size", 1, 64, 2)
    inner_width = rows_of(tensors, "v.blk.0.ffn_up.weight")
    tower = replace(
        tower_from_gguf(keys.replaced("feed_forward_length", inner_width)), gated=True, layer_norm=False,
        rotated=True,
    )  # fmt: skip
    names = _Names(
        replace(GGUF, query_key_value="attn_qkv"), "v.patch_embd", "v.norm_embd", "v.position_embd.weight",
        "v.post_ln", "mm.patch_merger", "mm.model.fc", "mm.post_norm", "mm.gate", "mm.up", "mm.down",
    )  # fmt: skip
    side = whole_patches(keys.integer("image_size", 1, MOST_SIDE), patch)
    side = side if names.positions in tensors else 0
    if "v.blk.0.attn_q_norm.weight" in tensors:
        tower = replace(tower, qk_norm="head", rms_qk_norm=True)
    shape = _Shape(tower, patch, factor, out, inside, side, 0, tower.activation)
    area = (patch * factor) ** 2
    limits = (
        keys.integer("image_min_pixels", 1, MOST_SIDE**2, 8 * area),
        keys.integer("image_max_pixels", 1, MOST_SIDE**2, MOST_TOKENS * area),
    )
    return _design(shape, names, normalisation(keys, CLIP_MEAN, CLIP_DEVIATION), limits, BICUBIC)


GLM4V = Family(
    "glm4v",
    (
        "Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration",
        "Glm46VForConditionalGeneration",
    ),
    ("glm4v",), _from_hf, _from_gguf,
)  # fmt: skip
GLM_OCR = Family("glm_ocr", ("GlmOcrForConditionalGeneration",), (), _from_hf_ocr, None)
