"""What config.json and the image processor's settings leave out is as in the classes of transformers."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import transformers

from engine.models.headers.keys import Keys
from engine.vision.design import Design
from engine.vision.families import FAMILIES
from engine.vision.families.tiled.internvl import CHAT, from_hf

WHOLE = {"vision_config": {"image_size": 256}}
"""Of a size that can be divided into tokens, which the default cannot."""
TILES = {"size": {"longest_edge": 4 * 256}, "max_image_size": {"longest_edge": 256}}
"""Tiles as large as the tower's pictures; the processor's class is made for those of one model."""
GEMMA3 = {
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
        "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896, "patch_size": 14,
    },
}  # fmt: skip
"""As in all of its folders."""
DEEPSEEK = {"vision_config": {"model_type": "siglip_vision_model"}, "text_config": {"model_type": "llama"}}
GEMMA4 = {"vision_config": {"model_type": "gemma4_vision"}}
LFM2 = {
    "tile_size": 512, "min_tiles": 2, "max_tiles": 10, "min_image_tokens": 64, "max_image_tokens": 256,
    "max_pixels_tolerance": 2.0, "use_thumbnail": True, "do_image_splitting": True, "resample": 2,
    "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
}  # fmt: skip
"""Of its image processor, whose class cannot be imported without torchvision."""
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
"""As in all of InternVL's folders; the class of their processor was made for another model."""
MISTRAL = {"text_config": {"model_type": "mistral", "hidden_size": 5120, "rms_norm_eps": 1e-5}}
"""Folders without it are those of Mistral AI itself."""
MINISTRAL, MISTRAL_TEXT, QWEN_TEXT = (
    {"vision_config": {"model_type": "pixtral"}, "text_config": {"model_type": kind}}
    for kind in ("ministral3", "mistral", "qwen3")
)
"""Of both parts the kind alone."""
AYA = {
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
        "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 364, "patch_size": 14,
    },
}  # fmt: skip
"""As in its folders; with the default of 14 heads, no model can be made."""
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
}  # fmt: skip
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
"""As in all folders of Janus and PaddleOCR-VL, though the classes of their image processors have CLIP's."""
COMMAND = {**CLIP, "min_patches": 1, "max_patches": 12, "crop_to_patches": True, "resample": 3}
LLAMA4 = {**HALF, "max_patches": 16, "resize_to_max_canvas": False, "resample": 2}
"""Of image processors whose classes cannot be imported without torchvision."""
HUNYUAN = {"text_config": {"rope_parameters": {"rope_type": "default", "mrope_section": [16, 16, 16, 16]}}}
"""Of which there is no default."""
ONE = {"vision_config": {"model_type": "siglip_vision_model", "image_size": 384}}
CLASSES: tuple[tuple[str, str, str, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("Idefics3", "idefics3", "Idefics3ImageProcessorPil", WHOLE, TILES),
    ("SmolVLM", "smolvlm", "SmolVLMImageProcessorPil", WHOLE, TILES),
    ("Qwen2VL", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("Qwen2_5_VL", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("Qwen3VL", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("Qwen3_5", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("Glm4v", "glm4v", "Glm4vImageProcessorPil", {}, {}),
    ("GlmOcr", "glm4v", "Glm4vImageProcessorPil", {}, {}),
    ("HunYuanVL", "hunyuan_vl", "HunYuanVLImageProcessorPil", HUNYUAN, {}),
    ("Ovis2", "ovis2", "Ovis2ImageProcessorPil", {}, {}),
    ("DeepseekVL", "deepseek_vl", "DeepseekVLImageProcessorPil", DEEPSEEK, {}),
    ("QianfanOCR", "got_ocr2", "GotOcr2ImageProcessorPil", {}, IMAGENET),
    ("Gemma3", "gemma3", "Gemma3ImageProcessorPil", GEMMA3, {"size": {"height": 896, "width": 896}}),
    ("Gemma4", "gemma4", "Gemma4ImageProcessorPil", GEMMA4, {}),
    ("InternVL", "got_ocr2", "GotOcr2ImageProcessorPil", {}, IMAGENET),
    ("Lfm2Vl", "", "", {}, LFM2),
    ("Mistral3", "pixtral", "PixtralImageProcessorPil", MISTRAL, {}),
    ("Llava", "clip", "CLIPImageProcessorPil", {}, {"size": {"shortest_edge": 336}}),
    ("LlavaNext", "llava_next", "LlavaNextImageProcessorPil", {}, {}),
    ("LlavaOnevision", "llava_onevision", "LlavaOnevisionImageProcessorPil", ONE, {}),
    ("AyaVision", "got_ocr2", "GotOcr2ImageProcessorPil", AYA, {}),
    ("Cohere2Vision", "", "", {}, COMMAND),
    ("Janus", "janus", "JanusImageProcessorPil", {}, HALF),
    ("Llama4", "", "", {}, LLAMA4),
    ("PaddleOCRVL", "paddleocr_vl", "PaddleOCRVLImageProcessorPil", {}, HALF),
    ("Kimi_K25", "", "", {}, {**HALF, "max_patches": 16384, "size": {"max_height": 512, "max_width": 512}}),
    ("Qwen2_5OmniThinker", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("Mistral3", "pixtral", "PixtralImageProcessorPil", MISTRAL_TEXT, {}),
    ("Mistral3", "pixtral", "PixtralImageProcessorPil", MINISTRAL, {}),
    ("LightOnOcr", "pixtral", "PixtralImageProcessorPil", QWEN_TEXT, {}),
    ("Lfm3Vl", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("GraniteDocling", "granite_docling", "GraniteDoclingImageProcessorPil", {}, {}),
)


def design(name: str, config: Mapping[str, Any], processor: Mapping[str, Any]) -> Design:
    """What the family of a class makes of these settings."""
    model_class = name + "ForConditionalGeneration"
    family = next(each for each in FAMILIES if model_class in each.hf)
    assert family.from_hf is not None
    return family.from_hf(Keys(config, "config.json"), Keys(processor, "preprocessor_config.json"), {})


@pytest.mark.parametrize(("name", "module", "processor", "given", "changes"), CLASSES)
def test_absent_settings(
    name: str, module: str, processor: str, given: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    """Files that state all defaults, and files that state none but what is `given`, describe one encoder.

    `changes` are those to the defaults of the image processor.
    """
    config = getattr(transformers, name + "Config")(**given).to_dict()
    assert len(config["vision_config"]) > 8
    assert len(config["text_config"]) > 8
    stated: dict[str, Any] = {}
    if module:
        where = importlib.import_module(f"transformers.models.{module}.image_processing_pil_{module}")
        stated = json.loads(getattr(where, processor)().to_json_string())
    full = design(name, json.loads(json.dumps(config, default=str)), stated | changes)
    bare = design(name, {"model_type": config["model_type"], **given}, {})
    assert repr(bare) == repr(full)


def test_absent_settings_of_internvl_by_its_authors() -> None:
    """As the code that comes with their folders has them."""
    config = {"architectures": [CHAT], "vision_config": {"image_size": 448}}
    stated = {
        "max_dynamic_patch": 12, "min_dynamic_patch": 1, "dynamic_image_size": True, "use_thumbnail": True,
        "select_layer": -1, "downsample_ratio": 0.5, "ps_version": "v2",
    }  # fmt: skip
    bare, full = (from_hf(Keys(keys, "config.json"), Keys({}, ""), {}) for keys in (config, config | stated))
    assert repr(bare) == repr(full)


MMPROJ = {
    "clip.vision.embedding_length": 48, "clip.vision.block_count": 3, "clip.vision.feed_forward_length": 72,
    "clip.vision.attention.head_count": 4, "clip.vision.attention.layer_norm_epsilon": 1e-6,
    "clip.vision.patch_size": 14, "clip.vision.image_size": 56, "clip.vision.projection_dim": 40,
    "clip.vision.n_wa_pattern": 2, "clip.vision.projector.scale_factor": 2,
}  # fmt: skip
"""What all mmproj files have, and what some families need."""
TOKEN = 28 * 28


@pytest.mark.parametrize(
    ("kind", "stated"),
    [
        ("qwen2vl_merger", {"image_min_pixels": 8 * TOKEN, "image_max_pixels": 1280 * TOKEN}),
        ("qwen2vl_merger", {"spatial_merge_size": 2}),
        ("qwen2.5vl_merger", {"window_size": 112}),
        ("glm4v", {"image_min_pixels": 8 * TOKEN, "image_max_pixels": 1280 * TOKEN}),
        ("glm4v", {"spatial_merge_size": 2}),
        ("gemma3", {"projector.scale_factor": 4}), ("internvl", {"projector.scale_factor": 2}),
        ("gemma4v", {"projector.scale_factor": 3}), ("lfm2", {"projector.scale_factor": 2}),
        ("idefics3", {"preproc_image_size": 4 * 56}),
        ("llama4", {"projector.scale_factor": 2}), ("paddleocr", {"spatial_merge_size": 2}),
        ("paddleocr", {"image_min_pixels": 384**2, "image_max_pixels": 1536**2}),
        ("kimivl", {"projector.scale_factor": 2, "image_max_pixels": 4096 * 14**2}),
        ("kimik25", {"projector.scale_factor": 2, "image_max_pixels": 4096 * 14**2}),
        ("qwen2.5o", {"window_size": 112}), ("janus_pro", HALF), ("llama4", HALF), ("paddleocr", HALF),
        ("internvl", {"preproc_min_tiles": 1, "preproc_max_tiles": 12}),
        ("pixtral", {"image_mean": [0.48145466, 0.4578275, 0.40821073]}),
        ("idefics3", {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}),
        ("internvl", {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}),
    ],
)  # fmt: skip
def test_absent_keys_of_mmproj_files(kind: str, stated: Mapping[str, Any]) -> None:
    """Those of llama.cpp, except that pictures have no more than 1280 tokens."""
    family = next(each for each in FAMILIES if kind in each.gguf)
    assert family.from_gguf is not None
    sizes = {"clip.vision.patch_size": 16, "clip.vision.image_size": 64} if kind == "lfm2" else {}
    named = {f"clip.vision.{name}": value for name, value in stated.items()}
    absent = {name: value for name, value in (MMPROJ | sizes).items() if name not in named}
    tensors: Any = {"v.position_embd.weight": SimpleNamespace(shape=(2, 4096, 48))}
    bare, full = (
        family.from_gguf(Keys(keys, "mmproj.gguf", "clip.vision."), tensors if kind == "gemma4v" else {})
        for keys in (absent, absent | named)
    )
    assert repr(bare) == repr(full)
