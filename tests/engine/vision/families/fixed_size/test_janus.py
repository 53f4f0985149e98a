"""Janus's vision encoder against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    DeepseekVLConfig,
    DeepseekVLForConditionalGeneration,
    JanusConfig,
    JanusForConditionalGeneration,
)
from transformers.models.deepseek_vl.image_processing_pil_deepseek_vl import DeepseekVLImageProcessorPil
from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil

from tests.engine.vision.tiny.converted import encoder_tensors, write_tower
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save

SIDE, PATCH = 42, 7
VISION = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": SIDE,
    "patch_size": PATCH, "mlp_ratio": 1.7, "projection_dim": 40,
}  # fmt: skip
DRAWING = {
    "embed_dim": 4, "num_embeddings": 16, "latent_channels": 8, "base_channels": 32,
    "channel_multiplier": [1, 1], "num_res_blocks": 1, "projection_dim": 40, "image_token_embed_dim": 40,
}  # fmt: skip
_OTHERS = {"model.aligner.fc1": "mm.0", "model.aligner.hidden_layers.0": "mm.1"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder."""
    config = JanusConfig(
        vision_config=VISION, text_config={"model_type": "llama", **TEXT}, vq_config=DRAWING,
        image_token_id=3,
    )  # fmt: skip
    model = randomise(JanusForConditionalGeneration(config))
    processor = JanusImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, min_size=5, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("janus")))
    yield model, processor, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), [*SIZES, (84, 35), (28, 64)])
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        expected = model.model.get_image_features(inputs["pixel_values"]).pooler_output[0]
    assert_close(encoded.states(picture(width, height)), expected.numpy())
    tokens = "<image_placeholder>" * (SIDE // PATCH) ** 2
    assert encoded.text(width, height) == f"<begin_of_image>{tokens}<end_of_image>"


@pytest.mark.parametrize("deeper", [False, True])
def test_deepseek_vl(tmp_path: Path, deeper: bool) -> None:
    """Its pictures have no marks; earlier folders have the tower one name deeper."""
    tower = {
        "model_type": "siglip_vision_model", "hidden_size": 48, "intermediate_size": 80,
        "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": SIDE, "patch_size": PATCH,
    }  # fmt: skip
    config = DeepseekVLConfig(vision_config=tower, text_config={"model_type": "llama", **TEXT})
    model = randomise(DeepseekVLForConditionalGeneration(config))
    processor = DeepseekVLImageProcessorPil(size={"height": SIDE, "width": SIDE}, min_size=5)
    file = save(model, processor, tmp_path) / "model.safetensors"
    if deeper:
        tensors = load_file(file)
        save_file(
            {
                name.replace("vision_model.", "vision_model.vision_model."): value
                for name, value in tensors.items()
            },
            file,
        )
    encoded = Encoded(tmp_path)
    for width, height in SIZES[:4]:
        inputs = processor([picture(width, height)], return_tensors="pt")
        with torch.no_grad():
            expected = model.model.get_image_features(inputs["pixel_values"]).pooler_output[0]
        assert_close(encoded.states(picture(width, height)), expected.numpy())
    assert encoded.text(9, 9) == "<image_placeholder>" * (SIDE // PATCH) ** 2
    encoded.close()


def test_an_mmproj_file_says_the_same(pair: Any, tmp_path: Path) -> None:
    model, _processor, encoded = pair
    tensors = encoder_tensors(encoded.path, _OTHERS, skipped=("generation_", "vqmodel."))
    path = write_tower(
        tmp_path, "janus_pro", model.config.vision_config, TEXT["hidden_size"], tensors,
        feed_forward_length=int(48 * 1.7), image_mean=[0.5] * 3, image_std=[0.5] * 3, clip__use_gelu=True,
    )  # fmt: skip
    same = Encoded(path)
    for width, height in SIZES[:2] + ((97, 531),):
        if min(width, height) * SIDE >= 14 * max(
            width, height
        ):  # what shorter sides become is not in the file
            assert_close(same.states(picture(width, height)), encoded.states(picture(width, height)))
        assert same.text(width, height) == encoded.text(width, height)
    same.close()


@pytest.mark.parametrize(
    "changes", [{"depth": 3}, {"use_qk_norm": True}, {"image_size": 40}, {"mlp_ratio": 0}, {"patch_size": 0}]
)
def test_headers_that_cannot_be_run(pair: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_refused(pair[2].path, tmp_path, changes)
