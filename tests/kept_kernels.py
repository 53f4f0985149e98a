"""Compiled kernels that outlive a run of the tests, since compiling them takes minutes of processor time.

They are taken over only while all of the engine's sources stay the same: no test runs code of other sources.
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import shutil
from importlib import metadata
from pathlib import Path

from filelock import FileLock

__all__ = ["keep_kernels", "kernels_name", "take_kernels"]

_KINDS = ("kernels-*", "sampling-*")
"""Folders of the program's cache with code that Numba has made; all else in it is each run's own."""
_MOST = 8
"""States of the sources whose kernels are kept, a few megabytes each."""
_LOCK = "lock"


def kernels_name(root: Path) -> str:
    """A name for all that compiled kernels may depend on: the engine in `root`, its compiler, this Python."""
    digest = hashlib.sha256()
    for source in sorted((root / "engine").rglob("*.py")):
        digest.update(source.read_bytes())
    versions = [metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    digest.update("\0".join([platform.python_version(), *versions]).encode())
    return digest.hexdigest()[:16]


def take_kernels(kept: Path, cache: Path) -> None:
    """Copy what an earlier run kept, if it did, to the program's cache, which does not exist yet."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(kept.parent / _LOCK):
        if kept.is_dir():
            os.utime(kept)
            shutil.copytree(kept, cache)


def keep_kernels(cache: Path, kept: Path) -> None:
    """Add the kernels in the program's cache to those that are kept; kernels of older sources are removed.

    A function's code is kept as one: its files are numbered in the order in which this run compiled them, and
    its index, without which they are not found, says which is which.
    """
    with FileLock(kept.parent / _LOCK):
        for index in (file for kind in _KINDS for file in cache.glob(f"{kind}/**/*.nbi")):
            place = kept / index.relative_to(cache)
            if place.exists() and place.read_bytes() == index.read_bytes():
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            for code in index.parent.glob(f"{glob.escape(index.stem)}.*.nbc"):
                shutil.copyfile(code, place.with_name(code.name))
            part = place.with_suffix(".part")
            shutil.copyfile(index, part)
            part.replace(place)
        states = sorted((each for each in kept.parent.iterdir() if each.is_dir()), key=os.path.getmtime)
        for old in states[:-_MOST]:
            shutil.rmtree(old, ignore_errors=True)
