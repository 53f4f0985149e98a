"""Gemma 3 (arXiv 2503.19786, section 2.2): a SigLIP tower over one picture of a fixed size, squares of whose
patches are averaged to 256 tokens, which attend to each other in both directions.
"""

from __future__ import annotations

import math

from engine.models.headers.keys import Keys
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.families.fixed_size.llava import PREFIXES, OneCrop
from engine.vision.headers import (
    HALF,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    folder_patches,
    gguf_names,
    inner,
    normalisation,
    prefix_of,
    resampling,
    square,
    tower_from_gguf,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.merging import averaged
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import SIGLIP, TowerShape
from engine.vision.pictures.images import BILINEAR, Normalisation

SPEC = VisionSpec("gemma3", "<start_of_image>", "<image_soft_token>", bidirectional=True)
_TOWER = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "image_size": 896, "patch_size": 14,
}  # fmt: skip


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Gemma3ForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(_TOWER)
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    tower = prefix_of(tensors, "embeddings.patch_embedding.weight", PREFIXES)
    whole = tower[: tower.index("vision_tower.")] + "multi_modal_projector."
    names = PatchNames(
        SIGLIP.under(tower), *folder_patches(tower),
        ProjectorNames(whole + "mm_input_projection_weight", norm=whole + "mm_soft_emb_norm"),
        tower + "post_layernorm",
    )  # fmt: skip
    tokens = config.integer("mm_tokens_per_image", 1, 1 << 16, 256)
    factor = max(1, side // patch // max(1, math.isqrt(tokens)))
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 2304)
    return _design(
        tower_from_hf(vision, "gelu_pytorch_tanh"), names, side, patch, factor, width,
        normalisation(processor, HALF, HALF), resampling(processor, BILINEAR), 1.0,
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`gemma3` in llama.cpp's mmproj files, whose norm has the 1 added that folders lack."""
    shape = tower_from_gguf(keys)
    names = PatchNames(
        gguf_names(tensors, shape), *PATCHES,
        ProjectorNames("mm.input_projection", norm="mm.soft_emb_norm"), "v.post_ln",
    )  # fmt: skip
    return _design(
        shape, names, keys.integer("image_size", 1, MOST_SIDE), keys.integer("patch_size", 1, 1 << 10),
        keys.integer("projector.scale_factor", 1, 64, 4), keys.integer("projection_dim", 1, MOST_WIDTH),
        normalisation(keys, HALF, HALF), BILINEAR, 0.0,
    )  # fmt: skip


def _design(
    shape: TowerShape, names: PatchNames, side: int, patch: int, factor: int, width: int,
    pixels: Normalisation, filter: int, offset: float,
) -> PatchDesign:  # fmt: skip
    whole_patches(side, patch, factor)
    cutter = OneCrop(
        side, patch, patch * factor, filter, before="\n\n<start_of_image>", after="<end_of_image>\n\n"
    )
    projector = ProjectorShape(
        shape.width, width, norm="rms", eps=shape.eps, offset=offset, factor=factor, merge=averaged,
        transposed=True,
    )  # fmt: skip
    table = whole_patches(side, patch) ** 2
    return PatchDesign(SPEC, shape, names, patch, table, pixels, cutter, projector, (shape.layers,))


GEMMA3 = Family("gemma3", ("Gemma3ForConditionalGeneration",), ("gemma3",), from_hf, from_gguf)
