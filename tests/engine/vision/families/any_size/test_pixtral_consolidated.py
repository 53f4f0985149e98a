"""Pixtral and Mistral Small 3.1 as Mistral AI publishes them, with params.json and consolidated.safetensors,
beside the folders of transformers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.errors import BadCheckpoint
from engine.vision.describe import describe
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from tests.engine.models.consolidated_files import params_of, published, write_tensors
from tests.engine.models.gguf_form import text_only
from tests.engine.models.oracle import load, logits
from tests.engine.vision.tiny.encoding import Encoded, assert_close, picture
from tests.engine.vision.tiny.families import FAMILIES

TOKENS = [5, 80, 200, 7, 31, 31, 300, 12, 90, 4]
_NAMES = (
    ("vision_tower.", "vision_encoder."), ("attention.q_proj", "attention.wq"),
    ("attention.k_proj", "attention.wk"), ("attention.v_proj", "attention.wv"),
    ("attention.o_proj", "attention.wo"), ("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3"),
    ("multi_modal_projector.linear_1", "vision_language_adapter.w_in"),
    ("multi_modal_projector.linear_2", "vision_language_adapter.w_out"),
    ("multi_modal_projector.patch_merger", "patch_merger"),
    ("multi_modal_projector.norm", "pre_mm_projector_norm"),
)  # fmt: skip


def write(source: Path, folder: Path, form: str, **changes: Any) -> Path:
    """The model in `source` in Mistral AI's form; `form` is where the file tells of the part for pictures."""
    config = json.loads((source / "config.json").read_text("utf-8"))
    vision, tensors = config["vision_config"], load_file(source / "model.safetensors")
    eyes = {
        name: vision[name]
        for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    }
    eyes |= {"image_size": 112, "patch_size": 14, "rope_theta": 10000.0, "image_token_id": 10}
    if "spatial_merge_size" in config:
        eyes |= {"max_image_size": 112, "mm_projector_id": "patch_merge", "spatial_merge_size": 2}
        del eyes["image_size"]
    eyes |= changes
    tied = not any("lm_head" in name for name in tensors)
    params = params_of(config["text_config"]) | {"tied_embeddings": tied}
    found = published(text_only(tensors), params)
    for name, values in tensors.items():
        plain = name.removeprefix("model.")
        if not plain.startswith(("vision_tower.", "multi_modal_projector.")):
            continue
        if re.search(r"attention\.[qk]_proj", plain):
            halves = values.reshape(vision["num_attention_heads"], 2, -1, values.shape[1])
            values = np.ascontiguousarray(halves.transpose(0, 2, 1, 3)).reshape(values.shape)
        for theirs, own in _NAMES:
            plain = plain.replace(theirs, own)
        found[plain] = values
    more = {"vision_encoder": eyes} if form == "outside" else {"multimodal": {"vision_encoder_args": eyes}}
    (folder / "params.json").write_text(json.dumps(params | more), "utf-8")
    write_tensors(folder, found)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    return folder


@pytest.fixture(scope="module", params=["pixtral", "mistral3"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    FAMILIES[request.param](folder)
    return folder


@pytest.mark.parametrize("form", ["outside", "inside"])
def test_pictures_and_texts_are_read_as_from_the_folder(source: Path, tmp_path: Path, form: str) -> None:
    own = write(source, tmp_path, form)
    folder, same = Encoded(source), Encoded(own)
    assert same.spec == folder.spec
    for width, height in ((60, 40), (300, 200), (28, 112)):
        assert_close(same.states(picture(width, height)), folder.states(picture(width, height)))
        assert same.text(width, height) == folder.text(width, height)
    folder.close()
    same.close()
    expected = logits(load(source), TOKENS)
    np.testing.assert_allclose(logits(load(own), TOKENS), expected, atol=1e-4 * np.abs(expected).max())
    info = describe(own)
    assert (info.reads_pictures, info.remarks) == (True, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 0}, {"num_attention_heads": "2"}, {"num_attention_heads": 5},
        {"patch_size": 13}, {"num_hidden_layers": 9}, {"hidden_size": None}, {"rope_theta": -1},
        {"intermediate_size": [72]},
    ],
)  # fmt: skip
def test_damaged_params(source: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    own = write(source, tmp_path, "outside", **changes)
    with pytest.raises(BadCheckpoint) as raised:
        vision_spec(open_checkpoint(own))
    assert "\n" not in str(raised.value)
    assert describe(own).layers == 2
