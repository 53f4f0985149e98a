"""Files from outside that cannot even be looked at: each has its sentence, and the others are opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from desktop.store.transfer.importers.peek import is_chats
from desktop.views.layout.drop_overlay import is_model
from desktop.views.layout.file_opener import FileHandler, FileOpener
from desktop.views.models.controller import meant_model


def test_files_that_cannot_be_opened_are_named_with_the_reason(tmp_path: Path) -> None:
    opened: list[list[Path]] = []
    refused: list[str] = []
    (tmp_path / "good.gguf").touch()
    (tmp_path / "odd.bin").touch()
    opener = FileOpener(
        [FileHandler(is_model, opened.append, "models"), FileHandler(is_chats, opened.append, "chats")]
    )
    opener.refused.connect(refused.append)
    name = "n" * 300
    paths = [
        tmp_path / name,
        tmp_path / "gone.txt",
        Path("a\0b"),
        tmp_path / "odd.bin",
        tmp_path / "good.gguf",
    ]
    assert opener.hint(paths[:4]) == ""
    opener.open(paths)
    assert opened == [[tmp_path / "good.gguf"]]
    assert refused[0].startswith(f"“{name}” cannot be read: ")
    assert refused[1] == "“gone.txt” cannot be read: No such file or directory."
    assert refused[2].endswith("is not a model or a file that Inglenook can open.")
    assert refused[3] == "“odd.bin” is not a model or a file that Inglenook can open."
    assert meant_model(tmp_path / name) == tmp_path / name


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions bind no administrator")
def test_files_in_a_folder_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    inside = tmp_path / "closed" / "note.json"
    assert not is_model(inside)
    assert not is_chats(inside)
    assert not is_chats(tmp_path / "closed")
