"""InternVL 2, 2.5 (arXiv 2412.05271), 3 (arXiv 2504.10479) and 3.5, Intern-S1 (arXiv 2508.15763) and
Qianfan-OCR (its model card): InternViT over square tiles and the whole picture as one more; squares of
patches are joined to one token.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.lazy_dataclass import dataclass
from engine.models.headers.keys import Keys
from engine.tensors import Bytes
from engine.vision.base import Piece, Span, VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.patch_encoder import PatchDesign, PatchNames
from engine.vision.headers import (
    IMAGENET_DEVIATION,
    IMAGENET_MEAN,
    MOST_SIDE,
    MOST_WIDTH,
    PATCHES,
    activation,
    feature_layers,
    gguf_names,
    inner,
    normalisation,
    prefix_of,
    resampling,
    rows_of,
    square,
    tower_from_gguf,
    tower_from_hf,
    whole_patches,
)
from engine.vision.layers.projector import ProjectorNames, ProjectorShape
from engine.vision.layers.tower import TowerNames, TowerShape
from engine.vision.pictures.images import BICUBIC, Normalisation, resized
from engine.vision.pictures.tiling import best_grid, tiles_of
from engine.words import _

SPEC = VisionSpec("internvl", "<IMG_CONTEXT>", "<IMG_CONTEXT>")
QIANFAN_SPEC = VisionSpec("qianfan_ocr", "<image>", "<IMG_CONTEXT>")
CHAT = "InternVLChatModel"
"""The class of its authors' folders."""
_NATIVE = TowerNames(
    "encoder.layer.{}.", "layernorm_before", "attention.q_proj", "attention.k_proj", "attention.v_proj",
    "attention.projection_layer", "layernorm_after", "mlp.fc1", "mlp.fc2", query_norm="attention.q_norm",
    key_norm="attention.k_norm", scales=("lambda_1", "lambda_2"),
)  # fmt: skip
_CHAT = TowerNames(
    "encoder.layers.{}.", "norm1", "", "", "", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2",
    query_key_value="attn.qkv", query_norm="attn.q_norm", key_norm="attn.k_norm", scales=("ls1", "ls2"),
)  # fmt: skip
_TOWER = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "image_size": 448, "patch_size": 14,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tiles:
    """From `least` to `most` tiles of `side` pixels square, in the grid that is closest to the picture's
    shape; if there are several and a `thumbnail`, the whole picture is the last.
    """

    side: int
    patch: int
    cell: int
    filter: int
    least: int = 1
    most: int = 12
    thumbnail: bool = True

    @property
    def most_patches(self) -> int:
        """Of one tile."""
        return (self.side // self.patch) ** 2

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `Cutter.layout`."""
        wide, high = best_grid(width, height, self.side, self.least, self.most)
        tiles, cells = wide * high, self.side // self.cell
        tiles += 1 if self.thumbnail and tiles > 1 else 0
        return ("<img>", *[Span(cells, cells)] * tiles, "</img>")

    def crops(self, picture: Bytes) -> tuple[Bytes, ...]:
        """As `Cutter.crops`."""
        height, width = picture.shape[:2]
        wide, high = best_grid(width, height, self.side, self.least, self.most)
        tiles = tiles_of(picture, wide, high, self.side, self.filter)
        if self.thumbnail and len(tiles) > 1:
            return (*tiles, resized(picture, self.side, self.side, self.filter))
        return tiles


def from_hf(config: Keys, processor: Keys, tensors: Tensors) -> PatchDesign:
    """`InternVLForConditionalGeneration`, its authors' `InternVLChatModel`, and Intern-S1."""
    chat = config.raw("architectures") == [CHAT]
    vision = inner(config, "vision_config").over(_TOWER)
    shape = tower_from_hf(vision, "gelu")
    if vision.text("norm_type", "layer_norm") == "rms_norm":
        shape = replace(shape, layer_norm=False)
    if vision.flag("qk_normalization" if chat else "use_qk_norm", False):
        shape = replace(shape, qk_norm="row", rms_qk_norm=True)
    names = _chat_names() if chat or "mlp1.1.weight" in tensors else _native_names(tensors)
    layer = "select_layer" if chat else "vision_feature_layer"
    features = feature_layers(config, layer, shape.layers, -1)
    text = inner(config, "llm_config" if chat else "text_config")
    width = text.integer("hidden_size", 1, MOST_WIDTH, 4096)
    side, patch = square(vision, "image_size"), square(vision, "patch_size")
    factor = round(1 / config.number("downsample_ratio", 1 / 64, 1.0, 0.5))
    tiles = Tiles(
        side, patch, patch * factor, resampling(processor), *_counts(config if chat else processor, chat)
    )
    if chat and config.text("ps_version", "v2") != "v2":
        raise UnsupportedModel(
            _(
                "The model joins patches in the order of its first version, which is not supported. Choose "
                "another model."
            )
        )
    pixels = normalisation(processor, IMAGENET_MEAN, IMAGENET_DEVIATION)
    return _design(
        shape, names, patch, factor, width, pixels, tiles, features,
        activation(config, "projector_hidden_act", "gelu"),
    )  # fmt: skip


def _counts(keys: Keys, chat: bool) -> tuple[int, int, bool]:
    """The least and the most tiles, and whether there is a thumbnail."""
    if not chat:  # whose processor cuts pictures even if its settings do not say so
        most = keys.integer("max_patches", 1, 1 << 10, 12)
        return keys.integer("min_patches", 1, most, 1), most, True
    most = keys.integer("max_dynamic_patch", 1, 1 << 10, 12) if keys.flag("dynamic_image_size", True) else 1
    return keys.integer("min_dynamic_patch", 1, most, 1), most, keys.flag("use_thumbnail", True)


def _native_names(tensors: Tensors) -> PatchNames:
    tower = prefix_of(
        tensors, "embeddings.patch_embeddings.projection.weight", ("model.vision_tower.", "vision_tower.")
    )
    whole = tower.removesuffix("vision_tower.") + "multi_modal_projector."
    return PatchNames(
        _NATIVE.under(tower), tower + "embeddings.patch_embeddings.projection",
        tower + "embeddings.position_embeddings",
        ProjectorNames(whole + "linear_1", whole + "linear_2", whole + "layer_norm"),
        tower + "layernorm" if tower + "layernorm.weight" in tensors else "",
        class_row=tower + "embeddings.cls_token",
    )  # fmt: skip


def _chat_names() -> PatchNames:
    at = "vision_model."
    return PatchNames(
        _CHAT.under(at), at + "embeddings.patch_embedding", at + "embeddings.position_embedding",
        ProjectorNames("mlp1.1", "mlp1.3", "mlp1.0"), class_row=at + "embeddings.class_embedding",
    )  # fmt: skip


def from_gguf(keys: Keys, tensors: Tensors) -> Design:
    """`internvl` in llama.cpp's mmproj files. Their GELU is the exact one, as in the model's own code."""
    shape = replace(tower_from_gguf(keys), activation="gelu")
    if "v.blk.0.ln1.bias" not in tensors:
        shape = replace(shape, layer_norm=False)
    if "v.blk.0.attn_q_norm.weight" in tensors:
        shape = replace(shape, qk_norm="row", rms_qk_norm=True)
    names = PatchNames(
        gguf_names(tensors, shape), *PATCHES,
        ProjectorNames("mm.model.mlp.1", "mm.model.mlp.3", "mm.model.mlp.0"), class_row="v.class_embd",
    )  # fmt: skip
    side, patch = keys.integer("image_size", 1, MOST_SIDE), keys.integer("patch_size", 1, 1 << 10)
    factor = keys.integer("projector.scale_factor", 1, 64, 2)
    most = keys.integer("preproc_max_tiles", 1, 1 << 10, 12)
    tiles = Tiles(side, patch, patch * factor, BICUBIC, keys.integer("preproc_min_tiles", 1, most, 1), most)
    pixels = normalisation(keys, IMAGENET_MEAN, IMAGENET_DEVIATION)
    width = rows_of(tensors, "mm.model.mlp.3.weight")
    return _design(shape, names, patch, factor, width, pixels, tiles, (shape.layers,))


def _design(
    shape: TowerShape, names: PatchNames, patch: int, factor: int, width: int, pixels: Normalisation,
    tiles: Tiles, features: tuple[int, ...], activation: str = "gelu",
) -> PatchDesign:  # fmt: skip
    table = whole_patches(tiles.side, patch, factor) ** 2
    projector = ProjectorShape(shape.width * factor**2, width, width, activation, norm="layer", factor=factor)
    return PatchDesign(SPEC, shape, names, patch, table, pixels, tiles, projector, features)


def from_hf_qianfan(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`QianfanOCRForConditionalGeneration`, whose templates have another placeholder."""
    return replace(from_hf(config, processor, tensors), spec=QIANFAN_SPEC)


INTERNVL = Family(
    "internvl", ("InternVLForConditionalGeneration", CHAT, "InternS1ForConditionalGeneration"),
    ("internvl",), from_hf, from_gguf,
)  # fmt: skip
QIANFAN_OCR = Family("qianfan_ocr", ("QianfanOCRForConditionalGeneration",), (), from_hf_qianfan, None)
