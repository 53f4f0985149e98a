"""Kimi-VL (arXiv 2504.07491) and Kimi K2.5 (its model card): MoonViT, which has learned positions and rope,
over pictures that keep their size as long as it is small enough.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.grid_encoder import GridDesign
from engine.vision.encoders.joined import JoinedNames, JoinedShape, joined_parts
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    HALF,
    MOST_HEADS,
    MOST_LAYERS,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    activation,
    divisible,
    gguf_names,
    inner,
    normalisation,
    prefix_of,
    rotated_dim,
    rows_of,
    square,
    tower_from_gguf,
)
from engine.vision.layers.grid import Axial, Order, frequencies
from engine.vision.layers.projector import ProjectorNames
from engine.vision.layers.tower import TowerNames, TowerShape
from engine.vision.pictures.images import BICUBIC, Normalisation, resized
from engine.vision.pictures.interpolation import cubic, resampled
from engine.vision.pictures.sizes import MOST_TOKENS

_PAD = "<|media_pad|>"
_CONTENT = "image<|media_content|>"
VL = VisionSpec("kimi_vl", _PAD, _PAD, around=("<|media_start|>" + _CONTENT, "<|media_end|>"))
K2_5 = VisionSpec("kimi_k2_5", _PAD, _PAD, around=("<|media_begin|>" + _CONTENT, "<|media_end|>\n"))
_BASE, _EPS = 10000.0, 1e-5
_TABLE = 64
_PATCHES_VL, _PATCHES_K2_5 = 4096, 16384
"""Of a picture, where the image processor's settings do not say."""
_SIDE = 512
"""Patches of one side at most; Kimi-VL's own processor refuses this many."""
_PREFIXES = ("vision_tower.", "model.vision_tower.")


