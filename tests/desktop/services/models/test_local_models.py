"""What the search for local models finds, in which order, and what it leaves out; off the GUI thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.items.models.local_models import ModelEntry
from desktop.services.models.local_models import LocalModelsService
from engine.core import ModelInfo
from engine.errors import BadCheckpoint
from engine.hub.local.scan import FoundModel
from tests.desktop.fakes import EchoApi


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


class Describer:
    """Counts its calls and records their threads; a file named "broken..." is refused."""

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
        return EchoApi().describe(path)


@pytest.fixture
def describer() -> Describer:
    return Describer()


@pytest.fixture
def catalogue(qtbot: QtBot, describer: Describer) -> Iterator[LocalModelsService]:
    found = LocalModelsService(describer)
    yield found
    assert found.close()


def search(qtbot: QtBot, catalogue: LocalModelsService, recent: list[str], folders: list[Path]) -> list[str]:
    with qtbot.waitSignal(catalogue.finished):
        catalogue.refresh(recent, [("Mine", str(folder)) for folder in folders])
    return [entry.name for entry in catalogue.entries]


def test_recent_models_come_first_and_each_once(
    qtbot: QtBot, catalogue: LocalModelsService, describer: Describer, tmp_path: Path
) -> None:
    make(tmp_path, "one/a.gguf", "one/b.gguf", "two/c.gguf", "one/broken.gguf")
    recent = [str(tmp_path / "two" / "c.gguf"), str(tmp_path / "gone.gguf")]
    assert search(qtbot, catalogue, recent, [tmp_path / "one", tmp_path / "two"]) == ["c", "a", "b", "broken"]
    first = catalogue.entries[0]
    assert first == ModelEntry(
        recent[0], "c", "1 M · 4.5 bit · 562 kB", source="Mine", info=EchoApi().describe(Path(recent[0]))
    )
    assert catalogue.entries[3].trouble == "The file broken.gguf ends too early: fetch it again."
    assert threading.get_ident() not in describer.threads


def test_a_recent_model_that_cannot_be_looked_at_hides_no_other(
    qtbot: QtBot, catalogue: LocalModelsService, tmp_path: Path
) -> None:
    """As on a disk that was taken out, or in another user's folder."""
    make(tmp_path, "b.gguf", "mine/a.gguf")
    recent = [str(tmp_path / ("n" * 300)), str(tmp_path / "b.gguf")]
    assert search(qtbot, catalogue, recent, [tmp_path / "mine"]) == ["b", "a"]


def test_headers_are_read_once_until_the_file_changes(
    qtbot: QtBot, catalogue: LocalModelsService, describer: Describer, tmp_path: Path
) -> None:
    make(tmp_path, "a.gguf", "b.gguf")
    search(qtbot, catalogue, [], [tmp_path])
    (tmp_path / "b.gguf").write_bytes(b"longer")
    assert search(qtbot, catalogue, [], [tmp_path]) == ["a", "b"]
    assert describer.calls == ["a.gguf", "b.gguf", "b.gguf"]


def test_headers_are_read_again_when_a_vision_encoder_comes_or_goes(
    qtbot: QtBot, catalogue: LocalModelsService, describer: Describer, tmp_path: Path
) -> None:
    make(tmp_path, "a.gguf", "other/b.gguf")
    search(qtbot, catalogue, [], [tmp_path])
    make(tmp_path, "mmproj-a.gguf")
    assert search(qtbot, catalogue, [], [tmp_path]) == ["a", "b"]
    (tmp_path / "mmproj-a.gguf").unlink()
    search(qtbot, catalogue, [], [tmp_path])
    search(qtbot, catalogue, [], [tmp_path])
    assert describer.calls == ["a.gguf", "b.gguf", "a.gguf"]  # without it, what was read first holds


def test_headers_are_read_again_when_ollama_pulls_a_vision_encoder(
    qtbot: QtBot, catalogue: LocalModelsService, describer: Describer, tmp_path: Path
) -> None:
    blobs = [f"sha256-{digit * 64}" for digit in "ab"]
    make(tmp_path, *(f"blobs/{blob}" for blob in blobs), "manifests/host/owner/name/tag")
    kinds = "model", "projector"
    layers = [
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": blob}
        for kind, blob in zip(kinds, blobs, strict=True)
    ]
    for known in (1, 1, 2, 2):
        (tmp_path / "manifests/host/owner/name/tag").write_text(json.dumps({"layers": layers[:known]}))
        assert search(qtbot, catalogue, [], [tmp_path]) == ["host/owner/name:tag"]
    assert describer.calls == [blobs[0]] * 2


def test_a_new_search_replaces_the_old_one(
    qtbot: QtBot, catalogue: LocalModelsService, describer: Describer, tmp_path: Path
) -> None:
    make(tmp_path, *(f"old/{n}.gguf" for n in range(50)), "new/n.gguf")
    describer.gate = threading.Event()
    catalogue.refresh([], [("Mine", str(tmp_path / "old"))])
    qtbot.waitUntil(lambda: describer.calls != [])
    with qtbot.waitSignal(catalogue.finished):
        catalogue.refresh([], [("Mine", str(tmp_path / "new"))])
        describer.gate.set()
    assert [entry.name for entry in catalogue.entries] == ["n"]
    assert len(describer.calls) == 2


def test_a_slow_search_does_not_block_the_window(qtbot: QtBot) -> None:
    """A scan that hangs in a dead network folder: the loop continues, and earlier results are still there."""
    gate, begun = threading.Event(), threading.Event()

    def find(folders: Sequence[tuple[str, str]], stop: threading.Event) -> Iterator[FoundModel]:
        for number in range(2):
            yield FoundModel(Path(f"/m/{number}.gguf"), str(number), "Slow", "It is only described.")
        begun.set()
        gate.wait(10)

    catalogue = LocalModelsService(find=find)
    reported: list[int] = []
    catalogue.changed.connect(lambda entries: reported.append(len(entries)))
    gate.set()
    with qtbot.waitSignal(catalogue.finished):
        catalogue.refresh([], [])
    gate.clear()
    begun.clear()
    catalogue.refresh([], [])
    assert catalogue.searching  # did not wait for the gate
    qtbot.waitUntil(begun.is_set)
    assert [entry.name for entry in catalogue.entries] == ["0", "1"]
    gate.set()
    qtbot.waitUntil(lambda: not catalogue.searching)
    assert reported[-1] == 2
    assert catalogue.close()


def test_a_thousand_models_are_reported_in_few_steps(qtbot: QtBot) -> None:
    def find(folders: Sequence[tuple[str, str]], stop: threading.Event) -> Iterator[FoundModel]:
        yield from (
            FoundModel(Path(f"/m/{number}.gguf"), str(number), "Many", "No.") for number in range(1000)
        )

    catalogue = LocalModelsService(find=find)
    reported: list[int] = []
    catalogue.changed.connect(lambda entries: reported.append(len(entries)))
    with qtbot.waitSignal(catalogue.finished):
        catalogue.refresh([], [])
    assert reported[-1] == 1000
    assert len(reported) < 50
    assert catalogue.close()


def test_a_name_that_the_file_does_not_have(
    qtbot: QtBot, catalogue: LocalModelsService, describer: Describer, tmp_path: Path
) -> None:
    make(tmp_path, "models/qwen-small/model.gguf")
    path = tmp_path / "models" / "qwen-small" / "model.gguf"
    assert search(qtbot, catalogue, [str(path)], []) == ["qwen-small"]
    assert search(qtbot, catalogue, [], [tmp_path / "models"]) == ["qwen-small"]
    assert describer.calls == ["model.gguf"]
