"""Models that Ollama's own converter wrote, with the vision encoder in the same file, and their folders."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import BadCheckpoint
from engine.vision.describe import describe
from engine.vision.opening import vision_spec
from engine.weights import open_checkpoint
from engine.weights.gguf.metadata import GgufMetadata
from tests.engine.models.oracle import load, logits
from tests.engine.vision.tiny.encoding import Encoded, picture
from tests.engine.vision.tiny.families import FAMILIES
from tests.engine.vision.tiny.mmproj import write_model
from tests.engine.vision.tiny.ollama_files import FORMS, written

TOKENS = [5, 80, 200, 7, 31, 31, 300, 12, 90, 4]


@pytest.fixture(scope="module", params=FORMS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder, and the model in it as one file."""
    folder = tmp_path_factory.mktemp("folder")
    FAMILIES[request.param.split(",")[0]](folder)
    return folder, written(
        FORMS[request.param], folder, tmp_path_factory.mktemp("blobs") / f"sha256-{'a' * 64}"
    )


def test_pictures_are_read_as_from_the_folder(pair: tuple[Path, Path]) -> None:
    folder, file = map(Encoded, pair)
    with closing(folder), closing(file):
        assert file.spec == folder.spec
        for width, height in ((140, 84), (112, 112), (84, 168)):
            found, expected = file.rows(picture(width, height)), folder.rows(picture(width, height))
            assert len(found) == len(expected)
            for own, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(own.states, other.states, atol=5e-5)
                for deep, others in zip(own.deep, other.deep, strict=True):
                    np.testing.assert_allclose(deep, others, atol=5e-5)
            assert file.layout(width, height) == folder.layout(width, height)


def test_texts_are_read_as_from_the_folder(pair: tuple[Path, Path]) -> None:
    folder, file = (logits(load(path), TOKENS) for path in pair)
    np.testing.assert_allclose(file, folder, atol=1e-4 * np.abs(folder).max())


def test_the_encoder_is_in_the_models_own_file(pair: tuple[Path, Path]) -> None:
    info = describe(pair[1])
    assert (info.reads_pictures, info.vision_file, info.vision_file_bytes) == (True, "", 0)
    assert info.vision_bytes > 0
    assert not info.lacks_vision_file


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Gemma 3."""
    folder = tmp_path_factory.mktemp("gemma3")
    FAMILIES["gemma3"](folder)
    return folder


@pytest.mark.parametrize(
    "keys",
    [
        {"vision.patch_size": 0}, {"vision.patch_size": "14"}, {"vision.attention.head_count": 0},
        {"vision.block_count": 1 << 20}, {"vision.embedding_length": 13}, {"mm.tokens_per_image": 1 << 30},
        {"vision.image_size": [84]}, {"vision.block_count": 3},
    ],
)  # fmt: skip
def test_damaged_keys_leave_the_text_model(tmp_path: Path, made: Path, keys: dict[str, Any]) -> None:
    form = FORMS["gemma3"]
    text = replace(form.text, keys=lambda config: {**form.text.keys(config), **keys})
    path = written(replace(form, text=text), made, tmp_path / "gemma.gguf")
    with closing(open_checkpoint(path)) as checkpoint, pytest.raises(BadCheckpoint):
        vision_spec(checkpoint)
    info = describe(path)
    assert (info.reads_pictures, info.layers) == (False, 3)
    assert info.remarks[-1].startswith("The model's pictures cannot be read: ")


@pytest.mark.parametrize("deep", [[9, 1], ["x"], 7, [[0]], [True]])
def test_damaged_lists_of_deep_layers(tmp_path: Path, deep: object) -> None:
    FAMILIES["qwen3_vl"](tmp_path)
    form, keys = FORMS["qwen3_vl"], {"vision.deepstack_visual_indexes": deep}
    text = replace(form.text, keys=lambda config: {**form.text.keys(config), **keys})
    info = describe(written(replace(form, text=text), tmp_path, tmp_path / "qwen.gguf"))
    assert not info.reads_pictures
    assert "is_deepstack_layers" in info.remarks[-1]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"vision.max_num_tiles": 0}, "max_num_tiles"),
        ({"vision.max_num_tiles": 2}, "pre_tile_position_embd"),
        ({"vision.intermediate_layers_indices": [7]}, "intermediate_layers_indices"),
        ({"vision.global.block_count": 3}, "v.global.blk.2"), ({"vision.image_size": 30}, "30 pixels wide"),
        ({"vision.attention.head_count": 3}, "multiple of attention.head_count"),
    ],
)  # fmt: skip
def test_damaged_encoders_of_llama_3_2(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    FAMILIES["mllama"](tmp_path)
    text = FORMS["mllama"].text
    changed = replace(text, keys=lambda config: {**text.keys(config), **keys})
    info = describe(written(replace(FORMS["mllama"], text=changed), tmp_path, tmp_path / "m.gguf"))
    assert (info.reads_pictures, info.layers) == (False, 5)
    assert words in info.remarks[-1]


def test_layers_that_look_at_pictures_are_among_all(tmp_path: Path) -> None:
    FAMILIES["mllama"](tmp_path)
    text = FORMS["mllama"].text
    keys = {"attention.cross_attention_layers": [1, 9]}
    changed = replace(text, keys=lambda config: {**text.keys(config), **keys})
    path = written(replace(FORMS["mllama"], text=changed), tmp_path, tmp_path / "m.gguf")
    with pytest.raises(BadCheckpoint, match=r"attention\.cross_attention_layers"):
        describe(path)


def test_files_of_llama_cpp_are_left_as_they_are(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", "gemma3", 32)
    with closing(open_checkpoint(path)) as checkpoint:
        assert isinstance(checkpoint.metadata, GgufMetadata)
