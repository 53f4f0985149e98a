"""LLaVA 1.5 and its like against transformers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlavaConfig, LlavaForConditionalGeneration
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.headers.keys import Keys
from engine.vision.families.fixed_size.llava import from_hf
from tests.engine.vision.tiny.converted import FLATTENED, encoder_tensors, write_tower
from tests.engine.vision.tiny.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save

SIDE, PATCH = 56, 7
TOWER = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
    "image_size": SIDE, "patch_size": PATCH,
}  # fmt: skip
SQUARE = {"height": SIDE, "width": SIDE}
CASES: dict[str, Any] = {
    "clip, cropped": (
        "clip_vision_model", {}, CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=SQUARE),
    ),
    "clip, cropped to less than the shortest side": (
        "clip_vision_model", {}, CLIPImageProcessorPil(size={"shortest_edge": 70}, crop_size=SQUARE),
    ),
    "clip, padded": (
        "clip_vision_model", {"vision_feature_layer": -1},
        LlavaImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=SQUARE, do_pad=True),
    ),
    "clip, several layers": (
        "clip_vision_model", {"vision_feature_layer": [-3, 1, -1]},
        CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=SQUARE),
    ),
    "siglip": (
        "siglip_vision_model", {"vision_feature_select_strategy": "full"},
        SiglipImageProcessorPil(size=SQUARE),
    ),
    "siglip, more pixels than its patches have": (
        "siglip_vision_model", {"vision_feature_select_strategy": "full"},
        SiglipImageProcessorPil(size={"height": SIDE + 5, "width": SIDE + 5}),
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder."""
    kind, settings, processor = CASES[request.param]
    side = processor.size.height or SIDE
    config = LlavaConfig(
        vision_config={"model_type": kind, **TOWER, "image_size": side},
        text_config={"model_type": "llama", **TEXT}, **settings,
    )  # fmt: skip
    model = randomise(LlavaForConditionalGeneration(config))
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("llava")))
    yield model, processor, encoded
    encoded.close()


@pytest.mark.slow_after(10)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(
            pixel_values=inputs["pixel_values"], vision_feature_layer=model.config.vision_feature_layer,
            vision_feature_select_strategy=model.config.vision_feature_select_strategy,
        )  # fmt: skip
    assert_close(encoded.states(picture(width, height)), found.pooler_output[0].numpy())
    assert encoded.text(width, height) == "<image>" * (SIDE // PATCH) ** 2


@pytest.mark.parametrize(("swapped", "counted"), [(False, 0), (True, 0), (True, 1)])
def test_an_mmproj_file_says_the_same(tmp_path: Path, swapped: bool, counted: int) -> None:
    """Those of the first converter have no more layers than are used, though headers may have `counted` more,
    and the names of the feed-forward part's matrices are swapped.
    """
    kind, settings, processor = CASES["clip, padded"]
    config = LlavaConfig(
        vision_config={"model_type": kind, **TOWER}, text_config={"model_type": "llama", **TEXT},
        **settings | {"vision_feature_layer": -2},
    )  # fmt: skip
    model = randomise(LlavaForConditionalGeneration(config))
    folder = save(model, processor, tmp_path / "folder")
    names = {"multi_modal_projector.linear_1": "mm.0", "multi_modal_projector.linear_2": "mm.2", **FLATTENED}
    layers = TOWER["num_hidden_layers"] - 1
    tensors = {
        name: values
        for name, values in encoder_tensors(folder, names).items()
        if f"blk.{layers}." not in name and "post_ln" not in name
    }
    if swapped:
        other = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
        tensors = {
            re.sub("ffn_(up|down)", lambda part: other[part[0]], name): tensors[name] for name in tensors
        }
    path = write_tower(
        tmp_path, "mlp", config.vision_config, TEXT["hidden_size"], tensors, block_count=layers + counted
    )
    same, encoded = Encoded(path), Encoded(folder)
    for width, height in SIZES[:4]:
        assert_close(same.states(picture(width, height)), encoded.states(picture(width, height)))
        assert same.layout(width, height) == encoded.layout(width, height)
    same.close()
    encoded.close()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"vision_feature_select_strategy": "full"}, "is 'full'; with this encoder only 'default' is"),
        ({"vision_config": {"model_type": "siglip_vision_model"}}, "is 'default'; with this encoder only"),
    ],
)
def test_rows_that_these_models_do_not_use(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        from_hf(Keys(config, "config.json"), Keys({}, ""), {})


def test_pictures_that_are_smaller_than_a_patch() -> None:
    for side, refused in ((14, False), (13, True)):
        config = Keys({"vision_config": {"image_size": side, "patch_size": 14}}, "config.json")
        if refused:
            with pytest.raises(BadCheckpoint, match="13 pixels wide, but a multiple of 14 pixels"):
                from_hf(config, Keys({}, ""), {})
        else:
            from_hf(config, Keys({}, ""), {})


def test_a_size_that_is_a_number_is_that_of_the_shorter_side() -> None:
    first, second = (
        from_hf(Keys({}, "config.json"), Keys({"size": size}, "preprocessor_config.json"), {})
        for size in (400, {"shortest_edge": 400})
    )
    assert repr(first) == repr(second)
    assert "shortest=400" in repr(first)
