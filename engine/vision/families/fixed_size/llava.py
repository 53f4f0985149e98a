"""LLaVA 1.5 (arXiv 2310.03744) and its like: a CLIP or SigLIP tower without its last layer or layers, and two
linear layers.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.headers import (
    CLIP_DEVIATION,
    CLIP_MEAN,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    activation,
    feature_layers,
    fitting_patches,
    folder_patches,
    gguf_names,
    inner,
    normalisation,
    prefix_of,
    resampling,
    rows_of,
    square,
    tower_from_gguf,
    tower_from_hf,
)
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import SIGLIP, TowerShape
from engine.vision.pictures.images import BICUBIC, padded_to_square, resized
from engine.words import _

SPEC = VisionSpec("llava", "<image>", "<image>")
CLIP, SIGLIP_TOWER = "clip_vision_model", "siglip_vision_model"
PREFIXES = (
    "model.vision_tower.", "vision_tower.vision_model.", "model.vision_tower.vision_model.", "vision_tower.",
)  # fmt: skip
_CLIP_TOWER = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "image_size": 336, "patch_size": 14, "layer_norm_eps": 1e-5,
}  # fmt: skip
"""What config.json leaves out of a CLIP tower, which is that of the first of these models."""
_VIP = (-2, -5, -8, -11, 6)
"""ViP-LLaVA's layers (arXiv 2312.00784, section 3.1), where config.json does not say."""
_SIGLIP_TOWER = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 224, "patch_size": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OneCrop:
    """One square of `side` pixels: the whole picture made to fit (`fit` "stretch"), with bars of a `colour`
    beside it ("pad"), or its middle after the shorter side is made `shortest` pixels ("crop").
    """

    side: int
    patch: int
    cell: int
    filter: int
    fit: str = "stretch"
    colour: tuple[int, int, int] = (0, 0, 0)
    before: str = ""
    after: str = ""
    shortest: int = 0

    @property
    def most_patches(self) -> int:
        return (self.side // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`: one span, with the words before and after it."""
        cells = self.side // self.cell
        return tuple(piece for piece in (self.before, Span(cells, cells), self.after) if piece)

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        side = self.side
        if self.fit == "pad":
            picture = padded_to_square(picture, self.colour)
        elif self.fit == "crop":
            height, width = picture.shape[:2]
            short, shortest = min(width, height), max(side, self.shortest)
            width, height = int(shortest * width / short), int(shortest * height / short)
            picture = resized(picture, width, height, self.filter)
            top, left = (height - side) // 2, (width - side) // 2
            picture = picture[top : top + side, left : left + side]
        return (resized(picture, side, side, self.filter),)


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> PatchDesign:
    """`LlavaForConditionalGeneration`, and the tower of its like."""
    vision, kind = inner(config, "vision_config"), tower_kind(config)
    vision = vision.over(_CLIP_TOWER if kind == CLIP else _SIGLIP_TOWER)
    shape = tower_from_hf(vision, "quick_gelu" if kind == CLIP else "gelu_pytorch_tanh")
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    _check_strategy(config, kind)
    tower = prefix_of(tensors, "embeddings.patch_embedding.weight", PREFIXES)
    whole = tower[: tower.index("vision_tower.")]
    names = PatchNames(
        SIGLIP.under(tower), *folder_patches(tower),
        ProjectorNames(whole + "multi_modal_projector.linear_1", whole + "multi_modal_projector.linear_2"),
        before=tower + "pre_layrnorm" if kind == CLIP else "",
        class_row=tower + "embeddings.class_embedding" if kind == CLIP else "",
    )  # fmt: skip
    features = feature_layers(config, "vision_feature_layer", shape.layers, -2)
    width = inner(config, "text_config").integer("hidden_size", 1, MOST_WIDTH, 4096)
    projector = ProjectorShape(
        shape.width * len(features), width, width, activation(config, "projector_hidden_act", "gelu")
    )
    return PatchDesign(
        SPEC, shape, names, patch, fitting_patches(side, patch) ** 2,
        normalisation(processor, CLIP_MEAN, CLIP_DEVIATION), one_crop(processor, side, patch), projector,
        features,
    )  # fmt: skip


def from_hf_vip(config: Keys, processor: Keys, tensors: Tensors) -> PatchDesign:
    """`VipLlavaForConditionalGeneration`: states after several layers, with a norm before the projector."""
    layers = config.raw("vision_feature_layer") or config.raw("vision_feature_layers")
    design = from_hf(config.replaced("vision_feature_layer", layers or list(_VIP)), processor, tensors)
    names, projector = design.names, design.projector
    assert isinstance(projector, ProjectorShape)
    last = names.projector.first.removesuffix("linear_1") + "projector_layernorm"
    eps = config.number("projector_layernorm_eps", 0.0, 1.0, 1e-5)
    return replace(
        design, projector=replace(projector, norm="layer", eps=eps),
        names=replace(names, projector=replace(names.projector, norm=last)),
    )  # fmt: skip


def tower_kind(config: Keys) -> str:
    """The `model_type` of the tower."""
    return inner(config, "vision_config").text("model_type", CLIP)


def _check_strategy(config: Keys, kind: str) -> None:
    """Of a CLIP tower, all rows but that of the class are used; SigLIP has none."""
    expected = "default" if kind == CLIP else "full"
    found = config.text("vision_feature_select_strategy", "default")
    if found != expected:
        raise UnsupportedModel(
            _(
                "The vision encoder's vision_feature_select_strategy is {found!r}; with this encoder only "
                "{expected!r} is supported. Choose another model.",
                found=found,
                expected=expected,
            )
        )


def one_crop(processor: Keys, side: int, patch: int) -> OneCrop:
    """As the image processor cuts pictures."""
    whole, filter = OneCrop(side, patch, patch, BICUBIC), resampling(processor)
    if isinstance(processor.raw("size"), int):  # as in the first files of CLIP
        processor = processor.replaced("size", {"shortest_edge": processor.raw("size")})
    size = inner(processor, "size")
    fit = "crop" if size.has("shortest_edge") or not size.source else "stretch"
    shortest = size.integer("shortest_edge", 1, MOST_SIDE, side) if fit == "crop" else side
    if processor.flag("do_pad", False):
        mean = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION).mean
        colour = int(mean[0] * 255), int(mean[1] * 255), int(mean[2] * 255)
        return replace(whole, filter=filter, fit="pad", colour=colour)
    return replace(whole, filter=filter, fit=fit, shortest=shortest)


