"""What the catalogue finds, in which order, and what it leaves out; always off the GUI thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from desktop.items.catalogue import ModelEntry
from desktop.services.catalogue import CatalogueService, model_paths
from engine.core import ModelInfo
from engine.errors import BadCheckpoint
from tests.desktop.fakes import EchoDoor


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


class Describer:
    """Counts its calls and notes their threads; a file named "broken..." is refused."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.gate: threading.Event | None = None

    def __call__(self, path: Path) -> ModelInfo:
        self.calls.append(path.name)
        self.threads.add(threading.get_ident())
        if self.gate is not None:
            self.gate.wait(10)
        if path.name.startswith("broken"):
            raise BadCheckpoint(f"The file {path.name} ends too early: fetch it again.")
        return EchoDoor().describe(path)


@pytest.fixture
def describer() -> Describer:
    return Describer()


@pytest.fixture
def catalogue(qtbot: QtBot, describer: Describer) -> Iterator[CatalogueService]:
    found = CatalogueService(describer)
    yield found
    assert found.close()


def search(qtbot: QtBot, catalogue: CatalogueService, *values: Any) -> list[str]:
    with qtbot.waitSignal(catalogue.finished, timeout=10_000):
        catalogue.refresh(*values)
    return [entry.name for entry in catalogue.entries]


def test_model_paths(tmp_path: Path) -> None:
    make(
        tmp_path, "b.gguf", "A.GGUF", "notes.txt", "split-00001-of-00003.gguf", "split-00002-of-00003.gguf", "split-00003-of-00003.gguf",
        "pub/model/x.gguf", "hf/config.json", "hf/model.safetensors", "half/config.json", ".cache/hidden.gguf", "1/2/3/4/deep.gguf",
        "1/2/3/4/5/deeper.gguf",
    )  # fmt: skip
    (tmp_path / "folder.gguf").mkdir()
    os.symlink(tmp_path, tmp_path / "pub" / "round")
    found = [str(path.relative_to(tmp_path)) for path in model_paths(tmp_path, threading.Event())]
    assert found == ["A.GGUF", "b.gguf", "split-00001-of-00003.gguf", "hf", "pub/model/x.gguf", "1/2/3/4/deep.gguf"]
    assert list(model_paths(tmp_path / "nowhere", threading.Event())) == []
    stopped = threading.Event()
    stopped.set()
    assert list(model_paths(tmp_path, stopped)) == []


def test_recent_ones_first_each_once(qtbot: QtBot, catalogue: CatalogueService, describer: Describer, tmp_path: Path) -> None:
    make(tmp_path, "one/a.gguf", "one/b.gguf", "two/c.gguf", "one/broken.gguf")
    recent = [str(tmp_path / "two" / "c.gguf"), str(tmp_path / "gone.gguf")]
    assert search(qtbot, catalogue, recent, [tmp_path / "one", tmp_path / "two"]) == ["c", "a", "b", "broken"]
    assert catalogue.entries[0] == ModelEntry(recent[0], "c", "1 M · 4.5 bit · 562 kB")
    assert catalogue.entries[3].trouble == "The file broken.gguf ends too early: fetch it again."
    assert threading.get_ident() not in describer.threads


def test_headers_are_read_once_until_the_file_changes(
    qtbot: QtBot, catalogue: CatalogueService, describer: Describer, tmp_path: Path
) -> None:
    make(tmp_path, "a.gguf", "b.gguf")
    search(qtbot, catalogue, [], [tmp_path])
    (tmp_path / "b.gguf").write_bytes(b"longer")
    assert search(qtbot, catalogue, [], [tmp_path]) == ["a", "b"]
    assert describer.calls == ["a.gguf", "b.gguf", "b.gguf"]


def test_a_new_search_ends_the_old_one(qtbot: QtBot, catalogue: CatalogueService, describer: Describer, tmp_path: Path) -> None:
    make(tmp_path, *(f"old/{n}.gguf" for n in range(50)), "new/n.gguf")
    describer.gate = threading.Event()
    catalogue.refresh([], [tmp_path / "old"])
    qtbot.waitUntil(lambda: describer.calls != [])
    with qtbot.waitSignal(catalogue.finished, timeout=10_000):
        catalogue.refresh([], [tmp_path / "new"])
        describer.gate.set()
    assert [entry.name for entry in catalogue.entries] == ["n"]
    assert len(describer.calls) == 2
