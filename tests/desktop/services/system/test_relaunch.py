"""The program starts again as a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from desktop.menu_entry.starting import Starting
from desktop.services.system import relaunch as relaunch_module
from desktop.services.system.relaunch import relaunch

pytestmark = pytest.mark.gui


def test_a_new_process_starts_in_its_folder(qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = "import sys; open('started', 'w').write(sys.argv[1])"
    start = Starting((sys.executable, "-c", write, "an argument"), str(tmp_path))
    monkeypatch.setattr(relaunch_module, "starting", lambda: start)
    assert relaunch() is True
    started = tmp_path / "started"
    qtbot.waitUntil(lambda: started.exists() and started.read_text("utf-8") == "an argument")


def test_a_program_that_is_gone_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Starting((str(tmp_path / "gone"),), str(tmp_path))
    monkeypatch.setattr(relaunch_module, "starting", lambda: start)
    assert relaunch() is False
