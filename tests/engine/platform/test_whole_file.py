"""A file is written completely, or the old one stays."""

import os
from pathlib import Path

import pytest

from engine.platform.whole_file import write_whole


@pytest.mark.parametrize(("content", "written"), [("a\nä", "a\nä".encode()), (b"\x00\r\n", b"\x00\r\n")])
def test_text_and_bytes_replace_the_target_of_a_link(
    tmp_path: Path, content: str | bytes, written: bytes
) -> None:
    (tmp_path / "file").write_bytes(b"before")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", content, "\n")
    assert (tmp_path / "file").read_bytes() == written
    assert (tmp_path / "link").is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]


@pytest.mark.parametrize("synced", [True, False])
def test_only_synced_files_wait_for_the_disk(
    tmp_path: Path, synced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    write_whole(tmp_path / "file", b"words", synced=synced)
    assert len(calls) == synced


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "file", "\ud800")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "file", "after")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"before"
