"""The copy of the tree and the virtual environment that a release is built from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable

from tests.release.plan import ROOT, Release, run

__all__ = ["copy_tree", "make_environment"]


_MADE = {".git", ".hypothesis", ".venv", "__pycache__", "build", "dist"}
"""Folders that are no part of the source."""


def copy_tree(release: Release) -> None:
    """Copy the files that git knows, or would add; nothing that it ignores."""
    shutil.rmtree(release.tree, ignore_errors=True)
    for name in sorted(_names()):
        if (ROOT / name).is_file():
            target = release.tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)


def _names() -> Iterable[str]:
    """The files of the source, relative to it; in a tree without git, such as an unpacked archive, all that
    are not made from others.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        return filter(None, listed.stdout.decode().split("\0"))
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            name for name in folders if name not in _MADE and not re.search(r"\.egg-info$|^\..*_cache$", name)
        ]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in files]
    return found


def make_environment(release: Release) -> None:
    """Make the environment, unless it is there: the pinned packages, without what they would add."""
    pinned = release.tree / "tests" / "release" / "requirements.txt"
    stamp = release.environment / "requirements.txt"
    if not stamp.is_file() or stamp.read_bytes() != pinned.read_bytes():
        shutil.rmtree(release.environment, ignore_errors=True)
        run([sys.executable, "-m", "venv", release.environment])
        run([release.python, "-m", "pip", "install", "--quiet", "--no-deps", "-r", pinned])
        shutil.copyfile(pinned, stamp)
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--force-reinstall"]
    run([release.python, "-m", "pip", *install, release.tree])
    for made in release.tree.glob("*.egg-info"):  # else it is taken for the installed program's metadata
        shutil.rmtree(made)
