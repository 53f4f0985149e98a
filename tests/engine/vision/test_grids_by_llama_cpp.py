"""Encoders that leave pictures their shape against llama.cpp, from the same mmproj files; `test_by_llama_cpp`
says how near they are. It hands no deep rows to a text model without deep layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import (
    Glm4vConfig,
    Glm4vForConditionalGeneration,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
)

from engine.vision import Span
from tests.engine.vision.families.any_size import (
    test_gemma4,
    test_glm4v,
    test_kimi,
    test_pixtral,
    test_qwen_vl,
)
from tests.engine.vision.test_by_llama_cpp import by_llama_cpp
from tests.engine.vision.tiny import kimi_folders
from tests.engine.vision.tiny.encoding import Encoded, picture, randomise
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.tiny import TINY, write_gguf

pytestmark = pytest.mark.slow
Written = Callable[[Path], Path]


def qwen(name: str) -> Written:
    def written(folder: Path) -> Path:
        case = test_qwen_vl.CASES[name]
        if name == "qwen3_vl":
            keys = {key: value for key, value in case.keys.items() if key != "is_deepstack_layers"}
            case = replace(case, vision={**case.vision, "deepstack_visual_indexes": []}, keys=keys)
        made = case, test_qwen_vl.model_of(case), test_qwen_vl.processor_of(case), folder
        return test_qwen_vl.write_gguf(made, folder)

    return written


def pixtral(folder: Path) -> Path:
    config = LlavaConfig(
        vision_config=test_pixtral.VISION, text_config=test_pixtral.TEXT, image_token_index=3,
        vision_feature_layer=-1, vision_feature_select_strategy="full",
    )  # fmt: skip
    return test_pixtral.write_gguf(
        (randomise(LlavaForConditionalGeneration(config)), None, 1, folder), folder
    )


def mistral3(folder: Path) -> Path:
    vision = {**test_pixtral.VISION, "hidden_act": "gelu"}
    config = Mistral3Config(vision_config=vision, text_config=test_pixtral.TEXT, image_token_index=3)
    made = randomise(Mistral3ForConditionalGeneration(config)), None, 2, folder
    return test_pixtral.write_gguf(made, folder)


def gemma4(case: str) -> Written:
    def written(folder: Path) -> Path:
        return test_gemma4.write_gguf((case, test_gemma4.model_of(case), None, folder), folder)

    return written


def glm4v(folder: Path) -> Path:
    config = Glm4vConfig(vision_config=test_glm4v.VISION, text_config=test_glm4v.TEXT)
    tensors = test_glm4v.converted(randomise(Glm4vForConditionalGeneration(config)))
    return write_mmproj(folder, "llama", test_glm4v.WIDTH, test_glm4v.KEYS, tensors)


def glm_ocr(folder: Path) -> Path:
    tensors = test_glm4v.converted(test_glm4v.ocr())
    return write_mmproj(folder, "llama", test_glm4v.WIDTH, test_glm4v.KEYS, tensors)


def kimi_k2_5(folder: Path) -> Path:
    made = kimi_folders.publish(kimi_folders.model(width=TINY.width), folder, vl=False)
    return test_kimi.write_gguf(made, folder, k2_5=True, width=TINY.width)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (qwen("qwen2_vl"), (168, 140)), (qwen("qwen2_5_vl"), (336, 280)), (qwen("qwen3_vl"), (192, 160)),
        (qwen("qwen3_5"), (192, 160)), (pixtral, (84, 70)), (mistral3, (168, 140)),
        (gemma4("standard"), (960, 624)), (gemma4("limits"), (960, 624)), (glm4v, (168, 140)),
        (glm_ocr, (168, 140)), (kimi_k2_5, (112, 84)),
    ],
)  # fmt: skip
def test_rows(written: Written, size: tuple[int, int], tmp_path: Path) -> None:
    model, image = written(tmp_path), picture(*size)
    theirs = by_llama_cpp(write_gguf(tmp_path / "text.gguf"), tmp_path / "mmproj-model-f32.gguf", image)
    encoded = Encoded(model)
    mine, layout = encoded.states(image), encoded.layout(*size)
    encoded.close()
    found = np.concatenate(theirs)
    lines = [piece for piece in layout if isinstance(piece, Span)]
    if len(lines) > 1:  # a row for [IMG_BREAK] stands after each line
        found = np.concatenate([found, found[:1]]).reshape(len(lines), -1, found.shape[1])[:, :-1]
        found = found.reshape(-1, mine.shape[1])
    assert mine.shape == found.shape
    cosines = (mine * found).sum(1) / np.linalg.norm(mine, axis=1) / np.linalg.norm(found, axis=1)
    assert cosines.min() > 0.9999
    assert np.abs(mine - found).max() < 0.005 * np.abs(found).max()
