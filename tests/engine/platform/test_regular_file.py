"""What is not a regular file is refused before it is opened."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from engine.platform.regular_file import regular_file


def test_a_regular_file_and_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert regular_file(tmp_path / "file").st_size == 5
    with pytest.raises(IsADirectoryError):
        regular_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        regular_file(tmp_path / "gone")
    for name in ("n" * 300, "a\0b"):
        with pytest.raises(OSError, match=r"."):
            regular_file(tmp_path / name)


@pytest.mark.skipif(sys.platform == "win32", reason="files of POSIX systems")
def test_pipes_sockets_devices_and_links_in_a_circle(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to itself").symlink_to(tmp_path / "to itself")
    with socket.socket(socket.AF_UNIX) as heard:
        heard.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero"), tmp_path / "to itself"):
            with pytest.raises(OSError, match=r"."):
                regular_file(path)
