"""PaliGemma 1 and 2 (arXiv 2407.07726 and 2412.03555): a SigLIP tower over one picture of a fixed size, whose
patches are a token each. All tokens of a prompt attend to each other.
"""

from __future__ import annotations

from engine.models.headers.keys import Keys
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.families.fixed_size.llava import PREFIXES, OneCrop
from engine.vision.headers import (
    HALF,
    MOST_WIDTH,
    fitting_patches,
    folder_patches,
    inner,
    normalisation,
    prefix_of,
    resampling,
    square,
    tower_from_hf,
)
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import SIGLIP
from engine.vision.pictures.images import BICUBIC

SPEC = VisionSpec("paligemma", "<image>", "<image>", bidirectional=True, prefix=True)
_TOWER = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "image_size": 224, "patch_size": 14,
}  # fmt: skip


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`PaliGemmaForConditionalGeneration`."""
    vision = inner(config, "vision_config").over(_TOWER)
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    tower = prefix_of(tensors, "embeddings.patch_embedding.weight", PREFIXES)
    whole = tower[: tower.index("vision_tower.")]
    shape = tower_from_hf(vision, "gelu_pytorch_tanh")
    names = PatchNames(
        SIGLIP.under(tower), *folder_patches(tower),
        ProjectorNames(whole + "multi_modal_projector.linear"), after=tower + "post_layernorm",
    )  # fmt: skip
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 2048)
    return PatchDesign(
        SPEC, shape, names, patch, fitting_patches(side, patch) ** 2, normalisation(processor, HALF, HALF),
        OneCrop(side, patch, patch, resampling(processor, BICUBIC)), ProjectorShape(shape.width, width),
        (shape.layers,),
    )  # fmt: skip


PALIGEMMA = Family("paligemma", ("PaliGemmaForConditionalGeneration",), (), from_hf, None)
