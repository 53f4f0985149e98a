"""Gemma 3's vision encoder against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma3Config, Gemma3ForConditionalGeneration
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from tests.engine.vision.tiny.converted import FLATTENED, encoder_tensors, write_tower
from tests.engine.vision.tiny.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save

SIDE, PATCH, TOKENS = 84, 7, 9


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder."""
    tower = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": SIDE, "patch_size": PATCH, "model_type": "siglip_vision_model",
    }  # fmt: skip
    config = Gemma3Config(
        vision_config=tower, text_config={**TEXT, "head_dim": 20}, mm_tokens_per_image=TOKENS
    )
    model = randomise(Gemma3ForConditionalGeneration(config))
    processor = Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("gemma3")))
    yield model, processor, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        expected = model.model.get_image_features(inputs["pixel_values"]).pooler_output[0]
    assert_close(encoded.states(picture(width, height)), expected.numpy())


def test_tokens_attend_in_both_directions_between_marks(pair: Any) -> None:
    encoded = pair[2]
    assert encoded.spec.bidirectional
    marked = f"\n\n<start_of_image>{'<image_soft_token>' * TOKENS}<end_of_image>\n\n"
    assert encoded.text(50, 60) == marked  # as Gemma3Processor.full_image_sequence


def test_an_mmproj_file_says_the_same(pair: Any, tmp_path: Path) -> None:
    model, _processor, encoded = pair
    vision = model.config.vision_config
    names = {"mm_input_projection_weight": "mm_input_projection.weight", **FLATTENED}
    tensors = encoder_tensors(encoded.path, names)
    tensors["mm.soft_emb_norm.weight"] = tensors["mm.soft_emb_norm.weight"] + np.float32(1)
    path = write_tower(
        tmp_path, "gemma3", vision, TEXT["hidden_size"], tensors, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        clip__use_gelu=True,
    )  # fmt: skip
    same = Encoded(path)
    for width, height in SIZES[:4]:
        assert_close(same.states(picture(width, height)), encoded.states(picture(width, height)))
    assert same.text(10, 10) == encoded.text(10, 10)
    same.close()
