"""LFM2-VL against transformers: its model, and the sizes of its image processor, of which only these can be
used without torchvision.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import Lfm2VlConfig, Lfm2VlForConditionalGeneration

from engine.vision import passes
from engine.vision.families.tiled.lfm2_vl import Tiles
from tests.engine.vision.families.tiled.lfm2_crops import FACTOR, PATCH, SETTINGS, TOKENS, batched, crops
from tests.engine.vision.tiny.converted import FLATTENED, encoder_tensors, flat_kernels, write_tower
from tests.engine.vision.tiny.encoding import SIZES, Encoded, Floats, assert_close, picture, randomise

TEXT = {
    "model_type": "lfm2", "hidden_size": 40, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 64, "layer_types": ["full_attention"],
}  # fmt: skip


@pytest.fixture(scope="module", params=[True, False], ids=["norm", "no norm"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Encoded]]:
    """A model and the engine's encoder."""
    tower = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "patch_size": PATCH, "num_patches": 25, "model_type": "siglip2_vision_model",
    }  # fmt: skip
    config = Lfm2VlConfig(
        vision_config=tower, text_config=TEXT, projector_hidden_size=56, projector_use_layernorm=request.param
    )
    model = randomise(Lfm2VlForConditionalGeneration(config))
    folder = tmp_path_factory.mktemp("lfm2_vl")
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(SETTINGS), "utf-8")
    encoded = Encoded(folder)
    yield model, encoded
    encoded.close()


def expected_states(model: Any, found: list[Image.Image]) -> Floats:
    """The model's rows for all crops."""
    with torch.no_grad():
        states = model.model.get_image_features(**batched(found)).pooler_output
    result: Floats = torch.cat(list(states)).numpy()
    return result


@pytest.mark.parametrize(
    ("width", "height"),
    [size for size in SIZES if max(size) < 50 * min(size)] + [(90, 90), (64, 65), (33, 150)],
)
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, encoded = pair
    image = picture(width, height)
    found, text = crops(image)
    assert encoded.text(width, height) == text
    assert_close(encoded.states(image), expected_states(model, found))


def test_narrow_pictures_have_no_more_tokens_than_others(pair: Any) -> None:
    """Of transformers' image processor these have many more, which then cannot be batched with tiles."""
    encoded = pair[1]
    for size in ((1, 40000), (40000, 1), (3, 9000)):
        spans = [piece for piece in encoded.layout(*size) if not isinstance(piece, str)]
        assert max(span.tokens for span in spans) <= TOKENS["max_image_tokens"]
        assert len(encoded.states(picture(*size)))


@pytest.mark.parametrize(("tile", "most_tokens", "patches"), [(512, 64, 1024), (64, 256, 1024), (0, 4, 16)])
def test_a_pass_holds_a_tile_and_a_picture_in_one_piece(tile: int, most_tokens: int, patches: int) -> None:
    assert Tiles(16, 32, 2, tile, most_tokens=most_tokens).most_patches == patches


def test_an_mmproj_file_has_the_same_tower(
    pair: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings of sizes are those of the published models, since there are no keys for them: with the
    small patches here, tiles are so large that keys would have 16 bits.
    """
    monkeypatch.setattr(passes, "MANY_ROWS", 1 << 20)
    model, encoded = pair
    vision = model.config.vision_config
    tensors = encoder_tensors(encoded.path, {"model.": "", **FLATTENED})
    tensors["v.patch_embd.weight"] = flat_kernels(tensors["v.patch_embd.weight"], PATCH)
    path = write_tower(
        tmp_path, "lfm2", vision, TEXT["hidden_size"], tensors, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        clip__use_gelu=True, projector__scale_factor=FACTOR, image_size=256,
    )  # fmt: skip
    same = Encoded(path)
    image = picture(250, 130)
    size = 256, 128
    found = expected_states(model, [image.resize(size, Image.Resampling.BILINEAR)])
    assert_close(same.states(image), found)
    assert same.text(*image.size) == f"<|image_start|>{'<image>' * (16 * 8)}<|image_end|>"
    same.close()
