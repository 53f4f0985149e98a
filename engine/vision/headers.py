"""What the headers of vision encoders have in common: config.json, image processors, mmproj files."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.headers.keys import Keys
from engine.vision.design import Tensors
from engine.vision.layers.tower import ACTIVATIONS, GGUF, QUICK, TowerNames, TowerShape
from engine.vision.pictures.images import BICUBIC, Normalisation
from engine.words import _

HALF = (0.5, 0.5, 0.5)
"""SigLIP's mean and deviation of each colour."""
CLIP_MEAN, CLIP_DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""CLIP's (its released code)."""
IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOST_SIDE = 1 << 14
"""The longest side of a tower's pictures."""
MOST_WIDTH, MOST_LAYERS, MOST_HEADS = 1 << 20, 1 << 10, 1 << 14


def activation(keys: Keys, name: str, default: str) -> str:
    """The activation `name` of config.json, as a value of `ACTIVATIONS`."""
    found = keys.text(name, default)
    if found not in ACTIVATIONS:
        raise UnsupportedModel(
            _(
                "The vision encoder has the activation {found!r}; only {known} are supported. Choose another "
                "model.",
                found=found,
                known=", ".join(ACTIVATIONS),
            )
        )
    return ACTIVATIONS[found]


def tower_from_hf(keys: Keys, default_activation: str, eps: float = 1e-6) -> TowerShape:
    """The shape of a tower of config.json's `vision_config`, in the words that most have."""
    heads = keys.integer("num_attention_heads", 1, MOST_HEADS)
    return TowerShape(
        divisible(keys.integer("hidden_size", 1, MOST_WIDTH), heads, "num_attention_heads"),
        keys.integer("num_hidden_layers", 1, MOST_LAYERS), heads,
        keys.integer("intermediate_size", 1, MOST_WIDTH), keys.number("layer_norm_eps", 0.0, 1.0, eps),
        activation(keys, "hidden_act", default_activation),
    )  # fmt: skip


def tower_from_gguf(keys: Keys) -> TowerShape:
    """The shape of a tower of an mmproj file; `keys` are those under "clip.vision."."""
    heads = keys.integer("attention.head_count", 1, MOST_HEADS)
    whole = Keys(keys.source, _("The mmproj file"), "clip.")
    quick = "silu" if whole.flag("use_silu", False) else QUICK
    return TowerShape(
        divisible(keys.integer("embedding_length", 1, MOST_WIDTH), heads, "attention.head_count"),
        keys.integer("block_count", 1, MOST_LAYERS), heads,
        keys.integer("feed_forward_length", 1, MOST_WIDTH),
        keys.number("attention.layer_norm_epsilon", 0.0, 1.0),
        "gelu_tanh" if whole.flag("use_gelu", False) else quick,
    )  # fmt: skip


PATCHES = "v.patch_embd", "v.position_embd.weight"
"""The names of the patches' layer and of the positions in mmproj files."""


def folder_patches(tower: str) -> tuple[str, str]:
    """The same in Hugging Face's SigLIP and CLIP, under the prefix of the tower."""
    return tower + "embeddings.patch_embedding", tower + "embeddings.position_embedding.weight"


def rows_of(tensors: Tensors, name: str) -> int:
    """The rows of a tensor; 1 if it is not there or has none, which is found later."""
    tensor = tensors.get(name)
    return max(1, tensor.shape[0]) if tensor is not None and tensor.shape else 1


def layer_count(tensors: Tensors, name: str) -> int:
    """How many layers a tower has by the last of its tensors that is called so; {} in `name` is a layer's
    number.
    """
    return 1 + max((at for at in range(MOST_LAYERS) if name.format(at) in tensors), default=0)


def gguf_names(tensors: Tensors, shape: TowerShape) -> TowerNames:
    """The names of a tower's layers in an mmproj file: queries, keys and values may be one matrix, and old
    files call the first matrix of the feed-forward part the second.
    """
    names, first = GGUF, GGUF.layer.format(0)
    if f"{first}attn_qkv.weight" in tensors:
        names = replace(names, query_key_value="attn_qkv")
    down = tensors.get(f"{first}{GGUF.down}.weight")
    if down is not None and down.shape == (shape.mlp_width, shape.width):
        names = replace(names, up=GGUF.down, down=GGUF.up)
    return names


def feature_layers(keys: Keys, name: str, layers: int, default: int) -> tuple[int, ...]:
    """After how many layers states are taken, from a number or a list of them; -1 is after all of them."""
    found = keys.raw(name)
    if not isinstance(found, list):
        keys = keys.replaced(name, [default if found is None else found])
    return tuple(
        number if number >= 0 else layers + 1 + number for number in keys.integers(name, -layers - 1, layers)
    ) or (layers + 1 + default,)