def from_gguf(keys: Keys, tensors: Tensors) -> PatchDesign:
    """`mlp` in llama.cpp's mmproj files, such as those of LLaVA 1.5 and Moondream 2. Their layers end where
    the features are taken, which may be before the last one that headers count.
    """
    shape, side = stored_layers(tower_from_gguf(keys), tensors), keys.integer("image_size", 1, MOST_SIDE)
    patch = keys.integer("patch_size", 1, 1 << 10)
    names = PatchNames(
        gguf_names(tensors, shape), *PATCHES, ProjectorNames("mm.0", "mm.2"),
        after="v.post_ln" if "v.post_ln.weight" in tensors else "",
        before="v.pre_ln" if "v.pre_ln.weight" in tensors else "",
        class_row="v.class_embd" if "v.class_embd" in tensors else "",
    )  # fmt: skip
    features = feature_layers(keys, "feature_layer", shape.layers, -1)
    width = rows_of(tensors, "mm.2.weight")
    pixels = normalisation(keys, CLIP_MEAN, CLIP_DEVIATION)
    colour = int(pixels.mean[0] * 255), int(pixels.mean[1] * 255), int(pixels.mean[2] * 255)
    return PatchDesign(
        SPEC, shape, names, patch, fitting_patches(side, patch) ** 2, pixels,
        OneCrop(side, patch, patch, BICUBIC, "pad", colour),
        ProjectorShape(shape.width * len(features), width, rows_of(tensors, "mm.0.weight")), features,
    )  # fmt: skip


def stored_layers(shape: TowerShape, tensors: Tensors, norm: str = "v.blk.{}.ln1.weight") -> TowerShape:
    """The shape with one layer less, as in Moondream's files, where the last one, with this `norm`, is in no
    file.
    """
    last = norm.format(shape.layers - 1)
    return shape if last in tensors or shape.layers == 1 else replace(shape, layers=shape.layers - 1)


VIP_LLAVA = Family("vip_llava", ("VipLlavaForConditionalGeneration",), (), from_hf_vip, None, (CLIP,))
LLAVA = Family("llava", ("LlavaForConditionalGeneration",), (), from_hf, None, (CLIP, SIGLIP_TOWER))
