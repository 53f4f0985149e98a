"""Qwen2-VL (arXiv 2409.12191), Qwen2.5-VL (arXiv 2502.13923), Qwen3-VL (arXiv 2511.21631) and Qwen 3.5 (its
model card); Qwen2.5-Omni (arXiv 2503.20215) has the tower of Qwen2.5-VL, Qwen3-Omni (arXiv 2509.17765) and
Cosmos 3 Omni, and North Vision (its model card), that of Qwen3-VL, HyperCLOVA X SEED Think 32B (its model
card) the first with one more matrix behind it, and EXAONE 4.5 (its model card) the first with fewer keys and
values than queries.

Pictures keep their shape; the patches of one token, 2 * 2 of them, follow one another. A patch covers two
frames of a video, and of a picture twice the same. Most layers of Qwen2.5-VL's tower have windows. Qwen3-VL's
adds positions that are stretched to the picture, and hands states of earlier layers to the language model's
first layers (DeepStack, arXiv 2406.04334).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from engine.models.headers.keys import Keys
from engine.vision.base import VisionSpec
from engine.vision.design import Design, Family, Tensors
from engine.vision.encoders.grid_encoder import GridDesign
from engine.vision.families.any_size.qwen_tower import QwenNames, QwenShape, qwen_parts
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
    square,
    square_number,
    tower_from_gguf,
)
from engine.vision.layers.grid import Axial, frequencies
from engine.vision.layers.projector import ProjectorNames
from engine.vision.layers.tower import GGUF, TowerNames, TowerShape
from engine.vision.pictures.images import BICUBIC, Normalisation
from engine.vision.pictures.sizes import MOST_TOKENS, dynamic_size

SPEC = VisionSpec("qwen_vl", "<|image_pad|>", "<|image_pad|>", around=("<|vision_start|>", "<|vision_end|>"))
OMNI = replace(
    SPEC, family="qwen2_5_omni", placeholder="<|IMAGE|>", token="<|IMAGE|>",
    around=("<|vision_bos|>", "<|vision_eos|>"),
)  # fmt: skip
EXAONE = replace(SPEC, family="exaone4_5", around=("<vision>", "</vision>"))
NORTH = replace(
    SPEC, family="cohere_compass", placeholder="<|IMAGE_PAD|>", token="<|IMAGE_PAD|>",
    around=("<|VISION_START|>", "<|VISION_END|>"),
)  # fmt: skip
CLOVA = replace(
    SPEC, family="hyperclovax_vision", placeholder="<|IMAGE_PAD|>", token="<|IMAGE_PAD|>",
    around=("<|image_start|>", "<|image_end|>"),
)  # fmt: skip
_LEAST, _MOST = 56 * 56, 28 * 28 * 1280
"""Pixels, where the image processor's settings do not say."""
_BASE = 10000.0
_EPS = 1e-6
_PREFIXES = (
    "model.visual.", "visual.", "thinker.visual.", "thinker.model.visual.", "model.vision_model.", "",
)  # fmt: skip
"""The last two are HyperCLOVA's and Cosmos 3's."""


