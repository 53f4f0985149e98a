"""PaddleOCR-VL's vision encoder against transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import PaddleOCRVLConfig, PaddleOCRVLForConditionalGeneration
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil

from engine.vision import Span
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture, randomise, save
from tests.engine.vision.tiny.mmproj import write_mmproj

PATCH, WIDTH = 14, 32
LIMITS = {"shortest_edge": 4 * 28**2, "longest_edge": 30 * 28**2}
VISION = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 2,
    "image_size": 84, "patch_size": PATCH,
}  # fmt: skip
TEXT = {
    "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64, "pad_token_id": 0,
    "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [4, 2, 2]},
}  # fmt: skip
SIZES = ((300, 200), (10, 7), (7, 10), (20, 90), (190, 20), (640, 640), (84, 84), (97, 531))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Encoded]]:
    """A model, its image processor, and the engine's encoder."""
    config = PaddleOCRVLConfig(vision_config=VISION, text_config=TEXT, image_token_id=3, video_token_id=4)
    model = randomise(PaddleOCRVLForConditionalGeneration(config))
    processor = PaddleOCRVLImageProcessorPil(size=LIMITS, patch_size=PATCH)
    encoded = Encoded(save(model, processor, tmp_path_factory.mktemp("paddle")))
    yield model, processor, encoded
    encoded.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    model, processor, encoded = pair
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    expected = torch.cat(list(found.pooler_output)).numpy()
    assert_close(encoded.states(picture(width, height)), expected)
    assert encoded.text(width, height) == "<|IMAGE_PLACEHOLDER|>" * len(expected)


def test_an_mmproj_file_says_the_same(pair: Any, tmp_path: Path) -> None:
    _model, _processor, encoded = pair
    names = (
        ("visual.vision_model.embeddings.patch_embedding", "v.patch_embd"),
        ("visual.vision_model.embeddings.position_embedding", "v.position_embd"),
        ("visual.vision_model.encoder.layers", "v.blk"), ("visual.vision_model.post_layernorm", "v.post_ln"),
        ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
        ("self_attn.out_proj", "attn_out"), ("layer_norm1", "ln1"), ("layer_norm2", "ln2"),
        ("mlp.fc1", "ffn_up"), ("mlp.fc2", "ffn_down"), ("mlp_AR.pre_norm", "mm.input_norm"),
        ("mlp_AR.linear_", "mm."), ("projector.pre_norm", "mm.input_norm"), ("projector.linear_", "mm."),
    )  # fmt: skip
    tensors = dict[str, Any]()
    for name, values in load_file(encoded.path / "model.safetensors").items():
        name = name.removeprefix("model.")
        for old, new in names:
            name = name.replace(old, new)
        if name.startswith(("v.", "mm.")):
            tensors[name] = values
    keys = {
        "clip.projector_type": "paddleocr", "clip.use_gelu": True, "embedding_length": 48, "block_count": 3,
        "feed_forward_length": 80, "attention.head_count": 2, "attention.layer_norm_epsilon": 1e-6,
        "patch_size": PATCH, "image_size": 84, "projection_dim": WIDTH, "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3, "image_min_pixels": LIMITS["shortest_edge"],
        "image_max_pixels": LIMITS["longest_edge"],
    }  # fmt: skip
    settings = json.loads((encoded.path / "preprocessor_config.json").read_text("utf-8"))
    keys |= {"image_mean": settings["image_mean"], "image_std": settings["image_std"]}
    sections = {"rope.dimension_sections": [4, 2, 2, 0], "attention.key_length": 16}
    same = Encoded(write_mmproj(tmp_path, "paddleocr", WIDTH, keys, tensors, sections))
    assert same.spec == encoded.spec
    for width, height in SIZES[:4]:
        np.testing.assert_allclose(
            same.states(picture(width, height)), encoded.states(picture(width, height)), atol=1e-6
        )
    same.close()


def test_a_narrow_picture_has_no_more_patches_than_others(pair: Any) -> None:
    """It loses its shape, as with Qwen's models."""
    encoded = pair[2]
    assert encoded.layout(3, 400) == (Span(30, 1),)
    assert encoded.layout(40_000, 2) == (Span(1, 30),)
    assert len(encoded.states(picture(3, 400))) == 30


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 5}, {"num_attention_heads": 24}, {"patch_size": 0}, {"image_size": 70},
        {"num_hidden_layers": 4}, {"spatial_merge_size": 3}, {"hidden_act": 4},
    ],
)  # fmt: skip
def test_damaged_headers(pair: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_refused(pair[2].path, tmp_path, changes)
