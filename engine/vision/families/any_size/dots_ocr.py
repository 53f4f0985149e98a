"""dots.ocr (its model card): a tower with RMS norms and rope over pictures that keep their shape, squares of
whose patches are joined to one token of a Qwen 2 without sections of rotary positions.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial

from engine.backends.base import Array, Ops
from engine.lazy_dataclass import dataclass
from engine.models.building.source import WeightSource, norm
from engine.models.headers.keys import Keys
from engine.models.layers.parts import Norm
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.grid_encoder import GridDesign, GridParts
from engine.vision.encoders.joined import together
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_SIDE,
    MOST_WIDTH,
    divisible,
    inner,
    normalisation,
    pixel_limits,
    resampling,
    rotated_dim,
    rows_of,
    square,
    tower_from_gguf,
)
from engine.vision.layers.grid import Axial, frequencies
from engine.vision.layers.grid_passes import Head
from engine.vision.layers.projector import ProjectorNames, ProjectorShape, projector
from engine.vision.layers.tower import GGUF, TowerNames, TowerShape, patch_linear, tower_layers
from engine.vision.pictures.images import BICUBIC, Normalisation
from engine.vision.pictures.sizes import PAGE_TOKENS, dynamic_size

SPEC = VisionSpec("dots_ocr", "<|imgpad|>", "<|imgpad|>", around=("<|img|>", "<|endofimg|>"))
_LEAST, _MOST = 3136, 11289600
"""Pixels, where the image processor's settings do not say."""
_BASE, _EPS, _MERGER_EPS = 10000.0, 1e-5, 1e-6
_TOWER = "vision_tower."


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of an encoder's tensors, without ".weight" and ".bias"; `norms` are that of patches, that
    after the tower and that of the merger.
    """

    tower: TowerNames
    first: str
    norms: tuple[str, str, str]
    merger: ProjectorNames


@dataclass(frozen=True, slots=True)
class _Shape:
    """`tower`, the side of a patch in pixels, that of a token in patches, and the width of rows."""

    tower: TowerShape
    patch: int
    factor: int
    outputs: int


@dataclass(frozen=True, slots=True)
class _Both:
    """The norm after the tower, if there is one, and that of the merger."""

    first: Norm | None
    second: Norm

    def __call__(self, ops: Ops, x: Array) -> Array:
        return self.second(ops, self.first(ops, x) if self.first else x)


def _parts(shape: _Shape, names: _Names, source: WeightSource) -> Generator[int, None, GridParts]:
    """As `GridDesign.make`."""
    tower, width = shape.tower, shape.tower.width
    first = patch_linear(source, names.first, width, shape.patch, None)
    patches, trunk, merger = names.norms
    before = norm(source, patches, width, tower.eps, layer_norm=False, bias=False)
    blocks = yield from tower_layers(source, tower, names.tower, tower.layers)
    last = None
    if source.has(trunk + ".weight"):
        last = norm(source, trunk, width, tower.eps, layer_norm=False, bias=False)
    after = _Both(last, norm(source, merger, width, _MERGER_EPS, layer_norm=True, bias=True))
    inputs = width * shape.factor**2
    made = projector(source, ProjectorShape(inputs, shape.outputs, inputs, "gelu"), names.merger)
    return GridParts((first,), blocks.blocks, Head(together, inputs, made), before=before, after=after)


def _design(
    shape: _Shape, names: _Names, pixels: Normalisation, limits: tuple[int, int], filter: int,
    tokens: int = PAGE_TOKENS,
) -> GridDesign:  # fmt: skip
    side, dim = shape.patch * shape.factor, rotated_dim(shape.tower)
    most = min(limits[1], tokens * side**2)
    pairs = frequencies(dim // 4, dim // 2, _BASE)
    return GridDesign(
        SPEC, shape.tower, shape.patch, shape.factor, shape.outputs, pixels,
        partial(dynamic_size, factor=side, least=min(limits[0], most), most=most), filter,
        max(1, most // side**2) * shape.factor**2, Axial(pairs, pairs), partial(_parts, shape, names),
        of_tokens=partial(_design, shape, names, pixels, limits, filter),
    )  # fmt: skip


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`DotsOCRForCausalLM`, as its authors publish it."""
    vision = inner(config, "vision_config")
    heads = vision.integer("num_attention_heads", 1, MOST_HEADS, 12)
    width = divisible(vision.integer("embed_dim", 1, MOST_WIDTH, 1536), heads, "num_attention_heads")
    tower = TowerShape(
        width, vision.integer("num_hidden_layers", 1, MOST_LAYERS, 42), heads,
        vision.integer("intermediate_size", 1, MOST_WIDTH, 4224),
        vision.number("rms_norm_eps", 0.0, 1.0, _EPS), "silu", gated=True, layer_norm=False, rotated=True,
    )  # fmt: skip
    names = _Names(
        TowerNames(
            _TOWER + "blocks.{}.", "norm1", "", "", "", "attn.proj", "norm2", "mlp.fc3", "mlp.fc2", "mlp.fc1",
            query_key_value="attn.qkv",
        ),
        _TOWER + "patch_embed.patchifier.proj",
        (_TOWER + "patch_embed.patchifier.norm", _TOWER + "post_trunk_norm", _TOWER + "merger.ln_q"),
        ProjectorNames(_TOWER + "merger.mlp.0", _TOWER + "merger.mlp.2"),
    )  # fmt: skip
    shape = _Shape(
        tower, square(vision, "patch_size", 14), vision.integer("spatial_merge_size", 1, 64, 2),
        config.integer("hidden_size", 1, MOST_WIDTH, 1536),
    )  # fmt: skip
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    limits = pixel_limits(processor, _LEAST, _MOST)
    return _design(shape, names, pixels, limits, resampling(processor, BICUBIC))


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`dots_ocr` in llama.cpp's mmproj files."""
    shape = _Shape(
        replace(tower_from_gguf(keys), activation="silu", gated=True, layer_norm=False, rotated=True),
        keys.integer("patch_size", 1, 1 << 10), keys.integer("projector.scale_factor", 1, 64, 2),
        rows_of(tensors, "mm.2.weight"),
    )  # fmt: skip
    fused = "attn_qkv" if "v.blk.0.attn_qkv.weight" in tensors else ""
    names = _Names(
        replace(GGUF, query_key_value=fused), "v.patch_embd", ("v.pre_ln", "mm.post_norm", "mm.input_norm"),
        ProjectorNames("mm.0", "mm.2"),
    )  # fmt: skip
    limits = (
        keys.integer("image_min_pixels", 1, MOST_SIDE**2, _LEAST),
        keys.integer("image_max_pixels", 1, MOST_SIDE**2, _MOST),
    )
    return _design(shape, names, normalisation(keys, CLIP_MEAN, CLIP_DEVIATION), limits, BICUBIC)


DOTS_OCR = Family("dots_ocr", ("DotsOCRForCausalLM",), ("dots_ocr",), from_hf, from_gguf)
