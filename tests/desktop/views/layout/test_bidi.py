"""A right-to-left interface: labels are aligned, figures keep their order, tables can be used."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel, QVBoxLayout, QWidget

from desktop.items.models.library import LibraryModel
from desktop.items.models.local_models import ModelEntry
from desktop.views.layout.bidi import isolated
from desktop.views.models.library_table import LibraryTable
from desktop.views.widgets.theme import style_sheet, tokens

ALIGN = Qt.AlignmentFlag


@pytest.fixture
def mirrored(qapp: QApplication):
    qapp.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    yield
    qapp.setLayoutDirection(Qt.LayoutDirection.LeftToRight)


def test_figures_are_isolated_once_and_only_there(qapp: QApplication, mirrored: None) -> None:
    assert isolated("100 %") == "\u2068100 %\u2069"
    assert isolated(isolated("100 %")) == isolated("100 %")
    assert isolated("") == ""
    qapp.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
    assert isolated("100 %") == "100 %"


def ink(label: QLabel) -> tuple[int, int]:
    """The first and the last column of a label in which something is drawn."""
    picture = label.grab().toImage()
    ground = picture.pixelColor(label.width() // 2, 0)
    seen = [
        x
        for x in range(picture.width())
        if any(picture.pixelColor(x, y) != ground for y in range(picture.height()))
    ]
    return seen[0], seen[-1]


@pytest.mark.parametrize(
    "own", [None, ALIGN.AlignTop, ALIGN.AlignTop | ALIGN.AlignLeading, ALIGN.AlignVCenter]
)
def test_a_label_stands_at_the_side_at_which_its_row_begins(qtbot, mirrored: None, own: ALIGN | None) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    column, label, middle = QVBoxLayout(window), QLabel("Some words."), QLabel("Some words.")
    middle.setAlignment(ALIGN.AlignCenter)
    if own is not None:
        label.setAlignment(own)
    column.addWidget(label)
    column.addWidget(middle)
    window.setStyleSheet(style_sheet(tokens("light"), mirrored=True))
    window.resize(400, 120)
    window.show()
    assert ink(label)[1] > label.width() - 8
    assert ink(middle)[1] < middle.width() - 100
    window.setStyleSheet(style_sheet(tokens("dark"), mirrored=True))
    assert ink(label)[1] > label.width() - 8


def test_a_model_can_be_chosen_in_a_mirrored_table(qtbot, mirrored: None) -> None:
    models = LibraryModel()
    table = LibraryTable(models)
    qtbot.addWidget(table)
    table.resize(500, 200)
    table.show()
    models.show_entries([ModelEntry(f"/m{number}.gguf", f"m{number}") for number in range(3)])
    chosen: list[str] = []
    table.selected.connect(chosen.append)
    table.select("/m1.gguf")
    assert table.path() == "/m1.gguf"
    assert chosen == ["/m1.gguf"]
    assert [index.row() for index in table.selectionModel().selectedRows()] == [1]


def test_names_and_speeds_of_models_are_read_whole(qtbot) -> None:
    table = LibraryTable(LibraryModel())
    qtbot.addWidget(table)
    for column, words in (
        (0, "Qwen3-8B-Instruct-Q4_K_M  (loaded)"),
        (1, "Just fits, 123.4 GB"),
        (2, "≈ 5,600 tokens/s"),
    ):
        assert table.fontMetrics().horizontalAdvance(words) + 18 <= table.columnWidth(column)
