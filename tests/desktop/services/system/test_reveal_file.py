"""Showing a file: the program that selects it on each system, and the fallback."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QProcess

from desktop.services.system.reveal_file import FileShower, show_command

NAME = 'a "strange" $(name); &.gguf'


def test_programs_get_the_path_as_one_argument(tmp_path: Path) -> None:
    path = tmp_path / NAME
    assert show_command(path, "darwin") == ("/usr/bin/open", ["-R", str(path)])
    program, arguments = show_command(path, "win32") or ("", [])
    assert program.endswith("explorer.exe")
    assert arguments == ["/select,", str(path)]
    assert show_command(path, "linux") is None


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(
        "desktop.services.system.reveal_file.QDesktopServices.openUrl",
        lambda url: found.append(url.toLocalFile()) or True,
    )
    return found


def test_without_a_file_manager_the_folder_is_opened(
    qapp: Any, tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(FileShower, "_ask_file_manager", lambda self, path: False)
    reported: list[str] = []
    shower = FileShower(reported.append)
    (tmp_path / NAME).touch()
    shower.show(tmp_path / NAME)
    shower.show(tmp_path)
    assert opened == [str(tmp_path), str(tmp_path)]
    monkeypatch.setattr("desktop.services.system.reveal_file.QDesktopServices.openUrl", lambda url: False)
    shower.show(tmp_path / NAME)
    assert reported == [f"No file manager opened {tmp_path}."]


@pytest.mark.parametrize("started", [True, False])
def test_a_program_that_does_not_start(
    qapp: Any, tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    calls: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        "desktop.services.system.reveal_file.show_command", lambda path: ("selector", [str(path)])
    )
    monkeypatch.setattr(
        QProcess,
        "startDetached",
        lambda program, arguments: (calls.append((program, arguments)) or started, 1),
    )
    FileShower([].append).show(tmp_path / NAME)
    assert calls == [("selector", [str(tmp_path / NAME)])]
    assert opened == ([] if started else [str(tmp_path)])
