"""EXAONE 4.5 against transformers: Qwen2.5-VL's tower with fewer keys and values than queries, before a text
model without sections of rotary positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import Exaone4_5_Config, Exaone4_5_ForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.models.headers.keys import Keys
from engine.vision.families import FAMILIES
from tests.engine.vision.test_by_llama_cpp import by_llama_cpp
from tests.engine.vision.tiny.chats import Reply, add_text, asked, by_transformers, opened, vocabulary
from tests.engine.vision.tiny.damaged import assert_refused
from tests.engine.vision.tiny.encoding import Encoded, Floats, assert_close, picture, randomise, save
from tests.engine.vision.tiny.mmproj import write_mmproj
from tests.engine.vision.tiny.whole_models import END, TEXT
from tests.tiny import TINY, write_gguf

TOKENS = ["<|image_pad|>", "<|video_pad|>"]
SIZE, IDS = vocabulary([*TOKENS, END])
VISION = {
    "depth": 3, "hidden_size": 64, "intermediate_size": 72, "num_heads": 4, "num_key_value_heads": 2,
    "out_hidden_size": 32, "fullatt_block_indexes": [1], "window_size": 112,
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """A model, its image processor, and their folder."""
    text = {**TEXT, "model_type": "exaone4", "num_key_value_heads": 1, "vocab_size": SIZE, "head_dim": 16}
    config = Exaone4_5_Config(
        vision_config=VISION, text_config=text, image_token_id=IDS["<|image_pad|>"],
        video_token_id=IDS["<|video_pad|>"],
    )  # fmt: skip
    model = randomise(Exaone4_5_ForConditionalGeneration(config))
    limits = {"shortest_edge": 4 * 28**2, "longest_edge": 30 * 28**2}
    processor = Qwen2VLImageProcessorPil(patch_size=14, size=limits)
    folder = save(model, processor, tmp_path_factory.mktemp("exaone"))
    add_text(folder, TOKENS, "<|image_pad|>")
    return model, processor, folder


@pytest.fixture(scope="module")
def encoded(made: tuple[Any, Any, Path]) -> Iterator[Encoded]:
    found = Encoded(made[2])
    yield found
    found.close()


def given(processor: Any, width: int, height: int) -> dict[str, Any]:
    found = processor([picture(width, height)], return_tensors="pt")
    return {"pixel_values": found["pixel_values"], "image_grid_thw": found["image_grid_thw"]}


@pytest.mark.parametrize(("width", "height"), [(300, 200), (30, 40), (1, 190), (224, 112), (97, 531)])
def test_rows_and_layout_are_those_of_transformers(
    made: Any, encoded: Encoded, width: int, height: int
) -> None:
    model, processor, _folder = made
    with torch.no_grad():
        found = model.model.get_image_features(**given(processor, width, height))
    rows = torch.cat(list(found.pooler_output)).numpy()
    assert_close(encoded.states(picture(width, height)), rows)
    assert encoded.text(width, height) == "<|image_pad|>" * len(rows)
    assert encoded.spec.positions is None


def write(folder: Path, target: Path) -> Path:
    """An mmproj file of the folder's encoder, beside a model in `target`, whose path is returned."""
    names, found = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 4), dict[str, Floats]()
    for name, values in load_file(folder / "model.safetensors").items():
        if "patch_embed" in name:
            found["v.patch_embd.weight"], found["v.patch_embd.weight.1"] = values[:, :, 0], values[:, :, 1]
        elif "visual." in name:
            found[names.get_name(name[name.index("visual.") :], (".weight", ".bias")) or name] = values
    keys = {
        "clip.projector_type": "exaone4_5", "clip.use_silu": True, "embedding_length": 64, "block_count": 3,
        "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_epsilon": 1e-6,
        "feed_forward_length": 72, "patch_size": 14, "image_size": 560, "n_wa_pattern": 2,
        "projection_dim": TINY.width, "image_min_pixels": 4 * 28**2, "image_max_pixels": 30 * 28**2,
    }  # fmt: skip
    return write_mmproj(target, "exaone4", TINY.width, keys, found)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder whose language model is as wide as that of tests with llama.cpp, and an mmproj file of it."""
    text = {**TEXT, "model_type": "exaone4", "hidden_size": TINY.width, "num_key_value_heads": 1}
    config = Exaone4_5_Config(
        vision_config={**VISION, "out_hidden_size": TINY.width}, text_config={**text, "vocab_size": SIZE}
    )
    model = randomise(Exaone4_5_ForConditionalGeneration(config))
    limits = {"shortest_edge": 4 * 28**2, "longest_edge": 30 * 28**2}
    processor = Qwen2VLImageProcessorPil(patch_size=14, size=limits)
    folder = save(model, processor, tmp_path_factory.mktemp("wide"))
    return folder, write(folder, tmp_path_factory.mktemp("gguf"))


def test_an_mmproj_file_says_the_same(files: tuple[Path, Path]) -> None:
    with closing(Encoded(files[0])) as folder, closing(Encoded(files[1])) as file:
        assert file.spec == folder.spec
        for width, height in ((300, 200), (140, 84)):
            assert_close(file.states(picture(width, height)), folder.states(picture(width, height)))


@pytest.mark.slow
def test_rows_are_those_of_llama_cpp(files: tuple[Path, Path], tmp_path: Path) -> None:
    image, text = picture(140, 84), write_gguf(tmp_path / "text.gguf", TINY)
    (theirs,) = by_llama_cpp(text, files[1].parent / "mmproj-model-f32.gguf", image)
    with closing(Encoded(files[1])) as file:
        mine = file.states(image)
    cosines = (mine * theirs).sum(1) / np.linalg.norm(mine, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 0.999


def test_a_reply_about_a_picture_is_that_of_transformers(made: Any) -> None:
    model, processor, folder = made
    with closing(opened(folder)) as chat:
        assert chat.info.vision_encoder == "exaone4_5"
        reply = Reply(chat, [asked("What is this?", (60, 40))])
    ids = reply.plain_ids(IDS["<|image_pad|>"])
    written, likely = by_transformers(model, ids, 6, eos_token_id=IDS[END], **given(processor, 60, 40))
    assert reply.ids == written
    for token, probabilities in zip(reply.tokens, likely, strict=True):
        for each in token.alternatives:
            assert each.raw_probability == pytest.approx(probabilities[each.id], rel=0.02, abs=2e-4)


def test_absent_settings() -> None:
    """Files that state all defaults, and files that state none, describe one encoder."""
    family = next(each for each in FAMILIES if each.name == "exaone4_5")
    assert family.from_hf is not None
    config = json.loads(json.dumps(Exaone4_5_Config().to_dict(), default=str))
    full, bare = (family.from_hf(Keys(keys, "config.json"), Keys({}, ""), {}) for keys in (config, {}))
    assert repr(full) == repr(bare)


@pytest.mark.parametrize(
    "changes", [{"num_key_value_heads": 3}, {"num_key_value_heads": 4}, {"num_key_value_heads": 8}]
)
def test_damaged_headers(made: Any, tmp_path: Path, changes: dict[str, int]) -> None:
    assert_refused(made[2], tmp_path, changes)
