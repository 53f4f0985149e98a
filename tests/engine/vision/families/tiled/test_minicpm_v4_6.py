"""MiniCPM-V 4.6's vision encoder against transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    MiniCPMOcrConfig,
    MiniCPMOcrForConditionalGeneration,
    MiniCPMV4_6Config,
    MiniCPMV4_6ForConditionalGeneration,
)
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.vision import NUMBER
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.models.whole_models import DELTA
from tests.engine.vision.tiny.converted import encoder_tensors, write_tower
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture, randomise, save

PATCH, SIDE, MOST = 7, 56, 5
VISION = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
    "image_size": 70, "patch_size": PATCH,
}  # fmt: skip
SIZES = ((300, 200), (10, 7), (56, 56), (112, 112), (20, 90), (640, 640), (57, 56), (97, 531), (400, 60))


def made(config_class: Any, model_class: Any, mode: str, folder: Path) -> tuple[Any, Any, Encoded]:
    """A model, its image processor, and the engine's encoder."""
    text = {**DELTA, "model_type": "qwen3_5_text", "hidden_size": 32, "vocab_size": 64}
    config = config_class(
        vision_config=VISION, text_config=text, insert_layer_id=1, image_token_id=5, video_token_id=6,
        downsample_mode=mode,
    )  # fmt: skip
    model = randomise(model_class(config))
    processor = MiniCPMV4_6ImageProcessorPil(
        patch_size=PATCH, scale_resolution=SIDE, max_slice_nums=MOST, downsample_mode=mode
    )
    return model, processor, Encoded(save(model, processor, folder))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Encoded]]:
    found = made(
        MiniCPMV4_6Config, MiniCPMV4_6ForConditionalGeneration, "16x", tmp_path_factory.mktemp("minicpm")
    )
    yield found
    found[2].close()


@pytest.fixture(
    scope="module",
    params=[
        (MiniCPMV4_6Config, MiniCPMV4_6ForConditionalGeneration, "4x"),
        (MiniCPMOcrConfig, MiniCPMOcrForConditionalGeneration, "4x"),
        (MiniCPMOcrConfig, MiniCPMOcrForConditionalGeneration, "16x"),
    ],
    ids=["4x", "OCR", "OCR 16x"],
)
def other(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any, Encoded]]:
    """MiniCPM-OCR has the same image processor, unless it enlarges small pictures in other ways."""
    found = made(*request.param, tmp_path_factory.mktemp("minicpm"))
    yield found
    found[2].close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(pair: Any, width: int, height: int) -> None:
    assert_as_transformers(*pair, width, height)


@pytest.mark.parametrize(("width", "height"), SIZES[:5])
def test_rows_of_others_are_those_of_transformers(other: Any, width: int, height: int) -> None:
    assert_as_transformers(*other, width, height)


def assert_as_transformers(model: Any, processor: Any, encoded: Encoded, width: int, height: int) -> None:
    """The rows, and the layout in a prompt."""
    inputs = processor([picture(width, height)], return_tensors="pt")
    with torch.no_grad():
        found = model.model.get_image_features(inputs["pixel_values"], inputs["target_sizes"])
    assert_close(encoded.states(picture(width, height)), torch.cat(found.pooler_output).numpy())
    each = 4 if processor.downsample_mode == "4x" else 16
    first, *others = [
        encoded.spec.token * (int(rows) * int(columns) // each) for rows, columns in inputs["target_sizes"]
    ]
    rows, columns = inputs["grids"][0]
    lines = [
        "".join(f"<slice>{each}</slice>" for each in others[at * columns :][:columns]) for at in range(rows)
    ]
    marked = f"<image_id>{NUMBER}</image_id><image>{first}</image>" + "\n".join(lines)
    assert encoded.text(width, height) == marked  # as MiniCPMV4_6Processor.replace_image_token


def test_an_mmproj_file_says_the_same(pair: Any, tmp_path: Path) -> None:
    encoded = pair[2]
    names = {
        "vit_merger.self_attn.q_proj": "vit_merger.attn_q",
        "vit_merger.self_attn.k_proj": "vit_merger.attn_k",
        "vit_merger.self_attn.v_proj": "vit_merger.attn_v",
        "vit_merger.self_attn.out_proj": "vit_merger.attn_out", "vit_merger.layer_norm1": "vit_merger.ln1",
        "vit_merger.pre_norm": "vit_merger.ds_ln", "vit_merger.linear_1": "vit_merger.ds_ffn_up",
        "vit_merger.linear_2": "vit_merger.ds_ffn_down", "model.vision_tower.vit": "v.vit",
        "model.vision_tower.encoder.layers": "v.blk", "model.vision_tower.post_layernorm": "v.post_ln",
        "model.vision_tower.embeddings.patch_embedding": "v.patch_embd",
        "model.vision_tower.embeddings.position_embedding": "v.position_embd",
        "model.merger.mlp.0.linear_1": "mm.up", "model.merger.mlp.0.linear_2": "mm.down",
        "model.merger.mlp.0.pre_norm": "mm.input_norm", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out",
        "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
    }  # fmt: skip
    tower = type("Vision", (), {**VISION, "image_size": SIDE})
    path = write_tower(
        tmp_path, "minicpmv4_6", tower, 32, encoder_tensors(encoded.path, names), clip__use_gelu=True,
        attention__layer_norm_epsilon=1e-6, wa_layer_indexes=[1], projector__scale_factor=4,
        image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )  # fmt: skip
    same = Encoded(path)
    assert same.spec == encoded.spec
    for width, height in ((112, 112), (10, 7), (90, 60)):  # such files do not say how many slices
        np.testing.assert_array_equal(
            same.states(picture(width, height)), encoded.states(picture(width, height))
        )
    same.close()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"downsample_mode": "4x"}, UnsupportedModel),  # of which its image processor says another
        ({"downsample_mode": "8x"}, UnsupportedModel), ({"merger_times": 2}, UnsupportedModel),
        ({"insert_layer_id": 9}, BadCheckpoint),
        ({"vision_config": VISION | {"intermediate_size": 84}}, BadCheckpoint),
    ],
)  # fmt: skip
def test_damaged_and_unknown_headers(
    pair: Any, tmp_path: Path, changes: dict[str, Any], kind: type[EngineError]
) -> None:
    folder = pair[2].path
    config = json.loads((folder / "config.json").read_text("utf-8")) | changes
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    for name in ("model.safetensors", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(kind) as raised:
        vision_spec(open_checkpoint(tmp_path))
    assert "\n" not in str(raised.value)
