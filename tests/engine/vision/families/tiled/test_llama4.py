"""Llama 4's vision encoder against transformers: its model, and the sizes of its image processor."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Llama4Config, Llama4ForConditionalGeneration

from engine.errors import EngineError
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.families.tiled.llama4_tiles import batched, crops, prompt
from tests.engine.vision.tiny.converted import encoder_tensors, write_tower
from tests.engine.vision.tiny.encoding import SIZES, Encoded, assert_close, picture, randomise

SIDE, PATCH, MOST = 28, 7, 5
TEXT = {
    "hidden_size": 40, "intermediate_size": 64, "intermediate_size_mlp": 64, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 64, "head_dim": 20,
    "num_local_experts": 2, "pad_token_id": 0,
}  # fmt: skip
VISION = {
    "hidden_size": 48, "intermediate_size": 4 * 48, "num_hidden_layers": 3, "num_attention_heads": 3,
    "image_size": SIDE, "patch_size": PATCH, "projector_input_dim": 72, "projector_output_dim": 72,
    "vision_output_dim": 72, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Encoded]]:
    """A model and the engine's encoder."""
    model = randomise(Llama4ForConditionalGeneration(Llama4Config(vision_config=VISION, text_config=TEXT)))
    folder = tmp_path_factory.mktemp("llama4")
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"max_patches": MOST, "resample": 2}))
    encoded = Encoded(folder)
    yield model, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), [*SIZES, (28, 28), (29, 28), (57, 85), (90, 40)])
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, encoded = pair
    image = picture(width, height)
    with torch.no_grad():
        found = model.get_image_features(batched(crops(image, SIDE, MOST))).last_hidden_state
        expected = model.multi_modal_projector(found.flatten(0, 1)).numpy()
    assert_close(encoded.states(image), expected)
    assert encoded.text(width, height) == prompt(image, SIDE, MOST, (SIDE // PATCH // 2) ** 2)


def test_an_mmproj_file_says_the_same(pair: Any, tmp_path: Path) -> None:
    model, encoded = pair
    names = encoder_tensors(encoded.path, {"positional_embedding_vlm": "positional_embedding_vlm.weight"})
    # The package's table has these names for other models; files, and llama.cpp, have the second ones.
    others = {".attn_post_norm.": ".ln2.", "mm.1.": "mm.model.fc."}
    tensors = {reduce(lambda n, old: n.replace(old, others[old]), others, n): t for n, t in names.items()}
    path = write_tower(
        tmp_path, "llama4", model.config.vision_config, TEXT["hidden_size"], tensors, clip__use_gelu=True,
        attention__layer_norm_epsilon=1e-5, projector__scale_factor=2, image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )  # fmt: skip
    same = Encoded(path)
    for width, height in ((28, 28), (50, 20), (10, 50)):
        assert_close(same.states(picture(width, height)), encoded.states(picture(width, height)))
        assert same.layout(width, height) == encoded.layout(width, height)
    same.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"image_size": 30}, {"image_size": 35}, {"patch_size": 0}, {"num_attention_heads": 5},
        {"num_attention_heads": 8}, {"pixel_shuffle_ratio": 0}, {"pixel_shuffle_ratio": "0.5"},
        {"projector_output_dim": 71}, {"norm_eps": "x"}, {"num_hidden_layers": 4}, {"hidden_act": "tanhish"},
        {"rope_parameters": {"rope_theta": 0}},
    ],
)  # fmt: skip
def test_damaged_headers_get_one_sentence(pair: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = shutil.copytree(pair[1].path, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["vision_config"] |= changes
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    with closing(open_checkpoint(folder)) as checkpoint, pytest.raises(EngineError) as raised:
        vision_spec(checkpoint)
    assert "\n" not in str(raised.value)
