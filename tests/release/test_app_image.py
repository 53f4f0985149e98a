"""The AppImage's first part: it unpacks what follows it, mounts it where it may, and starts it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.release.app_image import make_image, make_runtime
from tests.release.program import normalise

NEEDED = ("gcc", "mksquashfs")
HEADER = Path("/usr/include/squashfuse/ll.h")
SCRIPT = '#!/bin/sh\necho "$APPDIR|$APPIMAGE|$0|$*"\ncat "$APPDIR/deep/er/text"\nexit 7\n'


@pytest.fixture(scope="module")
def runtime(tmp_path_factory) -> Path:
    if not HEADER.is_file() or not all(map(shutil.which, NEEDED)):
        pytest.skip("what AppImages are made with is not installed")
    return make_runtime(tmp_path_factory.mktemp("runtime") / "runtime")


@pytest.fixture
def image(tmp_path, runtime) -> Path:
    root = tmp_path / "AppDir"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "text").write_text("é" * 700_000, encoding="utf-8")  # several blocks and a rest
    (root / "empty").write_text("", encoding="utf-8")
    (root / "bin").mkdir()
    (root / "bin" / "run").write_text(SCRIPT, encoding="utf-8")
    (root / "bin" / "run").chmod(0o755)
    (root / "AppRun").symlink_to("bin/run")
    normalise(root, 1_700_000_000)
    return make_image(root, runtime, tmp_path / "x.AppImage", 1_700_000_000)


def started(image: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("APP")}
    return subprocess.run(
        [image, *words], cwd=image.parent, env={**kept, **environ}, capture_output=True, text=True,
        timeout=60, umask=0o022,  # a window that ran in this process before has set its own
    )  # fmt: skip


def test_it_is_known_as_an_app_image_and_has_the_same_bytes_each_time(image, tmp_path, runtime) -> None:
    content = image.read_bytes()
    assert content[:4] == b"\x7fELF"
    assert content[8:11] == b"AI\x02"
    offset = int(started(image, "--appimage-offset").stdout)
    assert offset == runtime.stat().st_size
    assert content[offset : offset + 4] == b"hsqs"
    again = make_image(tmp_path / "AppDir", runtime, tmp_path / "again.AppImage", 1_700_000_000)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(content).digest()
    assert not list(tmp_path.glob("*.squashfs"))


def test_it_unpacks_all_files_links_and_permissions(image, tmp_path) -> None:
    for _ in range(2):  # a second time replaces them
        assert started(image, "--appimage-extract").returncode == 0
    root = tmp_path / "squashfs-root"
    assert (root / "deep" / "er" / "text").read_text(encoding="utf-8") == "é" * 700_000
    assert (root / "empty").stat().st_size == 0
    assert os.readlink(root / "AppRun") == "bin/run"
    assert (root / "bin" / "run").stat().st_mode & 0o777 == 0o755
    assert (root / "deep" / "er" / "text").stat().st_mode & 0o777 == 0o644


def test_a_file_that_cannot_be_written_is_named(image, tmp_path) -> None:
    (tmp_path / "squashfs-root" / "empty").mkdir(parents=True)
    done = started(image, "--appimage-extract")
    assert done.returncode == 127
    assert "cannot unpack empty: Is a directory" in done.stderr


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_unpacked_it_runs_with_its_arguments_and_leaves_nothing(image, tmp_path, way) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ("--appimage-extract-and-run",) if way == "argument" else ()
    environ = {"APPIMAGE_EXTRACT_AND_RUN": "1"} if way == "variable" else {}
    done = started(image, *words, "--data", "two words", TMPDIR=str(temporary), **environ)
    assert done.returncode == 7
    first, _, rest = done.stdout.partition("\n")
    folder, file, program, arguments = first.split("|")
    assert Path(folder).parent == temporary
    assert (file, program) == (str(image), f"{folder}/AppRun")
    assert arguments == "--data two words"
    assert rest == "é" * 700_000
    assert list(temporary.iterdir()) == []


def test_mounted_or_not_it_runs_and_leaves_nothing(image, tmp_path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = started(image, "x", TMPDIR=str(temporary))
    assert done.returncode == 7
    assert done.stdout.partition("\n")[0].endswith("|x")
    assert done.stdout.endswith("é")
    if "cannot be mounted" in done.stderr:
        assert list(temporary.iterdir()) == []


def test_a_cut_off_file_says_that_it_cannot_be_read(image, tmp_path, runtime) -> None:
    cut = tmp_path / "cut.AppImage"
    cut.write_bytes(image.read_bytes()[: runtime.stat().st_size + 50])
    cut.chmod(0o755)
    done = started(cut, "--appimage-extract-and-run", TMPDIR=str(tmp_path))
    assert done.returncode == 127
    assert done.stderr
    assert not list(tmp_path.glob("inglenook-unpacked*"))
