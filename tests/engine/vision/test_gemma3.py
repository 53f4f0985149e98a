"""Gemma 3's vision encoder against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import Gemma3Config, Gemma3ForConditionalGeneration
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from tests.engine.vision.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save

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
