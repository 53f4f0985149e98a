"""Granite for Docling against transformers: both paths to tokens, and the rows for further layers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GraniteDoclingConfig, GraniteDoclingForConditionalGeneration
from transformers.models.granite_docling.image_processing_pil_granite_docling import (
    GraniteDoclingImageProcessorPil,
    get_page_tile_grid,
)
from transformers.models.granite_docling.processing_granite_docling import GraniteDoclingProcessor

from engine.models.headers.keys import Keys
from engine.vision.families.tiled.granite_docling import Tiles, from_hf
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import SIZES, TEXT, Encoded, assert_close, picture, randomise, save

SIDE, PATCH, FACTOR, MOST = 56, 7, 4, 6
VISION = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
    "image_size": SIDE, "patch_size": PATCH, "out_hidden_size": TEXT["hidden_size"], "scale_factor": FACTOR,
    "deepstack_visual_indexes": [0, 2],
}  # fmt: skip
WORDS = {**TEXT, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "coarse": ({}, {}),
    "fine": ({}, {"fine_route": True}),
    "one path, no further rows": ({"use_fine_route": False, "deepstack_visual_indexes": []}, {}),
    "dense pages": (
        {"deepstack_visual_indexes": [3, 0]},
        {"dense_max_patches": 9, "dense_max_scale": 0.7, "dense_min_aspect": 1.2, "dense_max_aspect": 9.0},
    ),
}
"""Changes to the vision part of config.json, and to the image processor's settings."""


@pytest.fixture(scope="module", params=CASES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder."""
    vision, settings = CASES[request.param]
    router = None if "use_fine_route" in vision else 8  # which nothing asks here
    config = GraniteDoclingConfig(
        vision_config=VISION | vision, text_config=WORDS, image_token_id=3, density_router_hidden_size=router
    )
    model = randomise(GraniteDoclingForConditionalGeneration(config))
    processor = GraniteDoclingImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, max_patches=MOST, **settings
    )
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("docling")))
    yield model, processor, encoded
    encoded.close()


@pytest.mark.slow_after(8)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    inputs = processor([[picture(width, height)]], return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(
            inputs["pixel_values"], inputs["pixel_attention_mask"], inputs.get("tile_fine_mask")
        )
    rows = encoded.rows(picture(width, height))
    expected = [found.pooler_output[0], *(each[0] for each in found.deepstack_features)]
    given = [[each.states for each in rows], *zip(*(each.deep for each in rows), strict=True)]
    assert len(given) == len(expected) == 1 + encoded.spec.deep
    for own, theirs in zip(given, expected, strict=True):
        assert_close(np.concatenate(own), theirs.numpy())
    words = SimpleNamespace(
        fake_image_token="<fake_token_around_image>", global_image_tag="<global-img>", image_token="<image>",
        image_seq_len=(SIDE // PATCH // FACTOR) ** 2,
    )  # fmt: skip
    assert encoded.text(width, height) == GraniteDoclingProcessor.replace_image_token(words, inputs, 0)


@pytest.mark.parametrize(
    "rule",
    [
        {}, {"crop_to_patches": False}, {"min_patches": 3}, {"max_patches": 1}, {"max_patches": 200},
        {"dense_max_patches": 64, "dense_max_scale": 0.6},
        {"dense_max_patches": 64, "dense_min_aspect": 1.25, "dense_max_aspect": 2.5},
        {"dense_max_patches": 64, "dense_max_scale": 0.9, "dense_min_aspect": 0.7}, {"dense_max_patches": 64},
    ],
)  # fmt: skip
def test_grids_are_those_of_transformers(rule: dict[str, Any]) -> None:
    """Also of pages for which a rule allows more tiles, and of sides for which there are no tokens."""
    processor = json.loads(GraniteDoclingImageProcessorPil(**rule).to_json_string())
    design = from_hf(Keys({}, "config.json"), Keys(processor, "preprocessor_config.json"), {})
    tiles = getattr(design, "cutter", None)
    assert isinstance(tiles, Tiles)
    names = (
        "size", "crop_to_patches", "min_patches", "max_patches", "dense_max_patches", "dense_max_scale",
        "dense_min_aspect", "dense_max_aspect",
    )  # fmt: skip
    settings = {name: processor[name] for name in names}
    pages = (1240, 1754), (3508, 2480), (7000, 3000), (12000, 500), (30, 9000), (512, 512), (5100, 3000)
    for width, height in (*SIZES, *pages):
        wide, high = tiles.grid(width, height)
        assert (high, wide) == get_page_tile_grid(height, width, **settings)


@pytest.mark.slow_after(8)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deepstack_visual_indexes": [4]}, "deepstack_visual_indexes"),
        ({"deepstack_visual_indexes": "all"}, "deepstack_visual_indexes"), ({"scale_factor": 3}, "multiple"),
        ({"scale_factor": 0}, "scale_factor"), ({"image_size": 63}, "multiple"),
        ({"hidden_size": 44}, "shape"), ({"num_hidden_layers": 5}, "lacks tensors"),
        ({"hidden_act": "mish"}, "activation"),
    ],
)  # fmt: skip
def test_damaged_headers(pair: Any, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert_refused(pair[2].path, tmp_path, changes, words)


@pytest.mark.slow_after(1)
def test_rows_of_an_odd_width_are_refused(pair: Any, tmp_path: Path) -> None:
    assert_refused(pair[2].path, tmp_path, {"hidden_size": 42}, "hidden_size to 42", "text_config")
