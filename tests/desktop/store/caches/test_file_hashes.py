"""Which files a model has, and the hashes of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from desktop.store.caches import file_hashes
from desktop.store.caches.file_hashes import FILE_NAME, FileHashes, computed, identity, parts


def write(folder: Path, *names: str) -> list[Path]:
    found = [folder / name for name in names]
    for path in found:
        path.write_text(path.name)
    return found


def test_the_files_of_a_model(tmp_path: Path) -> None:
    config, weights = write(tmp_path, "config.json", "model.safetensors")
    write(tmp_path, "README.md", "a.bin")
    (tmp_path / "folder.json").mkdir()
    assert parts(tmp_path) == [config, weights]
    (versioned,) = write(tmp_path, "tokenizer.model.v3")
    assert parts(tmp_path) == [config, weights, versioned]
    (one,) = write(tmp_path, "m-Q4.gguf")
    assert parts(one) == [one]
    first, second = write(tmp_path, "m-Q4-00001-of-00002.gguf", "m-Q4-00002-of-00002.gguf")
    write(tmp_path, "m-Q8-00001-of-00002.gguf", "m-Q4-00001-of-00003.gguf")
    assert parts(second) == [first, second]
    for name in ("best-of-all.gguf", "7.gguf"):
        (named,) = write(tmp_path, name)
        assert parts(named) == [named]
    assert parts(tmp_path / "m-Q5-00001-of-00002.gguf") == parts(tmp_path / "none.gguf") == []


def test_a_model_is_another_when_a_file_has_changed(tmp_path: Path) -> None:
    assert identity(tmp_path) == ""
    config, weights = write(tmp_path, "config.json", "model.safetensors")
    os.utime(weights, ns=(5, 5))
    before = identity(tmp_path)
    assert before.startswith(f"{tmp_path}|")
    os.utime(weights, ns=(5, 6))
    later = identity(tmp_path)
    config.write_text("longer than before")
    assert len({before, later, identity(tmp_path), identity(weights)}) == 4
    config.rename(tmp_path / "other.json")
    os.utime(weights, ns=(5, 5))
    assert identity(tmp_path) != before


def test_hashes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_hashes, "_MOST", 2)
    hashes = FileHashes(tmp_path / FILE_NAME)
    for key in "abc":
        hashes.put(key, f"hash of {key}")
    hashes.put("", "of none")
    for each in (hashes, FileHashes(tmp_path / FILE_NAME)):
        assert [each.get(key) for key in ("a", "b", "c", "")] == ["", "", "hash of c", ""]
    (tmp_path / FILE_NAME).write_text("[1")
    assert FileHashes(tmp_path / FILE_NAME).get("c") == ""


def test_hashes_are_those_of_one_file_or_of_the_lines_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_hashes, "_PIECE", 8)
    config, weights = write(tmp_path, "config.json", "model.safetensors")
    sums = [hashlib.sha256(path.name.encode()).hexdigest() for path in (config, weights)]
    assert list(computed(weights, lambda: True)) == [
        (8, 17, ""),
        (16, 17, ""),
        (17, 17, ""),
        (17, 17, sums[1]),
    ]
    lines = f"{sums[0]}  config.json\n{sums[1]}  model.safetensors"
    assert list(computed(tmp_path, lambda: True)) == [
        *((done, 28, "") for done in (8, 11, 19, 27, 28)),
        (28, 28, hashlib.sha256(lines.encode()).hexdigest()),
    ]
    answers = iter([True, False])
    assert list(computed(weights, lambda: next(answers))) == [(8, 17, "")]
    assert list(computed(tmp_path / "none.gguf", lambda: True)) == []


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000])
def test_a_file_of_hashes_that_cannot_be_read_is_begun_again(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    hashes = FileHashes(tmp_path / FILE_NAME)
    assert hashes.get("a") == ""
    hashes.put("a", "1")
    assert FileHashes(tmp_path / FILE_NAME).get("a") == "1"
