"""Where the program lies, and the portable data folder beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import platformdirs
import pytest

from engine.platform.folders import cache_dir, data_dir
from engine.platform.program import portable_folder


@pytest.fixture(autouse=True)
def no_variables(monkeypatch) -> None:
    for name in ("INGLENOOK_DATA", "INGLENOOK_CACHE", "APPIMAGE", "APPDIR"):
        monkeypatch.delenv(name, raising=False)


def packaged(monkeypatch, program: Path) -> None:
    program.parent.mkdir(parents=True)
    program.write_bytes(b"")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(program))


def test_data_lies_beside_a_packaged_program_only_if_its_folder_was_created(tmp_path, monkeypatch) -> None:
    packaged(monkeypatch, tmp_path / "program" / "inglenook")
    usual = platformdirs.user_data_path("inglenook", appauthor=False)
    assert portable_folder() is None
    assert data_dir() == usual
    folder = tmp_path / "program" / "inglenook-data"
    folder.write_bytes(b"")  # a file is no folder
    assert data_dir() == usual
    folder.unlink()
    folder.mkdir()
    assert portable_folder() == data_dir() == folder
    assert cache_dir() == folder / "cache"
    monkeypatch.setattr(sys, "frozen", False)
    assert data_dir() == usual
    assert cache_dir() == platformdirs.user_cache_path("inglenook", appauthor=False)


def test_named_folders_stand_above_the_portable_one(tmp_path, monkeypatch) -> None:
    packaged(monkeypatch, tmp_path / "program" / "inglenook")
    (tmp_path / "program" / "inglenook-data").mkdir()
    monkeypatch.setenv("INGLENOOK_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("INGLENOOK_CACHE", str(tmp_path / "cache"))
    assert (data_dir(), cache_dir()) == (tmp_path / "data", tmp_path / "cache")


def test_it_lies_beside_the_link_s_target_the_app_image_and_the_application(tmp_path, monkeypatch) -> None:
    packaged(monkeypatch, tmp_path / "program" / "inglenook")
    (tmp_path / "program" / "inglenook-data").mkdir()
    link = tmp_path / "bin"
    link.symlink_to(tmp_path / "program" / "inglenook")
    monkeypatch.setattr(sys, "executable", str(link))
    assert portable_folder() == tmp_path / "program" / "inglenook-data"

    packaged(monkeypatch, tmp_path / "mount" / "usr" / "inglenook")
    (tmp_path / "stick").mkdir()
    image = tmp_path / "stick" / "Inglenook.AppImage"
    image.write_bytes(b"")
    monkeypatch.setenv("APPIMAGE", str(image))
    monkeypatch.setenv("APPDIR", str(tmp_path / "mount"))
    (tmp_path / "mount" / "usr" / "inglenook-data").mkdir()
    assert portable_folder() is None
    (tmp_path / "stick" / "inglenook-data").mkdir()
    assert portable_folder() == tmp_path / "stick" / "inglenook-data"

    packaged(monkeypatch, tmp_path / "mac" / "Inglenook.app" / "Contents" / "MacOS" / "inglenook")
    monkeypatch.delenv("APPIMAGE")
    (tmp_path / "mac" / "inglenook-data").mkdir()
    assert portable_folder() == tmp_path / "mac" / "inglenook-data"
