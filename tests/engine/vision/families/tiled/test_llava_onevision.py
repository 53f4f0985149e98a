"""LLaVA-OneVision against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

from engine.vision.pictures.interpolation import linear, resized_grid
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save

PATCH = 7
TOWER = {
    "model_type": "siglip_vision_model", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 4, "patch_size": PATCH,
}  # fmt: skip


@pytest.fixture(scope="module", params=[("anyres_max_2", 28), ("anyres_max_5", 28), ("anyres_max_9", 32)])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder; patches may leave pixels over, as in the
    published models, of which tiles have 384 and patches 14.
    """
    ratio, side = request.param
    grids = [[side * high, side * wide] for high in range(1, 4) for wide in range(1, 4)]
    config = LlavaOnevisionConfig(
        vision_config={**TOWER, "image_size": side}, text_config={"model_type": "qwen2", **TEXT},
        image_grid_pinpoints=grids, vision_aspect_ratio=ratio,
    )  # fmt: skip
    model = randomise(LlavaOnevisionForConditionalGeneration(config))
    processor = LlavaOnevisionImageProcessorPil(
        size={"height": side, "width": side}, image_grid_pinpoints=grids, image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )  # fmt: skip
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("onevision")))
    yield model, processor, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), [*SIZES, (28, 28), (84, 28), (60, 55), (84, 56)])
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(
            pixel_values=inputs["pixel_values"], image_sizes=inputs["image_sizes"],
            vision_feature_layer=-1, vision_feature_select_strategy="full",
            vision_aspect_ratio=model.config.vision_aspect_ratio,
        ).pooler_output[0]  # fmt: skip
    assert_close(encoded.states(picture(width, height)), found.numpy())
    words = SimpleNamespace(
        image_processor=processor, num_image_tokens=(processor.size.height // PATCH) ** 2,
        image_token="<image>",
        vision_feature_select_strategy="full", vision_aspect_ratio=model.config.vision_aspect_ratio,
    )  # fmt: skip
    for name in ("_get_number_of_features", "_get_unpadded_features"):
        setattr(words, name, getattr(LlavaOnevisionProcessor, name).__get__(words))
    assert encoded.text(width, height) == LlavaOnevisionProcessor.replace_image_token(words, inputs, 0)


@pytest.mark.parametrize("sizes", [(9, 7, 4, 3), (8, 8, 7, 8), (5, 12, 1, 1), (81, 5, 54, 4)])
def test_shrunk_grids_are_those_of_torch(sizes: tuple[int, int, int, int]) -> None:
    rows, columns, less_rows, less_columns = sizes
    states = np.random.default_rng(1).standard_normal((rows, columns, 3)).astype(np.float32)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(states).permute(2, 0, 1)[None], [less_rows, less_columns], mode="bilinear"
    )[0].permute(1, 2, 0)
    np.testing.assert_allclose(
        resized_grid(states, less_rows, less_columns, linear), expected.numpy(), atol=2e-6
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"vision_aspect_ratio": "anyres"}, {"vision_aspect_ratio": "anyres_max_0"},
        {"image_grid_pinpoints": [[30, 30]]}, {"image_grid_pinpoints": []},
        {"vision_feature_select_strategy": "default"},
    ],
)  # fmt: skip
def test_headers_that_cannot_be_run(pair: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_refused(pair[2].path, tmp_path, changes, part="")
