"""What is said of GGUF files that hold no model that writes text from left to right."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from engine.errors import BadCheckpoint, UnsupportedModel
from engine.models.load import find_architecture
from engine.weights import open_checkpoint


def written(path: Path, architecture: str, parts: int = 0, type: str = "") -> Path:
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    if type:
        writer.add_string("general.type", type)
    if parts:
        writer.add_uint16("split.count", parts)
    writer.add_tensor("x", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llada", "a diffusion language model"), ("llada-moe", "a diffusion language model"),
        ("dream", "a diffusion language model"), ("rnd1", "a diffusion language model"),
        ("t5", "an encoder-decoder model"), ("t5encoder", "an encoder"), ("neo-bert", "an encoder"),
        ("clip", "only the part of a model that takes pictures or sounds"),
        ("wavtokenizer-dec", "makes sound of the codes"), ("gptj", "no program reads GGUF files"),
        ("flux", "makes pictures or films (flux)"), ("imatrix", "data of the kind imatrix"),
        ("another", "has the architecture 'another'"),
    ],
)  # fmt: skip
def test_a_sentence_says_what_the_file_is(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel) as error:
        find_architecture(open_checkpoint(written(tmp_path / "m.gguf", name)))
    said = str(error.value)
    assert said.startswith("m.gguf ")
    assert words in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("type", "words"),
    [
        ("adapter", "an adapter (LoRA)"),
        ("vocab", "of the kind vocab"),
        ("mmproj", "pictures or sounds (mmproj)"),
    ],
)
def test_a_type_of_file_counts_before_its_architecture(type: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=re.escape(words)):
        find_architecture(open_checkpoint(written(tmp_path / "m.gguf", "llama", type=type)))


def test_a_whole_file_may_have_the_name_of_a_part(tmp_path: Path) -> None:
    """As llama.cpp reads it: only what the file says of parts counts."""
    path = tmp_path / "m-00002-of-00004.gguf"
    for count in (0, 1):
        for opened in (written(path, "llama", count), tmp_path):
            assert open_checkpoint(opened).path == path
    written(path, "llama", 4)
    with pytest.raises(BadCheckpoint, match="one of 4 parts, but m-00001-of-00004"):
        open_checkpoint(path)
