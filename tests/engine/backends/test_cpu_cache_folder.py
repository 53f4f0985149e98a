"""Compiled kernels are kept where they can be, and never taken from somebody else's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.backends.cpu import kernels

_COMPILE = """
import json, time
from engine.backends.cpu import CpuBackend
from tests.engine.backends.kernel_oracles import Matrix
start = time.perf_counter()
backend = CpuBackend(1)
table = backend.load_weight(Matrix("F32", (16, 16), 1))
events = list(backend.prepare(lambda ops: ops.linear(ops.last_rows(ops.embed(table)), table), "fp32"))
print(json.dumps([time.perf_counter() - start, len(events), events[-1].done, events[-1].total]))
"""


def test_second_process_takes_kernels_from_disk(tmp_path: Path) -> None:
    """Nothing is compiled twice: the second process writes no new file."""
    environment = {**os.environ, "INGLENOOK_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _COMPILE], env=environment, check=True, capture_output=True)
    first = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert any(p.suffix == ".nbc" for p in first)
    subprocess.run([sys.executable, "-c", _COMPILE], env=environment, check=True, capture_output=True)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == first


def test_a_home_that_cannot_be_written_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("INGLENOOK_CACHE", str(blocked))
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = kernels.cache_folder()
    assert folder is not None
    assert tmp_path in folder.parents
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: str(blocked))
    assert kernels.cache_folder() is None


def test_a_foreign_folder_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGLENOOK_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: str(tmp_path / "other"))
    monkeypatch.setattr(kernels.os, "getuid", lambda: 54321, raising=False)
    assert kernels.cache_folder() is None
