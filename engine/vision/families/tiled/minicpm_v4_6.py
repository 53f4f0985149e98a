"""MiniCPM-V 4.6 and MiniCPM-OCR (the code of `transformers`): slices as in the versions before, a SigLIP
tower in the middle of which squares of four patches become one row, and as many tokens as a crop has squares
of 16; or, as usual for pages, rows that stay apart until the end, and tokens of four patches.
"""

from __future__ import annotations

from engine.models.headers.keys import Keys
from engine.models.headers.refusals import refuse_other, unsupported
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.families.tiled.idefics3 import placed
from engine.vision.families.tiled.minicpm_v import LARGEST_TOWER, MOST_SLICES, Slices
from engine.vision.headers import (
    HALF,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    folder_patches,
    gguf_names,
    inner,
    normalisation,
    rows_of,
    square,
    square_number,
    tower_from_gguf,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import SIGLIP, TowerNames, TowerShape
from engine.vision.layers.window_merger import FACTOR, MergerNames, WindowMergerShape
from engine.vision.pictures.images import Normalisation

SPEC = VisionSpec("minicpm_v4_6", "<|image_pad|>", "<|image_pad|>", sign="<slice>", unsectioned=True)
_SIDE, _MOST, _INSERTED = 448, 9, 6
_TOWER = "model.vision_tower."
_TWICE, _ONCE = "16x", "4x"
"""How many patches become a token: squares of four are merged twice, or after the tower alone."""


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`MiniCPMV4_6ForConditionalGeneration`. Raises `UnsupportedModel`."""
    return _from_hf(config, processor, config.text("downsample_mode", _TWICE))


def from_hf_ocr(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`MiniCPMOcrForConditionalGeneration`. Raises `UnsupportedModel`."""
    refuse_other(processor, "small_image_upsize", "always")
    return _from_hf(config, processor, config.text("downsample_mode", _ONCE))


def _from_hf(config: Keys, processor: Keys, mode: str) -> Design:
    """Patches are merged as the `mode` says, of which the image processor has the same."""
    if mode not in (_TWICE, _ONCE):
        raise unsupported("downsample_mode", mode)
    refuse_other(processor, "downsample_mode", mode)
    refuse_other(config, "merger_times", 1)
    vision = inner(config, "vision_config").over(LARGEST_TOWER)
    shape = tower_from_hf(vision, "gelu_pytorch_tanh")
    merger = _TOWER + "vit_merger."
    layers = SIGLIP.under(_TOWER)
    own = MergerNames(
        layers, merger + "layer_norm1", tuple(f"{merger}self_attn.{each}_proj" for each in "qkv"),
        merger + "self_attn.out_proj", merger + "pre_norm", merger + "linear_1", merger + "linear_2",
        _TOWER + "post_layernorm",
    )  # fmt: skip
    last = "model.merger.mlp.0."
    names = PatchNames(
        layers, *folder_patches(_TOWER),
        ProjectorNames(last + "linear_1", last + "linear_2", last + "pre_norm"),
        own.last if mode == _ONCE else "",
    )  # fmt: skip
    patch = square(vision, "patch_size")
    cell = patch * FACTOR ** (1 if mode == _ONCE else 2)
    most = processor.integer("max_slice_nums", 1, MOST_SLICES, _MOST)
    slices = Slices(
        processor.integer("scale_resolution", cell, MOST_SIDE, max(cell, _SIDE)), patch,
        most if processor.flag("slice_mode", True) else 1, 0,
        numbered=processor.flag("use_image_id", True), cell=cell,
    )  # fmt: skip
    table = whole_patches(square(vision, "image_size"), patch) ** 2
    outputs = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH)
    pixels = normalisation(processor, HALF, HALF)
    if mode == _ONCE:
        width = FACTOR**2 * shape.width
        once = ProjectorShape(width, outputs, width, norm="layer", eps=1e-6, factor=FACTOR)
        return PatchDesign(SPEC, shape, names, patch, table, pixels, slices, once, (shape.layers,), placed)
    first = config.integer("insert_layer_id", 0, shape.layers - 1, _INSERTED) + 1
    return _design(shape, names, own, slices, table, pixels, first, outputs)


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`minicpmv4_6` in llama.cpp's mmproj files."""
    shape, at = tower_from_gguf(keys), "v.vit_merger."
    layers: TowerNames = gguf_names(tensors, shape)
    own = MergerNames(
        layers, at + "ln1", tuple(f"{at}attn_{each}" for each in "qkv"), at + "attn_out", at + "ds_ln",
        at + "ds_ffn_up", at + "ds_ffn_down", "v.post_ln",
    )  # fmt: skip
    names = PatchNames(layers, *PATCHES, ProjectorNames("mm.up", "mm.down", "mm.input_norm"))
    patch = keys.integer("patch_size", 1, 1 << 10)
    cell = patch * FACTOR**2
    slices = Slices(keys.integer("image_size", cell, MOST_SIDE), patch, _MOST, 0, cell=cell)
    inserted = (*keys.integers("wa_layer_indexes", 0, shape.layers - 1), _INSERTED)[0]
    table = square_number(rows_of(tensors, PATCHES[1]))
    pixels = normalisation(keys, HALF, HALF)
    outputs = rows_of(tensors, "mm.down.weight")
    return _design(shape, names, own, slices, table, pixels, inserted + 1, outputs)


def _design(
    shape: TowerShape, names: PatchNames, own: MergerNames, slices: Slices, table: int, pixels: Normalisation,
    first: int, outputs: int,
) -> PatchDesign:  # fmt: skip
    """The number of layers that are before the merger."""
    hidden = shape.mlp_width * FACTOR**2
    last = WindowMergerShape(shape, first, hidden, outputs, own)
    return PatchDesign(SPEC, shape, names, slices.patch, table, pixels, slices, last, (first,), placed)


MINICPM_OCR = Family("minicpm_ocr", ("MiniCPMOcrForConditionalGeneration",), (), from_hf_ocr, None)
MINICPM_V4_6 = Family(
    "minicpm_v4_6", ("MiniCPMV4_6ForConditionalGeneration",), ("minicpmv4_6",), from_hf, from_gguf
)
