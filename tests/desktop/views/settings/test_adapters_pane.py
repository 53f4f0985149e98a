"""The adapters pane: a button adds folders, which apply once the engine can read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QPushButton

from desktop.services.settings.validation import CHECKS
from desktop.views.settings.folder_list_editor import FolderListEditor
from desktop.views.settings.form import SettingsForm
from engine.settings import AdapterSettings
from tests.engine.models.test_lora import write_adapter

pytestmark = pytest.mark.gui


def test_the_button_adds_a_folder(qtbot, tmp_path: Path) -> None:
    """At the end of the list; a dialog that is left adds nothing. Backslashes are part of a path."""
    form = SettingsForm(AdapterSettings)
    qtbot.addWidget(form)
    editor = form.editor("adapters")
    assert isinstance(editor, FolderListEditor)
    editor.set_value((r"C:\new\thing = 0.5",))
    reported: list[object] = []
    editor.edited.connect(reported.append)
    button = editor.findChild(QPushButton)
    assert button is not None
    assert button.accessibleName()
    pirate = tmp_path / "pirate"
    pirate.mkdir()
    button.click()
    dialog = editor.findChild(QFileDialog)
    dialog.reject()
    button.click()
    dialog = next(found for found in editor.findChildren(QFileDialog) if found.isVisible())
    dialog.filesSelected.emit([str(pirate)])
    dialog.reject()
    assert reported == [(r"C:\new\thing = 0.5", str(pirate))]
    assert editor.value() == reported[0]


def test_what_the_check_says(tmp_path: Path) -> None:
    """Nothing about a good adapter; one sentence about a missing folder or an invalid strength."""
    check = CHECKS["adapters"]
    good = str(write_adapter(tmp_path / "a"))
    assert check(good, "", f"{good} = 0.5") == ""
    assert "adapter_config.json" in check(str(tmp_path))
    assert "strength" in check(f"{good} = much")
