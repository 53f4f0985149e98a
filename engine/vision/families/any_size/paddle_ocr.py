"""PaddleOCR-VL (arXiv 2510.14528): a SigLIP tower with rope over pictures that keep their shape; squares of
patches are joined to one token.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from engine.models.headers.keys import Keys
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.grid_encoder import GridDesign
from engine.vision.encoders.joined import JoinedNames, JoinedShape, joined_parts
from engine.vision.headers import (
    HALF,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    folder_patches,
    gguf_names,
    inner,
    normalisation,
    pixel_limits,
    prefix_of,
    resampling,
    rotated_dim,
    rows_of,
    square,
    tower_from_gguf,
    tower_from_hf,
)
from engine.vision.layers.grid import Axial, frequencies
from engine.vision.layers.projector import ProjectorNames
from engine.vision.layers.tower import SIGLIP
from engine.vision.pictures.images import BICUBIC, Normalisation
from engine.vision.pictures.interpolation import linear, resampled
from engine.vision.pictures.sizes import PAGE_TOKENS, dynamic_size

SPEC = VisionSpec(
    "paddle_ocr", "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_PLACEHOLDER|>",
    around=("<|IMAGE_START|>", "<|IMAGE_END|>"),
)  # fmt: skip
_TOWER = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "image_size": 384, "patch_size": 14,
}  # fmt: skip
_LEAST, _MOST = 384**2, 1536**2
"""Pixels, where the image processor's settings do not say."""
_BASE = 10000.0
_PREFIXES = ("visual.vision_model.", "model.visual.vision_model.")
_PROJECTORS = ("mlp_AR.", "model.mlp_AR.", "model.projector.")


def size(width: int, height: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """As `dynamic_size`, of a picture whose sides are enlarged to `factor` first if they are shorter."""
    if height < factor:
        width, height = max(1, round(width * factor / height)), factor
    if width < factor:
        width, height = factor, max(1, round(height * factor / width))
    return dynamic_size(width, height, factor, least, most)


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`PaddleOCRVLForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(_TOWER)
    tower = prefix_of(tensors, "embeddings.patch_embedding.weight", _PREFIXES)
    after = prefix_of(tensors, "pre_norm.weight", _PROJECTORS)
    names = JoinedNames(
        SIGLIP.under(tower), *folder_patches(tower), tower + "post_layernorm",
        ProjectorNames(after + "linear_1", after + "linear_2", after + "pre_norm"),
    )  # fmt: skip
    patch = square(vision, "patch_size")
    tower_shape = replace(tower_from_hf(vision, "gelu_pytorch_tanh"), rotated=True)
    text = config.table("text_config") or config
    shape = JoinedShape(
        tower_shape, patch,
        vision.integer("spatial_merge_size", 1, 64, 2), text.integer("hidden_size", 1, MOST_WIDTH, 1024),
        ((square(vision, "image_size") // patch) ** 2, tower_shape.width),
    )  # fmt: skip
    limits = pixel_limits(processor, _LEAST, _MOST)
    return _design(shape, names, normalisation(processor, HALF, HALF), limits, resampling(processor))


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`paddleocr` in llama.cpp's mmproj files."""
    tower = replace(tower_from_gguf(keys), activation="gelu_tanh", rotated=True)
    names = JoinedNames(
        gguf_names(tensors, tower), *PATCHES, "v.post_ln", ProjectorNames("mm.1", "mm.2", "mm.input_norm")
    )
    shape = JoinedShape(
        tower, keys.integer("patch_size", 1, 1 << 10), keys.integer("spatial_merge_size", 1, 64, 2),
        rows_of(tensors, "mm.2.weight"), (rows_of(tensors, PATCHES[1]), tower.width),
    )  # fmt: skip
    limits = (
        keys.integer("image_min_pixels", 1, MOST_SIDE**2, _LEAST),
        keys.integer("image_max_pixels", 1, MOST_SIDE**2, _MOST),
    )
    return _design(shape, names, normalisation(keys, HALF, HALF), limits, BICUBIC)


def _design(
    shape: JoinedShape, names: JoinedNames, pixels: Normalisation, limits: tuple[int, int], filter: int,
    tokens: int = PAGE_TOKENS,
) -> GridDesign:  # fmt: skip
    side, dim = shape.patch * shape.factor, rotated_dim(shape.tower)
    most = min(limits[1], tokens * side**2)
    pairs = frequencies(dim // 4, dim // 2, _BASE)
    return GridDesign(
        SPEC, shape.tower, shape.patch, shape.factor, shape.outputs, pixels,
        partial(size, factor=side, least=min(limits[0], most), most=most), filter,
        max(1, most // side**2) * shape.factor**2, Axial(pairs, pairs),
        partial(joined_parts, shape, names, partial(resampled, weights=linear)),
        of_tokens=partial(_design, shape, names, pixels, limits, filter),
    )  # fmt: skip


PADDLE_OCR = Family(
    "paddle_ocr", ("PaddleOCRVLForConditionalGeneration",), ("paddleocr",), from_hf, from_gguf
)
