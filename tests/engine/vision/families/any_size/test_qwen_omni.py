"""The pictures of Qwen2.5-Omni against transformers: of its thinker alone, of the makers' whole folder, and
of an mmproj file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.models.load import read_config
from engine.vision.describe import describe
from engine.weights import open_checkpoint
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture
from tests.engine.vision.tiny.families import FAMILIES
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.engine.vision.tiny.whole_models import Case

SIZES = ((300, 200), (10, 7), (1, 190), (224, 112), (97, 131))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return FAMILIES["qwen2_5_omni"](tmp_path_factory.mktemp("omni"))


@pytest.fixture(scope="module")
def encoded(case: Case) -> Iterator[Encoded]:
    found = Encoded(case.folder)
    yield found
    found.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_rows_and_layout_are_those_of_transformers(
    case: Case, encoded: Encoded, width: int, height: int
) -> None:
    inputs = case.inputs([picture(width, height)], [])
    with torch.no_grad():
        found = case.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    expected = torch.cat(list(found.pooler_output)).numpy()
    assert_close(encoded.states(picture(width, height)), expected)
    assert encoded.text(width, height) == "<|IMAGE|>" * len(expected)


def test_the_makers_folder_has_the_thinker_inside(case: Case, encoded: Encoded, tmp_path: Path) -> None:
    config = json.loads((case.folder / "config.json").read_text("utf-8"))
    whole = {
        "architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni",
        "thinker_config": {key: value for key, value in config.items() if key != "architectures"},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(whole), "utf-8")
    tensors = load_file(case.folder / "model.safetensors")
    save_file({f"thinker.{name}": values for name, values in tensors.items()}, tmp_path / "model.safetensors")
    for name in ("preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((case.folder / name).read_bytes())
    same = Encoded(tmp_path)
    assert same.spec == encoded.spec
    assert (same.spec.around, same.spec.token) == (("<|vision_bos|>", "<|vision_eos|>"), "<|IMAGE|>")
    assert_close(same.states(picture(90, 60)), encoded.states(picture(90, 60)))
    same.close()
    info = describe(tmp_path)
    assert info.reads_pictures
    assert info.remarks[0] == "The model also takes sounds, which are not used here."
    assert read_config(open_checkpoint(tmp_path)).layers == 2


def test_an_mmproj_file_says_the_same(case: Case, encoded: Encoded, tmp_path: Path) -> None:
    tensors = dict[str, np.ndarray]()
    names = {
        "blocks": "blk", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "attn.q": "attn_q",
        "attn.k": "attn_k", "attn.v": "attn_v", "norm1": "ln1", "norm2": "ln2", "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "v.merger.ln_q": "v.post_ln",
        "v.merger.mlp": "mm",
    }  # fmt: skip
    for name, values in load_file(case.folder / "model.safetensors").items():
        _, found, new = name.partition("visual.")
        if not found:
            continue
        new = "v." + new
        for old, other in names.items():
            new = new.replace(old, other)
        if "patch_embed" in new:
            for frame, end in enumerate(("", ".1")):
                tensors[f"v.patch_embd.weight{end}"] = values[:, :, frame]
        else:
            tensors[new] = values
    keys = {
        "clip.projector_type": "qwen2.5o", "clip.use_silu": True, "embedding_length": 48, "block_count": 3,
        "attention.head_count": 3, "attention.layer_norm_epsilon": 1e-6, "patch_size": 14, "n_wa_pattern": 2,
        "projection_dim": 32, "feed_forward_length": 72, "image_size": 560,
        "image_min_pixels": 4 * 28**2, "image_max_pixels": 30 * 28**2,
    }  # fmt: skip
    sections = {"rope.dimension_sections": [4, 2, 2, 0]}
    same = Encoded(write_mmproj(tmp_path, "qwen2vl", 32, keys, tensors, sections))
    assert same.spec == encoded.spec
    for size in ((300, 200), (112, 84)):
        np.testing.assert_allclose(same.states(picture(*size)), encoded.states(picture(*size)), atol=5e-5)
    same.close()
