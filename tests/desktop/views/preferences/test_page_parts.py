"""Parts of the Preferences' pages that are no settings: folders with models, and what finds passages."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QListWidget
from pytestqt.qtbot import QtBot

from desktop.items.models.local_models import ModelEntry
from desktop.services.composer.meaning import WORDS_ONLY
from desktop.views.preferences.model_folders import ModelFolders
from desktop.views.preferences.passage_model import PassageModel

pytestmark = pytest.mark.gui


def test_the_folder_that_takes_the_place_of_a_removed_one_is_selected(qtbot: QtBot) -> None:
    folders = ModelFolders()
    qtbot.addWidget(folders)
    folders.show_folders(["/a", "/b", "/c"])
    shown = folders.findChild(QListWidget)
    for left, selected in ((["/a", "/c"], "/c"), (["/a"], "/a"), ([], None)):
        shown.setCurrentRow(min(1, shown.count() - 1))
        folders.show_folders(left)
        assert (shown.currentItem().text() if shown.currentItem() else None) == selected
        assert folders.remove.isEnabled() == bool(left)


def test_the_model_that_finds_passages_is_shown_and_chosen(qtbot: QtBot) -> None:
    passages = PassageModel()
    qtbot.addWidget(passages)
    models = [ModelEntry(f"/models/{name}.gguf", name) for name in ("Small", "Large")]
    for choice, words in (
        ("", "Words and meaning (Small)"),
        (WORDS_ONLY, "Words only"),
        ("/models/Large.gguf", "Words and Large"),
        ("/models/gone.gguf", "Words and meaning (Small)"),
    ):
        passages.show_models(models, choice)
        assert passages.box.currentText() == words
    passages.show_models((), "")
    assert passages.box.currentText() == "Words and meaning, once there is an embedding model"
    passages.show_models(models, "")
    chosen: list[str] = []
    passages.chosen.connect(chosen.append)
    passages.box.setFocus()
    for _ in range(3):
        QTest.keyClick(passages.box, Qt.Key.Key_Down)
    assert chosen == [WORDS_ONLY, "/models/Small.gguf", "/models/Large.gguf"]