def _design(
    shape: QwenShape, names: QwenNames, pixels: Normalisation, limits: tuple[int, int], filter: int,
    spec: VisionSpec = SPEC, tokens: int = MOST_TOKENS,
) -> GridDesign:  # fmt: skip
    side, dim = shape.patch * shape.factor, rotated_dim(shape.tower)
    most = min(limits[1], tokens * side**2)
    pairs = frequencies(dim // 4, dim // 2, _BASE)
    return GridDesign(
        replace(spec, deep=len(shape.deep)), shape.tower, shape.patch, shape.factor, shape.outputs, pixels,
        partial(dynamic_size, factor=side, least=min(limits[0], most), most=most), filter,
        max(1, most // side**2) * shape.factor**2, Axial(pairs, pairs), partial(qwen_parts, shape, names),
        frames=max(1, shape.frames), window=shape.window, whole=shape.whole, deep=shape.deep,
        of_tokens=partial(_design, shape, names, pixels, limits, filter, spec),
    )  # fmt: skip


# -- folders


def _names(
    prefix: str, up: str, down: str, gate: str, after: str, merger: ProjectorNames,
    deep: str = "deepstack_merger_list.{}.",
) -> QwenNames:  # fmt: skip
    tower = TowerNames(
        prefix + "blocks.{}.", "norm1", "", "", "", "attn.proj", "norm2", up, down, gate,
        query_key_value="attn.qkv",
    )  # fmt: skip
    first, second = merger.first, merger.second
    last, deep = prefix + "merger.", prefix + deep
    return QwenNames(
        tower, prefix + "patch_embed.proj", last + after, ProjectorNames(last + first, last + second),
        prefix + "pos_embed.weight", ProjectorNames(deep + first, deep + second, deep + after),
    )  # fmt: skip


_FIRST_MERGER = ProjectorNames("mlp.0", "mlp.2")
_DEEP = "qwen3_vl", "qwen3_omni", "cosmos3_omni", "cohere_compass"
"""The models with deep layers whose folders may not say which."""
_LATER_MERGER = ProjectorNames("linear_fc1", "linear_fc2")


def _layer_norms(vision: Keys, width: int, inner: int, default: str) -> TowerShape:
    """The shape of a tower with layer norms."""
    heads = vision.integer("num_heads", 1, MOST_HEADS, 16)
    return TowerShape(
        divisible(width, heads, "num_heads"), vision.integer("depth", 1, MOST_LAYERS, 32), heads, inner,
        _EPS, activation(vision, "hidden_act", default), rotated=True,
    )  # fmt: skip


def _from_hf_2(config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Qwen2VLForConditionalGeneration`."""
    vision, prefix = _vision(config), _prefix(tensors)
    width = vision.integer("embed_dim", 1, MOST_WIDTH, 1280)
    inner = width * vision.integer("mlp_ratio", 1, 64, 4)
    names = _names(prefix, "mlp.fc1", "mlp.fc2", "", "ln_q", _FIRST_MERGER)
    shape = _shape_from_hf(vision, _layer_norms(vision, width, inner, "quick_gelu"), "hidden_size")
    return _with_processor(shape, names, processor)


def _from_hf_2_5(
    spec: VisionSpec, config: Keys, processor: Keys, tensors: Tensors, groups: int = 0, *,
    followed: bool = False,
) -> Design:  # fmt: skip
    """`Qwen2_5_VLForConditionalGeneration`, and the thinker of Qwen2.5-Omni, whose queries, keys and values
    are apart. Of keys and values there are usually this many `groups`, or as many as of queries. If
    `followed`, one more matrix makes the rows of the language model.
    """
    vision, prefix = _vision(config), _prefix(tensors)
    width, inner = (
        vision.integer(name, 1, MOST_WIDTH, default)
        for name, default in (("hidden_size", 3584), ("intermediate_size", 3420))
    )
    tower = replace(_layer_norms(vision, width, inner, "silu"), gated=True, layer_norm=False)
    if groups:
        groups = vision.integer("num_key_value_heads", 1, tower.heads, min(groups, tower.heads))
        divisible(tower.heads, groups, "num_key_value_heads")
    tower = replace(tower, kv_heads=groups)
    names = _names(prefix, "mlp.up_proj", "mlp.down_proj", "mlp.gate_proj", "ln_q", _FIRST_MERGER)
    if prefix + "blocks.0.attn.q.weight" in tensors:
        apart = replace(names.tower, query="attn.q", key="attn.k", value="attn.v", query_key_value="")
        names = replace(names, tower=apart)
    shape = _shape_from_hf(vision, tower, "out_hidden_size")
    whole = _layers(vision, "fullatt_block_indexes", tower.layers, (7, 15, 23, 31))
    window = max(1, vision.integer("window_size", 1, MOST_SIDE, 112) // (shape.patch * shape.factor))
    shape = replace(shape, window=window, whole=frozenset(whole))
    if followed:
        outputs = (config.table("text_config") or config).integer("hidden_size", 1, MOST_WIDTH, 4096)
        shape = replace(shape, merged=shape.outputs, outputs=outputs)
    return _with_processor(shape, names, processor, spec)


def _from_hf_3(spec: VisionSpec, config: Keys, processor: Keys, tensors: Tensors) -> Design:
    """`Qwen3VLForConditionalGeneration`, `Qwen3_5ForConditionalGeneration`, their mixtures, and the thinker
    of Qwen3-Omni; Qwen 3.5 has no deep layers. Also Cosmos 3 Omni and North Vision.
    """
    vision, prefix = _vision(config).over({"patch_size": 16, "depth": 27}), _prefix(tensors)
    width, inner = (
        vision.integer(name, 1, MOST_WIDTH, default)
        for name, default in (("hidden_size", 1152), ("intermediate_size", 4304))
    )
    tower = _layer_norms(vision, width, inner, "gelu_pytorch_tanh")
    mlp = "mlp.linear_fc1", "mlp.linear_fc2", ""
    names = _names(prefix, *mlp, "norm", _LATER_MERGER)
    if prefix + "merger.ln_q.weight" in tensors:
        names = _names(prefix, *mlp, "ln_q", _FIRST_MERGER, "merger_list.{}.")
    shape = _shape_from_hf(vision, tower, "out_hidden_size")
    default = (8, 16, 24) if config.text("model_type", "").startswith(_DEEP) else ()
    deep = _layers(vision, "deepstack_visual_indexes", tower.layers, default)
    table = square_number(vision.integer("num_position_embeddings", 1, MOST_SIDE**2, 2304))
    shape = replace(shape, table=table, deep=deep, numbers=tuple(range(len(deep))))
    return _with_processor(shape, names, processor, spec)


def _vision(config: Keys) -> Keys:
    return inner(config, "vision_config")


def _prefix(tensors: Tensors) -> str:
    return prefix_of(tensors, "patch_embed.proj.weight", _PREFIXES)


def _shape_from_hf(vision: Keys, tower: TowerShape, outputs: str) -> QwenShape:
    return QwenShape(
        tower, square(vision, "patch_size", 14), vision.integer("spatial_merge_size", 1, 64, 2),
        vision.integer(outputs, 1, MOST_WIDTH, 3584), vision.integer("temporal_patch_size", 1, 64, 2),
    )  # fmt: skip


def _with_processor(
    shape: QwenShape, names: QwenNames, processor: Keys, spec: VisionSpec = SPEC
) -> GridDesign:
    pixels = normalisation(processor, CLIP_MEAN, CLIP_DEVIATION)
    limits = pixel_limits(processor, _LEAST, _MOST)
    return _design(shape, names, pixels, limits, resampling(processor), spec)


def _layers(keys: Keys, name: str, count: int, default: tuple[int, ...]) -> tuple[int, ...]:
    """The indices of layers in a list, of `count`."""
    found = keys.integers(name, 0, count - 1) if keys.has(name) else default
    return tuple(sorted(set(found)))


# -- mmproj files


def _from_gguf(
    change: Callable[[QwenShape, Keys], QwenShape], keys: Keys, tensors: Tensors, spec: VisionSpec = SPEC
) -> Design:
    """The projector types of llama.cpp; `change` adds what one alone has."""
    width = keys.integer("embedding_length", 1, MOST_WIDTH)
    up = tensors.get("v.blk.0.ffn_up.weight")
    swapped = up is not None and up.shape[-1:] != (width,)  # the names of the first converter
    inner = up.shape[1 if swapped else 0] if up is not None and len(up.shape) == 2 else 1
    tower = replace(tower_from_gguf(keys.replaced("feed_forward_length", inner)), rotated=True)
    ends = ("ffn_down", "ffn_up") if swapped else ("ffn_up", "ffn_down")
    fused = "attn_qkv" if "v.blk.0.attn_qkv.weight" in tensors else ""
    layer = replace(GGUF, up=ends[0], down=ends[1], query_key_value=fused)
    names = QwenNames(
        layer, "v.patch_embd", "v.post_ln", ProjectorNames("mm.0", "mm.2"), "v.position_embd.weight",
        ProjectorNames("v.deepstack.{}.fc1", "v.deepstack.{}.fc2", "v.deepstack.{}.norm"),
    )  # fmt: skip
    shape = QwenShape(
        tower, keys.integer("patch_size", 1, 1 << 10), keys.integer("spatial_merge_size", 1, 64, 2),
        keys.integer("projection_dim", 1, MOST_WIDTH), _stored_frames(tensors),
    )  # fmt: skip
    shape = change(shape, keys)
    area = (shape.patch * shape.factor) ** 2
    limits = (
        keys.integer("image_min_pixels", 1, MOST_SIDE**2, 8 * area),
        keys.integer("image_max_pixels", 1, MOST_SIDE**2, MOST_TOKENS * area),
    )
    pixels = normalisation(keys, CLIP_MEAN, CLIP_DEVIATION)
    return _design(shape, names, pixels, limits, BICUBIC, spec)


def _stored_frames(tensors: Tensors) -> int:
    """The frames in the patches' kernels; 0 if there is a matrix for each of two."""
    kernels = tensors.get("v.patch_embd.weight")
    return kernels.shape[2] if kernels is not None and len(kernels.shape) == 5 else 0


def _unchanged(shape: QwenShape, keys: Keys) -> QwenShape:
    return shape


def _with_windows(shape: QwenShape, keys: Keys) -> QwenShape:
    """The shape of Qwen2.5-VL's tower, of whose layers one in this many sees the whole picture."""
    tower = replace(shape.tower, gated=True, layer_norm=False)
    each = keys.integer("n_wa_pattern", 1, MOST_LAYERS)
    window = max(1, keys.integer("window_size", 1, MOST_SIDE, 112) // (shape.patch * shape.factor))
    whole = frozenset(range(each - 1, tower.layers, each))
    return replace(shape, tower=tower, window=window, whole=whole)


def _with_groups(shape: QwenShape, keys: Keys) -> QwenShape:
    """The shape of EXAONE 4.5's tower."""
    heads = shape.tower.heads
    groups = keys.integer("attention.head_count_kv", 1, heads)
    divisible(heads, groups, "attention.head_count_kv")
    shape = _with_windows(shape, keys)
    return replace(shape, tower=replace(shape.tower, kv_heads=groups))


def _with_positions(shape: QwenShape, keys: Keys) -> QwenShape:
    """The shape of Qwen3-VL's tower."""
    side = keys.integer("image_size", 1, MOST_SIDE) // shape.patch
    flags = keys.flags("is_deepstack_layers", shape.tower.layers)
    deep = tuple(number for number, flag in enumerate(flags) if flag)
    return replace(shape, table=side**2, deep=deep, numbers=deep)


QWEN2_VL = Family(
    "qwen2_vl", ("Qwen2VLForConditionalGeneration",), ("qwen2vl_merger",), _from_hf_2,
    partial(_from_gguf, _unchanged),
)  # fmt: skip
QWEN2_5_VL = Family(
    "qwen2_5_vl", ("Qwen2_5_VLForConditionalGeneration",), ("qwen2.5vl_merger",),
    partial(_from_hf_2_5, SPEC), partial(_from_gguf, _with_windows),
)  # fmt: skip
QWEN2_5_OMNI = Family(
    "qwen2_5_omni",
    (
        "Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration",
        "Qwen2_5OmniThinkerForConditionalGeneration",
    ),
    ("qwen2.5o",), partial(_from_hf_2_5, OMNI), partial(_from_gguf, _with_windows, spec=OMNI),
)  # fmt: skip
EXAONE4_5 = Family(
    "exaone4_5", ("Exaone4_5_ForConditionalGeneration",), ("exaone4_5",),
    partial(_from_hf_2_5, EXAONE, groups=8), partial(_from_gguf, _with_groups, spec=EXAONE),
)  # fmt: skip
HYPER_CLOVA = Family(
    "hyperclovax_vision", ("HyperCLOVAXVisionV2ForConditionalGeneration", "HCXVisionV2ForCausalLM"), (),
    partial(_from_hf_2_5, CLOVA, followed=True), None,
)  # fmt: skip
QWEN3_VL = Family(
    "qwen3_vl",
    (
        "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerForConditionalGeneration",
        "Cosmos3OmniForConditionalGeneration",
    ),
    ("qwen3vl_merger",), partial(_from_hf_3, SPEC), partial(_from_gguf, _with_positions),
)  # fmt: skip
COHERE_COMPASS = Family(
    "cohere_compass", ("CohereCompassForConditionalGeneration",), (), partial(_from_hf_3, NORTH), None
)
