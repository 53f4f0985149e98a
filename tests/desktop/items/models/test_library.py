"""The model library's table: texts, order, filter, and rows that keep their identity while models come and
go.
"""

from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import QPersistentModelIndex, Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from desktop.items.models.hub import ChoicesModel, HubModels, choice_lines, model_lines
from desktop.items.models.library import COLUMNS, TONE_ROLE, LibraryModel, fit_text, speed_text
from desktop.items.models.local_models import ModelEntry, entry
from engine.hub import HubChoice, HubModel
from engine.models.memory.fit import Fit
from tests.desktop.fakes import ECHO_INFO

DISPLAY = Qt.ItemDataRole.DisplayRole


def made(name: str, source: str = "Here", **facts: object) -> ModelEntry:
    return entry(dataclasses.replace(ECHO_INFO, path=f"/m/{name}.gguf", name=name, **facts), source)  # type: ignore[arg-type]


def judged(total: int, verdict: str = "fits", speed: float = 12.3) -> Fit:
    return Fit(total, 0, 0, total, 8 * 10**9, 4096, verdict, speed, False, f"It takes {total}.")


BROKEN = ModelEntry("/m/broken.gguf", "broken", trouble="It ends too early.", source="Ollama")
ENTRIES = (
    made("b", weights_bytes=2_000_000_000, quantisation="Q4_K_M", licence="mit"),
    made("A", "Ollama", weights_bytes=10_000_000), made("c", context_length=131072, has_chat_template=False),
    BROKEN,
)  # fmt: skip


@pytest.fixture
def library(qtbot: QtBot) -> LibraryModel:
    model = LibraryModel()
    QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal, model)
    model.show_entries(ENTRIES)
    return model


def texts(model: LibraryModel, column: str = "Name") -> list[object]:
    return [model.index(row, COLUMNS.index(column)).data(DISPLAY) for row in range(model.rowCount())]


def test_texts(library: LibraryModel) -> None:
    library.show_fits(
        {"/m/b.gguf": judged(2_500_000_000), "/m/c.gguf": judged(9_000_000_000, "too large", 0.123)}
    )
    assert texts(library) == ["A", "b", "broken", "c"]
    assert texts(library, "Memory") == ["", "Fits, 2.5 GB", "Unusable", "Too large, 9 GB"]
    assert texts(library, "Speed") == ["", "≈ 12 tokens/s", "", "≈ 0.12 tokens/s"]
    assert texts(library, "Size") == ["10 MB", "2 GB", "", "562 kB"]
    assert texts(library, "Quantisation") == ["", "Q4_K_M", "", ""]
    assert texts(library, "Context") == ["4,096", "4,096", "", "131,072"]
    assert texts(library, "Template") == ["Yes", "Yes", "", "No"]
    assert texts(library, "Licence") == ["", "mit", "", ""]
    assert texts(library, "Where") == ["Ollama", "Here", "Ollama", "Here"]
    broken = library.index(2, COLUMNS.index("Memory"))
    assert broken.data(Qt.ItemDataRole.ToolTipRole) == "It ends too early."
    assert broken.data(TONE_ROLE) == "danger"
    assert library.index(1, 1).data(Qt.ItemDataRole.AccessibleTextRole) == "Memory: Fits, 2.5 GB"
    assert library.index(0, 4).data(Qt.ItemDataRole.AccessibleTextRole) == "Quantisation: unknown"
    assert speed_text(judged(1, speed=1234.0)) == "≈ 1,200 tokens/s"
    assert speed_text(dataclasses.replace(judged(1, speed=31.4), measured=True)) == "31 tokens/s"
    assert fit_text(judged(9_000_000_000, "on disk", 0.0)) == "Partly on disk, 9 GB"


def test_embedding_models_are_named_so_and_have_no_speed(library: LibraryModel) -> None:
    vectors = made("v", embedding=True, architecture="BertModel")
    assert vectors.detail.startswith("embedding model · ")
    library.show_entries((vectors, *ENTRIES))
    library.show_fits({"/m/v.gguf": judged(10_000_000)})
    row = texts(library).index("v")
    assert str(texts(library, "Architecture")[row]).startswith("BertModel ")
    assert str(texts(library, "Architecture")[row]).endswith(", embedding model")
    assert (texts(library, "Speed")[row], texts(library, "Memory")[row]) == ("", "Fits, 10 MB")


def test_models_come_and_go(library: LibraryModel) -> None:
    reported: list[str] = []
    for name in ("modelReset", "layoutChanged", "dataChanged"):
        getattr(library, name).connect(lambda *_, name=name: reported.append(name))
    library.show_fits({"/m/A.gguf": judged(1)})
    library.show_entries((ENTRIES[1], made("new"), BROKEN))
    assert texts(library) == ["A", "broken", "new"]
    assert texts(library, "Memory")[0] == "Fits, 1 bytes"
    assert reported == ["dataChanged", "modelReset"]
    library.show_entries((ENTRIES[1], made("new"), BROKEN))
    library.show_fits({"/m/A.gguf": judged(1)})
    assert reported == ["dataChanged", "modelReset"]  # no signal without a change
    library.show_loaded("/m/new.gguf")
    assert texts(library) == ["A", "broken", "new  (loaded)"]
    library.show_loaded("")
    assert texts(library)[2] == "new"
    library.show_entries(())
    assert library.rowCount() == 0


