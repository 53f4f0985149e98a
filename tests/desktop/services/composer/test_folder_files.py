"""A folder of documents is attached as its files; a folder of a model is a model."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from desktop.services.composer.attachment_reading import read_files
from desktop.services.composer.folder_files import MOST_FILES, files_of, holds_files
from desktop.store.attachments.message_format import Attachment
from desktop.views.layout.drop_overlay import is_model


def filled(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"words of {name}")
    return folder


def read(*paths: Path) -> list[object]:
    found = [each for each in read_files(paths, threading.Event()) if each is not None]
    return [each.name if isinstance(each, Attachment) else each for each in found]


@pytest.mark.parametrize(
    ("names", "attached"),
    [
        (["b.txt", "a.md"], True),
        (["a.py", "inside/model.gguf"], True),
        ([".hidden"], False),
        (["inside/a.txt"], False),
        (["README.md", "model-00001-of-00002.safetensors"], False),
        (["README.md", "Model.GGUF"], False),
        (["config.json", "pytorch_model.bin"], False),
        ([], False),
    ],
)
def test_a_folder_is_documents_or_a_model(tmp_path: Path, names: list[str], attached: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    filled(folder, *names)
    assert holds_files(folder) is attached
    assert is_model(folder) is not attached


def test_what_is_no_folder_holds_no_files(tmp_path: Path) -> None:
    filled(tmp_path, "a.txt")
    for path in (tmp_path / "a.txt", tmp_path / "gone", Path("a\0b")):
        assert not holds_files(path)
        assert not is_model(path)


def test_the_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = filled(tmp_path / "notes", "b.txt", "A.txt", "c.txt", ".hidden.txt", "inside/d.txt")
    assert [path.name for path in files_of(folder)] == ["A.txt", "b.txt", "c.txt"]
    filled(tmp_path, "single.txt")
    assert read(folder, tmp_path / "single.txt") == ["A.txt", "b.txt", "c.txt", "single.txt"]


def test_of_a_folder_with_very_many_files_the_first_are_read_and_that_is_said(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs", *(f"{number:03}.log" for number in range(MOST_FILES + 1)))
    *names, sentence = read(folder)
    assert names == [f"{number:03}.log" for number in range(MOST_FILES)]
    assert sentence == "“logs” has more than 50 files. Only the first 50 were attached."


def test_a_folder_that_is_gone_meanwhile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = filled(tmp_path / "stick", "a.txt")

    def unplugged(path: Path) -> list[Path]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("desktop.services.composer.attachment_reading.files_of", unplugged)
    assert read(folder) == ["“stick” cannot be read: Input/output error."]
