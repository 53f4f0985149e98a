"""Compiled kernels are kept where they can be, and never taken from somebody else's folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.backends.cpu.codegen import kernel_cache
from engine.platform import folders

_COMPILE = """
import json, sys
from engine.backends.cpu.backend import CpuBackend
from tests.engine.backends.kernel_oracles import Matrix
backend = CpuBackend(1)
table = backend.load_weight(Matrix("F32", (16, 16), 1))
events = list(backend.prepare(lambda ops: ops.linear(ops.last_rows(ops.embed(table)), table), "fp32"))
print(json.dumps([events[-1].done, events[-1].total, "numba.typed.typeddict" in sys.modules]))
"""


@pytest.mark.slow
def test_second_process_takes_kernels_from_disk(tmp_path: Path) -> None:
    """Nothing is compiled twice: the second process writes no new file, and does not get Numba's compiler
    ready.
    """
    environment = {**os.environ, "INGLENOOK_CACHE": str(tmp_path)}
    done, total, compiler = json.loads(
        subprocess.check_output([sys.executable, "-c", _COMPILE], env=environment)
    )
    assert done == total > 0
    assert compiler
    first = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert any(p.suffix == ".nbc" for p in first)
    again = json.loads(subprocess.check_output([sys.executable, "-c", _COMPILE], env=environment))
    assert again == [done, total, False]
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == first


def test_a_home_that_cannot_be_written_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("INGLENOOK_CACHE", str(blocked))
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = kernel_cache.cache_folder()
    assert folder is not None
    assert tmp_path in folder.parents
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(blocked))
    assert kernel_cache.cache_folder() is None


def test_a_foreign_folder_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGLENOOK_CACHE", str(tmp_path))
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(tmp_path / "other"))
    monkeypatch.setattr(folders.os, "getuid", lambda: 54321, raising=False)
    assert kernel_cache.cache_folder() is None


@pytest.mark.slow
def test_one_lost_kernel_is_compiled_beside_kept_ones(tmp_path: Path) -> None:
    """Compiling goes on from a process whose other functions came from the disk."""
    environment = {**os.environ, "INGLENOOK_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _COMPILE], env=environment, check=True, capture_output=True)
    lost = [p for p in tmp_path.rglob("*.nb?") if ".linear_" in p.name]
    assert len(lost) == 2
    for path in lost:
        path.unlink()
    done, total, compiler = json.loads(
        subprocess.check_output([sys.executable, "-c", _COMPILE], env=environment)
    )
    assert done == total > 0
    assert compiler
    assert all(path.exists() for path in lost)
