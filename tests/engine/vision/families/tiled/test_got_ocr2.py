"""GOT-OCR 2.0 against transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GotOcr2Config, GotOcr2ForConditionalGeneration
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

from engine.errors import EngineError
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.encoding import TEXT, Encoded, Floats, assert_close, picture, randomise, save

PATCH, SIZES = 4, ((300, 200), (10, 7), (1, 900), (2000, 10), (97, 531))
VISION = {
    "hidden_size": 32, "output_channels": 12, "num_hidden_layers": 3, "num_attention_heads": 2,
    "patch_size": PATCH, "window_size": 4, "mlp_dim": 56, "global_attn_indexes": [1],
}  # fmt: skip


def made(cells: int) -> Any:
    config = GotOcr2Config(
        vision_config={**VISION, "image_size": cells * PATCH}, text_config={"model_type": "qwen2", **TEXT},
        image_token_id=3,
    )  # fmt: skip
    return randomise(GotOcr2ForConditionalGeneration(config))


@pytest.fixture(scope="module", params=[(12, False), (10, True), (3, False)])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """Whole windows, windows beyond an edge and tiles, and a picture that is smaller than a window."""
    cells, tiled = request.param
    model, side = made(cells), cells * PATCH
    processor = GotOcr2ImageProcessorPil(
        size={"height": side, "width": side}, crop_to_patches=tiled, max_patches=5
    )
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("got")))
    yield model, processor, encoded
    encoded.close()


def rows(model: Any, processor: Any, width: int, height: int) -> Floats:
    pixels = processor([picture(width, height)], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        found: Floats = model.model.get_image_features(pixels).pooler_output.flatten(0, 1).numpy()
    return found


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    expected = rows(model, processor, width, height)
    assert_close(encoded.states(picture(width, height)), expected)
    assert encoded.text(width, height) == "<img>" + "<imgpad>" * len(expected) + "</img>"


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 5}, {"image_size": 42}, {"window_size": 0},
        {"mlp_dim": 57}, {"global_attn_indexes": [3]}, {"output_channels": 11},
        {"num_hidden_layers": 4}, {"hidden_act": "gelu_13"},
    ],
)  # fmt: skip
def test_damaged_headers(tmp_path: Path, changes: dict[str, Any]) -> None:
    made(10).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config["vision_config"] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(EngineError) as raised:
        vision_spec(open_checkpoint(tmp_path))
    assert "\n" not in str(raised.value)
