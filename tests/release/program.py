"""The program's folder: PyInstaller's, stripped, with licences, and the same bytes each time."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

from engine.hub.updates.source import SOURCE_FILE
from engine.platform.levels import FOLDER
from tests.release.plan import LIST_NAME, Release, run

__all__ = ["forget_scripts", "forget_search_paths", "freeze", "libraries", "make_program", "normalise"]


def make_program(release: Release) -> None:
    """Build `release.program` with what packages bring: compiled kernels, a model, the address of updates."""
    freeze(release)
    forget_scripts(release.inside)
    resources = release.inside / "resources"
    run([release.python, "-m", "tests.release.kernels", resources / FOLDER], cwd=release.tree)
    if release.starter is not None:
        models = resources / "models"
        models.mkdir()
        shutil.copyfile(release.starter, models / release.starter.name)
    if release.site and release.update_key:
        source = {"url": f"{release.site}/{LIST_NAME}", "keys": [release.update_key]}
        content = json.dumps(source, indent=1) + "\n"
        (resources / SOURCE_FILE).write_text(content, encoding="utf-8")
    if sys.platform == "linux":
        _strip(release.program)
        forget_search_paths(release.program)


def freeze(release: Release) -> None:
    """Build `release.program` by PyInstaller alone; on Linux the second program is a link to the first."""
    shutil.rmtree(release.program.parent, ignore_errors=True)
    run(
        [
            release.python, "-m", "PyInstaller", "--noconfirm", "--clean",
            "--distpath", release.program.parent, "--workpath", release.work / "pyinstaller",
            release.tree / "tests" / "release" / "inglenook.spec",
        ],
        cwd=release.tree, PYTHONHASHSEED="1", SOURCE_DATE_EPOCH=str(release.epoch),
        INGLENOOK_VERSION=release.version, INGLENOOK_ICONS=str(release.share),
        INGLENOOK_SIGNER=release.signer,
        PYINSTALLER_CONFIG_DIR=str(release.work / "pyinstaller-cache"),
    )  # fmt: skip
    if sys.platform == "linux":
        (release.program / "inglenook-engine").symlink_to("inglenook")


def forget_scripts(inside: Path) -> None:
    """Take the scripts of packages out of their lists of files: they are not inside, and their hashes are
    others in each environment; and pip's note of the folder that this program was installed from.
    """
    for note in inside.glob("*.dist-info/direct_url.json"):
        note.unlink()
    for record in inside.glob("*.dist-info/RECORD"):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("../") and "/direct_url.json," not in line]
        record.write_text("".join(kept), encoding="utf-8")


def _strip(folder: Path) -> None:
    """Remove debugging symbols, a tenth of the size.

    The libraries beside NumPy's keep theirs: auditwheel has moved their parts, which strip does not expect.
    """
    for path in libraries(folder):
        if path.parent.name != "numpy.libs":
            run(["strip", "--strip-unneeded", path])


def forget_search_paths(folder: Path) -> None:
    """Let libraries look for others beside themselves and in the system's folders alone.

    A Python from elsewhere has the folder in it that it was installed to, which may be anybody's on another
    machine.
    """
    for path in libraries(folder):
        found = run(["patchelf", "--print-rpath", path]).strip().split(":")
        kept = [part for part in found if part.startswith("$ORIGIN")]
        if kept != found and any(found):
            run(["patchelf", *(["--set-rpath", ":".join(kept)] if kept else ["--remove-rpath"]), path])


def libraries(folder: Path) -> list[Path]:
    """The shared libraries below a folder, each once: a kernel's name may hold “.so” too."""
    return [
        path for path in sorted(folder.rglob("*.so*"))
        if re.search(r"\.so(\.\d+)*$", path.name) and path.is_file() and not path.is_symlink()
    ]  # fmt: skip


def normalise(folder: Path, epoch: int) -> None:
    """Give every file the same time and the permissions of all packages; links keep theirs on Windows, which
    cannot change it. What is loaded from `_internal` is no program: nobody may run it.
    """
    follow = os.utime not in os.supports_follow_symlinks
    for path in [folder, *sorted(folder.rglob("*"))]:
        if not path.is_symlink():
            loaded = "_internal" in path.relative_to(folder).parts
            program = path.stat().st_mode & 0o100 and not loaded
            path.chmod(0o755 if path.is_dir() or program else 0o644)
        if not (follow and path.is_symlink()):
            os.utime(path, (epoch, epoch), follow_symlinks=follow)
