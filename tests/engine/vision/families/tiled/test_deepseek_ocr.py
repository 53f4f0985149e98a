"""DeepSeek-OCR, in folders as its makers publish it and in mmproj files, against transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import EngineError
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.deepseek_ocr_folders import TILE, grid, inputs, model, publish, tensors
from tests.engine.vision.tiny.encoding import Encoded, Floats, assert_close, picture
from tests.engine.vision.tiny.mmproj import write_mmproj

SIZES = ((300, 200), (10, 7), (4, 900), (2000, 10), (96, 96), (97, 90), (97, 531))
NAMES = {
    "model.sam_model.": "v.sam.", "patch_embed.proj": "patch_embd", "v.sam.blocks": "v.sam.blk",
    "pos_embed": "pos_embd.weight", "norm1": "pre_ln", "norm2": "post_ln", "attn.proj": "attn.out",
    "rel_pos_h": "pos_h.weight", "rel_pos_w": "pos_w.weight", "model.projector.layers": "mm.model.fc",
    "model.image_newline": "v.image_newline", "model.view_seperator": "v.view_seperator",
    "model.vision_model.transformer.layers": "v.blk", "layer_pre_ln": "ln1", "layer_post_ln": "ln2",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.out_proj": "attn_out",
    "model.vision_model.embeddings.class_embedding": "v.class_embd",
    "model.vision_model.embeddings.position_embedding": "v.position_embd",
    "model.vision_model.pre_layrnorm": "v.pre_ln", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
}  # fmt: skip
"""Parts of the makers' names -> those of llama.cpp."""


@pytest.fixture(scope="module")
def made() -> Any:
    return model(64, 3)


@pytest.fixture(scope="module")
def encoded(made: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encoded]:
    found = Encoded(publish(made, tmp_path_factory.mktemp("ocr")))
    yield found
    found.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(
    made: Any, encoded: Encoded, width: int, height: int
) -> None:
    with torch.no_grad():
        found = made.model.get_image_features(**inputs([picture(width, height)]))
    rows = torch.cat(list(found.pooler_output)).numpy()
    assert_close(encoded.states(picture(width, height)), rows)
    assert encoded.text(width, height) == "<image>" * len(rows)
    assert (grid(width, height) == (0, 0)) == (max(width, height) <= TILE)


def test_an_mmproj_file_says_the_same(made: Any, encoded: Encoded, tmp_path: Path) -> None:
    """Of a small picture, since files do not say how large tiles are."""
    found: dict[str, Floats] = {}
    for name, values in tensors(made).items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        if name.startswith(("v.", "mm.")):
            found[name] = values
    keys = {
        "clip.projector_type": "deepseekocr", "clip.use_gelu": True, "embedding_length": 32, "block_count": 2,
        "attention.head_count": 2, "attention.layer_norm_epsilon": 1e-6, "feed_forward_length": 8,
        "sam.embedding_length": 16, "sam.block_count": 2, "sam.head_count": 2, "window_size": 4,
        "image_size": 1024, "patch_size": 14, "projection_dim": 32, "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3, "preproc_min_tiles": 2, "preproc_max_tiles": 9,
    }  # fmt: skip
    same = Encoded(write_mmproj(tmp_path, "deepseek2-ocr", 32, keys, found))
    assert same.spec.family == "deepseek_ocr"
    assert_close(same.states(picture(90, 60)), encoded.states(picture(90, 60)))
    same.close()


@pytest.mark.parametrize(
    ("tower", "changes"),
    [
        ("sam_vit_b", {"heads": 3}), ("sam_vit_b", {"layers": 3}), ("sam_vit_b", {"width": 18}),
        ("sam_vit_b", {"window_size": 5}),
        ("clip-l-14-224", {"heads": 5}), ("clip-l-14-224", {"layers": 3}),
    ],
)  # fmt: skip
def test_damaged_headers(encoded: Encoded, tmp_path: Path, tower: str, changes: dict[str, Any]) -> None:
    folder = encoded.path
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["vision_config"]["width"][tower] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(EngineError) as raised:
        vision_spec(open_checkpoint(tmp_path))
    assert "\n" not in str(raised.value)


def test_tiles_that_are_no_whole_patches_are_refused_before_a_picture_is_read(
    encoded: Encoded, tmp_path: Path
) -> None:
    for name in ("config.json", "model.safetensors", "processor_config.json"):
        (tmp_path / name).write_bytes((encoded.path / name).read_bytes())
    processor = json.loads((tmp_path / "processor_config.json").read_text("utf-8"))
    processor["image_processor"]["tile_size"] += 1
    (tmp_path / "processor_config.json").write_text(json.dumps(processor), "utf-8")
    with pytest.raises(EngineError, match="a multiple of 16 pixels"):
        vision_spec(open_checkpoint(tmp_path))
