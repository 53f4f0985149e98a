"""Idefics2 against transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Idefics2Config, Idefics2ForConditionalGeneration
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil

from engine.errors import BadCheckpoint
from engine.models.headers.keys import Keys
from engine.vision.families.tiled.idefics2 import from_hf
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.encoding import TEXT, Encoded, Floats, assert_close, picture, randomise, save

TOWER = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 70, "patch_size": 7,
}  # fmt: skip
PERCEIVER = {
    "resampler_n_latents": 6, "resampler_depth": 2, "resampler_n_heads": 6, "resampler_head_dim": 8,
    "num_key_value_heads": 3, "hidden_size": TEXT["hidden_size"], "rms_norm_eps": 1e-4,
}  # fmt: skip
SIZES = ((300, 200), (10, 7), (1, 90), (400, 10), (70, 70), (97, 131))


def made() -> Any:
    config = Idefics2Config(
        vision_config=TOWER, perceiver_config=PERCEIVER, text_config={"model_type": "mistral", **TEXT},
        image_token_id=3,
    )  # fmt: skip
    return randomise(Idefics2ForConditionalGeneration(config))


@pytest.fixture(scope="module", params=[False, True])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, which may cut pictures into quarters, and the engine's encoder."""
    model, size = made(), {"shortest_edge": 25, "longest_edge": 80}
    processor = Idefics2ImageProcessorPil(size=size, do_image_splitting=request.param)
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("idefics2")))
    yield model, processor, encoded
    encoded.close()


def rows(model: Any, processor: Any, width: int, height: int) -> Floats:
    found = processor([[picture(width, height)]], return_tensors="pt")
    with torch.no_grad():
        features = model.model.get_image_features(found["pixel_values"], found["pixel_attention_mask"])
    return torch.cat(list(features.pooler_output)).numpy()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    if processor.do_image_splitting and min(width, height) < 2:
        assert len(encoded.states(picture(width, height))) == 5 * 6  # transformers reads no empty quarters
        return
    assert_close(encoded.states(picture(width, height)), rows(model, processor, width, height))
    part, around = "<image>" * 6, "<fake_token_around_image>"
    parts = 5 if processor.do_image_splitting else 1
    assert encoded.text(width, height) == (around + part) * parts + around


def test_what_a_folder_leaves_out() -> None:
    config = Idefics2Config(text_config={"model_type": "mistral", "hidden_size": 4096}).to_dict()
    full, bare = (
        from_hf(Keys(keys, "config.json"), Keys({}, ""), {})
        for keys in (json.loads(json.dumps(config, default=str)), {})
    )
    assert repr(full) == repr(bare)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("perceiver_config", {"resampler_n_heads": 5}), ("perceiver_config", {"resampler_head_dim": 16}),
        ("perceiver_config", {"resampler_depth": 3}), ("perceiver_config", {"resampler_n_latents": 7}),
        ("perceiver_config", {"resampler_depth": 0}), ("vision_config", {"num_hidden_layers": 3}),
        ("vision_config", {"image_size": 77}), ("text_config", {"intermediate_size": 65}),
        ("text_config", {"hidden_size": 41}),
    ],
)  # fmt: skip
def test_damaged_headers(tmp_path: Path, part: str, changes: dict[str, Any]) -> None:
    made().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config[part] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(BadCheckpoint) as raised:
        vision_spec(open_checkpoint(tmp_path))
    assert "\n" not in str(raised.value)