@dataclass(frozen=True, slots=True)
class Frame:
    """A picture is made smaller until it has at most `most` whole patches, and `longest` in a row. What lacks
    for whole tokens is black, on the right and below; if not `pads`, what is more than these is cut off on
    all sides.
    """

    patch: int
    factor: int
    most: int
    longest: int
    pads: bool

    @property
    def most_patches(self) -> int:
        """Of a picture with what is black."""
        longest = min(self.longest, self.most)
        return (self.most // longest + self.factor + 1) * (longest + self.factor)

    def shown(self, width: int, height: int) -> tuple[int, int]:
        """The width and height of the picture before it is padded or cut."""
        patch = self.patch
        count = max(1, width // patch) * max(1, height // patch)
        side = self.longest * patch
        scale = min(1.0, math.sqrt(self.most / count), side / height, side / width)
        return max(1, int(width * scale)), max(1, int(height * scale))

    def size(self, width: int, height: int) -> tuple[int, int]:
        """As `Size`."""
        cell = self.patch * self.factor
        whole = (-(-each // cell) if self.pads else each // cell for each in self.shown(width, height))
        wide, high = (max(1, each) for each in whole)
        most = self.most_patches // self.factor**2
        wide = min(wide, max(1, most // high))
        return wide * cell, min(high, max(1, most // wide)) * cell

    def fit(self, picture: Bytes) -> Bytes:
        """As `Fit`."""
        height, width = picture.shape[:2]
        wide, high = self.size(width, height)
        picture = resized(picture, *self.shown(width, height), BICUBIC)
        if not self.pads:
            top, left = (max(0, (a - b) // 2) for a, b in zip(picture.shape[:2], (high, wide), strict=True))
            picture = picture[top : top + high, left : left + wide]
        found = np.zeros((high, wide, 3), np.uint8)
        picture = picture[:high, :wide]
        found[: picture.shape[0], : picture.shape[1]] = picture
        return found


def _names(tower: str, positions: str, projector: ProjectorNames) -> JoinedNames:
    layers = TowerNames(
        tower + "encoder.blocks.{}.", "norm0", "", "", "", "wo", "norm1", "mlp.fc0", "mlp.fc1",
        query_key_value="wqkv",
    )  # fmt: skip
    return JoinedNames(
        layers, tower + "patch_embed.proj", positions, tower + "encoder.final_layernorm", projector
    )


def _tower(vision: Keys, prefix: str = "") -> TowerShape:
    """`prefix` is that of the names in config.json."""
    heads = vision.integer(prefix + "num_attention_heads", 1, MOST_HEADS, 16)
    return TowerShape(
        divisible(vision.integer(prefix + "hidden_size", 1, MOST_WIDTH, 1152), heads, "num_attention_heads"),
        vision.integer(prefix + "num_hidden_layers", 1, MOST_LAYERS, 27), heads,
        vision.integer(prefix + "intermediate_size", 1, MOST_WIDTH, 4304), _EPS,
        activation(vision, "hidden_act", "gelu_pytorch_tanh"), rotated=True,
    )  # fmt: skip


def _shape(vision: Keys, tower: TowerShape, outputs: int, side: str, eps: float = _EPS) -> JoinedShape:
    """`side` begins the names of the table's height and width."""
    height, width = (vision.integer(side + name, 1, MOST_SIDE, _TABLE) for name in ("height", "width"))
    return JoinedShape(
        tower, square(vision, "patch_size", 14), square(vision, "merge_kernel_size", 2), outputs,
        (height, width, tower.width), eps,
    )  # fmt: skip


def _from_hf_vl(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`KimiVLForConditionalGeneration`."""
    vision, tower = inner(config, "vision_config"), "vision_tower."
    whole = "multi_modal_projector."
    names = _names(
        tower, tower + "patch_embed.pos_emb.weight",
        ProjectorNames(whole + "linear_1", whole + "linear_2", whole + "pre_norm"),
    )  # fmt: skip
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 2048)
    shape = _shape(vision, _tower(vision), width, "init_pos_emb_")
    most = processor.integer("in_token_limit", 1, MOST_SIDE**2, _PATCHES_VL)
    pads = processor.flag("pad_input", False)
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    return _design(VL, shape, names, pixels, (most, _SIDE - 1), _alternating(shape), pads=pads)


def _from_hf_k2_5(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`KimiK25ForConditionalGeneration` as its authors publish it, and with `transformers`' configuration."""
    vision = inner(config, "vision_config")
    published = vision.has("vt_hidden_size")
    prefix, side = ("vt_", "init_pos_emb_") if published else ("", "pos_emb_")
    tower = prefix_of(tensors, "patch_embed.proj.weight", _PREFIXES)
    whole = tower.removesuffix("vision_tower.") + "mm_projector."
    names = _names(
        tower, tower + "patch_embed.pos_emb.weight",
        ProjectorNames(whole + "proj.0", whole + "proj.2", whole + "pre_norm"),
    )  # fmt: skip
    eps = config.number("projection_layer_norm_eps", 0.0, 1.0, _EPS)
    eps = vision.number("projector_ln_eps", 0.0, 1.0, eps)
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 7168)
    shape = _shape(vision, _tower(vision, prefix), width, side, eps)
    media = processor.table("media_proc_cfg") or processor
    name = next((each for each in ("in_patch_limit", "max_patches") if media.has(each)), "max_patches")
    most = media.integer(name, 1, MOST_SIDE**2, _PATCHES_K2_5)
    size = inner(media, "size", "preprocessor_config.json").integer("max_height", 1, MOST_SIDE, _SIDE)
    longest = media.integer("patch_limit_on_one_side", 1, MOST_SIDE, size)
    pixels = normalisation(media, HALF, HALF)
    return _design(K2_5, shape, names, pixels, (most, longest), _alternating(shape))


def _from_gguf(spec: VisionSpec, keys: Keys, tensors: Tensors) -> Design:
    """`kimivl` and `kimik25` in llama.cpp's mmproj files. Only those of the second have the dimensions of
    heads in another order: the pairs of columns, and then those of rows. Their table has two dimensions.
    """
    stored = tensors.get(PATCHES[1])
    places = stored.shape[:-1] if stored is not None else (1,)
    tower = replace(tower_from_gguf(keys), activation="gelu_tanh", rotated=True)
    names = JoinedNames(
        gguf_names(tensors, tower), *PATCHES, "v.post_ln", ProjectorNames("mm.1", "mm.2", "mm.input_norm")
    )
    shape = JoinedShape(
        tower, keys.integer("patch_size", 1, 1 << 10), keys.integer("projector.scale_factor", 1, 64, 2),
        rows_of(tensors, "mm.2.weight"), (*places, tower.width),
    )  # fmt: skip
    pairs = rotated_dim(tower) // 4
    order = _alternating(shape) if spec is VL else np.roll(np.arange(2 * pairs), pairs)
    most = keys.integer("image_max_pixels", 1, MOST_SIDE**2, _PATCHES_VL * shape.patch**2) // shape.patch**2
    side = _SIDE - 1 if spec is VL else _SIDE
    return _design(spec, shape, names, normalisation(keys, HALF, HALF), (max(1, most), side), order)


def _alternating(shape: JoinedShape) -> Order:
    """The order of pairs in which those of columns and of rows take turns."""
    pairs = rotated_dim(shape.tower) // 4
    return np.arange(2 * pairs).reshape(2, pairs)[::-1].T.reshape(-1)


def _design(
    spec: VisionSpec, shape: JoinedShape, names: JoinedNames, pixels: Normalisation, limits: tuple[int, int],
    order: Order, pads: bool = True, tokens: int = MOST_TOKENS,
) -> GridDesign:  # fmt: skip
    """`limits` are the most patches of a picture, and of one side."""
    dim = rotated_dim(shape.tower)
    most = min(limits[0], tokens * shape.factor**2)
    frame = Frame(shape.patch, shape.factor, most, limits[1], pads)
    pairs = frequencies(dim // 4, dim // 2, _BASE)
    return GridDesign(
        spec, shape.tower, shape.patch, shape.factor, shape.outputs, pixels, frame.size, BICUBIC,
        frame.most_patches, Axial(pairs, pairs, True, order),
        partial(joined_parts, shape, names, partial(resampled, weights=cubic)), fit=frame.fit,
        of_tokens=partial(_design, spec, shape, names, pixels, limits, order, pads),
    )  # fmt: skip


KIMI_VL = Family(
    "kimi_vl", ("KimiVLForConditionalGeneration",), ("kimivl",), _from_hf_vl, partial(_from_gguf, VL)
)
KIMI_K2_5 = Family(
    "kimi_k2_5", ("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"), ("kimik25",),
    _from_hf_k2_5, partial(_from_gguf, K2_5),
)  # fmt: skip
