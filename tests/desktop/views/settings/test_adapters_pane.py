"""The adapters pane: buttons add folders and files, which apply once the engine can read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PySide6.QtWidgets import QFileDialog

from desktop.services.settings.validation import CHECKS
from desktop.views.settings.folder_list_editor import FolderListEditor
from desktop.views.settings.form import SettingsForm
from engine.settings import AdapterSettings
from tests.engine.models.lora.lora_files import write_gguf_adapter
from tests.engine.models.lora.test_lora import write_adapter
from tests.tiny import write_gguf

PAIRS = {"blk.0.attn_v.weight": (np.ones((2, 96), np.float32), np.ones((64, 2), np.float32))}
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
    button = editor.add
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


def test_the_other_button_adds_a_file(qtbot, tmp_path: Path) -> None:
    """A GGUF file, before which there may be a folder."""
    form = SettingsForm(AdapterSettings)
    qtbot.addWidget(form)
    editor = form.editor("adapters")
    assert isinstance(editor, FolderListEditor)
    editor.set_value(("/models/pirate",))
    assert editor.add_file.accessibleName() not in ("", editor.add.accessibleName())
    file = write_gguf_adapter(tmp_path / "pirate.gguf", PAIRS)
    editor.add_file.click()
    dialog = editor.findChild(QFileDialog)
    assert dialog.fileMode() == QFileDialog.FileMode.ExistingFile
    assert "*.gguf" in dialog.nameFilters()[0]
    dialog.filesSelected.emit([str(file)])
    dialog.reject()
    assert editor.value() == ("/models/pirate", str(file))


def test_what_the_check_says(tmp_path: Path) -> None:
    """Nothing about a good adapter; one sentence about a missing folder or an invalid strength."""
    check = CHECKS["adapters"]
    good = str(write_adapter(tmp_path / "a"))
    file = str(write_gguf_adapter(tmp_path / "a.gguf", PAIRS))
    assert check(good, "", f"{good} = 0.5", f"{file} = 0.5") == ""
    assert "holds no LoRA adapter" in check(str(write_gguf(tmp_path / "m.gguf")))
    (tmp_path / "empty").mkdir()
    assert "adapter_config.json" in check(str(tmp_path / "empty"))
    assert "strength" in check(f"{good} = much")