def test_a_selected_row_moves_with_its_model(library: LibraryModel) -> None:
    chosen = QPersistentModelIndex(library.index(library.row_of("/m/c.gguf"), 2))
    library.sort(COLUMNS.index("Name"), Qt.SortOrder.DescendingOrder)
    assert texts(library) == ["c", "broken", "b", "A"]
    assert (chosen.row(), chosen.column()) == (0, 2)
    assert library.row_of("/m/nowhere.gguf") == -1


def test_order(library: LibraryModel) -> None:
    library.show_fits(
        {
            "/m/b.gguf": judged(2, speed=5.0),
            "/m/A.gguf": judged(1, speed=50.0),
            "/m/c.gguf": judged(3, "too large", 500.0),
        }
    )
    rows = library
    assert texts(rows) == ["A", "b", "broken", "c"]

    def by(column: str, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> list[object]:
        rows.sort(COLUMNS.index(column), order)
        return texts(rows)

    assert by("Memory") == ["A", "b", "c", "broken"]
    assert by("Speed", Qt.SortOrder.DescendingOrder) == ["c", "A", "b", "broken"]
    assert by("Size") == ["broken", "c", "A", "b"]
    assert by("Context", Qt.SortOrder.DescendingOrder)[0] == "c"
    assert by("Architecture") == ["broken", "A", "b", "c"]


def test_filter(library: LibraryModel) -> None:
    rows = library
    rows.show_matching("q4_k MIT", "")
    assert texts(rows) == ["b"]
    rows.show_matching("", "Ollama")
    assert texts(rows) == ["A", "broken"]
    rows.show_matching("early", "Ollama")
    assert texts(rows) == ["broken"]
    rows.show_matching("", "", ["/m/broken.gguf", "/m/A.gguf"])
    assert texts(rows) == ["b", "c"]
    assert library.sources() == ("Here", "Ollama")


def test_lines_of_the_hub() -> None:
    model = HubModel(
        "org/m",
        "org",
        1_250_000,
        3,
        "2025-10-01T12:00:00",
        "mit",
        True,
        (),
        ("gguf",),
        "llama",
        8_030_000_000,
    )
    assert model_lines(model) == (
        "org/m",
        "8.03 B parameters · GGUF · 1.2 M downloads · mit · updated 2025-10-01 · terms to accept",
    )
    assert model_lines(HubModel("gpt2", "", 950)) == ("gpt2", "950 downloads")
    drafter = HubModel("org/d", "org", 950, base="org/m", drafter="EAGLE-3")
    assert model_lines(drafter)[1] == "EAGLE-3 drafter for org/m · 950 downloads"
    unnamed = dataclasses.replace(drafter, base="")
    assert model_lines(unnamed)[1] == "EAGLE-3 drafter · 950 downloads"
    choice = HubChoice(
        "org/m", "a" * 40, "Q4_K_M", "gguf", (), 4_900_000_000, 5_900_000_000, recommended=True
    )
    assert choice_lines(choice) == ("Q4_K_M  ★ recommended", "4.9 GB to download · fits, needs about 5.9 GB")
    assert (
        choice_lines(dataclasses.replace(choice, fits_memory=False))[1]
        == "4.9 GB to download · too large for this computer's memory"
    )
    assert (
        choice_lines(dataclasses.replace(choice, fits_disk=False))[1]
        == "4.9 GB to download · not enough disk space"
    )


def test_a_download_with_a_vision_encoder_says_so() -> None:
    choice = HubChoice(
        "org/m", "a" * 40, "Q4_K_M", "gguf", (), 3_300_000_000, 3_000_000_000, vision_bytes=850_000_000
    )
    assert choice_lines(choice)[1] == (
        "3.3 GB to download, 850 MB of it to read pictures · fits, needs about 3 GB"
    )


def test_models_that_read_pictures_are_found_by_these_words(library: LibraryModel) -> None:
    seeing = made("d", reads_pictures=True, file_bytes=2_000_000_000, vision_file_bytes=500_000_000)
    assert seeing.detail.endswith("2.5 GB · reads pictures")
    library.show_entries((*ENTRIES, seeing))
    library.show_matching("reads pictures", "")
    assert texts(library) == ["d"]
    assert str(texts(library, "Architecture")[0]).endswith(", reads pictures")


def test_lists_of_the_hub(qtbot: QtBot) -> None:
    found, choices = HubModels(), ChoicesModel()
    for model in (found, choices):
        QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal, model)
    found.set_rows([HubModel("org/m", "org")])
    assert found.index(0).data(Qt.ItemDataRole.AccessibleTextRole) == "org/m, 0 downloads"
    assert found.model(1) is None
    assert choices.recommended() == -1
    choices.set_rows([HubChoice("m", "a", title, "gguf", (), 1, recommended=title == "B") for title in "ABC"])
    assert choices.recommended() == 1
