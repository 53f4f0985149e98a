"""The dialog for replies side by side shows what it is given and answers with the same."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from desktop.services.session.several import ColumnSettings as Column
from desktop.views.comparison.dialog import CompareDialog, Offers, label_of

OFFERS = Offers(("Precise",), ((7, "Ada"),), (("/m/a.gguf", "a"),))


def test_settings_round_trip(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    given = [
        Column("Precise", 0.0, 7, 7, "/m/a.gguf"),
        Column("", 0.85, None, 0, ""),
        Column(),
        Column("gone", None, 0, 9, "/m/gone.gguf"),
    ]
    dialog = CompareDialog(OFFERS, given, "Why?", window)
    dialog.resize(300, 300)
    row = dialog.rows[0]
    assert all(
        field.minimumWidth() >= field.sizeHint().width() for field in (row.preset, row.seed, row.model)
    )
    found: list[list[Column]] = []
    dialog.chosen.connect(found.append)
    dialog.write.click()
    assert [replace(each, label="") for each in found[0]] == [*given[:3], Column("", None, 0)]
    assert [each.label for each in found[0]] == [
        "Ada, Precise, temperature 0, seed 7", "Temperature 0.85", "As in this chat", "Seed 0"
    ]  # fmt: skip
    assert label_of(given[0]) == "Precise, temperature 0, seed 7"  # without the names of personas
