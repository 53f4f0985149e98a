"""Where other programs keep their lists of tool servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from desktop.services.tools.usual_files import usual_files


@pytest.mark.parametrize(
    ("platform", "settings"),
    [("linux", ".config"), ("darwin", "Library/Application Support"), ("win32", "AppData/Roaming")],
)
def test_the_files_that_are_there_are_found(tmp_path: Path, platform: str, settings: str) -> None:
    assert usual_files(tmp_path, platform, {}) == ()
    places = {
        "Claude Desktop": tmp_path / settings / "Claude/claude_desktop_config.json",
        "Cursor": tmp_path / ".cursor/mcp.json",
        "LM Studio": tmp_path / ".lmstudio/mcp.json",
        "VS Code": tmp_path / settings / "Code/User/mcp.json",
    }
    for path in places.values():
        path.parent.mkdir(parents=True)
        path.touch()
    assert usual_files(tmp_path, platform, {}) == tuple(places.items())
    places["Cursor"].unlink()
    places["Cursor"].mkdir()
    assert [name for name, _path in usual_files(tmp_path, platform, {})] == [
        "Claude Desktop", "LM Studio", "VS Code",
    ]  # fmt: skip


@pytest.mark.parametrize(("platform", "variable"), [("linux", "XDG_CONFIG_HOME"), ("win32", "APPDATA")])
def test_the_folder_of_settings_may_be_elsewhere(tmp_path: Path, platform: str, variable: str) -> None:
    path = tmp_path / "else" / "Code" / "User" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.touch()
    assert usual_files(tmp_path, platform, {variable: str(tmp_path / "else")}) == (("VS Code", path),)