def divisible(width: int, heads: int, name: str) -> int:
    """`width`, if it is a multiple of `heads`. Raises `BadCheckpoint`."""
    if width % heads:
        raise BadCheckpoint(
            _(
                "The vision encoder's width is {width}, but a multiple of {name} ({heads}) was expected; the "
                "file is damaged.",
                width=width,
                name=name,
                heads=heads,
            )
        )
    return width


def rotated_dim(tower: TowerShape) -> int:
    """D, if it can be divided into pairs for rows and for columns. Raises `BadCheckpoint`."""
    dim = tower.attention.head_dim
    if dim % 4:
        raise BadCheckpoint(
            _(
                "The vision encoder's heads have {dim} dimensions, but a multiple of 4 was expected for "
                "rotary positions; the file is damaged.",
                dim=dim,
            )
        )
    return dim


def square(keys: Keys, name: str, default: int | None = None) -> int:
    """A side in pixels, which may be written as a list of two equal ones."""
    value = keys.raw(name)
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
        keys = keys.replaced(name, value[0])
    if default is None:
        return keys.integer(name, 1, MOST_SIDE)
    return keys.integer(name, 1, MOST_SIDE, default)


def square_number(count: int) -> int:
    """A number of positions, if they are those of a square. Raises `BadCheckpoint`."""
    if math.isqrt(count) ** 2 == count:
        return count
    raise BadCheckpoint(
        _(
            "The vision encoder has {count} positions, but a square number was expected; the file is "
            "damaged.",
            count=count,
        )
    )


def whole_patches(side: int, patch: int, factor: int = 1) -> int:
    """How many patches a side has, of which `factor` are merged. Raises `BadCheckpoint` if these are no whole
    ones.
    """
    if side % patch or side // patch % factor:
        raise BadCheckpoint(
            _(
                "The vision encoder's pictures are {side} pixels wide, but a multiple of {patch} pixels, "
                "the width of one token, was expected; the file is damaged.",
                side=side,
                patch=patch * factor,
            )
        )
    return side // patch


def fitting_patches(side: int, patch: int, factor: int = 1) -> int:
    """As `whole_patches`, of a side that may have pixels left over, as 6 of SigLIP's 384 with patches of 14:
    a convolution of such steps does not read them.
    """
    return whole_patches(side - side % patch or side, patch, factor)


def normalisation(
    keys: Keys,
    mean: tuple[float, ...],
    deviation: tuple[float, ...],
    names: tuple[str, str] = ("image_mean", "image_std"),
) -> Normalisation:
    """What an image processor's settings, or an mmproj file's, say of pixels."""
    first, second = (
        _three(keys, name, default) for name, default in zip(names, (mean, deviation), strict=True)
    )
    scale = keys.number("rescale_factor", 0.0, 1.0, 1 / 255) if keys.flag("do_rescale", True) else 1.0
    if not keys.flag("do_normalize", True):
        first, second = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    return Normalisation(first, second, scale)


def _three(keys: Keys, name: str, default: tuple[float, ...]) -> tuple[float, float, float]:
    found = keys.numbers(name, -1e3, 1e3) or default
    if len(found) != 3 or (name.endswith("std") and 0.0 in found):
        raise BadCheckpoint(
            _(
                "{name} is {found}, but three numbers were expected, one for each colour; the file is "
                "damaged.",
                name=name,
                found=list(found),
            )
        )
    return found[0], found[1], found[2]


def resampling(keys: Keys, default: int = BICUBIC) -> int:
    """The number of Pillow's filter for resizing."""
    return keys.integer("resample", 0, 5, default)


def pixel_limits(processor: Keys, least: int, most: int) -> tuple[int, int]:
    """The fewest and the most pixels of a picture, which an image processor's settings have in two forms;
    `least` and `most` where they do not say.
    """
    sizes = inner(processor, "size", "preprocessor_config.json")
    found = list[int]()
    for names, default in ((("min_pixels", "shortest_edge"), least), (("max_pixels", "longest_edge"), most)):
        given = [keys.integer(name, 0, MOST_SIDE**2, 0) for keys in (processor, sizes) for name in names]
        found.append(next((each for each in given if each), default))
    return found[0], found[1]


def prefix_of(tensors: Tensors, name: str, prefixes: tuple[str, ...]) -> str:
    """The first prefix with which `name` is there; the first of all if none is."""
    return next((each for each in prefixes if each + name in tensors), prefixes[0])


def inner(keys: Keys, name: str, where: str = "config.json") -> Keys:
    """The keys of a nested object; none if it is absent."""
    return keys.table(name) or Keys(dict[str, Any](), where)
