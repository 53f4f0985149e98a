"""Aya Vision and Command A Vision against transformers: their models, and the sizes of their image
processors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AyaVisionConfig,
    AyaVisionForConditionalGeneration,
    Cohere2VisionConfig,
    Cohere2VisionForConditionalGeneration,
)
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

from engine.errors import BadCheckpoint
from engine.models.headers.keys import Keys
from engine.vision.families.tiled.cohere import from_hf_aya, from_hf_command
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.families.tiled.command_tiles import crops
from tests.engine.vision.families.tiled.llama4_tiles import batched
from tests.engine.vision.tiny.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save

SIDE, PATCH, MOST = 28, 7, 6
TOWER = {
    "model_type": "siglip_vision_model", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 4, "image_size": SIDE, "patch_size": PATCH,
}  # fmt: skip
TOKENS = "<|IMG_PATCH|>" * (SIDE // PATCH // 2) ** 2


# -- Aya Vision


@pytest.fixture(scope="module", params=[-1, -2], ids=str)
def aya(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder."""
    config = AyaVisionConfig(
        vision_config=TOWER, text_config={"model_type": "cohere2", **TEXT}, vision_feature_layer=request.param
    )
    config.alignment_intermediate_size = 56
    model = randomise(AyaVisionForConditionalGeneration(config))
    processor = GotOcr2ImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, crop_to_patches=True, max_patches=MOST
    )
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("aya")))
    yield model, processor, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_aya_vision(aya: Any, width: int, height: int) -> None:
    model, processor, encoded = aya
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(inputs["pixel_values"]).pooler_output
    assert_close(encoded.states(picture(width, height)), found.flatten(0, 1).numpy())
    tiles = int(inputs["num_patches"][0])
    numbered = "".join(f"TILE_{number}{TOKENS}" for number in range(1, tiles))
    assert encoded.text(width, height) == f"<|START_OF_IMG|>{numbered}TILE_GLOBAL{TOKENS}<|END_OF_IMG|>"


# -- Command A Vision


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Encoded]]:
    """A model and the engine's encoder."""
    config = Cohere2VisionConfig(
        vision_config=TOWER, text_config={"model_type": "cohere2", **TEXT}, alignment_intermediate_size=56
    )
    model = randomise(Cohere2VisionForConditionalGeneration(config))
    folder = tmp_path_factory.mktemp("command")
    model.save_pretrained(folder)
    settings = {"max_patches": MOST, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), "utf-8")
    encoded = Encoded(folder)
    yield model, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), [*SIZES, (28, 28), (29, 28), (56, 84)])
def test_command_a_vision(command: Any, width: int, height: int) -> None:
    model, encoded = command
    found = crops(picture(width, height), SIDE, MOST)
    with torch.no_grad():
        expected = model.model.get_image_features(batched(found)).pooler_output
    assert_close(encoded.states(picture(width, height)), expected.flatten(0, 1).numpy())
    tiles = f"{TOKENS}<|IMG_LINE_BREAK|>" * len(found)
    assert encoded.text(width, height) == f"<|START_OF_IMG|>{tiles}<|END_OF_IMG|>"


@pytest.mark.parametrize(
    "changes",
    [{"alignment_intermediate_size": 55}, {"alignment_intermediate_size": 0}, {"downsample_factor": 3}],
)
def test_damaged_headers(command: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = command[1].path
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | changes), "utf-8")
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(BadCheckpoint):
        vision_spec(open_checkpoint(tmp_path))


@pytest.mark.parametrize("from_hf", [from_hf_aya, from_hf_command])
def test_what_is_gated_and_its_gate_have_the_same_width(from_hf: Any) -> None:
    tower = {"hidden_size": 48, "num_attention_heads": 4, "image_size": 28, "patch_size": 7}
    for width, refused in ((56, False), (57, True)):
        config = Keys({"vision_config": tower, "alignment_intermediate_size": width}, "config.json")
        if refused:
            with pytest.raises(BadCheckpoint, match="is 57, but an even number was expected"):
                from_hf(config, Keys({}, ""), {})
        else:
            from_hf(config, Keys({}, ""), {})
