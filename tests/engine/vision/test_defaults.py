"""What config.json and the image processor's settings leave out is as in the classes of transformers."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
import transformers

from engine.models.headers.keys import Keys
from engine.vision.design import Design
from engine.vision.families import FAMILIES

WHOLE = {"vision_config": {"image_size": 256}}
"""Of a size that can be divided into tokens, which the default cannot."""
TILES = {"size": {"longest_edge": 4 * 256}, "max_image_size": {"longest_edge": 256}}
"""Tiles as large as the tower's pictures; the processor's class is made for those of one model."""
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
"""As in all of InternVL's folders; the class of their processor was made for another model."""
CLASSES: tuple[tuple[str, str, str, Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("Idefics3", "idefics3", "Idefics3ImageProcessorPil", WHOLE, TILES),
    ("SmolVLM", "smolvlm", "SmolVLMImageProcessorPil", WHOLE, TILES),
    ("Qwen2VL", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("Qwen2_5_VL", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("Qwen3VL", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("Qwen3_5", "qwen2_vl", "Qwen2VLImageProcessorPil", {}, {}),
    ("Glm4v", "glm4v", "Glm4vImageProcessorPil", {}, {}),
    ("Gemma4", "gemma4", "Gemma4ImageProcessorPil", {}, {}),
    ("InternVL", "got_ocr2", "GotOcr2ImageProcessorPil", {}, IMAGENET),
    ("Lfm2Vl", "", "", {}, {}),
    ("Mistral3", "pixtral", "PixtralImageProcessorPil", {}, {}),
    ("Llava", "clip", "CLIPImageProcessorPil", {}, {"size": {"shortest_edge": 336}}),
    ("LlavaNext", "llava_next", "LlavaNextImageProcessorPil", {}, {}),
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
    stated: dict[str, Any] = {}
    if module:
        where = importlib.import_module(f"transformers.models.{module}.image_processing_pil_{module}")
        stated = json.loads(getattr(where, processor)().to_json_string())
    full = design(name, json.loads(json.dumps(config, default=str)), stated | changes)
    bare = design(name, {"model_type": config["model_type"], **given}, {})
    assert repr(bare) == repr(full)
